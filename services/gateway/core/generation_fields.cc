#include "services/gateway/core/generation_fields.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/mix.h"
#include "common/base/raw_member.h"
#include "common/base/status_macros.h"
#include "common/sampling/sampling_params.h"
#include "common/speculation/mode_spec.h"
#include "common/speculation/modes.h"
#include "common/text/chat/chat_template.h"
#include "common/text/stop_matcher.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {
namespace {

// The smallest value of a field whose range does not contain its end 0.
constexpr double kAboveZero = std::numeric_limits<float>::min();
// OpenAI's bounds in characters; 4 bytes are one at most.
constexpr size_t kMaxMetadata = 16;
constexpr size_t kMaxMetadataKeyBytes = 4 * 64;
constexpr size_t kMaxMetadataValueBytes = 4 * 512;
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

void ReadSampling(RequestFields& fields, SamplingParams& sampling) {
  const auto number = [&](const char* field, FieldRange<double> range,
                          float& value) {
    if (const auto given = fields.Number(field, range)) {
      value = static_cast<float>(*given);
    }
  };
  sampling.temperature = 1;  // OpenAI's default, not the engine's
  number("temperature", {0, 100}, sampling.temperature);
  number("top_p", {kAboveZero, 1}, sampling.top_p);
  number("min_p", {0, 1}, sampling.min_p);
  number("repetition_penalty", {kAboveZero, 100}, sampling.repetition_penalty);
  number("presence_penalty", {-2, 2}, sampling.presence_penalty);
  number("frequency_penalty", {-2, 2}, sampling.frequency_penalty);
  // -1 is how others write "off".
  sampling.top_k = static_cast<int32_t>(
      std::max<int64_t>(0, fields.Int("top_k", {-1, kMaxInt32}).value_or(0)));
  sampling.min_tokens = static_cast<int32_t>(
      fields.Int("min_tokens", {0, kMostTokens}).value_or(0));
}

void ReadLogitBias(RequestFields& fields, SamplingParams& sampling) {
  const Json* value = fields.Find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object() || value->size() > kMaxTokenListSize) {
    fields.Fail(FieldError("logit_bias",
                           absl::StrCat("want an object of at most ",
                                        kMaxTokenListSize, " token ids"),
                           "invalid_type"));
    return;
  }
  for (const auto& [key, bias] : value->items()) {
    TokenId token = -1;
    // JSON's keys are strings, also where the API means numbers.
    if (!absl::SimpleAtoi(key, &token) || token < 0) {
      fields.Fail(
          FieldError("logit_bias", "want token ids as keys", "invalid_value"));
      return;
    }
    // 1000 is beyond the range, so that a wrong type is refused with the rest;
    // so is NaN, by the form of the comparison.
    const double amount = bias.is_number() ? bias.get<double>() : 1000.0;
    if (!(amount >= -100 && amount <= 100)) {
      fields.Fail(FieldError("logit_bias", "want numbers of -100..100",
                             "invalid_value"));
      return;
    }
    sampling.logit_bias.emplace_back(token, static_cast<float>(amount));
  }
}

// Not value == -1: that compares 2^64 - 1 as a signed number.
bool IsMinusOne(const Json& value) {
  return value.is_number_integer() && !value.is_number_unsigned() &&
         value.get<int64_t>() == -1;
}

void ReadSeed(RequestFields& fields, GenerationRequest& request) {
  request.has_seed = false;
  const Json* value = fields.Find("seed");
  // -1 is how others write that it is drawn.
  if (value == nullptr || IsMinusOne(*value)) return;
  if (!value->is_number_integer()) {
    fields.Fail(FieldError("seed", "want an integer", "invalid_type"));
    return;
  }
  request.has_seed = true;
  request.sampling.seed = value->is_number_unsigned()
                              ? value->get<uint64_t>()
                              // Negative seeds are seeds as well: any 64 bits
                              // are.
                              : static_cast<uint64_t>(value->get<int64_t>());
}

void ReadStop(RequestFields& fields, GenerationRequest& request) {
  const Json* value = fields.Find("stop");
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > StopMatcher::kMaxStrings) {
    fields.Fail(FieldError(
        "stop",
        absl::StrCat("want at most ", StopMatcher::kMaxStrings, " strings"),
        "array_above_max_length"));
    return;
  }
  for (const Json& each : list) {
    if (!each.is_string()) {
      fields.Fail(FieldError("stop", "want a string or an array of strings",
                             "invalid_type"));
      return;
    }
    request.stop_strings.push_back(each.get<std::string>());
  }
  // Built here for its checks only: the request carries the strings.
  const absl::Status checked =
      StopMatcher::Create(request.stop_strings).status();
  if (!checked.ok()) {
    fields.Fail(FieldError("stop", checked.message(), "invalid_value"));
  }
}

