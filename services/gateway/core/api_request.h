// A request to generate, of whichever endpoint, once it is read and checked.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_API_REQUEST_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_API_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/types.h"
#include "common/generation/generation.h"
#include "common/text/chat/model_chat.h"
#include "common/text/chat/tool_call_parser.h"
#include "services/gateway/core/error_forms.h"

namespace foretoken::gateway {

// Bounds of one request.
inline constexpr int64_t kMaxChoices = 128;  // of all its prompts together
inline constexpr size_t kMaxModelBytes = 256;
inline constexpr size_t kMaxTools = 1024;
// Fields that answers repeat, together, as JSON (responses).
inline constexpr size_t kMaxRepeatedBytes = size_t{256} << 10;

// Text, which the orchestrator encodes, or token ids, taken as they are.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

// Rules for the calls of an answer.
struct ToolCallRules {
  bool required = false;  // the answer consists of calls,
  std::string function;   // of this function; empty: of any
  ToolNames strict;       // those whose arguments follow their schemas

  bool empty() const { return !required && strict.empty(); }
};

// Where an answer has the model's reasoning.
enum class ReasoningPlace : uint8_t {
  kOwnField,
  kContent,  // before the answer, with its tags
  kNowhere,
};

// How much the model shall think, as the request says it; empty fields: it does
// not.
struct ThinkingWish {
  std::string effort;  // "none", "low", ...
  std::string effort_field;
  std::string default_effort = "medium";  // of the endpoint's API
  std::optional<bool> enabled;
  std::string enabled_field;
};

struct ApiRequest {
  std::string model;  // as the request names it; empty: it names none
  // Sampling, stop strings, mode, scope; neither prompt nor deadline.
  GenerationRequest generation;
  // Unset: up to the end of the model's context.
  std::optional<int64_t> max_tokens;
  int64_t n = 1;  // choices for each prompt
  bool stream = false;
  bool include_usage = false;  // a last chunk with the usage
  bool echo = false;           // the prompt before the text (completions)
  bool prompt_only = false;    // the text is not shown (infill)
  bool logprobs = false;       // shown; how many is in generation.sampling
  // It names no cache scope, so it may share prefix pages with its caller's
  // other requests (prefix_sharing.h).
  bool own_prefixes = true;
  // Fields of other servers that name generation.cache_scope; empty if the
  // request names it itself, or none.
  std::vector<std::string> scope_fields;
  bool want_tokens = false;  // "foretoken": {"tokens": true}
  bool want_rounds = false;
  bool base64 = false;       // numbers of embeddings as bytes
  int64_t answer_bytes = 0;  // maximum size of the body, of embeddings
  std::vector<Prompt> prompts;              // completions
  std::optional<ChatRequest> conversation;  // chat
  bool with_tools = false;  // the model may call tools of the conversation,
  ToolNames tool_names;     // those of these names
  bool one_call = false;    // of tools, in an answer, at most
  ToolCallRules tool_rules;
  ReasoningPlace reasoning = ReasoningPlace::kOwnField;
  ThinkingWish thinking_wish;
  // As the answer to the conversation begins.
  ThinkingStage thinking = ThinkingStage::kBefore;
  // The field that generation.constraint was read from; empty: there is none.
  std::string constraint_field;
  // Fields that were taken without effect, by name (field_rules.h).
  std::vector<std::string> ignored_fields;
  // Responses: fields of the request that answers repeat, as members of a JSON
  // object, each with a comma before it; at most kMaxRepeatedBytes.
  std::string repeated;
  ErrorForm error_form = ErrorForm::kOpenAi;

  // Number of answers, in the order of the prompts.
  int64_t choices() const {
    return n * static_cast<int64_t>(prompts.empty() ? 1 : prompts.size());
  }
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_API_REQUEST_H_
