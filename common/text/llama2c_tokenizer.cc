#include "common/text/llama2c_tokenizer.h"

#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/bytes.h"
#include "common/base/status_macros.h"
#include "common/text/protobuf_wire.h"
#include "common/text/utf8.h"
#include "common/text/vocabulary.h"

namespace foretoken {
namespace {

// Fixed ids of a llama2.c tokenizer (tokenizer.py).
using PieceType = SentencePieceModel::PieceType;

constexpr int32_t kUnknown = 0;
constexpr int32_t kBos = 1;
constexpr int32_t kEos = 2;
constexpr int32_t kFirstByte = 3;
constexpr int32_t kFirstText = kFirstByte + 256;
// Far above the longest token of any such file: a corrupt length is recognised
// rather than allocated.
constexpr uint32_t kMaxTokenBytes = 1024;

absl::Status TakeWord(absl::string_view& bytes, uint32_t& word) {
  if (bytes.size() < sizeof word) {
    return absl::InvalidArgumentError("truncated");
  }
  word = static_cast<uint32_t>(
      FromLittleEndian(AsBytes(bytes.substr(0, sizeof word))));
  bytes.remove_prefix(sizeof word);
  return absl::OkStatus();
}

absl::StatusOr<SentencePieceModel::Piece> TakePiece(absl::string_view& bytes,
                                                    int32_t id) {
  uint32_t score_bits = 0;
  uint32_t length = 0;
  FORETOKEN_RETURN_IF_ERROR(TakeWord(bytes, score_bits));
  FORETOKEN_RETURN_IF_ERROR(TakeWord(bytes, length));
  if (length > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("length ", length, ", want 0..", kMaxTokenBytes));
  }
  if (length > bytes.size()) {
    return absl::InvalidArgumentError("truncated");
  }
  const absl::string_view text = bytes.substr(0, length);
  bytes.remove_prefix(length);

  SentencePieceModel::Piece piece;
  piece.score = std::bit_cast<float>(score_bits);
  if (id == kUnknown || id == kBos || id == kEos) {
    // The file has these names between line ends, or empty; run.c knows them by
    // id.
    constexpr const char* kNames[] = {"<unk>", "<s>", "</s>"};
    piece.text = kNames[id];
    piece.type = id == kUnknown ? PieceType::kUnknown : PieceType::kControl;
    piece.score = 0;
  } else if (id < kFirstText) {
    piece.text = BytePiece(id - kFirstByte);
    piece.type = PieceType::kByte;
    if (text != piece.text) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", text, "\", want the byte token ", piece.text));
    }
  } else {
    // llama2.c writes a blank where SentencePiece writes U+2581.
    piece.text = absl::StrReplaceAll(text, {{" ", kSpaceSymbol}});
    if (piece.text.empty() || !IsValidUtf8(piece.text) ||
        std::isnan(piece.score)) {
      return absl::InvalidArgumentError(
          "want a score and non-empty UTF-8 text");
    }
  }
  return piece;
}

// Writers of the protocol-buffer wire format, as in protobuf_wire.h.
void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) {
    out.push_back(static_cast<char>(0x80 | (value & 0x7F)));
  }
  out.push_back(static_cast<char>(value));
}

void AppendInteger(uint32_t field, uint64_t value, std::string& out) {
  AppendVarint(field << 3 | WireField::kVarint, out);
  AppendVarint(value, out);
}

void AppendBytes(uint32_t field, absl::string_view bytes, std::string& out) {
  AppendVarint(field << 3 | WireField::kBytes, out);
  AppendVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}

void AppendFloat(uint32_t field, float value, std::string& out) {
  AppendVarint(field << 3 | WireField::kFixed32, out);
  AppendLittleEndian(std::bit_cast<uint32_t>(value), out);
}

}  // namespace

absl::StatusOr<SentencePieceModel> ParseLlama2cTokenizer(
    absl::string_view bytes, int32_t vocab_size) {
  if (vocab_size < kFirstText || vocab_size > Vocabulary::kMaxSize) {
    return absl::InvalidArgumentError(absl::StrCat("vocab_size: ", vocab_size,
                                                   ", want ", kFirstText, "..",
                                                   Vocabulary::kMaxSize));
  }
  uint32_t longest = 0;
  FORETOKEN_RETURN_IF_ERROR(
      Annotate(TakeWord(bytes, longest), "longest token"));
  SentencePieceModel model;
  // run.c falls back to bytes, keeps all white space, and decodes the unknown
  // token to nothing.
  model.byte_fallback = true;
  model.remove_extra_whitespaces = false;
  model.unk_surface = "";
  for (int32_t id = 0; id < vocab_size; ++id) {
    absl::StatusOr<SentencePieceModel::Piece> piece = TakePiece(bytes, id);
    if (!piece.ok()) {
      return Annotate(piece.status(), absl::StrCat("token ", id));
    }
    model.pieces.push_back(*std::move(piece));
  }
  // Bytes left over mean that vocab_size belongs to another checkpoint.
  if (!bytes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes after token ", vocab_size - 1));
  }
  return model;
}

std::string SerializeSentencePieceModel(const SentencePieceModel& model) {
  std::string out;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    // Field numbers of SentencePiece's sentencepiece_model.proto, here and
    // below.
    std::string message;
    AppendBytes(1, piece.text, message);
    AppendFloat(2, piece.score, message);
    AppendInteger(3, static_cast<uint64_t>(piece.type), message);
    AppendBytes(1, message, out);
  }
  std::string trainer;
  AppendInteger(3, 2, trainer);  // model_type BPE
  AppendInteger(4, model.pieces.size(), trainer);
  AppendInteger(35, model.byte_fallback, trainer);
  AppendBytes(44, model.unk_surface, trainer);
  AppendBytes(46, model.bos_piece, trainer);
  AppendBytes(47, model.eos_piece, trainer);
  AppendBytes(2, trainer, out);
  std::string normalizer;
  AppendBytes(1, model.precompiled_charsmap.empty() ? "identity" : "custom",
              normalizer);
  AppendBytes(2, model.precompiled_charsmap, normalizer);
  AppendInteger(3, model.add_dummy_prefix, normalizer);
  AppendInteger(4, model.remove_extra_whitespaces, normalizer);
  AppendInteger(5, model.escape_whitespaces, normalizer);
  AppendBytes(3, normalizer, out);
  return out;
}

}  // namespace foretoken
