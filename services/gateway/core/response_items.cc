#include "services/gateway/core/response_items.h"

#include <array>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/json_text.h"
#include "services/gateway/core/request_fields.h"

namespace foretoken::gateway {
namespace {

// Names and ids; texts are bounded by the body.
constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxShownBytes = 32;
constexpr std::array<absl::string_view, 4> kRoles = {"user", "assistant",
                                                     "system", "developer"};

// Writes the list of messages. Owned by one thread.
class MessageWriter {
 public:
  // `content`: as JSON.
  void Message(absl::string_view role, absl::string_view content) {
    Begin(role);
    absl::StrAppend(&out_, ",\"content\":", content);
    last_ = role == kAssistant ? Last::kAssistant : Last::kOther;
  }
  void Call(absl::string_view id, absl::string_view name,
            absl::string_view arguments) {
    const bool joins = last_ == Last::kAssistant || last_ == Last::kCalls;
    if (!joins || !reasoning_.empty()) {
      Begin(kAssistant);
      last_ = Last::kAssistant;
    }
    out_ += last_ == Last::kCalls ? "," : ",\"tool_calls\":[";
    last_ = Last::kCalls;
    out_ += "{\"id\":";
    AppendJsonString(id, out_);
    out_ += ",\"type\":\"function\",\"function\":{\"name\":";
    AppendJsonString(name, out_);
    out_ += ",\"arguments\":";
    AppendJsonString(arguments, out_);
    out_ += "}}";
  }
  // `content`: as JSON.
  void Result(absl::string_view id, absl::string_view content) {
    Begin("tool");
    out_ += ",\"tool_call_id\":";
    AppendJsonString(id, out_);
    absl::StrAppend(&out_, ",\"content\":", content);
    last_ = Last::kOther;
  }
  // Is that of the assistant's message that follows, if one does.
  void Reasoning(absl::string_view text) {
    if (text.empty()) return;
    absl::StrAppend(&reasoning_, reasoning_.empty() ? "" : "\n", text);
  }
  bool empty() const { return last_ == Last::kNone; }
  // Not if it is empty.
  std::string Take() {
    End();
    return out_ + "]";
  }

 private:
  static constexpr char kAssistant[] = "assistant";
  // The message that was written last, still without its brace.
  enum class Last : uint8_t { kNone, kOther, kAssistant, kCalls };

  void Begin(absl::string_view role) {
    End();
    absl::StrAppend(&out_, last_ == Last::kNone ? "[" : ",", "{\"role\":\"",
                    role, "\"");
    const std::string reasoning = std::exchange(reasoning_, {});
    if (role != kAssistant || reasoning.empty()) return;
    out_ += ",\"reasoning_content\":";
    AppendJsonString(reasoning, out_);
  }
  void End() {
    if (last_ == Last::kNone) return;
    out_ += last_ == Last::kCalls ? "]}" : "}";
  }

