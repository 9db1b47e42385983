#include "services/gateway/core/tool_rules.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/raw_member.h"
#include "common/base/status_macros.h"
#include "common/grammar/constraint.h"
#include "common/grammar/tool_calls.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {
namespace {

constexpr char kChoice[] = "tool_choice";
// Functions without parameters have no arguments; those that are not strict
// have any.
constexpr char kNoArguments[] =
    R"({"type": "object", "additionalProperties": false})";
constexpr char kAnyArguments[] = R"({"type": "object"})";

std::string FunctionField(FunctionPlace place) {
  return absl::StrCat(
      kChoice, place == FunctionPlace::kMember ? ".function.name" : ".name");
}

void ReadFunction(const Json& value, FunctionPlace place, RequestFields& fields,
                  ApiRequest& request) {
  RequestFields choice(value, kChoice);
  const auto name = [&](RequestFields& object) {
    const auto text =
        object.Text("name", ToolCallParser::kMaxNameBytes).value_or("");
    if (object.error().ok() && text.empty()) {
      object.Fail(FieldError(object.Name("name"), "is required",
                             "missing_required_parameter"));
    }
    return text;
  };
  const Json* const type = choice.Find("type");
  if (choice.error().ok() && (type == nullptr || *type != "function")) {
    choice.Fail(Unsupported(choice.Name("type"), "want function"));
  }
  ToolCallRules& rules = request.tool_rules;
  rules.required = true;
  if (place == FunctionPlace::kTop) {
    rules.function = name(choice);
  } else if (const Json* const function = choice.Find("function")) {
    RequestFields inner(*function, choice.Name("function"));
    rules.function = name(inner);
    // The inner object's errors become those of the whole field.
    choice.Fail(inner.Finish());
  } else if (choice.error().ok()) {
    choice.Fail(FieldError(choice.Name("function"), "is required",
                           "missing_required_parameter"));
  }
  const absl::Status read = choice.Finish();
  if (!read.ok()) fields.Fail(read);
}

// Appends a literal of the wrapper, with the special tokens of the vocabulary
// in it by name: of [{"control": "[TOOL_CALLS]"}, "["].
void AppendLiteral(absl::string_view name, absl::string_view text,
                   const ControlTokens& controls, std::string& out) {
  Json parts = Json::array();
  // The first special token in the text, by place; the rest is read in the next
  // turn.
  while (!text.empty()) {
    size_t at = text.size();
    absl::string_view control;
    for (const auto& [token, spelling] : controls) {
      const size_t found = text.find(spelling);
      if (found >= at) continue;
      at = found;
      control = spelling;
    }
    if (at > 0) parts.push_back(std::string(text.substr(0, at)));
    if (!control.empty()) parts.push_back({{"control", std::string(control)}});
    text.remove_prefix(at + control.size());
  }
  absl::StrAppend(&out, ", \"", name, "\": ", DumpJson(parts));
}

// One of the request's tools.
struct Tool {
  std::string name;
  absl::string_view parameters;  // as the request spells them; empty: none
};

// Those of the request's tools that may be called under `rules`. `tools` is an
// array of tools in the form of a chat, which a parser has accepted.
absl::StatusOr<std::vector<Tool>> CallableTools(absl::string_view tools,
                                                const ToolNames& names,
                                                const ToolCallRules& rules) {
  std::vector<Tool> callable;
  const std::vector<absl::string_view> elements = RawElements(tools);
  for (size_t i = 0; i < elements.size(); ++i) {
    const absl::string_view inner = RawMember(elements[i], "function");
    // Both forms are accepted: {"type", "function": {...}} and the function
    // alone.
    const bool is_object = !inner.empty() && inner.front() == '{';
    const absl::string_view function = is_object ? inner : elements[i];
    const auto name = ParseJson(RawMember(function, "name"));
    // Other entries are tools of other kinds, which this server does not call.
    if (!name.ok() || !name->is_string()) continue;
    Tool tool = {name->get<std::string>(), RawMember(function, "parameters")};
    if (names.count(tool.name) == 0) continue;
    if (!rules.function.empty() && tool.name != rules.function) continue;
    // The grammar writes names literally between the wrapper's own characters.
    if (!grammar::IsToolName(tool.name)) {
      return FieldError(absl::StrCat("tools[", i, "]"),
                        "with tool_choice or strict, want a name of letters, "
                        "digits, underscores, dashes and points",
                        "invalid_value");
    }
    if (tool.parameters == "null") tool.parameters = {};
    callable.push_back(std::move(tool));
  }
  return callable;
}

}  // namespace

