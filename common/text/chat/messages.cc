#include "common/text/chat/messages.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/json_value.h"
#include "common/text/jinja/text.h"

namespace foretoken {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Origin;
using jinja::Value;
using jinja::Values;

// Copies that a text may have at one time: the value, the text joined from
// parts, the value parsed from arguments, and one while a string grows.
constexpr int64_t kBytesPerTextByte = 4;
// Memory of a value or key: its element in a list that grows (3 * 32), its
// object on the heap and its entry in an index that grows, all of it three
// times since messages are copied twice. ChatMemoryTest measures it.
constexpr int64_t kBytesPerValue = 384;

// Bytes of a name that an error quotes: names come from requests.
constexpr size_t kMaxQuotedBytes = 32;

absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

Value ListOf(Values items) {
  return Value::Of(std::make_shared<const List>(std::move(items)));
}

Value DictOf(Dict dict) {
  return Value::Of(std::make_shared<const Dict>(std::move(dict)));
}

// Clients write null for a field that they do not set.
bool IsMissing(const Value* value) {
  return value == nullptr || value->Is(Value::Kind::kNone);
}

// Clients write out fields that are not set; templates ask whether there are
// tool calls by the key alone.
bool IsAbsent(const Value& key, const Value& value) {
  return value.Is(Value::Kind::kNone) ||
         (key.text().bytes() == "tool_calls" && value.Is(Value::Kind::kList) &&
          value.list().items().empty());
}

absl::Status SetField(Dict& dict, absl::string_view name, Value value) {
  return dict.Set(Value::String(name), std::move(value));
}

absl::StatusOr<Value> JoinParts(const List& parts, const std::string& field) {
  jinja::Text joined;
  for (size_t i = 0; i < parts.items().size(); ++i) {
    const Value& part = parts.items()[i];
    const std::string here = absl::StrCat(field, "[", i, "]");
    if (!part.Is(Value::Kind::kDict)) return Bad(here, "want an object");
    const Value* const type = part.dict().Find("type");
    if (IsMissing(type) || !type->IsString()) {
      return Bad(absl::StrCat(here, ".type"), "want a string");
    }
    if (type->text().bytes() != "text") {
      return Bad(
          absl::StrCat(here, ".type"),
          absl::StrCat("'", type->text().bytes().substr(0, kMaxQuotedBytes),
                       "' is not supported, want 'text'"));
    }
    const Value* const text = part.dict().Find("text");
    if (IsMissing(text) || !text->IsString()) {
      return Bad(absl::StrCat(here, ".text"), "want a string");
    }
    // Separate parts by a line end, as servers for text-only templates do.
    if (i > 0) joined.Append("\n", Origin::kRequest);
    joined.Append(text->text());
  }
  return Value::String(std::move(joined));
}

absl::StatusOr<Value> NormalizeContent(const Value* content,
                                       const std::string& field) {
  if (IsMissing(content)) return Value::String("");
  if (content->IsString()) return *content;
  if (content->Is(Value::Kind::kList)) {
    return JoinParts(content->list(), field);
  }
  return Bad(field, "want a string or a list of parts");
}

// {"function": {"name": ..., "arguments": ...}}
absl::StatusOr<Value> NormalizeToolCall(const Value& call,
                                        const std::string& field) {
  if (!call.Is(Value::Kind::kDict)) return Bad(field, "want an object");
  const Value* const function = call.dict().Find("function");
  const std::string here = absl::StrCat(field, ".function");
  if (IsMissing(function) || !function->Is(Value::Kind::kDict)) {
    return Bad(here, "want an object");
  }
  const Value* const name = function->dict().Find("name");
  if (IsMissing(name) || !name->IsString()) {
    return Bad(absl::StrCat(here, ".name"), "want a string");
  }
  // Values are immutable (value.h): changed containers are copies of one level,
  // whose values are shared.
  Dict changed_function = function->dict();
  const Value* const arguments = function->dict().Find("arguments");
  if (IsMissing(arguments) ||
      (arguments->IsString() && arguments->text().empty())) {
    FORETOKEN_RETURN_IF_ERROR(
        SetField(changed_function, "arguments", DictOf(Dict())));
  } else if (arguments->IsString()) {
    absl::StatusOr<Value> parsed =
        jinja::ParseJsonValue(arguments->text().bytes(), Origin::kRequest);
    // Arguments that are not a JSON object, because an earlier answer got them
    // wrong, stay the text that they are.
    if (parsed.ok() && parsed->Is(Value::Kind::kDict)) {
      FORETOKEN_RETURN_IF_ERROR(
          SetField(changed_function, "arguments", *std::move(parsed)));
    }
  } else if (!arguments->Is(Value::Kind::kDict)) {
    return Bad(absl::StrCat(here, ".arguments"), "want a string");
  }
  Dict changed = call.dict();
  FORETOKEN_RETURN_IF_ERROR(
      SetField(changed, "function", DictOf(std::move(changed_function))));
  return DictOf(std::move(changed));
}

// Sets reasoning_content to `reasoning` where a client uses the newer name
// alone. Both stay: a template may know either.
absl::Status CopyReasoning(Dict& message) {
  if (message.Find("role")->text().bytes() != "assistant" ||
      message.Find("reasoning_content") != nullptr) {
    return absl::OkStatus();
  }
  const Value* const reasoning = message.Find("reasoning");
  if (reasoning == nullptr || !reasoning->IsString()) return absl::OkStatus();
  return SetField(message, "reasoning_content", Value(*reasoning));
}

// Parts of a conversation that no template writes.
absl::Status CheckFields(const Value& message, const std::string& field) {
  for (const char* name : {"refusal", "audio", "function_call"}) {
    if (!IsMissing(message.dict().Find(name))) {
      return Bad(absl::StrCat(field, ".", name), "not supported");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> NormalizeMessage(const Value& message,
                                       const MessageRules& rules,
                                       const std::string& field) {
  if (!message.Is(Value::Kind::kDict)) return Bad(field, "want an object");
  const Value* const role = message.dict().Find("role");
  if (IsMissing(role) || !role->IsString()) {
    return Bad(absl::StrCat(field, ".role"), "want a string");
  }
  FORETOKEN_RETURN_IF_ERROR(CheckFields(message, field));
  Dict changed;
  for (const auto& [key, value] : message.dict().entries()) {
    if (IsAbsent(key, value)) continue;
    FORETOKEN_RETURN_IF_ERROR(changed.Set(key, value));
  }
  FORETOKEN_RETURN_IF_ERROR(CopyReasoning(changed));
  // "developer" is OpenAI's newer name of "system"; most templates know only
  // the old one.
  if (rules.developer_as_system && role->text().bytes() == "developer") {
    FORETOKEN_RETURN_IF_ERROR(
        SetField(changed, "role",
                 Value::String(jinja::Text("system", Origin::kRequest))));
  }
  FORETOKEN_ASSIGN_OR_RETURN(Value content,
                             NormalizeContent(message.dict().Find("content"),
                                              absl::StrCat(field, ".content")));
  FORETOKEN_RETURN_IF_ERROR(SetField(changed, "content", std::move(content)));
  const Value* const calls = changed.Find("tool_calls");
  if (calls != nullptr) {
    const std::string here = absl::StrCat(field, ".tool_calls");
    if (!calls->Is(Value::Kind::kList)) return Bad(here, "want a list");
    Values normalized;
    for (const Value& call : calls->list().items()) {
      FORETOKEN_ASSIGN_OR_RETURN(
          Value changed_call,
          NormalizeToolCall(call,
                            absl::StrCat(here, "[", normalized.size(), "]")));
      normalized.push_back(std::move(changed_call));
    }
    FORETOKEN_RETURN_IF_ERROR(
        SetField(changed, "tool_calls", ListOf(std::move(normalized))));
  }
  return DictOf(std::move(changed));
}

// A list, or None for what counts as none.
absl::StatusOr<Value> ParseList(absl::string_view json,
                                const std::string& field) {
  if (json.empty()) return Value::None();
  absl::StatusOr<Value> parsed = jinja::ParseJsonValue(json, Origin::kRequest);
  if (!parsed.ok()) return Annotate(parsed.status(), field);
  if (!parsed->Is(Value::Kind::kList) && !parsed->Is(Value::Kind::kNone)) {
    return Bad(field, "want a list");
  }
  return parsed;
}

}  // namespace

absl::StatusOr<Value> NormalizeMessages(absl::string_view json,
                                        const MessageRules& rules) {
  FORETOKEN_ASSIGN_OR_RETURN(const Value messages, ParseList(json, "messages"));
  if (messages.Is(Value::Kind::kNone) || messages.list().items().empty()) {
    return Bad("messages", "want at least one");
  }
  Values normalized;
  for (size_t i = 0; i < messages.list().items().size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(
        Value message, NormalizeMessage(messages.list().items()[i], rules,
                                        absl::StrCat("messages[", i, "]")));
    normalized.push_back(std::move(message));
  }
  return ListOf(std::move(normalized));
}

absl::StatusOr<Value> ParseTools(absl::string_view json) {
  FORETOKEN_ASSIGN_OR_RETURN(Value tools, ParseList(json, "tools"));
  if (tools.Is(Value::Kind::kNone) || tools.list().items().empty()) {
    return Value::None();
  }
  // Only what templates rely on is checked; the schema of the parameters is the
  // template's to print.
  for (size_t i = 0; i < tools.list().items().size(); ++i) {
    const Value& tool = tools.list().items()[i];
    const std::string here = absl::StrCat("tools[", i, "]");
    if (!tool.Is(Value::Kind::kDict)) return Bad(here, "want an object");
    const Value* const function = tool.dict().Find("function");
    if (IsMissing(function) || !function->Is(Value::Kind::kDict)) {
      return Bad(absl::StrCat(here, ".function"), "want an object");
    }
    const Value* const name = function->dict().Find("name");
    if (IsMissing(name) || !name->IsString()) {
      return Bad(absl::StrCat(here, ".function.name"), "want a string");
    }
  }
  return tools;
}

int64_t ValueBytes(absl::string_view json) {
  // One of these is before every value and key but the first. Those in strings
  // count, too: strings may be JSON themselves.
  constexpr absl::string_view kMarks = "[{,:";
  const int64_t values =
      1 + std::count_if(json.begin(), json.end(), [&](char c) {
        return kMarks.find(c) != absl::string_view::npos;
      });
  return values * kBytesPerValue +
         static_cast<int64_t>(json.size()) * kBytesPerTextByte;
}

}  // namespace foretoken
