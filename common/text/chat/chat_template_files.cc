#include "common/text/chat/chat_template_files.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf.h"
#include "common/gguf/gguf_files.h"
#include "common/gguf/special_tokens.h"
#include "common/text/tokenizer_config.h"
#include "common/text/vocabulary.h"

namespace foretoken {
namespace {

constexpr char kDefault[] = "default";
constexpr char kGgufTemplate[] = "tokenizer.chat_template";
constexpr char kGgufTokens[] = "tokenizer.ggml.tokens";

absl::StatusOr<std::string> GgufTokenText(
    const std::vector<absl::string_view>& tokens,
    const absl::StatusOr<std::optional<int64_t>>& id) {
  if (!id.ok()) return id.status();
  return id->has_value() ? std::string(tokens[**id]) : std::string();
}

absl::StatusOr<ChatTemplateSources> FromGguf(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const MappedFile map, MappedFile::Open(path));
  FORETOKEN_ASSIGN_OR_RETURN(const Gguf gguf, ParseGguf(map.bytes(), path));
  const GgufMetadata& metadata = gguf.metadata;
  ChatTemplateSources found;
  FORETOKEN_ASSIGN_OR_RETURN(const auto chat, metadata.String(kGgufTemplate));
  if (chat.has_value()) found.templates.emplace_back(kDefault, *chat);
  // Others are keys of their own: tokenizer.chat_template.tool_use.
  for (const auto& [key, value] : metadata.values()) {
    absl::string_view name = key;
    if (!absl::ConsumePrefix(&name, absl::StrCat(kGgufTemplate, "."))) continue;
    FORETOKEN_ASSIGN_OR_RETURN(const auto source, metadata.String(key));
    found.templates.emplace_back(name, *source);
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto tokens, metadata.Strings(kGgufTokens, Vocabulary::kMaxSize));
  if (!tokens.has_value()) return found;
  const int64_t size = static_cast<int64_t>(tokens->size());
  FORETOKEN_ASSIGN_OR_RETURN(
      found.tokens.bos, GgufTokenText(*tokens, GgufBosToken(metadata, size)));
  FORETOKEN_ASSIGN_OR_RETURN(
      found.tokens.eos, GgufTokenText(*tokens, GgufEosToken(metadata, size)));
  return found;
}

}  // namespace

const std::string* ChatTemplateSources::Choose(bool has_tools) const {
  const std::string* chosen = nullptr;
  for (const auto& [name, source] : templates) {
    if (has_tools && name == "tool_use") return &source;
    if (name == kDefault) chosen = &source;
  }
  // A single template serves every request, whatever its name.
  if (chosen == nullptr && templates.size() == 1) {
    chosen = &templates.front().second;
  }
  return chosen;
}

absl::StatusOr<ChatTemplateSources> FindChatTemplates(const std::string& path) {
  if (IsGgufFile(path)) return FromGguf(path);
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": want a model directory or a GGUF file"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(TokenizerConfig config,
                             ReadModelTokenizerConfig(path));
  ChatTemplateSources found;
  if (config.chat_template.has_value()) {
    found.templates.emplace_back(kDefault, *std::move(config.chat_template));
  }
  for (auto& named : config.more_chat_templates) {
    found.templates.push_back(std::move(named));
  }
  found.tokens = {config.bos_token.value_or(""), config.eos_token.value_or("")};
  return found;
}

}  // namespace foretoken
