#include "common/text/sentencepiece_model.h"

#include <array>
#include <cmath>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/protobuf_wire.h"
#include "common/text/utf8.h"
#include "common/text/vocabulary.h"

namespace foretoken {
namespace {

using Piece = SentencePieceModel::Piece;
using PieceType = SentencePieceModel::PieceType;

// With longer pieces, building the table of merges would be quadratic in the
// size of the file.
constexpr size_t kMaxPieceBytes = 1024;
constexpr uint64_t kModelTypeBpe = 2;
constexpr uint64_t kModelTypeDefault = 1;  // unigram, if the field is missing

absl::Status WantType(const WireField& field, WireField::Type type,
                      absl::string_view name) {
  if (field.type == type) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": wire type ", static_cast<int>(field.type),
                   ", want ", static_cast<int>(type)));
}

absl::Status CheckPiece(const Piece& piece) {
  if (piece.text.empty() || piece.text.size() > kMaxPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "piece: ", piece.text.size(), " bytes, want 1..", kMaxPieceBytes));
  }
  // The encoder walks pieces character by character.
  if (!IsValidUtf8(piece.text)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "piece: \"", absl::CHexEscape(piece.text), "\" is not UTF-8"));
  }
  if (std::isnan(piece.score)) {
    return absl::InvalidArgumentError("score: not a number");
  }
  if (piece.type == PieceType::kUnused) {
    return absl::InvalidArgumentError("type: UNUSED is not supported");
  }
  if (piece.type == PieceType::kByte && ByteOfPiece(piece.text) < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "piece: \"", piece.text, "\" has type BYTE, want <0x00>..<0xFF>"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Piece> ParsePiece(absl::string_view bytes) {
  Piece piece;
  WireReader reader(bytes);
  WireField field;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, reader.Next(field));
    if (!more) break;
    // Field numbers of sentencepiece_model.proto: 1 piece, 2 score, 3 type.
    if (field.number == 1) {
      FORETOKEN_RETURN_IF_ERROR(WantType(field, WireField::kBytes, "piece"));
      piece.text = std::string(field.bytes);
    } else if (field.number == 2) {
      FORETOKEN_RETURN_IF_ERROR(WantType(field, WireField::kFixed32, "score"));
      piece.score = field.AsFloat();
    } else if (field.number == 3) {
      FORETOKEN_RETURN_IF_ERROR(WantType(field, WireField::kVarint, "type"));
      if (field.integer < 1 || field.integer > 6) {
        return absl::InvalidArgumentError(
            absl::StrCat("type: ", field.integer, ", want 1..6"));
      }
      piece.type = static_cast<PieceType>(field.integer);
    }
  }
  return piece;
}

absl::Status ParseTrainerSpec(absl::string_view bytes, uint64_t& model_type,
                              SentencePieceModel& model) {
  WireReader reader(bytes);
  WireField field;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, reader.Next(field));
    if (!more) return absl::OkStatus();
    // Fields that do not affect encoding (training settings) are skipped.
    switch (field.number) {
      case 3:
        FORETOKEN_RETURN_IF_ERROR(
            WantType(field, WireField::kVarint, "model_type"));
        model_type = field.integer;
        break;
      case 24:
        FORETOKEN_RETURN_IF_ERROR(
            WantType(field, WireField::kVarint, "treat_whitespace_as_suffix"));
        if (field.integer != 0) {
          return absl::InvalidArgumentError(
              "treat_whitespace_as_suffix: true is not supported");
        }
        break;
      case 35:
        FORETOKEN_RETURN_IF_ERROR(
            WantType(field, WireField::kVarint, "byte_fallback"));
        model.byte_fallback = field.integer != 0;
        break;
      case 44:
        FORETOKEN_RETURN_IF_ERROR(
            WantType(field, WireField::kBytes, "unk_surface"));
        model.unk_surface = std::string(field.bytes);
        break;
      case 46:
        FORETOKEN_RETURN_IF_ERROR(
            WantType(field, WireField::kBytes, "bos_piece"));
        model.bos_piece = std::string(field.bytes);
        break;
      case 47:
        FORETOKEN_RETURN_IF_ERROR(
            WantType(field, WireField::kBytes, "eos_piece"));
        model.eos_piece = std::string(field.bytes);
        break;
      default:
        break;
    }
  }
}

absl::Status ParseNormalizerSpec(absl::string_view bytes,
                                 SentencePieceModel& model) {
  WireReader reader(bytes);
  WireField field;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, reader.Next(field));
    if (!more) return absl::OkStatus();
    bool* flag = nullptr;
    switch (field.number) {
      case 2:
        FORETOKEN_RETURN_IF_ERROR(
            WantType(field, WireField::kBytes, "precompiled_charsmap"));
        model.precompiled_charsmap = std::string(field.bytes);
        break;
      case 3:
        flag = &model.add_dummy_prefix;
        break;
      case 4:
        flag = &model.remove_extra_whitespaces;
        break;
      case 5:
        flag = &model.escape_whitespaces;
        break;
      default:
        break;
    }
    if (flag != nullptr) {
      FORETOKEN_RETURN_IF_ERROR(WantType(field, WireField::kVarint,
                                         absl::StrCat("field ", field.number)));
      *flag = field.integer != 0;
    }
  }
}

