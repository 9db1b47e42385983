#include "common/text/chat/model_chat.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "common/text/chat/chat_template_files.h"
#include "common/text/chat/messages.h"
#include "common/text/encoding_memory.h"
#include "common/text/jinja/json_value.h"
#include "common/text/jinja/template.h"

namespace foretoken {
namespace {

absl::StatusOr<jinja::Variables> ParseVariables(absl::string_view json) {
  jinja::Variables variables;
  if (json.empty()) return variables;
  const auto parsed = jinja::ParseJsonValue(json, jinja::Origin::kRequest);
  if (!parsed.ok()) {
    return Annotate(parsed.status(), "variables of the chat template");
  }
  if (parsed->Is(jinja::Value::Kind::kNone)) return variables;
  if (!parsed->Is(jinja::Value::Kind::kDict)) {
    return absl::InvalidArgumentError(
        "variables of the chat template: want an object");
  }
  variables.reserve(parsed->dict().entries().size());
  for (const auto& [key, value] : parsed->dict().entries()) {
    variables.emplace_back(key.text().bytes(), value);
  }
  return variables;
}

// Granite's templates have no other variable than `thinking`, which is a common
// word, too: only a condition reads it.
absl::string_view ThinkingVariableOf(absl::string_view source) {
  constexpr absl::string_view kCommon = "enable_thinking";
  constexpr absl::string_view kOther = "thinking";
  if (absl::StrContains(source, kCommon)) return kCommon;
  for (const char* before : {"if ", "not "}) {
    const std::string read = absl::StrCat(before, kOther);
    for (size_t at = source.find(read); at != absl::string_view::npos;
         at = source.find(read, at + 1)) {
      const absl::string_view rest = source.substr(at + read.size());
      if (absl::StartsWith(rest, " ") || absl::StartsWith(rest, "%") ||
          absl::StartsWith(rest, "-")) {
        return kOther;
      }
    }
  }
  return "";
}

ChatTokens TokensOf(const Tokenizer& tokenizer) {
  const auto text = [&](TokenId id) {
    return id < 0 ? std::string()
                  : std::string(tokenizer.vocabulary().content(id));
  };
  return {text(tokenizer.bos_token()), text(tokenizer.eos_token())};
}

}  // namespace

absl::StatusOr<ModelChat::Parsed> ModelChat::Parse(const std::string& source,
                                                   const ChatTokens& tokens) {
  FORETOKEN_ASSIGN_OR_RETURN(ChatTemplate chat,
                             ChatTemplate::Parse(source, tokens));
  return Parsed{std::move(chat), absl::StrContains(source, "developer")};
}

void ModelChat::SetForms(absl::string_view source) {
  form_ = ToolCallFormOf(source);
  wrapper_ = ToolCallWrapperOf(form_, source);
  if (!thinking_.has_value()) thinking_ = ThinkingTagsOf(source);
  reads_reasoning_effort_ |= absl::StrContains(source, "reasoning_effort");
  if (thinking_variable_.empty()) {
    thinking_variable_ = ThinkingVariableOf(source);
  }
}

absl::Status ModelChat::SetTemplates(const std::string* plain,
                                     const std::string* with_tools,
                                     const ChatTokens& tokens) {
  // The form of the tool calls follows from the template that writes them, the
  // one for tools if there are two. A model thinks if either knows thinking.
  if (plain != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(default_, Parse(*plain, tokens));
    SetForms(*plain);
  }
  if (with_tools != nullptr && with_tools != plain) {
    FORETOKEN_ASSIGN_OR_RETURN(tool_use_, Parse(*with_tools, tokens));
    SetForms(*with_tools);
  }
  controls_ = FindControls(*tokenizer_, ToolCallControls(form_));
  if (thinking_.has_value()) {
    thinking_controls_ =
        FindControls(*tokenizer_, {thinking_->open, thinking_->close});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ModelChat>> ModelChat::Load(
    const std::string& model, const std::string& template_file) {
  FORETOKEN_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::LoadShared(model));
  std::unique_ptr<ModelChat> chat(new ModelChat(std::move(tokenizer)));
  FORETOKEN_ASSIGN_OR_RETURN(const ChatTemplateSources found,
                             FindChatTemplates(model));
  if (!template_file.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const std::string source,
        ReadFile(template_file, jinja::Template::kMaxSourceBytes));
    FORETOKEN_RETURN_IF_ERROR(Annotate(
        chat->SetTemplates(&source, nullptr, found.tokens), template_file));
    return chat;
  }
  FORETOKEN_RETURN_IF_ERROR(Annotate(
      chat->SetTemplates(found.Choose(false), found.Choose(true), found.tokens),
      model));
  return chat;
}

absl::StatusOr<std::unique_ptr<ModelChat>> ModelChat::Create(
    std::shared_ptr<const Tokenizer> tokenizer, absl::string_view source) {
  const ChatTokens tokens = TokensOf(*tokenizer);
  std::unique_ptr<ModelChat> chat(new ModelChat(std::move(tokenizer)));
  const std::string text(source);
  FORETOKEN_RETURN_IF_ERROR(chat->SetTemplates(&text, nullptr, tokens));
  return chat;
}

absl::StatusOr<std::vector<PromptSpan>> ModelChat::Render(
    const ChatRequest& request, absl::Time now,
    const jinja::ReserveMemory& reserve,
    const jinja::MayGoOn& may_go_on) const {
  const int64_t values = ValueBytes(request.messages) +
                         ValueBytes(request.tools) +
                         ValueBytes(request.variables);
  // Pay before parsing: the values take many times the request's bytes.
  if (reserve != nullptr) FORETOKEN_RETURN_IF_ERROR(reserve(values));
  ChatPrompt prompt;
  FORETOKEN_ASSIGN_OR_RETURN(prompt.tools, ParseTools(request.tools));
  const bool has_tools = !prompt.tools.Is(jinja::Value::Kind::kNone);
  const std::optional<Parsed>& chosen =
      has_tools && tool_use_.has_value() ? tool_use_ : default_;
  if (!chosen.has_value()) {
    return absl::FailedPreconditionError("the model has no chat template");
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      prompt.messages,
      NormalizeMessages(request.messages,
                        {.developer_as_system = !chosen->knows_developer}));
  FORETOKEN_ASSIGN_OR_RETURN(prompt.variables,
                             ParseVariables(request.variables));
  prompt.add_generation_prompt = request.add_generation_prompt;
  prompt.now = now;
  if (reserve == nullptr) {
    return chosen->chat.Render(prompt, nullptr, may_go_on);
  }
  // The renderer knows of its own memory only; what the values take stays
  // reserved besides it.
  return chosen->chat.Render(
      prompt, [&](int64_t bytes) { return reserve(values + bytes); },
      may_go_on);
}

absl::StatusOr<std::vector<TokenId>> ModelChat::Encode(
    const ChatRequest& request, absl::Time now,
    const jinja::ReserveMemory& reserve, const jinja::MayGoOn& may_go_on,
    ThinkingStage* thinking) const {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<PromptSpan> spans,
                             Render(request, now, reserve, may_go_on));
  if (thinking != nullptr) {
    *thinking = thinking_.has_value() && request.add_generation_prompt
                    ? StageAfter(spans, *thinking_)
                    : ThinkingStage::kBefore;
  }
  // Encoding is not interruptible: ask once more before it.
  if (may_go_on != nullptr) FORETOKEN_RETURN_IF_ERROR(may_go_on());
  if (reserve != nullptr) {
    int64_t bytes = 0;
    for (const PromptSpan& span : spans) {
      bytes += static_cast<int64_t>(sizeof(span) + span.text.size());
    }
    // The spans, joined, and what encoding them takes.
    FORETOKEN_RETURN_IF_ERROR(reserve(bytes * (2 + kEncodingBytesPerTextByte)));
  }
  return tokenizer_->EncodeSpans(spans);
}

}  // namespace foretoken
