// Converts the tokenizer file of a llama2.c checkpoint.
//
// Layout (little-endian): int32 length of the longest token; then, for every
// id, a float32 score, an int32 length and the token's bytes. Token kinds are
// implicit: 0 is the unknown token, 1 BOS, 2 EOS, and 3..258 are the byte
// tokens <0x00>..<0xFF>.
//
// Source: github.com/karpathy/llama2.c, tokenizer.py and run.c.
#ifndef FORETOKEN_COMMON_TEXT_LLAMA2C_TOKENIZER_H_
#define FORETOKEN_COMMON_TEXT_LLAMA2C_TOKENIZER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/sentencepiece_model.h"

namespace foretoken {

// `bytes`: the .bin file. `vocab_size`: from the checkpoint, because the file
// does not store it. The model encodes as run.c does: dummy prefix space, no
// other changes of whitespace, merges by score, byte fallback. InvalidArgument
// names the token at which the file is truncated or malformed.
absl::StatusOr<SentencePieceModel> ParseLlama2cTokenizer(
    absl::string_view bytes, int32_t vocab_size);

// Serialises to the tokenizer.model format that Tokenizer::Load (and
// SentencePiece) reads.
std::string SerializeSentencePieceModel(const SentencePieceModel& model);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_LLAMA2C_TOKENIZER_H_
