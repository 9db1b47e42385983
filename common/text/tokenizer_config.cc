#include "common/text/tokenizer_config.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"

namespace foretoken {
namespace {

// Templates may have this size; the longest published ones have about 20 KiB.
constexpr uint64_t kMaxTemplateBytes = 1 << 20;
constexpr size_t kMaxTemplateFiles = 64;

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

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
// Entries that are malformed are skipped: a model without a usable template
// still completes texts.
void ReadChatTemplates(const Json& config, TokenizerConfig& result) {
  const Json chat = config.value("chat_template", Json());
  if (chat.is_string()) result.chat_template = chat.get<std::string>();
  for (const Json& entry : chat.is_array() ? chat : Json::array()) {
    if (!entry.is_object() || !entry.value("name", Json()).is_string() ||
        !entry.value("template", Json()).is_string()) {
      continue;
    }
    const auto name = entry.at("name").get<std::string>();
    auto source = entry.at("template").get<std::string>();
    if (name == "default") {
      result.chat_template = std::move(source);
    } else {
      result.more_chat_templates.emplace_back(name, std::move(source));
    }
  }
}

using NamedTemplates = std::vector<std::pair<std::string, std::string>>;

// Reads NAME.jinja of a directory, which may be missing, in the order of names.
absl::StatusOr<NamedTemplates> ReadMoreTemplates(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(directory, ignored), end;
       it != end; it.increment(ignored)) {
    if (it->path().extension() != ".jinja") continue;
    if (files.size() == kMaxTemplateFiles) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory, ": more than ", kMaxTemplateFiles, " templates"));
    }
    files.push_back(it->path());
  }
  // Directory order is arbitrary; sorted, the choice is the same everywhere.
  std::sort(files.begin(), files.end());
  NamedTemplates templates;
  for (const std::filesystem::path& file : files) {
    FORETOKEN_ASSIGN_OR_RETURN(std::string source,
                               ReadFile(file.string(), kMaxTemplateBytes));
    templates.emplace_back(file.stem().string(), std::move(source));
  }
  return templates;
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
  ReadChatTemplates(config, result);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerConfig> ReadTokenizerConfig(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(path));
  TokenizerConfig result;
  FORETOKEN_RETURN_IF_ERROR(Annotate(Read(config, result), path));
  return result;
}

absl::StatusOr<TokenizerConfig> ReadModelTokenizerConfig(
    const std::string& directory) {
  TokenizerConfig config;
  const std::string json = absl::StrCat(directory, "/tokenizer_config.json");
  if (IsFile(json)) {
    FORETOKEN_ASSIGN_OR_RETURN(config, ReadTokenizerConfig(json));
  }
  const std::string jinja = absl::StrCat(directory, "/chat_template.jinja");
  FORETOKEN_ASSIGN_OR_RETURN(
      NamedTemplates more,
      ReadMoreTemplates(absl::StrCat(directory, "/additional_chat_templates")));
  // Files replace the templates of the configuration as a whole, as in
  // transformers, which writes one form or the other.
  if (IsFile(jinja) || !more.empty()) {
    config.chat_template.reset();
    config.more_chat_templates = std::move(more);
  }
  if (IsFile(jinja)) {
    FORETOKEN_ASSIGN_OR_RETURN(config.chat_template,
                               ReadFile(jinja, kMaxTemplateBytes));
  }
  return config;
}

}  // namespace foretoken
