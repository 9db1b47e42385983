#include "common/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/sampling/fixed_math.h"
#include "common/sampling/position_noise.h"

namespace foretoken {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// A sum without branches vectorises; x != x holds for NaN alone.
bool HasNan(absl::Span<const float> logits) {
  int nans = 0;
  for (const float logit : logits) nans += logit != logit;
  return nans > 0;
}

// Rows are read in chunks of this many ids: a vectorised maximum says of most
// chunks that nothing in them can matter.
constexpr size_t kChunk = 64;

// NaN is smaller than anything, as in ArgMax.
float MaxOf(absl::Span<const float> logits) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(kMinusInfinity);
  const float* const data = logits.data();
  const size_t size = logits.size();
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = data[i + lane] > lanes[lane] ? data[i + lane] : lanes[lane];
    }
  }
  float best = kMinusInfinity;
  for (; i < size; ++i) best = data[i] > best ? data[i] : best;
  for (const float lane : lanes) best = lane > best ? lane : best;
  return best;
}

// The sum of FixedWeight over the row, at temperature 1: the same values, computed
// a chunk at a time without branches.
uint64_t TotalWeight(absl::Span<const float> logits, float max_logit) {
  // e^-28 is less than the weights' unit: such a logit adds nothing.
  constexpr float kNoWeight = -28.0f;
  if (!std::isfinite(max_logit)) {
    uint64_t equal = 0;  // the others have no weight
    for (const float logit : logits) {
      equal += FixedWeight(ScaledLogit(logit, max_logit, 1.0f));
    }
    return equal;
  }
  std::array<float, kChunk> weights;
  int64_t total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const absl::Span<const float> chunk = logits.subspan(begin, kChunk);
    if (MaxOf(chunk) - max_logit < kNoWeight) continue;
    const float* const data = chunk.data();
    const size_t size = chunk.size();
    for (size_t i = 0; i < size; ++i) {
      const float x = data[i] - max_logit;
      weights[i] = x > kNoWeight ? x : kNoWeight;
    }
    for (size_t i = 0; i < size; ++i) {
      weights[i] = internal::Mul(internal::ExpInRange(weights[i]), kWeightOne);
    }
    for (size_t i = 0; i < size; ++i) {
      total += static_cast<int64_t>(weights[i]);
    }
  }
  return static_cast<uint64_t>(total);
}

// The best score so far: scaled logit plus noise, ties to the lowest id.
struct Winner {
  float score = kMinusInfinity;
  TokenId id = 0;
  void Offer(float new_score, TokenId new_id) {
    if (new_score > score || (new_score == score && new_id < id)) {
      score = new_score;
      id = new_id;
    }
  }
};

// Bans the tokens that `allowed` leaves out, 64 at a time where it can.
void BanOthers(const uint64_t* allowed, absl::Span<float> logits) {
  for (size_t begin = 0; begin < logits.size(); begin += 64) {
    const uint64_t word = allowed[begin / 64];
    const size_t end = std::min(begin + 64, logits.size());
    if (word == ~uint64_t{0}) continue;
    for (size_t i = begin; i < end; ++i) {
      if ((word >> (i - begin) & 1) == 0) logits[i] = kMinusInfinity;
    }
  }
}

// `drawn` if it is allowed, else the lowest that is: all logits were -infinity.
TokenId AllowedToken(const uint64_t* allowed, TokenId drawn) {
  if ((allowed[drawn >> 6] >> (drawn & 63)) & 1) return drawn;
  TokenId word = 0;
  while (allowed[word] == 0) ++word;
  return 64 * word + std::countr_zero(allowed[word]);
}

// Arg max of scaled logit + noise over the whole row. The search starts from
// the score of the best logit, so an upper bound of the noise rules out almost
// every id before a logarithm is taken, whole chunks at a time. Scaling and
// rounding are monotone, so the bounds never rule out a winner.
TokenId DrawFromAll(absl::Span<const float> logits, TokenId best,
                    float temperature, uint64_t seed, int64_t position) {
  const float max_logit = logits[best];
  const auto scaled = [&](TokenId id) {
    return ScaledLogit(logits[id], max_logit, temperature);
  };
  Winner winner;
  winner.id = best;
  winner.score = scaled(best) + GumbelNoise(seed, position, best);
  const auto is_out = [&](absl::Span<const float> ids) {
    return ScaledLogit(MaxOf(ids), max_logit, temperature) + kMaxGumbel <
           winner.score;
  };
  const TokenId size = static_cast<TokenId>(logits.size());
  for (TokenId chunk = 0; chunk < size; chunk += static_cast<TokenId>(kChunk)) {
    if (is_out(logits.subspan(chunk, kChunk))) continue;
    const TokenId last = std::min(chunk + static_cast<TokenId>(kChunk), size);
    // Philox gives the noise of four ids at a time.
    for (TokenId begin = chunk; begin < last; begin += 4) {
      const TokenId end = std::min(begin + 4, last);
      float highest = kMinusInfinity;
      for (TokenId id = begin; id < end; ++id) {
        highest = std::max(highest, logits[id]);
      }
      if (ScaledLogit(highest, max_logit, temperature) + kMaxGumbel <
          winner.score) {
        continue;
      }
      const PhiloxWords noise = NoiseBlock(seed, position, begin / 4);
      for (TokenId id = begin; id < end; ++id) {
        const uint32_t word = noise.word[id - begin];
        const float x = scaled(id);
        if (x + GumbelUpperBound(word) < winner.score) continue;
        winner.Offer(x + GumbelFromWord(word), id);
      }
    }
  }
  return winner.id;
}

}  // namespace

