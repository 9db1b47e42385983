#include "common/text/sentencepiece_model.h"

#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

// A field of another wire type than the schema's is an error: real protobuf
// parsers would drop it silently, and the default would change the ids.
absl::Status WantType(const WireField& field, WireField::Type type,
                      absl::string_view name) {
  if (field.type == type) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": wire type ", static_cast<int>(field.type),
                   ", want ", static_cast<int>(type)));
}

absl::Status ReadBool(const WireField& field, absl::string_view name,
                      bool& out) {
  out = field.integer != 0;
  return WantType(field, WireField::kVarint, name);
}

absl::Status ReadBytes(const WireField& field, absl::string_view name,
                       std::string& out) {
  out = std::string(field.bytes);
  return WantType(field, WireField::kBytes, name);
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
  // NaN has no place in the order of merges.
  if (std::isnan(piece.score)) {
    return absl::InvalidArgumentError("score: not a number");
  }
  // SentencePiece splits unused pieces again after merging, which is not
  // implemented here.
  if (piece.type == PieceType::kUnused) {
    return absl::InvalidArgumentError("type: UNUSED is not supported");
  }
  if (piece.type == PieceType::kByte && ByteOfPiece(piece.text) < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "piece: \"", piece.text, "\" has type BYTE, want <0x00>..<0xFF>"));
  }
  return absl::OkStatus();
}

// The numbers of the fields are those of sentencepiece_model.proto, here and
// below. Fields that do not affect encoding (training settings, extensions) are
// skipped.
absl::StatusOr<Piece> ParsePiece(absl::string_view bytes) {
  Piece piece;
  const auto read = [&](const WireField& field) -> absl::Status {
    switch (field.number) {
      case 1:
        return ReadBytes(field, "piece", piece.text);
      case 2:
        piece.score = field.AsFloat();
        return WantType(field, WireField::kFixed32, "score");
      case 3:
        FORETOKEN_RETURN_IF_ERROR(WantType(field, WireField::kVarint, "type"));
        if (field.integer < 1 || field.integer > 6) {
          return absl::InvalidArgumentError(
              absl::StrCat("type: ", field.integer, ", want 1..6"));
        }
        piece.type = static_cast<PieceType>(field.integer);
        return absl::OkStatus();
      default:
        return absl::OkStatus();
    }
  };
  FORETOKEN_RETURN_IF_ERROR(ForEachField(bytes, read));
  return piece;
}

absl::Status ParseTrainerSpec(absl::string_view bytes, uint64_t& model_type,
                              SentencePieceModel& model) {
  bool whitespace_as_suffix = false;
  const auto read = [&](const WireField& field) -> absl::Status {
    switch (field.number) {
      case 3:
        model_type = field.integer;
        return WantType(field, WireField::kVarint, "model_type");
      case 24:
        return ReadBool(field, "treat_whitespace_as_suffix",
                        whitespace_as_suffix);
      case 35:
        return ReadBool(field, "byte_fallback", model.byte_fallback);
      case 44:
        return ReadBytes(field, "unk_surface", model.unk_surface);
      case 46:
        return ReadBytes(field, "bos_piece", model.bos_piece);
      case 47:
        return ReadBytes(field, "eos_piece", model.eos_piece);
      default:
        return absl::OkStatus();
    }
  };
  FORETOKEN_RETURN_IF_ERROR(ForEachField(bytes, read));
  if (!whitespace_as_suffix) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "treat_whitespace_as_suffix: true is not supported");
}

absl::Status ParseNormalizerSpec(absl::string_view bytes,
                                 SentencePieceModel& model) {
  return ForEachField(bytes, [&](const WireField& field) -> absl::Status {
    switch (field.number) {
      case 2:
        return ReadBytes(field, "precompiled_charsmap",
                         model.precompiled_charsmap);
      case 3:
        return ReadBool(field, "add_dummy_prefix", model.add_dummy_prefix);
      case 4:
        return ReadBool(field, "remove_extra_whitespaces",
                        model.remove_extra_whitespaces);
      case 5:
        return ReadBool(field, "escape_whitespaces", model.escape_whitespaces);
      default:
        return absl::OkStatus();
    }
  });
}

