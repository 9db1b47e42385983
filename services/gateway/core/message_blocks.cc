#include "services/gateway/core/message_blocks.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/raw_member.h"
#include "common/base/status_macros.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/json_text.h"

namespace foretoken::gateway {
namespace {

// Names and ids; texts are bounded by the body.
constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxShownBytes = 32;
constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();

constexpr absl::string_view kUser = "user";
constexpr absl::string_view kAssistant = "assistant";
constexpr absl::string_view kSystem = "system";

// Writes the list of messages. A message is open until something comes that
// does not belong to it. Owned by one thread.
class ChatWriter {
 public:
  void Text(absl::string_view role, absl::string_view text) {
    // Chats have an answer's content before its calls.
    if (role != role_ || !calls_.empty()) Open(role);
    absl::StrAppend(&parts_, parts_.empty() ? "" : ",",
                    R"({"type":"text","text":)", JsonString(text), "}");
  }
  void Thinking(absl::string_view text) {
    if (role_ != kAssistant || !parts_.empty() || !calls_.empty()) {
      Open(kAssistant);
    }
    absl::StrAppend(&thinking_, thinking_.empty() ? "" : "\n", text);
  }
  // `input`: as JSON.
  void Call(absl::string_view id, absl::string_view name,
            absl::string_view input) {
    if (role_ != kAssistant) Open(kAssistant);
    absl::StrAppend(
        &calls_, calls_.empty() ? "" : ",", "{\"id\":", JsonString(id),
        R"(,"type":"function","function":{"name":)", JsonString(name),
        ",\"arguments\":", JsonString(input), "}}");
  }
  // `parts`: of its content, as JSON.
  void Result(absl::string_view id, absl::string_view parts, bool is_error) {
    Close();
    absl::StrAppend(&out_, out_.empty() ? "" : ",",
                    R"({"role":"tool","tool_call_id":)", JsonString(id),
                    ",\"content\":[", parts, "]");
    // For templates that show it; the chats of OpenAI have no such field.
    if (is_error) out_ += ",\"is_error\":true";
    out_ += '}';
  }
  // A message without any content still counts.
  void Begin(absl::string_view role) {
    if (role != role_) Open(role);
  }
  std::string Take() {
    Close();
    return absl::StrCat("[", out_, "]");
  }

 private:
  void Open(absl::string_view role) {
    Close();
    role_ = std::string(role);
  }
  void Close() {
    if (role_.empty()) return;
    absl::StrAppend(&out_, out_.empty() ? "" : ",", "{\"role\":\"", role_,
                    "\",\"content\":[", std::exchange(parts_, {}), "]");
    if (!thinking_.empty()) {
      absl::StrAppend(&out_, ",\"reasoning_content\":",
                      JsonString(std::exchange(thinking_, {})));
    }
    if (!calls_.empty()) {
      absl::StrAppend(&out_, ",\"tool_calls\":[", std::exchange(calls_, {}),
                      "]");
    }
    out_ += '}';
    role_.clear();
  }

