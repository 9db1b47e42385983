// The target's token for one row of logits.
//
// At temperature 0 the arg max, ties to the lowest id. Above 0 the arg max of
// filtered logits / T plus Gumbel noise keyed by (seed, position, token id)
// (see position_noise.h), so that the token is a function of the row's own path
// and nothing else: no batch mate, draft or earlier draw can change it.
//
// Source of the scheme: the Gumbel-max trick; coupling of draft and target by
// shared noise: Daliri, Musco, Suresh, arXiv:2408.07978.
#ifndef FORETOKEN_COMMON_SAMPLING_SAMPLER_H_
#define FORETOKEN_COMMON_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/sampling/sampling_params.h"

namespace foretoken {

struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0.0f;
};

struct SampledToken {
  TokenId token = -1;
  float logprob = 0.0f;                    // only if params.logprobs >= 0
  std::vector<TokenLogprob> top_logprobs;  // [min(logprobs, vocab_size)]
};

// The committed tokens of one session as the penalties see them.
// Owned by one thread; const methods may be called concurrently.
class SamplingState {
 public:
  // `params` must have passed Validate. `prompt_length` tokens (BOS included)
  // are prompt, whatever is appended after them is output.
  SamplingState(SamplingParams params, int64_t prompt_length,
                int32_t vocab_size);

  // Prompt tokens and then committed output tokens, in order.
  void Append(absl::Span<const TokenId> tokens);

  const SamplingParams& params() const { return params_; }
  int64_t length() const { return length_; }  // tokens appended so far
  int64_t prompt_length() const { return prompt_length_; }
  int32_t vocab_size() const { return vocab_size_; }

  // The token that follows `path` after the appended tokens; its position (for
  // the noise and min_tokens) is length() + path.size(). `logits`:
  // [vocab_size], fp32. `scratch` is reused between calls of one thread.
  struct Scratch;
  SampledToken Sample(absl::Span<const float> logits,
                      absl::Span<const TokenId> path, Scratch& scratch) const;

 private:
  SamplingParams params_;
  int64_t prompt_length_;
  int32_t vocab_size_;
  int64_t length_ = 0;
  // Filled by whoever implements this header; see sampler.cc.
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SAMPLING_SAMPLER_H_
