#include "services/gateway/core/requests.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/raw_member.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampling_params.h"
#include "services/gateway/core/api_error.h"
#include "services/gateway/core/constraint_fields.h"
#include "services/gateway/core/generation_fields.h"
#include "services/gateway/core/prompt_fields.h"
#include "services/gateway/core/reasoning_rules.h"
#include "services/gateway/core/request_fields.h"
#include "services/gateway/core/tool_rules.h"

namespace foretoken::gateway {
namespace {

// OpenAI's default of /v1/completions.
constexpr int64_t kCompletionTokens = 16;
constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxPrompts = static_cast<size_t>(kMaxChoices);
// Roles of messages. Llama's templates call results of tools "ipython".
constexpr std::array<absl::string_view, 7> kRoles = {
    "system", "developer", "user", "assistant", "tool", "function", "ipython"};
constexpr size_t kMaxShownRole = 64;

// Templates write any role, and models answer nonsense to roles that they have
// never seen. The other fields of messages are left to the template.
absl::Status CheckRoles(const Json& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) continue;
    const auto role = messages[i].find("role");
    if (role == messages[i].end() || !role->is_string()) continue;
    const auto& name = role->get_ref<const std::string&>();
    if (absl::c_linear_search(kRoles, name)) continue;
    return FieldError(
        absl::StrCat("messages[", i, "].role"),
        absl::StrCat(DumpJson(name.substr(0, kMaxShownRole)),
                     " is not served, want ", absl::StrJoin(kRoles, ", ")),
        "invalid_value");
  }
  return absl::OkStatus();
}

// `text`: the whole body.
absl::StatusOr<ChatRequest> ReadConversation(absl::string_view text,
                                             RequestFields& fields) {
  ChatRequest conversation;
  const Json* messages = fields.Find("messages");
  if (messages == nullptr) {
    return FieldError("messages", "is required", "missing_required_parameter");
  }
  if (!messages->is_array() || messages->empty() ||
      messages->size() > kMaxMessages) {
    return FieldError(
        "messages",
        absl::StrCat("want an array of 1..", kMaxMessages, " messages"),
        "invalid_type");
  }
  FORETOKEN_RETURN_IF_ERROR(CheckRoles(*messages));
  conversation.messages = std::string(RawMember(text, "messages"));
  ReadTemplateVariables(text, fields, conversation);
  return conversation;
}

// Tools are objects, some of them strict. Their other fields are left to the
// chat template.
void CheckTools(const Json& tools, RequestFields& fields, ApiRequest& request) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string name = absl::StrCat("tools[", i, "]");
    RequestFields tool(tools[i], name);
    const Json* const function = tool.Find("function");
    if (tool.error().ok() && function != nullptr && function->is_object()) {
      RequestFields inner(*function, absl::StrCat(name, ".function"));
      ReadStrict(inner, request);
      tool.Fail(inner.error());
    } else if (tool.error().ok()) {
      ReadStrict(tool, request);  // what AddToolName reads
    }
    if (!tool.error().ok()) fields.Fail(tool.error());
  }
}

// The name under which the model may call a tool; whatever else a tool may be
// is for its template alone.
void AddToolName(const Json& tool, ToolNames& names) {
  if (!tool.is_object()) return;
  const auto function = tool.find("function");
  const Json& described =
      function != tool.end() && function->is_object() ? *function : tool;
  const auto name = described.find("name");
  if (name == described.end() || !name->is_string()) return;
  std::string text = name->get<std::string>();
  if (text.size() <= ToolCallParser::kMaxNameBytes) {
    names.insert(std::move(text));
  }
}

// The tools that may be called, and whether they may or must.
void ReadTools(absl::string_view text, RequestFields& fields,
               ApiRequest& request) {
  const Json* tools = fields.Find("tools");
  const bool given = tools != nullptr && *tools != Json::array();
  if (given && !tools->is_array()) {
    fields.Fail(FieldError("tools", "want an array", "invalid_type"));
    return;
  }
  if (given && tools->size() > kMaxTools) {
    fields.Fail(FieldError("tools",
                           absl::StrCat("want at most ", kMaxTools, " tools"),
                           "array_above_max_length"));
    return;
  }
  if (given) CheckTools(*tools, fields, request);
  request.one_call = !fields.Bool("parallel_tool_calls", true);
  const bool may_call = ReadToolChoice(fields, FunctionPlace::kMember, request);
  request.with_tools = given && may_call;
  if (request.with_tools) {
    request.conversation->tools = std::string(RawMember(text, "tools"));
    for (const Json& tool : *tools) AddToolName(tool, request.tool_names);
  }
  CheckToolChoice(fields, FunctionPlace::kMember, request);
}

// `max_tokens` and its newer name; both may be given if they agree.
void ReadChatTokens(RequestFields& fields, ApiRequest& request) {
  const auto newer = ReadTokenLimit(fields, "max_completion_tokens");
  const auto older = ReadTokenLimit(fields, "max_tokens");
  if (newer.has_value() && older.has_value() && *newer != *older) {
    fields.Fail(FieldError("max_tokens", "differs from max_completion_tokens",
                           "invalid_value"));
  }
  request.max_tokens = newer.has_value() ? newer : older;
}

