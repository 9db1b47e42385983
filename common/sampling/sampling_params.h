// Sampling parameters of a request, and their validation.
//
// Names, meanings and order are the usual ones: penalties and logit bias,
// temperature, top-k, top-p, min-p. Only these affect which token the target
// writes; speculation does not.
#ifndef FORETOKEN_COMMON_SAMPLING_SAMPLING_PARAMS_H_
#define FORETOKEN_COMMON_SAMPLING_SAMPLING_PARAMS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/types.h"

namespace foretoken {

inline constexpr int32_t kMaxLogprobs = 20;
inline constexpr size_t kMaxTokenListSize = 1024;  // logit_bias, end_tokens

struct SamplingParams {
  float temperature = 0.0f;         // 0 is greedy; up to 100
  int32_t top_k = 0;                // 0 is off
  float top_p = 1.0f;               // (0, 1], 1 is off
  float min_p = 0.0f;               // [0, 1], 0 is off
  float repetition_penalty = 1.0f;  // (0, 100]; over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2]; over the output
  float frequency_penalty = 0.0f;   // [-2, 2]; over the output
  std::vector<std::pair<TokenId, float>> logit_bias;  // bias in [-100, 100]
                                                      // each token once
  uint64_t seed = 0;

  // Tokens banned until min_tokens of output exist: the end tokens and the stop
  // token ids. With ignore_eos, callers leave out the end tokens.
  int32_t min_tokens = 0;
  std::vector<TokenId> end_tokens;

  // Number of most likely tokens whose log-probabilities are reported (up to
  // kMaxLogprobs) besides that of the chosen token, from the raw logits. 0: the
  // chosen token alone; -1: off.
  int32_t logprobs = -1;

  // InvalidArgument names the field, its value and the range. Refuses NaN,
  // infinities, ids outside the vocabulary or listed twice, and lists that are
  // too long.
  absl::Status Validate(int32_t vocab_size) const;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SAMPLING_SAMPLING_PARAMS_H_
