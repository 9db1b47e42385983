// Sampling of the target's token for one row of logits.
//
// At temperature 0: arg max, ties to the lowest id. Above 0: arg max of
// filtered logits / T plus Gumbel noise keyed by (seed, position, token id);
// see position_noise.h. The token is therefore a function of the row's own path
// alone: no batch mate, draft or earlier draw can change it.
//
// Source of the scheme: the Gumbel-max trick; coupling of draft and target by
// shared noise: Daliri, Musco, Suresh, arXiv:2408.07978.
#ifndef FORETOKEN_COMMON_SAMPLING_SAMPLER_H_
#define FORETOKEN_COMMON_SAMPLING_SAMPLER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
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

// The last step of sampling, after penalties, bias and bans: draws the token at
// `position` from `logits`, which contain no NaN unless the temperature is 0.
// Uses temperature, top-k, top-p, min-p and seed of `params`.
TokenId DrawToken(absl::Span<const float> logits, const SamplingParams& params,
                  int64_t position, std::vector<Candidate>& candidates);

// Fills the logprob of result.token and the best `count` of the raw logits; NaN
// counts as -infinity. `raw` and `candidates` are scratch.
void ReportLogprobs(absl::Span<const float> logits, int32_t count,
                    std::vector<float>& raw, std::vector<Candidate>& candidates,
                    SampledToken& result);

// Fills result.top_logprobs with the best `count` of the raw logits, best
// first, relative to the best; NaN counts as -infinity. Reads the row once:
// cheap enough for every row of a pass. `candidates` is scratch.
void ReportCandidates(absl::Span<const float> logits, int32_t count,
                      std::vector<Candidate>& candidates, SampledToken& result);

// Committed tokens of one session, as the penalties see them. Owned by one
// thread; const methods may be called concurrently, each thread with its own
// Scratch.
class SamplingState {
 public:
  // Buffers that keep their capacity between calls; usable with any state and
  // row.
  struct Scratch {
    std::vector<float> logits;          // adjusted copy
    std::vector<float> raw;             // the raw row without NaN
    std::vector<Candidate> candidates;  // survivors of the filters
    absl::flat_hash_map<TokenId, int32_t> path_counts;
  };

  // `params` must have passed Validate. The first `prompt_length` tokens (BOS
  // included) are the prompt, all later ones are output.
  SamplingState(SamplingParams params, int64_t prompt_length,
                int32_t vocab_size);

  // Appends prompt tokens first, then committed output tokens, in order. All
  // must be inside the vocabulary.
  void Append(absl::Span<const TokenId> tokens);

  // Takes back the last appended tokens, which must be output: `tokens`, in any
  // order.
  void DropLast(absl::Span<const TokenId> tokens);

  const SamplingParams& params() const { return params_; }
  // Changes what is reported, never what is drawn.
  void set_logprobs(int32_t logprobs) { params_.logprobs = logprobs; }
  // Number of likeliest tokens that are reported as ReportCandidates does, in
  // samples without logprobs; with them, their number is the larger of both.
  void set_candidates(int32_t candidates) { candidates_ = candidates; }
  // Tokens reported besides the drawn one; -1: nothing is.
  int32_t reported() const {
    return candidates_ > 0 ? std::max(candidates_, params_.logprobs)
                           : params_.logprobs;
  }
  int64_t length() const { return length_; }  // tokens appended so far
  int64_t prompt_length() const { return prompt_length_; }
  int32_t vocab_size() const { return vocab_size_; }
  // Whether a penalty is on, which requires token counts.
  bool counts_tokens() const;
  // Output count of every token seen (0: in the prompt only). Empty unless
  // counts_tokens().
  const absl::flat_hash_map<TokenId, int32_t>& output_counts() const {
    return output_counts_;
  }

  // Samples the token that follows `path`, which follows the appended tokens.
  // Its position (for the noise and min_tokens) is length() + path.size().
  // `logits`: [vocab_size], fp32.
  //
  // Order: repetition penalty on every token of prompt and output (logit / r
  // above 0, logit * r below); frequency_penalty * count and presence_penalty
  // subtracted for tokens of the output; logit_bias added; end tokens banned
  // while the output has fewer than min_tokens; all tokens banned that are not
  // in `allowed`; temperature; top-k, top-p, min-p. Tokens of `path` count as
  // committed; those before prompt_length() as prompt.
  //
  // `allowed`: a bit for every token, from bit 0 of word 0 on, at least one of
  // them set; nullptr: all. If it leaves nothing but banned end tokens, these
  // are allowed. The token is an allowed one, the lowest if all of them have a
  // logit of -infinity.
  //
  // NaN counts as -infinity. If no logit is above -infinity, the token is 0.
  SampledToken Sample(absl::Span<const float> logits,
                      absl::Span<const TokenId> path, const uint64_t* allowed,
                      Scratch& scratch) const;
  SampledToken Sample(absl::Span<const float> logits,
                      absl::Span<const TokenId> path, Scratch& scratch) const {
    return Sample(logits, path, nullptr, scratch);
  }

 private:
  // Fills scratch.logits and returns true if anything differs from the raw
  // logits.
  bool Adjust(absl::Span<const float> logits, absl::Span<const TokenId> path,
              const uint64_t* allowed, Scratch& scratch) const;
  // Whether any token that is not an end token is allowed.
  bool AllowsText(const uint64_t* allowed) const;
  void ApplyPenalties(absl::Span<const TokenId> path, Scratch& scratch) const;
  float Penalised(float logit, int32_t output_count) const;

  SamplingParams params_;
  int64_t prompt_length_;
  int32_t vocab_size_;
  int32_t candidates_ = 0;
  int64_t length_ = 0;
  absl::flat_hash_map<TokenId, int32_t> output_counts_;
  absl::flat_hash_set<TokenId> prompt_tokens_;  // empty as output_counts_ is
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SAMPLING_SAMPLER_H_
