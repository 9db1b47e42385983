#include "common/text/chat/chat_template.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

using jinja::Value;

// Roles that templates turn into control tokens, as in '<|' + role + '|>'. A
// role comes with the request, whose text may not spell control tokens, so the
// known ones are marked as the template's.
constexpr absl::string_view kRoles[] = {"system", "user",      "assistant",
                                        "tool",   "developer", "function"};
// Set by Render: a request may not replace them.
constexpr absl::string_view kOwnVariables[] = {
    "messages",  "tools",    "documents", "add_generation_prompt",
    "bos_token", "eos_token"};

bool IsOneOf(absl::Span<const absl::string_view> names,
             absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The message with a known role marked as text of the template. Unknown roles
// stay the request's.
absl::StatusOr<Value> WithTrustedRole(const Value& message) {
  if (!message.Is(Value::Kind::kDict)) return message;
  const Value* const role = message.dict().Find("role");
  if (role == nullptr || !role->IsString() ||
      !IsOneOf(kRoles, role->text().bytes())) {
    return message;
  }
  jinja::Dict trusted = message.dict();
  FORETOKEN_RETURN_IF_ERROR(
      trusted.Set(Value::String("role"), Value::String(role->text().bytes())));
  return Value::Of(std::make_shared<const jinja::Dict>(std::move(trusted)));
}

absl::StatusOr<Value> WithTrustedRoles(const Value& messages) {
  if (!messages.Is(Value::Kind::kList)) {
    return absl::InvalidArgumentError("messages: want a list");
  }
  jinja::Values trusted;
  for (const Value& message : messages.list().items()) {
    FORETOKEN_ASSIGN_OR_RETURN(Value copy, WithTrustedRole(message));
    trusted.push_back(std::move(copy));
  }
  return Value::Of(std::make_shared<const jinja::List>(std::move(trusted)));
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(absl::string_view source,
                                                 ChatTokens tokens,
                                                 const jinja::Limits& limits) {
  auto parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return Annotate(parsed.status(), "chat template");
  return ChatTemplate(*std::move(parsed), std::move(tokens), limits);
}

absl::StatusOr<std::vector<PromptSpan>> ChatTemplate::Render(
    const ChatPrompt& prompt, const jinja::ReserveMemory& reserve,
    const jinja::MayGoOn& may_go_on) const {
  if (prompt.variables.size() > kMaxVariables) {
    return absl::InvalidArgumentError(absl::StrCat(
        prompt.variables.size(), " variables for the template, want at most ",
        kMaxVariables));
  }
  FORETOKEN_ASSIGN_OR_RETURN(Value messages, WithTrustedRoles(prompt.messages));
  jinja::Variables variables = {
      {"messages", std::move(messages)},
      {"tools", prompt.tools},
      {"documents", prompt.documents},
      {"add_generation_prompt", Value::Bool(prompt.add_generation_prompt)},
      {"bos_token", Value::String(tokens_.bos)},
      {"eos_token", Value::String(tokens_.eos)}};
  for (const auto& variable : prompt.variables) {
    if (IsOneOf(kOwnVariables, variable.first)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the template's variable ", variable.first, " may not be set"));
    }
    variables.push_back(variable);
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const jinja::Text text,
      template_.Render(variables,
                       {limits_, prompt.now, prompt.zone, reserve, may_go_on}));
  std::vector<PromptSpan> spans;
  size_t begin = 0;
  // A span per run of one origin: the tokenizer finds control tokens only
  // outside of the request's.
  for (const jinja::Text::Run& run : text.runs()) {
    spans.push_back({text.bytes().substr(begin, run.end - begin),
                     run.origin == jinja::Origin::kTemplate});
    begin = run.end;
  }
  return spans;
}

}  // namespace foretoken
