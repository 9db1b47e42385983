#include "common/text/tokenizer_config.h"

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

absl::Status WrongType(const std::string& path, const char* field,
                       const Json& value, const char* want) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", field, ": ", DumpJson(value), ", want ", want));
}

absl::Status ReadBool(const std::string& path, const Json& config,
                      const char* field, std::optional<bool>& out) {
  const auto value = config.find(field);
  if (value == config.end() || value->is_null()) return absl::OkStatus();
  if (!value->is_boolean()) {
    return WrongType(path, field, *value, "true or false");
  }
  out = value->get<bool>();
  return absl::OkStatus();
}

// A token is given as a string, or as an object with the string in `content`.
absl::Status ReadToken(const std::string& path, const Json& config,
                       const char* field, std::optional<std::string>& out) {
  const auto value = config.find(field);
  if (value == config.end() || value->is_null()) return absl::OkStatus();
  const Json* content = &*value;
  if (value->is_object() && value->contains("content")) {
    content = &value->at("content");
  }
  if (!content->is_string()) return WrongType(path, field, *value, "a token");
  out = content->get<std::string>();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(path));
  if (!config.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": want a JSON object"));
  }
  TokenizerConfig result;
  FORETOKEN_RETURN_IF_ERROR(
      ReadBool(path, config, "add_bos_token", result.add_bos_token));
  FORETOKEN_RETURN_IF_ERROR(
      ReadBool(path, config, "add_eos_token", result.add_eos_token));
  FORETOKEN_RETURN_IF_ERROR(
      ReadToken(path, config, "bos_token", result.bos_token));
  FORETOKEN_RETURN_IF_ERROR(
      ReadToken(path, config, "eos_token", result.eos_token));
  // One template, or a list of them by name.
  const auto chat = config.find("chat_template");
  if (chat != config.end() && chat->is_string()) {
    result.chat_template = chat->get<std::string>();
  } else if (chat != config.end() && chat->is_array()) {
    for (const Json& entry : *chat) {
      if (entry.is_object() && entry.value("name", Json()) == "default" &&
          entry.value("template", Json()).is_string()) {
        result.chat_template = entry.at("template").get<std::string>();
      }
    }
  }
  return result;
}

}  // namespace foretoken