  std::string out_;  // without the brackets
  // The open message.
  std::string role_;  // empty: none is open
  std::string parts_, calls_, thinking_;
};

std::string RequiredText(RequestFields& fields, absl::string_view field,
                         size_t max_bytes) {
  std::optional<std::string> text = fields.Text(field, max_bytes);
  if (!text.has_value()) {
    fields.Fail(FieldError(fields.Name(field), "is required",
                           "missing_required_parameter"));
  }
  return std::move(text).value_or("");
}

void FailType(RequestFields& fields, absl::string_view type,
              absl::string_view want) {
  fields.Fail(Unsupported(fields.Name("type"),
                          absl::StrCat("'", type.substr(0, kMaxShownBytes),
                                       "' is not supported, want ", want)));
}

// The text of a text block, whose type has been read.
std::string ReadTextBlock(RequestFields& fields) {
  CheckCacheControl(fields);
  AllowOnly(fields, "citations", {Json::array()}, "no citations");
  return RequiredText(fields, "text", kAnyBytes);
}

// A text, or blocks of text, which `take` gets one by one.
template <typename Take>
absl::Status ReadTexts(const Json& content, const std::string& name,
                       Take take) {
  if (content.is_string()) {
    take(content.get_ref<const std::string&>());
    return absl::OkStatus();
  }
  if (!content.is_array()) {
    return FieldError(name, "want a string or an array of blocks",
                      "invalid_type");
  }
  for (size_t i = 0; i < content.size(); ++i) {
    RequestFields fields(content[i], absl::StrCat(name, "[", i, "]"));
    const std::string type = RequiredText(fields, "type", kMaxIdBytes);
    if (fields.error().ok() && type != "text") FailType(fields, type, "text");
    const std::string text = ReadTextBlock(fields);
    FORETOKEN_RETURN_IF_ERROR(fields.Finish());
    take(text);
  }
  return absl::OkStatus();
}

// {"type": "tool_use", "id", "name", "input": {...}}; `raw`: as the body spells
// it, since templates print the arguments with their keys in that order.
void ReadToolUse(absl::string_view raw, RequestFields& fields,
                 ChatWriter& chat) {
  CheckCacheControl(fields);
  AllowOnly(fields, "caller", {Json{{"type", "direct"}}}, "type direct");
  AllowOnly(fields, "toolset_name", {}, "it left out");
  const std::string id = RequiredText(fields, "id", kMaxIdBytes);
  const std::string name = RequiredText(fields, "name", kMaxIdBytes);
  const Json* const input = fields.Find("input");
  if (input == nullptr || !input->is_object()) {
    fields.Fail(
        FieldError(fields.Name("input"), "want an object", "invalid_type"));
    return;
  }
  chat.Call(id, name, RawMember(raw, "input"));
}

// {"type": "tool_result", "tool_use_id", "content", "is_error"}
void ReadToolResult(RequestFields& fields, ChatWriter& chat) {
  CheckCacheControl(fields);
  AllowOnly(fields, "toolset_name", {}, "it left out");
  const std::string id = RequiredText(fields, "tool_use_id", kMaxIdBytes);
  const bool is_error = fields.Bool("is_error", false);
  std::string parts;
  if (const Json* const content = fields.Find("content")) {
    fields.Fail(ReadTexts(
        *content, fields.Name("content"), [&](const std::string& text) {
          absl::StrAppend(&parts, parts.empty() ? "" : ",",
                          R"({"type":"text","text":)", JsonString(text), "}");
        }));
  }
  chat.Result(id, parts, is_error);
}

absl::Status ReadBlock(const Json& block, absl::string_view raw,
                       absl::string_view role, const std::string& name,
                       ChatWriter& chat) {
  RequestFields fields(block, name);
  const std::string type = RequiredText(fields, "type", kMaxIdBytes);
  FORETOKEN_RETURN_IF_ERROR(fields.error());
  if (type == "text") {
    chat.Text(role, ReadTextBlock(fields));
  } else if (role == kAssistant && type == "tool_use") {
    ReadToolUse(raw, fields, chat);
  } else if (role == kAssistant && type == "thinking") {
    // Signatures are of the server that made them; this one checks none.
    fields.Text("signature", kAnyBytes);
    chat.Thinking(RequiredText(fields, "thinking", kAnyBytes));
  } else if (role == kUser && type == "tool_result") {
    ReadToolResult(fields, chat);
  } else {
    FailType(fields, type,
             role == kUser        ? "text or tool_result"
             : role == kAssistant ? "text, tool_use or thinking"
                                  : "text");
  }
  return fields.Finish();
}

absl::Status ReadMessage(const Json& message, absl::string_view raw,
                         const std::string& name, ChatWriter& chat) {
  RequestFields fields(message, name);
  const std::string role = RequiredText(fields, "role", kMaxIdBytes);
  if (role != kUser && role != kAssistant && role != kSystem) {
    fields.Fail(FieldError(fields.Name("role"),
                           "want user, assistant or system", "invalid_value"));
  }
  const Json* const content = fields.Find("content");
  if (content == nullptr || (!content->is_string() && !content->is_array())) {
    fields.Fail(FieldError(fields.Name("content"),
                           "want a string or an array of blocks",
                           "invalid_type"));
  }
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  if (content->is_string()) {
    chat.Text(role, content->get_ref<const std::string&>());
    return absl::OkStatus();
  }
  const std::vector<absl::string_view> blocks =
      RawElements(RawMember(raw, "content"));
  if (blocks.size() != content->size()) {  // what the parser takes otherwise
    return FieldError(fields.Name("content"), "cannot be read",
                      "invalid_value");
  }
  if (blocks.empty()) chat.Begin(role);
  for (size_t i = 0; i < blocks.size(); ++i) {
    FORETOKEN_RETURN_IF_ERROR(
        ReadBlock((*content)[i], blocks[i], role,
                  absl::StrCat(fields.Name("content"), "[", i, "]"), chat));
  }
  return absl::OkStatus();
}

// Answers begin anew: templates close the messages that they are given.
absl::Status RefusePrefill(const Json& last, const std::string& name) {
  if (last["role"] != std::string(kAssistant)) return absl::OkStatus();
  return Unsupported(name,
                     "an answer that has begun (prefill) is not continued, "
                     "want a last message of the role user");
}

}  // namespace

void CheckCacheControl(RequestFields& fields) {
  const Json* const value = fields.Find("cache_control");
  if (value == nullptr) return;
  RequestFields control(*value, fields.Name("cache_control"));
  AllowOnly(control, "type", {"ephemeral"}, "ephemeral");
  AllowOnly(control, "ttl", {"5m", "1h"}, "5m or 1h");
  fields.Fail(control.Finish());
}

void AllowOnly(RequestFields& fields, absl::string_view field,
               std::initializer_list<Json> harmless, absl::string_view want) {
  const Json* const value = fields.Find(field);
  if (value == nullptr ||
      std::find(harmless.begin(), harmless.end(), *value) != harmless.end()) {
    return;
  }
  fields.Fail(Unsupported(fields.Name(field),
                          absl::StrCat("not supported, want ", want)));
}

absl::StatusOr<std::string> MessagesOfBlocks(const Json* system,
                                             const Json& messages,
                                             absl::string_view raw) {
  if (!messages.is_array() || messages.empty() ||
      messages.size() > kMaxBlockMessages) {
    return FieldError(
        "messages",
        absl::StrCat("want an array of 1..", kMaxBlockMessages, " messages"),
        "invalid_type");
  }
  const std::vector<absl::string_view> elements = RawElements(raw);
  if (elements.size() != messages.size()) {  // what the parser takes otherwise
    return FieldError("messages", "cannot be read", "invalid_value");
  }
  ChatWriter chat;
  if (system != nullptr) {
    FORETOKEN_RETURN_IF_ERROR(
        ReadTexts(*system, "system", [&](const std::string& text) {
          if (!text.empty()) chat.Text(kSystem, text);
        }));
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    const std::string name = absl::StrCat("messages[", i, "]");
    FORETOKEN_RETURN_IF_ERROR(
        ReadMessage(messages[i], elements[i], name, chat));
    if (i + 1 < elements.size()) continue;
    FORETOKEN_RETURN_IF_ERROR(RefusePrefill(messages[i], name));
  }
  return chat.Take();
}

}  // namespace foretoken::gateway
