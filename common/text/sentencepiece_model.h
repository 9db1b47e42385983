// SentencePieceModel: the contents of a tokenizer.model file.
//
// The file is a protocol-buffer message, ModelProto of SentencePiece's
// sentencepiece_model.proto. The reader handles the wire format itself and the
// fields that matter for BPE. The SentencePiece library cannot be linked: it
// aborts in a process that also contains libprotobuf.
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
  // Values as in the file.
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
  // Control pieces in a text are tokens, as they are in a tokenizer.json; a
  // tokenizer.model treats them as plain text.
  bool control_pieces_in_text = false;
};

// InvalidArgument for bytes that are not such a message and, naming field and
// value, for unsupported models: types other than BPE, whitespace as a suffix,
// a denormalizer, and what CheckSentencePieceModel refuses.
absl::StatusOr<SentencePieceModel> ParseSentencePieceModel(
    absl::string_view bytes);

// InvalidArgument, naming field and value, for empty, malformed or duplicate
// pieces, unused pieces, zero or several unknown pieces, missing byte pieces.
absl::Status CheckSentencePieceModel(const SentencePieceModel& model);

// The piece that stands for a byte, such as "<0x0A>", and the byte that a piece
// stands for; -1 if it is not a byte piece.
std::string BytePiece(int byte);
int ByteOfPiece(absl::string_view text);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_SENTENCEPIECE_MODEL_H_
