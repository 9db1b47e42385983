#include "services/gateway/core/field_rules.h"

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/sampling/sampling_params.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {
namespace {

constexpr uint8_t kTexts = kCompletions | kChats;
constexpr uint8_t kTalks = kChats | kResponses;
constexpr uint8_t kAllButInfill = kAllEndpoints & ~kInfill;

constexpr char kOpenAi[] = "OpenAI";
constexpr char kLlamaCpp[] = "llama.cpp";
constexpr char kOllama[] = "Ollama";
constexpr char kVllm[] = "vLLM";
constexpr char kSglang[] = "SGLang";

// llama.cpp switches samplers off by these values; their other settings have no
// effect then.
constexpr FieldRule kRules[] = {
    // Names.
    {"prompt_cache_key", kOpenAi, kAllEndpoints, FieldUse::kName,
     "cache_scope"},
    {"cache_salt", kVllm, kAllEndpoints, FieldUse::kName, "cache_scope"},
    {"repeat_penalty", "llama.cpp, Ollama", kAllEndpoints, FieldUse::kName,
     "repetition_penalty"},
    {"n_predict", kLlamaCpp, kTexts | kInfill, FieldUse::kName, "max_tokens"},
    {"num_predict", kOllama, kTexts | kInfill, FieldUse::kName, "max_tokens"},
    {"think", kOllama, kTalks, FieldUse::kName, "enable_thinking"},

    // Code of their own.
    {"cache_prompt", kLlamaCpp, kAllEndpoints, FieldUse::kRead,
     "generation_fields.cc"},
    {"reasoning_effort", kOpenAi, kChats, FieldUse::kRead,
     "reasoning_rules.cc"},
    {"enable_thinking", "Alibaba Cloud", kTalks, FieldUse::kRead,
     "reasoning_rules.cc"},

    // OpenAI.
    {"user", kOpenAi, kAllEndpoints, FieldUse::kIgnored, ""},
    {"safety_identifier", kOpenAi, kAllEndpoints, FieldUse::kIgnored, ""},
    // Clients spell it either way.
    {"prompt_cache_retention", kOpenAi, kAllEndpoints, FieldUse::kNeutral,
     R"(["in_memory", "in-memory"])"},
    {"suffix", kOpenAi, kCompletions, FieldUse::kNeutral, R"([""])"},
    {"functions", kOpenAi, kChats, FieldUse::kNeutral, "[[]]"},
    {"function_call", kOpenAi, kChats, FieldUse::kNeutral, R"(["none"])"},
    {"modalities", kOpenAi, kChats, FieldUse::kNeutral, R"([["text"]])"},
    // Nothing is stored. OpenAI stores responses by default: the answer to a
    // request without `store` says that it is false.
    {"store", kOpenAi, kTalks, FieldUse::kNeutral, "[false]"},
    {"service_tier", kOpenAi, kTalks, FieldUse::kNeutral,
     R"(["auto", "default"])"},
    {"verbosity", kOpenAi, kChats, FieldUse::kNeutral, R"(["medium"])"},
    {"audio", kOpenAi, kChats, FieldUse::kRefused, ""},
    {"prediction", kOpenAi, kChats, FieldUse::kIgnored, ""},
    {"web_search_options", kOpenAi, kChats, FieldUse::kRefused, ""},
    {"background", kOpenAi, kResponses, FieldUse::kNeutral, "[false]"},
    {"truncation", kOpenAi, kResponses, FieldUse::kNeutral, R"(["disabled"])"},
    {"context_management", kOpenAi, kResponses, FieldUse::kNeutral, "[[]]"},
    {"previous_response_id", kOpenAi, kResponses, FieldUse::kRefused, ""},
    {"conversation", kOpenAi, kResponses, FieldUse::kRefused, ""},
    {"prompt", kOpenAi, kResponses, FieldUse::kRefused, ""},

    // llama.cpp.
    {"repeat_last_n", "llama.cpp, Ollama", kAllEndpoints,
     FieldUse::kWithoutPenalties, "[-1]"},
    {"mirostat", "llama.cpp, Ollama", kAllEndpoints, FieldUse::kNeutral, "[0]"},
    {"mirostat_tau", "llama.cpp, Ollama", kAllEndpoints, FieldUse::kIgnored,
     ""},
    {"mirostat_eta", "llama.cpp, Ollama", kAllEndpoints, FieldUse::kIgnored,
     ""},
    {"typical_p", "llama.cpp, Ollama", kAllEndpoints, FieldUse::kNeutral,
     "[1]"},
    {"tfs_z", "llama.cpp, Ollama", kAllEndpoints, FieldUse::kNeutral, "[1]"},
    {"dynatemp_range", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral, "[0]"},
    {"dynatemp_exponent", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"xtc_probability", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral, "[0]"},
    {"xtc_threshold", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"dry_multiplier", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral, "[0]"},
    {"dry_base", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"dry_allowed_length", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"dry_penalty_last_n", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"dry_sequence_breakers", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"top_n_sigma", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral, "[-1, 0]"},
    // Editors ask for top_k and top_p before a choice among what is left.
    {"samplers", kLlamaCpp, kAllButInfill, FieldUse::kRefused, ""},
    {"samplers", kLlamaCpp, kInfill, FieldUse::kIgnored, ""},
    {"min_keep", kLlamaCpp, kInfill, FieldUse::kNeutral, "[0]"},
    {"n_probs", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral, "[0]"},
    {"post_sampling_probs", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral,
     "[false]"},
    {"n_cmpl", kLlamaCpp, kInfill, FieldUse::kNeutral, "[1]"},
    // Editors send these with every request: they bound its time and its
    // answer, and do without.
    {"n_indent", kLlamaCpp, kAllButInfill, FieldUse::kNeutral, "[0]"},
    {"n_indent", kLlamaCpp, kInfill, FieldUse::kIgnored, ""},
    {"t_max_predict_ms", kLlamaCpp, kAllButInfill, FieldUse::kNeutral,
     "[0, -1]"},
    {"t_max_predict_ms", kLlamaCpp, kInfill, FieldUse::kIgnored, ""},
    {"t_max_prompt_ms", kLlamaCpp, kInfill, FieldUse::kIgnored, ""},
    {"response_fields", kLlamaCpp, kInfill, FieldUse::kIgnored, ""},
    {"sse_ping_interval", kLlamaCpp, kInfill, FieldUse::kIgnored, ""},
    {"n_keep", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"n_discard", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"n_cache_reuse", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"id_slot", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"speculative.n_max", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"speculative.n_min", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"speculative.p_min", kLlamaCpp, kAllEndpoints, FieldUse::kIgnored, ""},
    {"lora", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral, "[[]]"},
    {"return_tokens", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral, "[false]"},
    {"return_progress", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral,
     "[false]"},
    {"timings_per_token", kLlamaCpp, kAllEndpoints, FieldUse::kNeutral,
     "[false]"},
    {"reasoning_in_content", kLlamaCpp, kChats, FieldUse::kNeutral, "[false]"},
    {"thinking_forced_open", kLlamaCpp, kChats, FieldUse::kNeutral, "[false]"},
    {"thinking_budget_tokens", kLlamaCpp, kChats, FieldUse::kNeutral, "[-1]"},
    {"parse_tool_calls", kLlamaCpp, kChats, FieldUse::kNeutral, "[true]"},
    {"chat_template", "llama.cpp, vLLM", kChats, FieldUse::kRefused, ""},

    // Ollama: how a model is loaded is the server's matter.
    {"keep_alive", kOllama, kAllEndpoints, FieldUse::kIgnored, ""},
    {"num_ctx", kOllama, kAllEndpoints, FieldUse::kIgnored, ""},
    {"num_batch", kOllama, kAllEndpoints, FieldUse::kIgnored, ""},
    {"num_gpu", kOllama, kAllEndpoints, FieldUse::kIgnored, ""},
    {"num_thread", kOllama, kAllEndpoints, FieldUse::kIgnored, ""},
    {"options", kOllama, kAllEndpoints, FieldUse::kNeutral, "[{}]"},

    // vLLM. There is no beam search, to which two of these belong.
    {"use_beam_search", kVllm, kAllEndpoints, FieldUse::kNeutral, "[false]"},
    {"length_penalty", kVllm, kAllEndpoints, FieldUse::kIgnored, ""},
    {"early_stopping", kVllm, kAllEndpoints, FieldUse::kIgnored, ""},
    {"priority", kVllm, kAllEndpoints, FieldUse::kIgnored, ""},
    {"request_id", kVllm, kAllEndpoints, FieldUse::kIgnored, ""},
    {"skip_special_tokens", "vLLM, SGLang", kAllEndpoints, FieldUse::kNeutral,
     "[true]"},
    {"spaces_between_special_tokens", kVllm, kAllEndpoints, FieldUse::kIgnored,
     ""},
    {"include_stop_str_in_output", kVllm, kAllEndpoints, FieldUse::kNeutral,
     "[false]"},
    {"truncate_prompt_tokens", kVllm, kAllEndpoints, FieldUse::kRefused, ""},
    {"prompt_logprobs", kVllm, kAllEndpoints, FieldUse::kRefused, ""},
    {"allowed_token_ids", kVllm, kAllEndpoints, FieldUse::kRefused, ""},
    {"bad_words", kVllm, kAllEndpoints, FieldUse::kNeutral, "[[]]"},
    {"logits_processors", kVllm, kAllEndpoints, FieldUse::kNeutral, "[[]]"},
    {"return_token_ids", kVllm, kAllEndpoints, FieldUse::kNeutral, "[false]"},
    {"return_tokens_as_token_ids", kVllm, kAllEndpoints, FieldUse::kNeutral,
     "[false]"},
    {"add_special_tokens", kVllm, kCompletions, FieldUse::kNeutral, "[true]"},
    // A template writes those of a chat.
    {"add_special_tokens", kVllm, kChats, FieldUse::kNeutral, "[false]"},
    {"continue_final_message", "vLLM, SGLang", kChats, FieldUse::kNeutral,
     "[false]"},
    {"echo", kVllm, kChats, FieldUse::kNeutral, "[false]"},
    {"documents", kVllm, kChats, FieldUse::kNeutral, "[[]]"},
    {"mm_processor_kwargs", kVllm, kAllEndpoints, FieldUse::kNeutral, "[{}]"},
    {"kv_transfer_params", kVllm, kAllEndpoints, FieldUse::kRefused, ""},
    {"thinking_token_budget", kVllm, kChats, FieldUse::kRefused, ""},

    // SGLang.
    {"stream_reasoning", kSglang, kChats, FieldUse::kNeutral, "[true]"},
    {"no_stop_trim", kSglang, kAllEndpoints, FieldUse::kNeutral, "[false]"},
    {"return_hidden_states", kSglang, kAllEndpoints, FieldUse::kNeutral,
     "[false]"},
    {"rid", kSglang, kAllEndpoints, FieldUse::kIgnored, ""},
    {"stop_regex", kSglang, kAllEndpoints, FieldUse::kRefused, ""},
    {"lora_path", kSglang, kAllEndpoints, FieldUse::kRefused, ""},
    {"custom_logit_processor", kSglang, kAllEndpoints, FieldUse::kRefused, ""},
};

// The rule for a field of the endpoint; nullptr if there is none.
const FieldRule* RuleOf(absl::string_view name, ApiEndpoint endpoint) {
  using Rules =
      absl::flat_hash_map<absl::string_view, std::vector<const FieldRule*>>;
  static const Rules* const rules = [] {
    auto* const made = new Rules();
    for (const FieldRule& rule : kRules) (*made)[rule.name].push_back(&rule);
    return made;
  }();
  const auto found = rules->find(name);
  if (found == rules->end()) return nullptr;
  for (const FieldRule* const rule : found->second) {
    if ((rule->endpoints & endpoint) == endpoint) return rule;
  }
  return nullptr;
}

bool HasPenalties(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
         sampling.frequency_penalty != 0;
}

// Refuses every value but those of `accepted`, a JSON array.
void AcceptOnly(const FieldRule& rule, RequestFields& fields) {
  const Json accepted = Json::parse(rule.detail);
  const Json* const value = fields.Find(rule.name);
  if (value == nullptr || absl::c_linear_search(accepted, *value)) return;
  std::vector<std::string> wanted;
  for (const Json& each : accepted) wanted.push_back(DumpJson(each));
  fields.Fail(Unsupported(fields.Name(rule.name),
                          absl::StrCat("this value is not supported, want ",
                                       absl::StrJoin(wanted, " or "))));
}

void Ignore(const FieldRule& rule, RequestFields& fields, ApiRequest& request) {
  fields.Find(rule.name);
  request.ignored_fields.push_back(rule.name);
}

}  // namespace

absl::Span<const FieldRule> FieldRules() { return kRules; }

void AddFieldNames(ApiEndpoint endpoint, RequestFields& fields) {
  for (const absl::string_view name : fields.GivenNames()) {
    const FieldRule* const rule = RuleOf(name, endpoint);
    if (rule == nullptr || rule->use != FieldUse::kName) continue;
    fields.AddName(rule->name, rule->detail);
  }
}

void ApplyFieldRules(ApiEndpoint endpoint, RequestFields& fields,
                     ApiRequest& request) {
  for (const absl::string_view name : fields.GivenNames()) {
    const FieldRule* const rule = RuleOf(name, endpoint);
    if (rule == nullptr) continue;
    switch (rule->use) {
      case FieldUse::kName:
      case FieldUse::kRead:
        break;
      case FieldUse::kNeutral:
        AcceptOnly(*rule, fields);
        break;
      case FieldUse::kIgnored:
        Ignore(*rule, fields, request);
        break;
      case FieldUse::kWithoutPenalties:
        if (HasPenalties(request.generation.sampling)) {
          AcceptOnly(*rule, fields);
        } else {
          Ignore(*rule, fields, request);
        }
        break;
      case FieldUse::kRefused:
        fields.Refuse(rule->name);
        break;
    }
  }
}

}  // namespace foretoken::gateway
