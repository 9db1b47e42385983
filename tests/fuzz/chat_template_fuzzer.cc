// Any bytes as a chat template and the JSON it renders: an error, or text whose
// pieces are UTF-8 and of alternating origin.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "common/text/chat/chat_template.h"
#include "common/text/jinja/json_value.h"
#include "common/text/utf8.h"

namespace {

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

}  // namespace

// The template ends at the first zero byte; the chat follows it, if any does.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using foretoken::jinja::Value;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = bytes.find('\0');
  const absl::string_view json =
      end == absl::string_view::npos ? kChat : bytes.substr(end + 1);
  foretoken::jinja::Limits limits;
  limits.max_steps = 50000;
  limits.max_bytes = 1 << 20;
  limits.max_output_bytes = 1 << 16;
  const auto chat = foretoken::ChatTemplate::Parse(bytes.substr(0, end),
                                                   {"<s>", "</s>"}, limits);
  const auto values = foretoken::jinja::ParseJsonValue(
      json, foretoken::jinja::Origin::kRequest);
  if (!chat.ok() || !values.ok() || !values->Is(Value::Kind::kDict)) return 0;
  foretoken::ChatPrompt prompt;
  for (const auto& [name, value] : values->dict().entries()) {
    if (name.text().bytes() == "messages") {
      prompt.messages = value;
    } else if (name.text().bytes() == "tools") {
      prompt.tools = value;
    } else {
      prompt.variables.emplace_back(name.text().bytes(), value);
    }
  }
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