TokenId DrawToken(absl::Span<const float> logits, const SamplingParams& params,
                  int64_t position, std::vector<Candidate>& candidates) {
  const TokenId best = ArgMax(logits);
  const float max_logit = logits[best];
  // A row of only NaN and -infinity: ArgMax returned 0.
  if (params.temperature == 0.0f || !(max_logit > kMinusInfinity)) return best;
  const int32_t size = static_cast<int32_t>(logits.size());
  const bool filters = (params.top_k > 0 && params.top_k < size) ||
                       params.top_p < 1.0f || params.min_p > 0.0f;
  if (!filters) {
    return DrawFromAll(logits, best, params.temperature, params.seed, position);
  }
  Filter(logits, max_logit, params, candidates);
  Winner winner;
  winner.id = best;
  for (const Candidate& c : candidates) {
    const float x = ScaledLogit(c.logit, max_logit, params.temperature);
    // Skip ids that cannot win with the largest noise there is.
    if (x + kMaxGumbel < winner.score) continue;
    winner.Offer(x + GumbelNoise(params.seed, position, c.id), c.id);
  }
  return winner.id;
}

void ReportLogprobs(absl::Span<const float> logits, int32_t count,
                    std::vector<float>& raw, std::vector<Candidate>& candidates,
                    SampledToken& result) {
  if (HasNan(logits)) {
    raw.assign(logits.begin(), logits.end());
    for (float& logit : raw) {
      if (logit != logit) logit = kMinusInfinity;
    }
    logits = raw;
  }
  const float max_logit = logits[ArgMax(logits)];
  const uint64_t total = TotalWeight(logits, max_logit);
  // The sum is an exact integer, so the logprobs do not depend on its order.
  const float log_total = FixedLog(static_cast<float>(total) / kWeightOne);
  const auto logprob = [&](TokenId id) {
    if (logits[id] == kMinusInfinity) return kMinusInfinity;
    return ScaledLogit(logits[id], max_logit, 1.0f) - log_total;
  };
  result.logprob = logprob(result.token);
  if (count == 0) return;
  SelectTopKSorted(logits, count, candidates);
  result.top_logprobs.reserve(candidates.size());
  for (const Candidate& c : candidates) {
    result.top_logprobs.push_back({c.id, logprob(c.id)});
  }
}

void ReportCandidates(absl::Span<const float> logits, int32_t count,
                      std::vector<Candidate>& candidates,
                      SampledToken& result) {
  SelectFewSorted(logits, count, candidates);
  result.top_logprobs.reserve(candidates.size());
  for (const Candidate& c : candidates) {
    result.top_logprobs.push_back(
        {c.id, ScaledLogit(c.logit, candidates[0].logit, 1.0f)});
  }
}

bool SamplingState::AllowsText(const uint64_t* allowed) const {
  for (TokenId begin = 0; begin < vocab_size_; begin += 64) {
    uint64_t word = allowed[begin / 64];
    // Bits beyond the vocabulary stand for nothing.
    if (vocab_size_ - begin < 64) {
      word &= (uint64_t{1} << (vocab_size_ - begin)) - 1;
    }
    for (const TokenId token : params_.end_tokens) {
      if (token / 64 == begin / 64) word &= ~(uint64_t{1} << (token & 63));
    }
    if (word != 0) return true;
  }
  return false;
}

SamplingState::SamplingState(SamplingParams params, int64_t prompt_length,
                             int32_t vocab_size)
    : params_(std::move(params)),
      prompt_length_(prompt_length),
      vocab_size_(vocab_size) {}

bool SamplingState::counts_tokens() const {
  return params_.repetition_penalty != 1.0f ||
         params_.presence_penalty != 0.0f || params_.frequency_penalty != 0.0f;
}