  std::string out_;
  Last last_ = Last::kNone;
  std::string reasoning_;  // of the next message
};

// A text, or parts of text as those of a chat.
absl::StatusOr<std::string> ContentOf(const Json* value,
                                      const std::string& name) {
  if (value != nullptr && value->is_string()) {
    return JsonString(value->get_ref<const std::string&>());
  }
  if (value == nullptr || !value->is_array()) {
    return FieldError(name, "want a string or an array of parts",
                      "invalid_type");
  }
  std::string parts = "[";
  for (size_t i = 0; i < value->size(); ++i) {
    const std::string here = absl::StrCat(name, "[", i, "]");
    RequestFields fields((*value)[i], here);
    const std::string type = fields.Text("type", kMaxIdBytes).value_or("");
    const Json* const text = fields.Find("text");
    if (type != "input_text" && type != "output_text") {
      fields.Fail(Unsupported(
          fields.Name("type"),
          absl::StrCat("'", type.substr(0, kMaxShownBytes),
                       "' is not supported, want input_text or output_text")));
    } else if (text == nullptr || !text->is_string()) {
      fields.Fail(
          FieldError(fields.Name("text"), "want a string", "invalid_type"));
    }
    // Parts of an earlier answer have these fields; prompts do not use them.
    fields.Find("annotations");
    fields.Find("logprobs");
    FORETOKEN_RETURN_IF_ERROR(fields.Finish());
    absl::StrAppend(&parts, i == 0 ? "" : ",", "{\"type\":\"text\",\"text\":",
                    JsonString(text->get_ref<const std::string&>()), "}");
  }
  return parts + "]";
}

std::string RequiredText(RequestFields& fields, absl::string_view field,
                         size_t max_bytes) {
  std::optional<std::string> text = fields.Text(field, max_bytes);
  if (!text.has_value()) {
    fields.Fail(FieldError(fields.Name(field), "is required",
                           "missing_required_parameter"));
  }
  return std::move(text).value_or("");
}

void ReadMessage(RequestFields& fields, MessageWriter& messages) {
  const std::string role = RequiredText(fields, "role", kMaxIdBytes);
  if (!absl::c_linear_search(kRoles, role)) {
    fields.Fail(FieldError(fields.Name("role"),
                           "want user, assistant, system or developer",
                           "invalid_value"));
  }
  fields.Text("phase", kMaxIdBytes);  // in earlier answers; unused
  const auto content =
      ContentOf(fields.Find("content"), fields.Name("content"));
  if (content.ok()) {
    messages.Message(role, *content);
  } else {
    fields.Fail(content.status());
  }
}

void ReadCall(RequestFields& fields, MessageWriter& messages) {
  const std::string id = RequiredText(fields, "call_id", kMaxIdBytes);
  const std::string name = RequiredText(fields, "name", kMaxIdBytes);
  messages.Call(id, name,
                RequiredText(fields, "arguments", std::string().max_size()));
}

void ReadResult(RequestFields& fields, MessageWriter& messages) {
  const std::string id = RequiredText(fields, "call_id", kMaxIdBytes);
  const auto output = ContentOf(fields.Find("output"), fields.Name("output"));
  if (output.ok()) {
    messages.Result(id, *output);
  } else {
    fields.Fail(output.status());
  }
}

// {"summary": [], "content": [{"type": "reasoning_text", "text"}]}, as answers
// have it.
void ReadReasoning(RequestFields& fields, MessageWriter& messages) {
  // Other servers' answers have these; they are not used.
  fields.Find("summary");
  fields.Find("encrypted_content");
  const Json* const content = fields.Find("content");
  if (content == nullptr) return;
  const std::string name = fields.Name("content");
  if (!content->is_array()) {
    fields.Fail(FieldError(name, "want an array of parts", "invalid_type"));
    return;
  }
  for (size_t i = 0; i < content->size(); ++i) {
    RequestFields part((*content)[i], absl::StrCat(name, "[", i, "]"));
    const std::string type = RequiredText(part, "type", kMaxIdBytes);
    if (part.error().ok() && type != "reasoning_text") {
      part.Fail(Unsupported(part.Name("type"), "want reasoning_text"));
    }
    messages.Reasoning(RequiredText(part, "text", std::string().max_size()));
    fields.Fail(part.Finish());
  }
}

absl::Status ReadItem(const Json& item, const std::string& name,
                      MessageWriter& messages) {
  RequestFields fields(item, name);
  const std::string type = fields.Text("type", kMaxIdBytes).value_or("message");
  fields.Text("id", kMaxIdBytes);
  fields.Text("status", kMaxIdBytes);
  if (type == "message") {
    ReadMessage(fields, messages);
  } else if (type == "function_call") {
    ReadCall(fields, messages);
  } else if (type == "function_call_output") {
    ReadResult(fields, messages);
  } else if (type == "reasoning") {
    ReadReasoning(fields, messages);
  } else {
    fields.Fail(Unsupported(
        fields.Name("type"),
        absl::StrCat("'", type.substr(0, kMaxShownBytes),
                     "' is not supported, want message, function_call, "
                     "function_call_output or reasoning")));
  }
  return fields.Finish();
}

}  // namespace

absl::StatusOr<std::string> MessagesOfInput(const Json& input,
                                            absl::string_view instructions) {
  MessageWriter messages;
  if (!instructions.empty())
    messages.Message("system", JsonString(instructions));
  if (input.is_string()) {
    messages.Message("user", JsonString(input.get_ref<const std::string&>()));
    return messages.Take();
  }
  if (!input.is_array() || input.empty() || input.size() > kMaxInputItems) {
    return FieldError("input",
                      absl::StrCat("want a string, or an array of 1..",
                                   kMaxInputItems, " items"),
                      "invalid_type");
  }
  for (size_t i = 0; i < input.size(); ++i) {
    FORETOKEN_RETURN_IF_ERROR(
        ReadItem(input[i], absl::StrCat("input[", i, "]"), messages));
  }
  if (messages.empty()) {
    return FieldError("input", "want a message beside the reasoning",
                      "invalid_value");
  }
  return messages.Take();
}

}  // namespace foretoken::gateway
