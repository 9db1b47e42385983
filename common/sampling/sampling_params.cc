#include "common/sampling/sampling_params.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/token_range.h"

namespace foretoken {
namespace {

absl::Status Bad(absl::string_view field, const std::string& value,
                 absl::string_view want) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, ", want ", want));
}

// Includes both ends. The negated comparison also refuses NaN.
absl::Status CheckFloat(absl::string_view field, float value, float min,
                        float max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return Bad(field, absl::StrCat(value), absl::StrCat(min, "..", max));
}

absl::Status CheckAboveZero(absl::string_view field, float value, float max) {
  if (value > 0.0f && value <= max) return absl::OkStatus();
  return Bad(field, absl::StrCat(value),
             absl::StrCat("above 0 and up to ", max));
}

absl::Status CheckTokens(absl::string_view field,
                         const std::vector<TokenId>& tokens,
                         int32_t vocab_size) {
  if (tokens.size() > kMaxTokenListSize) {
    return Bad(absl::StrCat("size of ", field), absl::StrCat(tokens.size()),
               absl::StrCat("0..", kMaxTokenListSize));
  }
  absl::flat_hash_set<TokenId> seen;
  for (const TokenId token : tokens) {
    if (!InVocabulary(token, vocab_size)) {
      return Bad(absl::StrCat("token of ", field), absl::StrCat(token),
                 absl::StrCat("0..", vocab_size - 1));
    }
    if (!seen.insert(token).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, " names token ", token, " twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SamplingParams::Validate(int32_t vocab_size) const {
  FORETOKEN_RETURN_IF_ERROR(CheckFloat("temperature", temperature, 0, 100));
  if (top_k < 0) return Bad("top_k", absl::StrCat(top_k), "0 (off) or more");
  FORETOKEN_RETURN_IF_ERROR(CheckAboveZero("top_p", top_p, 1));
  FORETOKEN_RETURN_IF_ERROR(CheckFloat("min_p", min_p, 0, 1));
  FORETOKEN_RETURN_IF_ERROR(
      CheckAboveZero("repetition_penalty", repetition_penalty, 100));
  FORETOKEN_RETURN_IF_ERROR(
      CheckFloat("presence_penalty", presence_penalty, -2, 2));
  FORETOKEN_RETURN_IF_ERROR(
      CheckFloat("frequency_penalty", frequency_penalty, -2, 2));
  std::vector<TokenId> biased;
  for (const auto& [token, bias] : logit_bias) {
    biased.push_back(token);
    FORETOKEN_RETURN_IF_ERROR(CheckFloat(
        absl::StrCat("logit_bias of token ", token), bias, -100, 100));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckTokens("logit_bias", biased, vocab_size));
  if (min_tokens < 0) {
    return Bad("min_tokens", absl::StrCat(min_tokens), "0 or more");
  }
  FORETOKEN_RETURN_IF_ERROR(CheckTokens("end_tokens", end_tokens, vocab_size));
  if (logprobs < -1 || logprobs > kMaxLogprobs) {
    return Bad("logprobs", absl::StrCat(logprobs),
               absl::StrCat("-1 (off)..", kMaxLogprobs));
  }
  return absl::OkStatus();
}

}  // namespace foretoken