void ReadStopTokens(RequestFields& fields, GenerationRequest& request) {
  const Json* value = fields.Find("stop_token_ids");
  if (value == nullptr) return;
  const absl::Status wrong =
      FieldError("stop_token_ids",
                 absl::StrCat("want an array of at most ", kMaxTokenListSize,
                              " token ids"),
                 "invalid_type");
  if (!value->is_array() || value->size() > kMaxTokenListSize) {
    fields.Fail(wrong);
    return;
  }
  for (const Json& each : *value) {
    // A number above 2^63 compares as a negative one (IsMinusOne), and so is
    // refused too.
    if (!each.is_number_integer() || each < 0 || each > kMaxInt32) {
      fields.Fail(wrong);
      return;
    }
    request.stop_token_ids.push_back(each.get<TokenId>());
  }
}

// The text that the mode table reads.
std::string ParameterText(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  return DumpJson(value);
}

// {"draft_model": {"gamma": 5}, "max_tree_nodes": 32}, as the message
// SpeculationConfig is written in JSON.
absl::Status ReadSpeculationObject(const Json& object,
                                   GenerationRequest& request) {
  RequestFields fields(object, "speculation");
  if (const auto nodes = fields.Int("max_tree_nodes", {1, kMaxDraftNodes})) {
    request.max_tree_nodes = static_cast<int32_t>(*nodes);
  }
  for (const ModeInfo& mode : ModeTable()) {
    if (!mode.in_requests) continue;
    const Json* options = fields.Find(mode.name);
    if (options == nullptr) continue;
    if (request.mode.has_value()) {
      return FieldError("speculation", "names two modes", "invalid_value");
    }
    if (!options->is_object()) {
      return FieldError(fields.Name(mode.name), "want an object",
                        "invalid_type");
    }
    std::vector<std::pair<std::string, std::string>> parameters;
    for (const auto& [key, value] : options->items()) {
      parameters.emplace_back(key, ParameterText(value));
    }
    auto spec = ModeSpec::Create(std::string(mode.name), std::move(parameters));
    FORETOKEN_RETURN_IF_ERROR(spec.status());
    auto made = Mode::Create(*std::move(spec));
    FORETOKEN_RETURN_IF_ERROR(made.status());
    request.mode = *std::move(made);
  }
  return fields.Finish();
}

void ReadSpeculation(RequestFields& fields, GenerationRequest& request) {
  const Json* value = fields.Find("speculation");
  if (value == nullptr) return;
  absl::Status read;
  if (value->is_string()) {
    auto mode = Mode::Parse(value->get_ref<const std::string&>());
    read = mode.status();
    if (mode.ok()) request.mode = *std::move(mode);
  } else {
    read = ReadSpeculationObject(*value, request);
  }
  if (read.ok()) return;
  // Errors of the mode table name the parameter, not the field.
  fields.Fail(ToApiError(read).param.empty()
                  ? FieldError("speculation", read.message(), "invalid_value")
                  : read);
}

// The names by which the request gives `field`; none if it gives its own.
std::vector<std::string> OtherNames(const RequestFields& fields,
                                    absl::string_view field) {
  const std::vector<absl::string_view> given = fields.GivenNames();
  if (absl::c_linear_search(given, field)) return {};
  std::vector<std::string> names;
  for (const FieldRule& rule : FieldRules()) {
    if (rule.use == FieldUse::kName && rule.detail == field &&
        absl::c_linear_search(given, rule.name)) {
      names.emplace_back(rule.name);
    }
  }
  return names;
}

// The scope within which the request shares text: "" is none at all, unlike a
// request that says nothing about it. So is llama.cpp's cache_prompt: false.
void ReadScope(RequestFields& fields, ApiRequest& request) {
  // No value unless given: null counts as absent, "" does not.
  const std::optional<std::string> scope =
      fields.Text("cache_scope", kMaxCacheScopeBytes);
  request.scope_fields = OtherNames(fields, "cache_scope");
  const bool reuses = fields.Bool("cache_prompt", true);
  request.own_prefixes = reuses && !scope.has_value();
  request.generation.cache_scope = scope.value_or("");
  if (!reuses && !request.generation.cache_scope.empty()) {
    fields.Fail(
        FieldError("cache_prompt",
                   absl::StrCat("is false, but ", fields.Name("cache_scope"),
                                " names a scope"),
                   "invalid_value"));
  }
}

void ReadExtension(RequestFields& fields, ApiRequest& request) {
  const Json* value = fields.Find("foretoken");
  if (value == nullptr) return;
  RequestFields extension(*value, "foretoken");
  request.want_tokens = extension.Bool("tokens", false);
  request.want_rounds = extension.Bool("rounds", false);
  // Trees are sent on only if asked for: they are far larger than the tokens.
  request.generation.want_round_trees = request.want_rounds;
  const absl::Status read = extension.Finish();
  if (!read.ok()) fields.Fail(read);
}