// Model files may carry an empty denormalizer_spec; only one with a table would
// change decoding.
absl::Status RefuseDenormalizer(absl::string_view bytes) {
  SentencePieceModel ignored;
  FORETOKEN_RETURN_IF_ERROR(ParseNormalizerSpec(bytes, ignored));
  if (ignored.precompiled_charsmap.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "precompiled_charsmap: ", ignored.precompiled_charsmap.size(),
      " bytes; a denormalizer is not supported"));
}

absl::Status ParsePart(const WireField& field, uint64_t& model_type,
                       SentencePieceModel& model) {
  switch (field.number) {
    // Bounded here, while parsing: a large file may hold hundreds of millions
    // of empty pieces.
    case 1: {
      if (model.pieces.size() == static_cast<size_t>(Vocabulary::kMaxSize)) {
        return absl::InvalidArgumentError("more pieces than supported");
      }
      FORETOKEN_ASSIGN_OR_RETURN(Piece piece, ParsePiece(field.bytes));
      model.pieces.push_back(std::move(piece));
      return absl::OkStatus();
    }
    case 2:
      return ParseTrainerSpec(field.bytes, model_type, model);
    case 3:
      return ParseNormalizerSpec(field.bytes, model);
    case 5:
      return RefuseDenormalizer(field.bytes);
    default:
      return absl::OkStatus();
  }
}

}  // namespace

std::string BytePiece(int byte) { return absl::StrFormat("<0x%02X>", byte); }

// Exactly the form that BytePiece writes: <0x0a> and <0xA> are ordinary text.
int ByteOfPiece(absl::string_view text) {
  int value = 0;
  if (text.size() != 6 || !absl::SimpleHexAtoi(text.substr(3, 2), &value)) {
    return -1;
  }
  return text == BytePiece(value) ? value : -1;
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
  // Characters without a piece need one id, and only one.
  if (unknown_pieces != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pieces: ", unknown_pieces, " have type UNKNOWN, want exactly one"));
  }
  // The encoder writes any byte without a further check.
  for (int byte = 0; model.byte_fallback && byte < 256; ++byte) {
    if (!has_byte[byte]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "trainer_spec.byte_fallback: true, but there is no piece ",
          BytePiece(byte)));
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
  // proto2's default, which is not written to files.
  uint64_t model_type = kModelTypeDefault;
  constexpr const char* kParts[] = {"trainer_spec", "normalizer_spec",
                                    "self_test_data", "denormalizer_spec"};
  const auto read = [&](const WireField& field) -> absl::Status {
    if (field.number < 1 || field.number > 5) return absl::OkStatus();
    const std::string name =
        field.number == 1 ? absl::StrCat("pieces[", model.pieces.size(), "]")
                          : kParts[field.number - 2];
    FORETOKEN_RETURN_IF_ERROR(WantType(field, WireField::kBytes, name));
    return Annotate(ParsePart(field, model_type, model), name);
  };
  FORETOKEN_RETURN_IF_ERROR(ForEachField(bytes, read));
  if (model.pieces.empty()) {
    return absl::InvalidArgumentError(
        "pieces: none; not a SentencePiece model");
  }
  if (model_type != kModelTypeBpe) {
    constexpr const char* kTypes[] = {"unknown", "UNIGRAM", "BPE", "WORD",
                                      "CHAR"};
    return absl::InvalidArgumentError(
        absl::StrCat("trainer_spec.model_type: ", model_type, " (",
                     kTypes[model_type < std::size(kTypes) ? model_type : 0],
                     ") is not supported, want 2 (BPE)"));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckSentencePieceModel(model));
  return model;
}

}  // namespace foretoken
