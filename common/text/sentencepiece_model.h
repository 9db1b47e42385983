// A SentencePiece model file (tokenizer.model), read as data.
//
// The file is a protocol-buffer message, ModelProto of SentencePiece's
// sentencepiece_model.proto; this reader knows the wire format and the fields
// that matter for BPE. The library itself cannot be used: it aborts in a
// process that also has libprotobuf.
//
// Source: Kudo and Richardson, arXiv:1808.06226.
#ifndef FORETOKEN_COMMON_TEXT_SENTENCEPIECE_MODEL_H_
#define FORETOKEN_COMMON_TEXT_SENTENCEPIECE_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken {

struct SentencePieceModel {
  // The values of the file.
  enum class PieceType : uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
  };
  struct Piece {
    std::string text;  // valid UTF-8, not empty, kSpaceSymbol for spaces
    float score = 0;
    PieceType type = PieceType::kNormal;
  };

  std::vector<Piece> pieces;  // by id
  // trainer_spec
  bool byte_fallback = false;
  std::string unk_surface = " \xE2\x81\x87 ";
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  // normalizer_spec
  std::string precompiled_charsmap;  // empty: identity
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// InvalidArgument for bytes that are no such message, and, naming field and
// value, for models that Foretoken does not run: types other than BPE, pieces
// without text or twice the same, unused pieces, whitespace as suffix, a
// denormalizer, no or several unknown pieces, missing byte pieces.
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    absl::string_view bytes);

// The value of a byte piece's text, "<0x0A>"; -1 if it is none.
int ByteOfPiece(absl::string_view text);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_SENTENCEPIECE_MODEL_H_
