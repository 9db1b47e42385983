// The bodies of POST /v1/messages and /v1/messages/count_tokens.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/raw_member.h"
#include "common/base/status_macros.h"
#include "common/text/stop_matcher.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/constraint_fields.h"
#include "services/gateway/core/generation_fields.h"
#include "services/gateway/core/message_blocks.h"
#include "services/gateway/core/reasoning_rules.h"
#include "services/gateway/core/request_fields.h"
#include "services/gateway/core/requests.h"
#include "services/gateway/core/tool_rules.h"

namespace foretoken::gateway {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxShownBytes = 32;
constexpr size_t kMaxUserBytes = 512;
constexpr size_t kAnyBytes = std::numeric_limits<size_t>::max();

void Require(RequestFields& fields, absl::string_view field) {
  fields.Fail(FieldError(fields.Name(field), "is required",
                         "missing_required_parameter"));
}

void ReadStopSequences(RequestFields& fields, GenerationRequest& generation) {
  constexpr char kField[] = "stop_sequences";
  const Json* const value = fields.Find(kField);
  if (value == nullptr) return;
  bool good = value->is_array() && value->size() <= StopMatcher::kMaxStrings;
  std::vector<std::string> stops;
  for (size_t i = 0; good && i < value->size(); ++i) {
    const Json& each = (*value)[i];
    good = each.is_string();
    if (good) stops.push_back(each.get<std::string>());
  }
  if (!good) {
    fields.Fail(FieldError(kField,
                           absl::StrCat("want an array of at most ",
                                        StopMatcher::kMaxStrings, " strings"),
                           "invalid_type"));
    return;
  }
  const absl::Status checked = StopMatcher::Create(stops).status();
  if (!checked.ok()) {
    fields.Fail(FieldError(kField, checked.message(), "invalid_value"));
  }
  generation.stop_strings = std::move(stops);
}

// {"type": "auto" | "any" | "tool" | "none", "name",
// "disable_parallel_tool_use"}. Returns whether tools may be called.
bool ReadChoice(RequestFields& fields, ApiRequest& request) {
  const Json* const value = fields.Find("tool_choice");
  if (value == nullptr) return true;
  RequestFields choice(*value, "tool_choice");
  const std::string type = choice.Text("type", kMaxNameBytes).value_or("");
  if (type == "tool") {
    request.tool_rules.function =
        choice.Text("name", ToolCallParser::kMaxNameBytes).value_or("");
    if (request.tool_rules.function.empty()) Require(choice, "name");
  } else if (type != "auto" && type != "any" && type != "none") {
    choice.Fail(
        Unsupported(choice.Name("type"), "want auto, any, tool or none"));
  }
  request.tool_rules.required = type == "any" || type == "tool";
  request.one_call = choice.Bool("disable_parallel_tool_use", false);
  fields.Fail(choice.Finish());
  return type != "none";
}

// Checks {"name", "description", "input_schema", "strict"} and appends it in
// the form of a chat; what `strict` says goes into `request`. `text`: the tool
// as the request spells it, since templates print keys in that order.
absl::Status AppendChatTool(const Json& tool, absl::string_view text,
                            const std::string& name, ApiRequest& request,
                            std::string& out) {
  RequestFields fields(tool, name);
  FORETOKEN_RETURN_IF_ERROR(fields.error());
  // Others are run by the server, which has none.
  const std::string type =
      fields.Text("type", kMaxNameBytes).value_or("custom");
  if (fields.error().ok() && type != "custom") {
    return Unsupported(fields.Name("type"),
                       absl::StrCat("'", type.substr(0, kMaxShownBytes),
                                    "' is not supported, want custom"));
  }
  if (!fields.Text("name", kMaxNameBytes).has_value()) Require(fields, "name");
  fields.Text("description", kAnyBytes);
  const Json* const schema = fields.Find("input_schema");
  if (schema == nullptr || !schema->is_object()) {
    fields.Fail(FieldError(fields.Name("input_schema"), "want an object",
                           "invalid_type"));
  }
  ReadStrict(fields, request);
  CheckCacheControl(fields);
  // Arguments are streamed as they come in any case.
  fields.Bool("eager_input_streaming", false);
  AllowOnly(fields, "defer_loading", {false}, "false");
  AllowOnly(fields, "allowed_callers", {Json::array({"direct"})}, "direct");
  AllowOnly(fields, "input_examples", {Json::array()}, "no examples");
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  absl::StrAppend(&out, R"({"type":"function","function":{"name":)",
                  RawMember(text, "name"));
  if (fields.Find("description") != nullptr) {
    absl::StrAppend(&out, ",\"description\":", RawMember(text, "description"));
  }
  absl::StrAppend(&out, ",\"parameters\":", RawMember(text, "input_schema"),
                  "}}");
  return absl::OkStatus();
}

// The tools that may be called. `may_call`: whether tool_choice lets them be.
void ReadTools(absl::string_view text, bool may_call, RequestFields& fields,
               ApiRequest& request) {
  const Json* const tools = fields.Find("tools");
  if (tools == nullptr || *tools == Json::array()) return;
  if (!tools->is_array() || tools->size() > kMaxTools) {
    fields.Fail(FieldError(
        "tools", absl::StrCat("want an array of at most ", kMaxTools, " tools"),
        "invalid_type"));
    return;
  }
  const std::vector<absl::string_view> elements =
      RawElements(RawMember(text, "tools"));
  if (elements.size() != tools->size()) {  // what the parser takes otherwise
    fields.Fail(FieldError("tools", "cannot be read", "invalid_value"));
    return;
  }
  std::string converted = "[";
  for (size_t i = 0; i < elements.size(); ++i) {
    if (i > 0) converted += ',';
    const absl::Status read =
        AppendChatTool((*tools)[i], elements[i], absl::StrCat("tools[", i, "]"),
                       request, converted);
    if (!read.ok()) {
      fields.Fail(read);
      return;
    }
  }
  request.with_tools = may_call;
  if (!may_call) return;
  request.conversation->tools = converted + "]";
  for (const Json& tool : *tools) {
    request.tool_names.insert(tool["name"].get<std::string>());
  }
}

// {"type": "adaptive"}                       as the model decides
// {"type": "enabled", "budget_tokens": N}    it thinks
// {"type": "disabled"}                       it does not
void ReadThinking(RequestFields& fields, ApiRequest& request) {
  constexpr char kField[] = "thinking";
  const Json* const value = fields.Find(kField);
  if (value == nullptr) return;
  RequestFields thinking(*value, kField);
  const std::string type = thinking.Text("type", kMaxNameBytes).value_or("");
  if (type == "enabled" || type == "disabled") {
    request.thinking_wish.enabled = type == "enabled";
    request.thinking_wish.enabled_field = kField;
  } else if (type != "adaptive") {
    thinking.Fail(Unsupported(thinking.Name("type"),
                              "want adaptive, enabled or disabled"));
  }
  if (type == "enabled") {
    // A target, which models may miss.
    if (thinking.Int("budget_tokens", {1, kMostTokens}).has_value()) {
      request.ignored_fields.push_back(thinking.Name("budget_tokens"));
    } else {
      Require(thinking, "budget_tokens");
    }
  }
  if (type != "disabled") {
    // Thinking is shown as it is: nothing summarises it.
    AllowOnly(thinking, "display", {"summarized"}, "summarized");
  }
  fields.Fail(thinking.Finish());
}

// {"format": {"type": "json_schema", "schema": {...}}, "effort": "high"}
void ReadOutputConfig(absl::string_view text, RequestFields& fields,
                      ApiRequest& request) {
  constexpr char kField[] = "output_config";
  const Json* const value = fields.Find(kField);
  if (value == nullptr) return;
  RequestFields config(*value, kField);
  ReadEffort("effort", config, request);
  request.thinking_wish.default_effort = "high";
  if (config.error().ok()) {
    ReadFormatField(RawMember(text, kField), "format", config, request);
  }
  fields.Fail(config.Finish());
}

// {"user_id": "..."}
void CheckMetadata(RequestFields& fields) {
  const Json* const value = fields.Find("metadata");
  if (value == nullptr) return;
  RequestFields metadata(*value, "metadata");
  metadata.Text("user_id", kMaxUserBytes);
  fields.Fail(metadata.Finish());
}

// Reads the fields that both endpoints have. `text`: the whole body.
void ReadConversation(absl::string_view text, RequestFields& fields,
                      ApiRequest& request) {
  request.error_form = ErrorForm::kAnthropic;
  ChatRequest& conversation = request.conversation.emplace();
  const Json* const messages = fields.Find("messages");
  const Json* const system = fields.Find("system");
  if (messages == nullptr) {
    Require(fields, "messages");
  } else if (auto read = MessagesOfBlocks(system, *messages,
                                          RawMember(text, "messages"));
             read.ok()) {
    conversation.messages = *std::move(read);
  } else {
    fields.Fail(read.status());
  }
  ReadTemplateVariables(text, fields, conversation);
  ReadThinking(fields, request);
  const bool may_call = ReadChoice(fields, request);
  ReadTools(text, may_call, fields, request);
  CheckToolChoice(fields, FunctionPlace::kTop, request);
  ReadOutputConfig(text, fields, request);
  RefuseToolsWithConstraint(fields, request);
  CheckCacheControl(fields);
  AllowOnly(fields, "speed", {"standard"}, "standard");
  AllowOnly(fields, "context_management", {}, "it left out");
  AllowOnly(fields, "mcp_servers", {Json::array()}, "an empty array");
}

// Known fields of the API that ask for what this server does not do.
void RefuseOthers(RequestFields& fields) {
  CheckMetadata(fields);
  AllowOnly(fields, "service_tier", {"auto", "standard_only"},
            "auto or standard_only");
  AllowOnly(fields, "container", {}, "it left out");
  AllowOnly(fields, "diagnostics", {}, "it left out");
  AllowOnly(fields, "inference_geo", {}, "it left out");
  // OpenAI's, whose place others have here.
  AllowOnly(fields, "stop", {}, "stop_sequences");
  AllowOnly(fields, "stream_options", {}, "it left out: streams have usage");
}

}  // namespace

absl::StatusOr<ApiRequest> ReadMessagesRequest(absl::string_view text) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json body,
                             ParseJson(text, kRequestJsonLimits));
  RequestFields fields(body);
  ApiRequest request;
  RefuseOthers(fields);
  ReadGenerationFields(fields, request, kMessages);
  if (fields.Find("max_tokens") == nullptr) Require(fields, "max_tokens");
  request.max_tokens = fields.Int("max_tokens", {1, kMostTokens});
  ReadStopSequences(fields, request.generation);
  ReadConversation(text, fields, request);
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  return request;
}

absl::StatusOr<ApiRequest> ReadCountTokensRequest(absl::string_view text) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json body,
                             ParseJson(text, kRequestJsonLimits));
  RequestFields fields(body);
  ApiRequest request;
  request.model = fields.Text("model", kMaxModelBytes).value_or("");
  ReadConversation(text, fields, request);
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  return request;
}

}  // namespace foretoken::gateway
