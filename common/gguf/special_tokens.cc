#include "common/gguf/special_tokens.h"

#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// llama.cpp gives models of type "llama" (SentencePiece) BOS 1 and EOS 2 where
// the file names none.
absl::StatusOr<std::optional<int64_t>> TokenOrDefault(
    const GgufMetadata& metadata, const char* key, int64_t fallback,
    int64_t vocab_size) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> named,
                             metadata.Integer(key, 0, vocab_size - 1));
  if (named) return named;
  const GgufValue* model = metadata.Find("tokenizer.ggml.model");
  const GgufValue* tokens = metadata.Find("tokenizer.ggml.tokens");
  const bool has_default =
      model != nullptr && model->type == GgufType::kString &&
      model->bytes == "llama" && tokens != nullptr && tokens->is_array() &&
      tokens->count > static_cast<uint64_t>(fallback) && fallback < vocab_size;
  return has_default ? std::optional<int64_t>(fallback) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> GgufBosToken(
    const GgufMetadata& metadata, int64_t vocab_size) {
  return TokenOrDefault(metadata, kGgufBosKey, 1, vocab_size);
}

absl::StatusOr<std::optional<int64_t>> GgufEosToken(
    const GgufMetadata& metadata, int64_t vocab_size) {
  return TokenOrDefault(metadata, kGgufEosKey, 2, vocab_size);
}

}  // namespace foretoken