void SamplingState::Append(absl::Span<const TokenId> tokens) {
  if (counts_tokens()) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      // Prompt tokens enter with count 0: only the repetition penalty sees
      // them.
      const bool output = length_ + static_cast<int64_t>(i) >= prompt_length_;
      output_counts_[tokens[i]] += output ? 1 : 0;
      if (!output) prompt_tokens_.insert(tokens[i]);
    }
  }
  length_ += static_cast<int64_t>(tokens.size());
}

void SamplingState::DropLast(absl::Span<const TokenId> tokens) {
  length_ -= static_cast<int64_t>(tokens.size());
  FORETOKEN_CHECK(length_ >= prompt_length_);
  if (!counts_tokens()) return;
  for (const TokenId token : tokens) {
    const auto counted = output_counts_.find(token);
    FORETOKEN_CHECK(counted != output_counts_.end() && counted->second > 0);
    // A token of the prompt stays: the repetition penalty sees it.
    if (--counted->second == 0 && !prompt_tokens_.contains(token)) {
      output_counts_.erase(counted);
    }
  }
}

float SamplingState::Penalised(float logit, int32_t output_count) const {
  const float r = params_.repetition_penalty;
  if (r != 1.0f) logit = logit > 0.0f ? logit / r : logit * r;
  if (output_count > 0) {
    logit -= params_.frequency_penalty * static_cast<float>(output_count);
    logit -= params_.presence_penalty;
  }
  return logit;
}

void SamplingState::ApplyPenalties(absl::Span<const TokenId> path,
                                   Scratch& scratch) const {
  auto& path_counts = scratch.path_counts;
  path_counts.clear();
  for (size_t i = 0; i < path.size(); ++i) {
    const bool output = length_ + static_cast<int64_t>(i) >= prompt_length_;
    path_counts[path[i]] += output ? 1 : 0;
  }
  // Each token is penalised once, with its count over history and path: the
  // first loop takes the tokens that are not on the path, the second the rest.
  for (const auto& [token, count] : output_counts_) {
    if (path_counts.contains(token)) continue;
    scratch.logits[token] = Penalised(scratch.logits[token], count);
  }
  for (const auto& [token, count] : path_counts) {
    const auto before = output_counts_.find(token);
    const int32_t all =
        count + (before == output_counts_.end() ? 0 : before->second);
    scratch.logits[token] = Penalised(scratch.logits[token], all);
  }
}

bool SamplingState::Adjust(absl::Span<const float> logits,
                           absl::Span<const TokenId> path,
                           const uint64_t* allowed, Scratch& scratch) const {
  const int64_t position = length_ + static_cast<int64_t>(path.size());
  const bool bans_end = position - prompt_length_ < params_.min_tokens &&
                        !params_.end_tokens.empty() &&
                        (allowed == nullptr || AllowsText(allowed));
  // Arg max treats NaN as -infinity by itself; the noise comparisons do not.
  const bool clean = params_.temperature == 0.0f || !HasNan(logits);
  if (!counts_tokens() && params_.logit_bias.empty() && !bans_end && clean &&
      allowed == nullptr) {
    return false;
  }
  scratch.logits.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    scratch.logits[i] = logits[i] == logits[i] ? logits[i] : kMinusInfinity;
  }
  if (counts_tokens()) ApplyPenalties(path, scratch);
  for (const auto& [token, bias] : params_.logit_bias) {
    scratch.logits[token] += bias;
  }
  if (bans_end) {
    for (const TokenId token : params_.end_tokens) {
      scratch.logits[token] = kMinusInfinity;
    }
  }
  if (allowed != nullptr) BanOthers(allowed, absl::MakeSpan(scratch.logits));
  return true;
}

SampledToken SamplingState::Sample(absl::Span<const float> logits,
                                   absl::Span<const TokenId> path,
                                   const uint64_t* allowed,
                                   Scratch& scratch) const {
  FORETOKEN_CHECK(logits.size() == static_cast<size_t>(vocab_size_));
  const int64_t position = length_ + static_cast<int64_t>(path.size());
  SampledToken result;
  const bool adjusted = Adjust(logits, path, allowed, scratch);
  result.token =
      DrawToken(adjusted ? absl::Span<const float>(scratch.logits) : logits,
                params_, position, scratch.candidates);
  if (allowed != nullptr) result.token = AllowedToken(allowed, result.token);
  if (params_.logprobs >= 0) {
    ReportLogprobs(logits, reported(), scratch.raw, scratch.candidates, result);
  } else if (candidates_ > 0) {
    ReportCandidates(logits, candidates_, scratch.candidates, result);
  }
  return result;
}

}  // namespace foretoken
