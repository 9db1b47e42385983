#include "common/text/tokenizer_config.h"

#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"

namespace foretoken {
namespace {

absl::Status ReadBool(const Json& config, const char* field,
                      std::optional<bool>& out) {
  const Json value = config.value(field, Json());
  if (value.is_null()) return absl::OkStatus();
  if (!value.is_boolean()) return BadField(field, value, "true or false");
  out = value.get<bool>();
  return absl::OkStatus();
}

// A token is given as a string, or as an object with the string in `content`.
absl::Status ReadToken(const Json& config, const char* field,
                       std::optional<std::string>& out) {
  const Json value = config.value(field, Json());
  if (value.is_null()) return absl::OkStatus();
  const Json content =
      value.is_object() ? value.value("content", Json()) : value;
  if (!content.is_string()) return BadField(field, value, "a token");
  out = content.get<std::string>();
  return absl::OkStatus();
}

// One template, or a list of them by name.
std::optional<std::string> ChatTemplate(const Json& config) {
  const Json chat = config.value("chat_template", Json());
  if (chat.is_string()) return chat.get<std::string>();
  std::optional<std::string> found;
  for (const Json& entry : chat.is_array() ? chat : Json::array()) {
    if (entry.is_object() && entry.value("name", Json()) == "default" &&
        entry.value("template", Json()).is_string()) {
      found = entry.at("template").get<std::string>();
    }
  }
  return found;
}

absl::Status Read(const Json& config, TokenizerConfig& result) {
  if (!config.is_object()) {
    return absl::InvalidArgumentError("want a JSON object");
  }
  FORETOKEN_RETURN_IF_ERROR(
      ReadBool(config, "add_bos_token", result.add_bos_token));
  FORETOKEN_RETURN_IF_ERROR(
      ReadBool(config, "add_eos_token", result.add_eos_token));
  FORETOKEN_RETURN_IF_ERROR(ReadToken(config, "bos_token", result.bos_token));
  FORETOKEN_RETURN_IF_ERROR(ReadToken(config, "eos_token", result.eos_token));
  result.chat_template = ChatTemplate(config);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(path));
  TokenizerConfig result;
  FORETOKEN_RETURN_IF_ERROR(Annotate(Read(config, result), path));
  return result;
}

}  // namespace foretoken