void ReadStreaming(RequestFields& fields, ApiRequest& request) {
  request.stream = fields.Bool("stream", false);
  const Json* value = fields.Find("stream_options");
  if (value == nullptr) return;
  RequestFields options(*value, "stream_options");
  request.include_usage = options.Bool("include_usage", false);
  options.Refuse("include_obfuscation", {false});
  const absl::Status read = options.Finish();
  if (!read.ok()) {
    fields.Fail(read);
  } else if (request.include_usage && !request.stream) {
    fields.Fail(
        FieldError("stream_options", "needs stream: true", "invalid_value"));
  }
}

}  // namespace

void ReadGenerationFields(RequestFields& fields, ApiRequest& request,
                          ApiEndpoint endpoint) {
  // First: the other names must be known before any field is looked for.
  AddFieldNames(endpoint, fields);
  GenerationRequest& generation = request.generation;
  request.model = fields.Text("model", kMaxModelBytes).value_or("");
  ReadSampling(fields, generation.sampling);
  ReadLogitBias(fields, generation.sampling);
  ReadSeed(fields, generation);
  ReadStop(fields, generation);
  ReadStopTokens(fields, generation);
  generation.ignore_eos = fields.Bool("ignore_eos", false);
  ReadSpeculation(fields, generation);
  ReadScope(fields, request);
  ReadExtension(fields, request);
  ReadStreaming(fields, request);
  if (request.want_rounds && !request.stream) {
    fields.Fail(
        FieldError("foretoken.rounds", "needs stream: true", "invalid_value"));
  }
  // Last: what the rules take or refuse depends on what has been read above,
  // sampling for one.
  ApplyFieldRules(endpoint, fields, request);
}

std::optional<int64_t> ReadTokenLimit(RequestFields& fields,
                                      const char* field) {
  const Json* const value = fields.Find(field);
  // -1 is how others write that there is no limit.
  if (value != nullptr && IsMinusOne(*value)) return std::nullopt;
  return fields.Int(field, {1, kMostTokens});
}

void ReadChoices(RequestFields& fields, int64_t prompts, ApiRequest& request) {
  request.n = fields.Int("n", {1, kMaxChoices}).value_or(1);
  if (request.n * prompts > kMaxChoices) {
    fields.Fail(FieldError("n",
                           absl::StrCat("with ", prompts, " prompts over ",
                                        kMaxChoices, " choices"),
                           "invalid_value"));
  }
}

void ReadTemplateVariables(absl::string_view text, RequestFields& fields,
                           ChatRequest& conversation) {
  conversation.add_generation_prompt =
      fields.Bool("add_generation_prompt", true);
  const Json* const variables = fields.Find("chat_template_kwargs");
  if (variables == nullptr) return;
  if (!variables->is_object()) {
    fields.Fail(
        FieldError("chat_template_kwargs", "want an object", "invalid_type"));
    return;
  }
  if (variables->size() > ChatTemplate::kMaxVariables) {
    fields.Fail(
        FieldError("chat_template_kwargs",
                   absl::StrCat("want at most ", ChatTemplate::kMaxVariables,
                                " variables"),
                   "invalid_value"));
    return;
  }
  // The text as it came: a JSON object of ours would lose the order of its
  // members, which templates can show.
  conversation.variables = std::string(RawMember(text, "chat_template_kwargs"));
}

void RefuseToolsWithConstraint(RequestFields& fields,
                               const ApiRequest& request) {
  if (!request.with_tools || request.constraint_field.empty()) return;
  fields.Fail(
      Unsupported(request.constraint_field,
                  "not supported together with tools, want tool_choice: none"));
}

void ReadMetadata(RequestFields& fields) {
  const Json* const value = fields.Find("metadata");
  if (value == nullptr) return;
  bool good = value->is_object() && value->size() <= kMaxMetadata;
  if (good) {
    for (const auto& [key, text] : value->items()) {
      good =
          good && key.size() <= kMaxMetadataKeyBytes && text.is_string() &&
          text.get_ref<const std::string&>().size() <= kMaxMetadataValueBytes;
    }
  }
  if (good) return;
  fields.Fail(FieldError(
      "metadata",
      absl::StrCat("want an object of at most ", kMaxMetadata,
                   " strings of up to ", kMaxMetadataValueBytes,
                   " bytes, with keys of up to ", kMaxMetadataKeyBytes),
      "invalid_value"));
}

uint64_t SeedOfChoice(uint64_t seed, int64_t choice) {
  if (choice == 0) return seed;
  return MixBits(seed + static_cast<uint64_t>(choice) * kMixStep);
}

}  // namespace foretoken::gateway