void ReadChatLogprobs(RequestFields& fields, ApiRequest& request) {
  request.logprobs = fields.Bool("logprobs", false);
  const auto top = fields.Int("top_logprobs", {0, kMaxLogprobs});
  if (top.has_value() && *top > 0 && !request.logprobs) {
    fields.Fail(
        FieldError("top_logprobs", "needs logprobs: true", "invalid_value"));
  }
  if (request.logprobs) {
    request.generation.sampling.logprobs =
        static_cast<int32_t>(top.value_or(0));
  }
}

}  // namespace

absl::StatusOr<ApiRequest> ReadCompletionRequest(absl::string_view text) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json body,
                             ParseJson(text, kRequestJsonLimits));
  RequestFields fields(body);
  ApiRequest request;
  ReadGenerationFields(fields, request, kCompletions);
  if (body.is_object()) {
    auto prompts = ReadPrompts(fields.Find("prompt"), "prompt", kMaxPrompts);
    if (prompts.ok()) {
      request.prompts = *std::move(prompts);
    } else {
      fields.Fail(prompts.status());
    }
  }
  ReadChoices(fields, static_cast<int64_t>(request.prompts.size()), request);
  const int64_t best_of =
      fields.Int("best_of", {1, kMaxChoices}).value_or(request.n);
  if (best_of != request.n) {
    fields.Fail(Unsupported("best_of", "want the value of n"));
  }
  request.max_tokens = fields.Find("max_tokens") == nullptr
                           ? kCompletionTokens
                           : ReadTokenLimit(fields, "max_tokens");
  const Json* const logprobs = fields.Find("logprobs");
  if (logprobs != nullptr && *logprobs != false) {
    request.logprobs = true;
    request.generation.sampling.logprobs = static_cast<int32_t>(
        fields.Int("logprobs", {0, kMaxLogprobs}).value_or(0));
  }
  request.echo = fields.Bool("echo", false);
  if (request.echo && request.logprobs) {
    fields.Fail(Unsupported(
        "echo",
        "with logprobs is not supported: the prompt's tokens have no "
        "log-probabilities here"));
  }
  ReadFormatField(text, "response_format", fields, request);
  ReadConstraintFields(text, fields, request);
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  return request;
}

absl::StatusOr<ApiRequest> ReadChatRequest(absl::string_view text) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json body,
                             ParseJson(text, kRequestJsonLimits));
  RequestFields fields(body);
  ApiRequest request;
  ReadGenerationFields(fields, request, kChats);
  if (body.is_object()) {
    auto conversation = ReadConversation(text, fields);
    if (conversation.ok()) {
      request.conversation = *std::move(conversation);
      ReadTools(text, fields, request);
    } else {
      fields.Fail(conversation.status());
    }
  }
  ReadChoices(fields, 1, request);
  ReadChatTokens(fields, request);
  ReadChatLogprobs(fields, request);
  ReadReasoningFields(fields, request);
  ReadFormatField(text, "response_format", fields, request);
  ReadConstraintFields(text, fields, request);
  RefuseToolsWithConstraint(fields, request);
  ReadMetadata(fields);  // describes stored answers, and there are none
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  return request;
}

absl::StatusOr<TokenizeRequest> ReadTokenizeRequest(absl::string_view text) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json body,
                             ParseJson(text, kRequestJsonLimits));
  RequestFields fields(body);
  TokenizeRequest request;
  request.model = fields.Text("model", kMaxModelBytes).value_or("");
  request.add_special_tokens = fields.Bool("add_special_tokens", true);
  const Json* prompt = fields.Find("prompt");
  if (prompt != nullptr) {
    if (fields.Find("messages") != nullptr) {
      fields.Fail(FieldError("messages", "want a prompt or messages, not both",
                             "invalid_value"));
    }
    request.input =
        fields.Text("prompt", std::string().max_size()).value_or("");
  } else if (body.is_object()) {
    auto conversation = ReadConversation(text, fields);
    if (conversation.ok()) {
      request.input = *std::move(conversation);
    } else {
      fields.Fail(conversation.status());
    }
  }
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  return request;
}

absl::StatusOr<DetokenizeRequest> ReadDetokenizeRequest(
    absl::string_view text) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json body,
                             ParseJson(text, kRequestJsonLimits));
  RequestFields fields(body);
  DetokenizeRequest request;
  request.model = fields.Text("model", kMaxModelBytes).value_or("");
  const Json* tokens = fields.Find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    fields.Fail(
        FieldError("tokens", "want an array of token ids", "invalid_type"));
  } else {
    auto read = ReadTokens(*tokens, "tokens");
    if (read.ok()) {
      request.tokens = *std::move(read);
    } else {
      fields.Fail(read.status());
    }
  }
  FORETOKEN_RETURN_IF_ERROR(fields.Finish());
  return request;
}

}  // namespace foretoken::gateway
