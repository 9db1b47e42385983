// Prompt settings of a model directory, besides the vocabulary itself.
#ifndef FORETOKEN_COMMON_TEXT_TOKENIZER_CONFIG_H_
#define FORETOKEN_COMMON_TEXT_TOKENIZER_CONFIG_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/fim_tokens.h"

namespace foretoken {

// Fields of tokenizer_config.json; nullopt if missing or null.
struct TokenizerConfig {
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::optional<std::string> bos_token;  // the token's text
  std::optional<std::string> eos_token;
  std::optional<std::string> chat_template;  // of several, the one "default"
  // The others of several: name and template.
  std::vector<std::pair<std::string, std::string>> more_chat_templates;
  // Those that a GGUF file names by id; no field of tokenizer_config.json.
  FimTokens fim;
};

// InvalidArgument names file, field and value for a field of the wrong type.
absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& path);

// The settings of a model directory: its tokenizer_config.json, if there is
// one. Templates in files of their own (chat_template.jinja, the default, and
// additional_chat_templates/NAME.jinja) replace all templates there.
// InvalidArgument for more than 64 such files.
absl::StatusOr<TokenizerConfig> ReadModelTokenizerConfig(
    const std::string& directory);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_TOKENIZER_CONFIG_H_
