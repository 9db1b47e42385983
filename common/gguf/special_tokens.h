// The BOS and EOS tokens of a GGUF vocabulary, for the tokenizer and for the
// model, which must agree on where a text ends.
//
// A file with SentencePiece pieces (tokenizer.ggml.model is "llama") need not
// name them: llama.cpp then takes 1 and 2, as SentencePiece trains them.
//
// Source: llama.cpp, llama-vocab.cpp (llama_vocab::impl::load). Pure functions;
// thread-safe.
#ifndef FORETOKEN_COMMON_GGUF_SPECIAL_TOKENS_H_
#define FORETOKEN_COMMON_GGUF_SPECIAL_TOKENS_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_metadata.h"

namespace foretoken {

inline constexpr char kGgufBosKey[] = "tokenizer.ggml.bos_token_id";
inline constexpr char kGgufEosKey[] = "tokenizer.ggml.eos_token_id";

// The key's id or the default, if the vocabulary has a token of that id;
// nothing where there is neither. InvalidArgument for a key that is not an id
// below `vocab_size`.
absl::StatusOr<std::optional<int64_t>> GgufBosToken(
    const GgufMetadata& metadata, int64_t vocab_size);
absl::StatusOr<std::optional<int64_t>> GgufEosToken(
    const GgufMetadata& metadata, int64_t vocab_size);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GGUF_SPECIAL_TOKENS_H_
