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

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/sampling/filter.h"
#include "common/sampling/sampling_params.h"

namespace foretoken {

struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0.0f;
};

// Logprobs are the log-softmax of the raw logits, before penalties, bias and
// temperature; -infinity for a logit of -infinity or NaN.
struct SampledToken {
  TokenId token = -1;
  float logprob = 0.0f;                    // only if params.logprobs >= 0
  std::vector<TokenLogprob> top_logprobs;  // [min(logprobs, vocab_size)]
};

// What is left of sampling once penalties, bias and bans are applied: the token
// at `position` out of `logits`, which hold no NaN unless the temperature is 0.
// By temperature, top-k, top-p, min-p and seed of `params`.
TokenId DrawToken(absl::Span<const float> logits, const SamplingParams& params,
                  int64_t position, std::vector<Candidate>& candidates);

// Fills result.logprob of result.token and the best `count` of the raw logits;
// NaN counts as -infinity. `raw` and `candidates` are scratch.
void ReportLogprobs(absl::Span<const float> logits, int32_t count,
                    std::vector<float>& raw, std::vector<Candidate>& candidates,
                    SampledToken& result);

// The committed tokens of one session as the penalties see them.
// Owned by one thread; const methods may be called concurrently, each thread
// with a Scratch of its own.
class SamplingState {
 public:
  // Buffers that keep their capacity from call to call; any state, any row.
  struct Scratch {
    std::vector<float> logits;          // adjusted copy
    std::vector<float> raw;             // the raw row without NaN
    std::vector<Candidate> candidates;  // what the filters left
    absl::flat_hash_map<TokenId, int32_t> path_counts;
  };

  // `params` must have passed Validate. `prompt_length` tokens (BOS included)
  // are prompt, whatever is appended after them is output.
  SamplingState(SamplingParams params, int64_t prompt_length,
                int32_t vocab_size);

  // Prompt tokens and then committed output tokens, in order; each inside the
  // vocabulary.
  void Append(absl::Span<const TokenId> tokens);

  const SamplingParams& params() const { return params_; }
  // Changes what is reported, never what is drawn.
  void set_logprobs(int32_t logprobs) { params_.logprobs = logprobs; }
  int64_t length() const { return length_; }  // tokens appended so far
  int64_t prompt_length() const { return prompt_length_; }
  int32_t vocab_size() const { return vocab_size_; }
  // Whether a penalty is on, so that tokens have to be counted.
  bool counts_tokens() const;
  // Every token seen, with how often in the output (0: in the prompt only);
  // empty unless counts_tokens().
  const absl::flat_hash_map<TokenId, int32_t>& output_counts() const {
    return output_counts_;
  }

  // The token that follows `path` after the appended tokens; its position (for
  // the noise and min_tokens) is length() + path.size(). `logits`:
  // [vocab_size], fp32.
  //
  // In this order: repetition penalty on every token of prompt and output
  // (logit / r above 0, logit * r below), then for tokens of the output
  // frequency_penalty * count and presence_penalty are taken off, then
  // logit_bias is added, then end tokens are banned while fewer than
  // min_tokens of output exist; temperature; top-k, top-p, min-p. Tokens of
  // `path` count as committed ones, prompt up to prompt_length().
  //
  // NaN counts as -infinity. Where nothing above -infinity is left the token
  // is 0.
  SampledToken Sample(absl::Span<const float> logits,
                      absl::Span<const TokenId> path, Scratch& scratch) const;

 private:
  // True and scratch.logits filled if anything differs from the raw logits.
  bool Adjust(absl::Span<const float> logits, absl::Span<const TokenId> path,
              Scratch& scratch) const;
  void ApplyPenalties(absl::Span<const TokenId> path, Scratch& scratch) const;
  float Penalised(float logit, int32_t output_count) const;

  SamplingParams params_;
  int64_t prompt_length_;
  int32_t vocab_size_;
  int64_t length_ = 0;
  absl::flat_hash_map<TokenId, int32_t> output_counts_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SAMPLING_SAMPLER_H_