bool ReadToolChoice(RequestFields& fields, FunctionPlace place,
                    ApiRequest& request) {
  const Json* const value = fields.Find(kChoice);
  if (value == nullptr || *value == "auto") return true;
  if (*value == "none") return false;
  if (*value == "required") {
    request.tool_rules.required = true;
  } else if (value->is_object()) {
    ReadFunction(*value, place, fields, request);
    // As OpenAI has it.
    request.one_call = true;
  } else {
    fields.Fail(
        Unsupported(kChoice, "want none, auto, required or a function"));
  }
  return true;
}

void CheckToolChoice(RequestFields& fields, FunctionPlace place,
                     ApiRequest& request) {
  ToolCallRules& rules = request.tool_rules;
  // Strictness without tools would constrain nothing.
  if (!request.with_tools) rules.strict.clear();
  if (!rules.required) return;
  if (request.tool_names.empty()) {
    fields.Fail(FieldError(kChoice, "needs tools", "invalid_value"));
  } else if (!rules.function.empty() &&
             request.tool_names.count(rules.function) == 0) {
    fields.Fail(FieldError(FunctionField(place), "names no tool of the request",
                           "invalid_value"));
  }
}

void ReadStrict(RequestFields& function, ApiRequest& request) {
  if (!function.Bool("strict", false)) return;
  const Json* const name = function.Find("name");
  if (name == nullptr || !name->is_string()) {
    function.Fail(
        FieldError(function.Name("name"), "want a string", "invalid_type"));
    return;
  }
  // A longer one is of no function that may be called.
  const auto& text = name->get_ref<const std::string&>();
  if (text.size() > ToolCallParser::kMaxNameBytes) return;
  request.tool_rules.strict.insert(text);
}

absl::Status ConstrainToolCalls(const ModelChat& chat, ApiRequest& request) {
  const ToolCallRules& rules = request.tool_rules;
  if (rules.empty()) return absl::OkStatus();
  const std::string field = rules.required ? kChoice : "tools";
  if (chat.tool_call_form() == ToolCallForm::kNone) {
    return Unsupported(field, "this model's chat template knows no tools");
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::vector<Tool> tools,
      CallableTools(request.conversation->tools, request.tool_names, rules));
  const ToolCallWrapper& wrapper = chat.tool_call_wrapper();
  // A required call allows no other text; otherwise text comes before the call
  // or in its place, as the model's format has it.
  const absl::string_view text = rules.required           ? "none"
                                 : wrapper.content_before ? "before"
                                                          : "instead";
  std::string source = absl::StrCat(
      "{\"text\": \"", text,
      "\", \"max_calls\": ", request.one_call ? 1 : ToolCallParser::kMaxCalls,
      ", \"opener\": ", DumpJson(std::string(wrapper.opener)));
  if (!wrapper.first.empty()) {
    absl::StrAppend(&source,
                    ", \"first\": ", DumpJson(std::string(wrapper.first)));
  }
  const std::pair<absl::string_view, absl::string_view> literals[] = {
      {"begin", wrapper.begin},
      {"before_name", wrapper.before_name},
      {"before_arguments", wrapper.before_arguments},
      {"after_arguments", wrapper.after_arguments},
      {"separator", wrapper.separator},
      {"end", wrapper.end}};
  for (const auto& [name, literal] : literals) {
    AppendLiteral(name, literal, chat.tool_call_controls(), source);
  }
  source += ", \"tools\": [";
  bool first = true;
  for (const Tool& tool : tools) {
    // Tools that are not strict take any object: their schemas are
    // descriptions, not rules.
    const bool follows = rules.required || rules.strict.count(tool.name) > 0;
    absl::StrAppend(&source, std::exchange(first, false) ? "" : ", ",
                    "{\"name\": \"", tool.name, "\", \"parameters\": ",
                    !follows                  ? kAnyArguments
                    : tool.parameters.empty() ? kNoArguments
                                              : tool.parameters,
                    "}");
  }
  source += "]}";
  request.generation.constraint = {
      Constraint::Kind::kToolCalls, std::move(source), {}};
  // Errors of the compiled grammar are reported for the tools, which the client
  // wrote.
  request.constraint_field = "tools";
  return absl::OkStatus();
}

}  // namespace foretoken::gateway