// Model files may carry an empty denormalizer_spec; only a table matters.
absl::Status RefuseDenormalizer(absl::string_view bytes) {
  SentencePieceModel ignored;
  FORETOKEN_RETURN_IF_ERROR(ParseNormalizerSpec(bytes, ignored));
  if (ignored.precompiled_charsmap.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "precompiled_charsmap: ", ignored.precompiled_charsmap.size(),
      " bytes; a denormalizer is not supported"));
}

absl::string_view ModelTypeName(uint64_t type) {
  switch (type) {
    case 1:
      return "UNIGRAM";
    case 3:
      return "WORD";
    case 4:
      return "CHAR";
    default:
      return "unknown";
  }
}

}  // namespace

int ByteOfPiece(absl::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') {
    return -1;
  }
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      value = 16 * value + (c - '0');
    } else if (c >= 'A' && c <= 'F') {
      value = 16 * value + (c - 'A' + 10);
    } else {
      return -1;
    }
  }
  return value;
}

absl::Status CheckSentencePieceModel(const SentencePieceModel& model) {
  absl::flat_hash_set<absl::string_view> seen;
  std::array<bool, 256> has_byte{};
  int unknown_pieces = 0;
  int byte_pieces = 0;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(CheckPiece(piece), absl::StrCat("pieces[", id, "]")));
    if (!seen.insert(piece.text).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pieces[", id, "].piece: \"", piece.text, "\" is a duplicate"));
    }
    if (piece.type == PieceType::kUnknown) ++unknown_pieces;
    if (piece.type == PieceType::kByte) {
      has_byte[ByteOfPiece(piece.text)] = true;
      ++byte_pieces;
    }
  }
  if (unknown_pieces != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pieces: ", unknown_pieces, " have type UNKNOWN, want exactly one"));
  }
  for (int byte = 0; model.byte_fallback && byte < 256; ++byte) {
    if (!has_byte[byte]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "trainer_spec.byte_fallback: true, but there is no piece <0x",
          absl::Hex(byte, absl::kZeroPad2), ">"));
    }
  }
  if (!model.byte_fallback && byte_pieces > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer_spec.byte_fallback: false, but ", byte_pieces,
                     " pieces have type BYTE"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    absl::string_view bytes) {
  SentencePieceModel model;
  uint64_t model_type = kModelTypeDefault;
  WireReader reader(bytes);
  WireField field;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, reader.Next(field));
    if (!more) break;
    if (field.number < 1 || field.number > 5) continue;  // extensions
    const std::string name =
        field.number == 1   ? absl::StrCat("pieces[", model.pieces.size(), "]")
        : field.number == 2 ? "trainer_spec"
        : field.number == 3 ? "normalizer_spec"
        : field.number == 4 ? "self_test_data"
                            : "denormalizer_spec";
    FORETOKEN_RETURN_IF_ERROR(WantType(field, WireField::kBytes, name));
    if (field.number == 1) {
      if (model.pieces.size() == static_cast<size_t>(Vocabulary::kMaxSize)) {
        return absl::InvalidArgumentError(
            absl::StrCat("pieces: more than ", Vocabulary::kMaxSize));
      }
      absl::StatusOr<Piece> piece = ParsePiece(field.bytes);
      if (!piece.ok()) return Annotate(piece.status(), name);
      model.pieces.push_back(*std::move(piece));
    } else if (field.number == 2) {
      FORETOKEN_RETURN_IF_ERROR(
          Annotate(ParseTrainerSpec(field.bytes, model_type, model), name));
    } else if (field.number == 3) {
      FORETOKEN_RETURN_IF_ERROR(
          Annotate(ParseNormalizerSpec(field.bytes, model), name));
    } else if (field.number == 5) {
      FORETOKEN_RETURN_IF_ERROR(
          Annotate(RefuseDenormalizer(field.bytes), name));
    }
  }
  if (model.pieces.empty()) {
    return absl::InvalidArgumentError(
        "pieces: none; not a SentencePiece model");
  }
  if (model_type != kModelTypeBpe) {
    return absl::InvalidArgumentError(absl::StrCat(
        "trainer_spec.model_type: ", model_type, " (",
        ModelTypeName(model_type), ") is not supported, want 2 (BPE)"));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckSentencePieceModel(model));
  return model;
}

}  // namespace foretoken
