// The body of POST /v1/responses.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/raw_member.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampling_params.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/constraint_fields.h"
#include "services/gateway/core/generation_fields.h"
#include "services/gateway/core/reasoning_rules.h"
#include "services/gateway/core/request_fields.h"
#include "services/gateway/core/requests.h"
#include "services/gateway/core/response_items.h"
#include "services/gateway/core/tool_rules.h"

namespace foretoken::gateway {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr char kLogprobs[] = "message.output_text.logprobs";

// On one line, as frames want it. Between its tokens alone JSON has ends of
// lines.
std::string OneLine(absl::string_view json) {
  std::string line(json);
  absl::c_replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

// Members of an object that every answer repeats. Owned by one thread.
class Repeated {
 public:
  Repeated(RequestFields& fields, std::string& out)
      : fields_(fields), out_(out) {}

  // The field as it was given, else `otherwise`.
  void Field(absl::string_view field, absl::string_view otherwise) {
    const Json* const value = fields_.Find(field);
    Text(field, value == nullptr ? std::string(otherwise) : DumpJson(*value));
  }
  void Text(absl::string_view field, absl::string_view json) {
    if (json.size() > largest_bytes_) {
      largest_ = std::string(field);
      largest_bytes_ = json.size();
    }
    absl::StrAppend(&out_, ",\"", field, "\":", json);
  }
  // Fails, by the name of the largest field, if all are too large together.
  void CheckSize() {
    if (out_.size() <= kMaxRepeatedBytes) return;
    fields_.Fail(FieldError(
        largest_,
        absl::StrCat("answers repeat this field and others of the request, ",
                     out_.size(), " bytes in all, want at most ",
                     kMaxRepeatedBytes),
        "invalid_value"));
  }

 private:
  RequestFields& fields_;
  std::string& out_;
  std::string largest_;
  size_t largest_bytes_ = 0;
};

// Checks {"type": "function", "name", "description", "parameters", "strict"}
// and appends it in the form of a chat, where all but the type are members of
// "function"; what `strict` says goes into `request`. `text`: the tool as the
// request spells it, since templates print keys in that order.
absl::Status AppendChatTool(const Json& tool, absl::string_view text,
                            const std::string& name, ApiRequest& request,
                            std::string& out) {
  RequestFields fields(tool, name);
  FORETOKEN_RETURN_IF_ERROR(fields.error());
  const std::string type = fields.Text("type", kMaxNameBytes).value_or("");
  if (type != "function") {
    return Unsupported(fields.Name("type"), "want function");
  }
  if (!fields.Text("name", kMaxNameBytes).has_value()) {
    fields.Fail(
        FieldError(fields.Name("name"), "want a string", "invalid_type"));
  }
  fields.Text("description", std::string().max_size());
  fields.Find("parameters");
  ReadStrict(fields, request);
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  absl::StrAppend(&out, R"({"type":"function","function":{"name":)",
                  RawMember(text, "name"));
  for (const char* field : {"description", "parameters"}) {
    if (fields.Find(field) == nullptr) continue;
    absl::StrAppend(&out, ",\"", field, "\":", RawMember(text, field));
  }
  out += "}}";
  return absl::OkStatus();
}

// The tools that may be called. `may_call`: whether tool_choice lets them be.
void ReadTools(absl::string_view text, bool may_call, RequestFields& fields,
               ApiRequest& request, Repeated& repeated) {
  const Json* const tools = fields.Find("tools");
  if (tools == nullptr || *tools == Json::array()) {
    repeated.Text("tools", "[]");
    return;
  }
  if (!tools->is_array()) {
    fields.Fail(FieldError("tools", "want an array", "invalid_type"));
    return;
  }
  if (tools->size() > kMaxTools) {
    fields.Fail(FieldError("tools",
                           absl::StrCat("want at most ", kMaxTools, " tools"),
                           "array_above_max_length"));
    return;
  }
  const absl::string_view raw = RawMember(text, "tools");
  const std::vector<absl::string_view> elements = RawElements(raw);
  if (elements.size() != tools->size()) {  // what the parser takes otherwise
    fields.Fail(FieldError("tools", "cannot be read", "invalid_value"));
    return;
  }
  std::string converted = "[";
  for (size_t i = 0; i < tools->size(); ++i) {
    if (i > 0) converted += ',';
    const absl::Status read =
        AppendChatTool((*tools)[i], elements[i], absl::StrCat("tools[", i, "]"),
                       request, converted);
    if (!read.ok()) {
      fields.Fail(read);
      return;
    }
  }
  converted += ']';
  repeated.Text("tools", OneLine(raw));
  request.with_tools = may_call;
  if (!may_call) return;
  request.conversation->tools = std::move(converted);
  for (const Json& tool : *tools) {
    request.tool_names.insert(tool["name"].get<std::string>());
  }
}

// {"format": {"type": "json_schema", ...}, "verbosity": "medium"}
void ReadTextForm(absl::string_view text, RequestFields& fields,
                  ApiRequest& request, Repeated& repeated) {
  std::string format = R"({"type":"text"})";
  if (const Json* const value = fields.Find("text")) {
    RequestFields form(*value, "text");
    form.Refuse("verbosity", {"medium"});
    const absl::string_view raw = RawMember(text, "text");
    ReadFormatField(raw, "format", form, request);
    if (form.Find("format") != nullptr) {
      format = OneLine(RawMember(raw, "format"));
    }
    fields.Fail(form.Finish());
  }
  repeated.Text("text", absl::StrCat("{\"format\":", format,
                                     ",\"verbosity\":\"medium\"}"));
}

// {"effort": "medium", "summary": "auto"}: how much to think, and a summary of
// the reasoning if there is any.
void ReadReasoning(RequestFields& fields, ApiRequest& request) {
  ReadThinkingSwitch(fields, request);
  const Json* const value = fields.Find("reasoning");
  if (value == nullptr) return;
  RequestFields reasoning(*value, "reasoning");
  ReadEffort("effort", reasoning, request);
  reasoning.Refuse("summary", {"auto"});
  reasoning.Refuse("generate_summary", {"auto"});
  const absl::Status read = reasoning.Finish();
  if (!read.ok()) fields.Fail(read);
}

void ReadLogprobs(RequestFields& fields, ApiRequest& request) {
  const Json* const include = fields.Find("include");
  if (include != nullptr) {
    if (!include->is_array()) {
      fields.Fail(FieldError("include", "want an array", "invalid_type"));
      return;
    }
    for (const Json& each : *include) {
      if (each == kLogprobs) {
        request.logprobs = true;
      } else if (each != "reasoning.encrypted_content") {
        // Reasoning comes as text here, never encrypted.
        fields.Fail(Unsupported(
            "include",
            absl::StrCat("this value is not supported, want ", kLogprobs,
                         " or reasoning.encrypted_content")));
      }
    }
  }
  const int64_t top = fields.Int("top_logprobs", {0, kMaxLogprobs}).value_or(0);
  if (request.logprobs) {
    request.generation.sampling.logprobs = static_cast<int32_t>(top);
  } else if (top > 0) {
    fields.Fail(FieldError("top_logprobs",
                           absl::StrCat("needs ", kLogprobs, " in include"),
                           "invalid_value"));
  }
}

}  // namespace

absl::StatusOr<ApiRequest> ReadResponsesRequest(absl::string_view text) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json body,
                             ParseJson(text, kRequestJsonLimits));
  RequestFields fields(body);
  ApiRequest request;
  ReadGenerationFields(fields, request, kResponses);
  const std::string instructions =
      fields.Text("instructions", std::string().max_size()).value_or("");
  const Json* const input = fields.Find("input");
  request.conversation.emplace();
  if (input == nullptr) {
    fields.Fail(
        FieldError("input", "is required", "missing_required_parameter"));
  } else if (auto messages = MessagesOfInput(*input, instructions);
             messages.ok()) {
    request.conversation->messages = *std::move(messages);
  } else {
    fields.Fail(messages.status());
  }
  ReadTemplateVariables(text, fields, *request.conversation);
  request.max_tokens = fields.Int("max_output_tokens", {1, kMostTokens});
  ReadLogprobs(fields, request);
  ReadReasoning(fields, request);
  ReadMetadata(fields);
  // Limits calls of the server's own tools, and it has none.
  fields.Int("max_tool_calls", {1, kMaxInt32});

  Repeated repeated(fields, request.repeated);
  repeated.Field("tool_choice", "\"auto\"");
  request.one_call = !fields.Bool("parallel_tool_calls", true);
  repeated.Field("parallel_tool_calls", "true");
  const bool may_call = ReadToolChoice(fields, FunctionPlace::kTop, request);
  ReadTools(text, may_call, fields, request, repeated);
  CheckToolChoice(fields, FunctionPlace::kTop, request);
  ReadTextForm(text, fields, request, repeated);
  ReadConstraintFields(text, fields, request);
  RefuseToolsWithConstraint(fields, request);
  repeated.Field("instructions", "null");
  repeated.Field("max_output_tokens", "null");
  repeated.Field("max_tool_calls", "null");
  repeated.Field("metadata", "{}");
  repeated.Field("prompt_cache_key", "null");
  repeated.Field("reasoning", R"({"effort":null,"summary":null})");
  repeated.Field("safety_identifier", "null");
  repeated.Field("temperature", "1.0");
  repeated.Field("top_logprobs", "0");
  repeated.Field("top_p", "1.0");
  repeated.Field("user", "null");
  repeated.CheckSize();
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  return request;
}

}  // namespace foretoken::gateway
