// Prompt settings of a model directory, beside the vocabulary itself.
#ifndef FORETOKEN_COMMON_TEXT_TOKENIZER_CONFIG_H_
#define FORETOKEN_COMMON_TEXT_TOKENIZER_CONFIG_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace foretoken {

// Fields of tokenizer_config.json; nullopt if missing or null.
struct TokenizerConfig {
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::optional<std::string> bos_token;  // the token's text
  std::optional<std::string> eos_token;
  std::optional<std::string> chat_template;  // of several, the one "default"
};

// InvalidArgument names file, field and value for a field of the wrong type.
absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& path);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_TOKENIZER_CONFIG_H_
