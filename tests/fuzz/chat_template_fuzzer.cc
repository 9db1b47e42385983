// Any bytes as a chat template and the JSON it renders: an error, or text whose
// pieces are UTF-8 and of alternating origin. The variable `big` is a text of
// ten megabytes, at which the limits of steps and bytes allow a few looks.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/text/chat/chat_template.h"
#include "common/text/jinja/json_value.h"
#include "common/text/utf8.h"

namespace {

using foretoken::jinja::Value;

// A chat with what templates look at.
constexpr char kChat[] = R"({"messages": [
  {"role": "system", "content": " s\u00dft <|x|> "},
  {"role": "user", "content": [{"type": "text", "text": "a\nb"}]},
  {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefghi",
   "function": {"name": "f", "arguments": {"x": [1, 2.5, true, null]}}}]},
  {"role": "tool", "content": "{}", "tool_call_id": "abcdefghi"},
  {"role": "user", "content": "<think>"}],
  "tools": [{"function": {"name": "f", "parameters": {"type": "object",
   "properties": {"x": {"type": "array"}}, "required": ["x"]}}}]})";

const Value& Big() {
  static const Value* const big =
      new Value(Value::String(foretoken::jinja::Text(
          std::string(10'000'000, 'x'), foretoken::jinja::Origin::kRequest)));
  return *big;
}

// One message, whose text is Big.
const Value& BigMessages() {
  static const Value* const messages = [] {
    foretoken::jinja::Dict message;
    FORETOKEN_CHECK(
        message.Set(Value::String("role"), Value::String("user")).ok());
    FORETOKEN_CHECK(message.Set(Value::String("content"), Big()).ok());
    return new Value(Value::Of(
        std::make_shared<const foretoken::jinja::List>(foretoken::jinja::Values{
            Value::Of(std::make_shared<const foretoken::jinja::Dict>(
                std::move(message)))})));
  }();
  return *messages;
}

}  // namespace

// The template ends at the first zero byte; the chat follows it, if any does.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find('\0');
  const absl::string_view json =
      end == absl::string_view::npos ? kChat : bytes.substr(end + 1);
  foretoken::jinja::Limits limits;
  limits.max_steps = 400'000;
  limits.max_bytes = 64 << 20;
  limits.max_output_bytes = 1 << 16;
  const auto chat = foretoken::ChatTemplate::Parse(bytes.substr(0, end),
                                                   {"<s>", "</s>"}, limits);
  const auto values = foretoken::jinja::ParseJsonValue(
      json, foretoken::jinja::Origin::kRequest);
  if (!chat.ok() || !values.ok() || !values->Is(Value::Kind::kDict)) return 0;
  foretoken::ChatPrompt prompt;
  prompt.variables.emplace_back("big", Big());
  for (const auto& [name, value] : values->dict().entries()) {
    if (name.text().bytes() == "messages") {
      prompt.messages = value;
    } else if (name.text().bytes() == "tools") {
      prompt.tools = value;
    } else {
      prompt.variables.emplace_back(name.text().bytes(), value);
    }
  }
  constexpr size_t kRunsWithBigMessage = 8;  // one in so many
  if (size % kRunsWithBigMessage == 0) prompt.messages = BigMessages();
  const auto spans = chat->Render(prompt);
  if (!spans.ok()) return 0;
  size_t total = 0;
  for (size_t i = 0; i < spans->size(); ++i) {
    const foretoken::PromptSpan& span = (*spans)[i];
    FORETOKEN_CHECK(!span.text.empty() && foretoken::IsValidUtf8(span.text));
    FORETOKEN_CHECK(i == 0 ||
                    span.from_template != (*spans)[i - 1].from_template);
    total += span.text.size();
  }
  FORETOKEN_CHECK(total <= static_cast<size_t>(limits.max_output_bytes));
  return 0;
}
