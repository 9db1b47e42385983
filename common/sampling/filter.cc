#include "common/sampling/filter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "common/sampling/fixed_math.h"

namespace foretoken {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Candidates are binned by their distance below the maximum, kBinsPerUnit bins
// per 1.0; the last bin takes everything further away. Binning is monotone, so
// only the bin that contains the limit has to be ordered exactly.
constexpr int kBins = 2048;
constexpr float kBinsPerUnit = 64.0f;

int BinOf(float distance) {  // >= 0; may be infinite
  return distance < kBins / kBinsPerUnit
             ? static_cast<int>(distance * kBinsPerUnit)
             : kBins - 1;
}

// Keeps the shortest prefix, in sort order, whose probability reaches top_p.
// `kept` holds the survivors of top-k (or all candidates of non-zero weight).
void ApplyTopP(float max_logit, const SamplingParams& params,
               std::vector<Candidate>& kept) {
  const auto scaled = [&](const Candidate& c) {
    return ScaledLogit(c.logit, max_logit, params.temperature);
  };
  std::array<uint64_t, kBins> weight_of_bin{};
  uint64_t total = 0;
  for (const Candidate& c : kept) {
    const float x = scaled(c);
    const uint64_t weight = FixedWeight(x);
    weight_of_bin[BinOf(-x)] += weight;
    total += weight;
  }
  // A candidate stays while the weight before it is below the limit.
  const uint64_t limit = static_cast<uint64_t>(
      static_cast<double>(params.top_p) * static_cast<double>(total));
  uint64_t before = 0;
  int edge = 0;
  // Whole bins first: after this loop `before` is the weight of all bins above
  // `edge`, and the limit falls into `edge`.
  while (edge + 1 < kBins && before + weight_of_bin[edge] < limit) {
    before += weight_of_bin[edge++];
  }
  const auto bin_of = [&](const Candidate& c) { return BinOf(-scaled(c)); };
  kept.erase(
      std::remove_if(kept.begin(), kept.end(),
                     [&](const Candidate& c) { return bin_of(c) > edge; }),
      kept.end());
  const auto on_edge =
      std::partition(kept.begin(), kept.end(),
                     [&](const Candidate& c) { return bin_of(c) < edge; });
  // Candidates above the edge stay unsorted: the result has no defined order.
  std::sort(on_edge, kept.end(), ComesBefore);
  auto last = on_edge;
  // At least one candidate stays, also if rounding makes the limit 0.
  while (last != kept.end() && (before < limit || last == kept.begin())) {
    before += FixedWeight(scaled(*last));
    ++last;
  }
  kept.erase(last, kept.end());
}

}  // namespace

TokenId ArgMax(absl::Span<const float> logits) {
  // Two vectorisable loops: lane-wise maxima, then the first index that holds
  // the maximum. `x > best` is false for NaN.
  constexpr size_t kLanes = 32;
  std::array<float, kLanes> lanes;
  lanes.fill(kMinusInfinity);
  const float* data = logits.data();
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
  if (best == kMinusInfinity) return 0;
  i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    bool found = false;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      found |= data[i + lane] == best;
    }
    if (found) break;
  }
  while (data[i] != best) ++i;
  return static_cast<TokenId>(i);
}

void SelectTopK(absl::Span<const float> logits, int32_t k,
                std::vector<Candidate>& kept) {
  kept.clear();
  const TokenId size = static_cast<TokenId>(logits.size());
  if (k >= size) {
    for (TokenId id = 0; id < size; ++id) kept.push_back({logits[id], id});
    return;
  }
  const float max_logit = logits[ArgMax(logits)];
  std::array<int32_t, kBins> count_of_bin{};
  // Equal infinities would give a NaN distance.
  const auto bin_of = [&](float logit) {
    return logit == max_logit ? 0 : BinOf(max_logit - logit);
  };
  for (const float logit : logits) ++count_of_bin[bin_of(logit)];
  int edge = 0;
  // The k-th best lies in bin `edge`; all bins up to it go to the exact
  // selection below.
  for (int32_t before = 0; before + count_of_bin[edge] < k; ++edge) {
    before += count_of_bin[edge];
  }
  for (TokenId id = 0; id < size; ++id) {
    if (bin_of(logits[id]) <= edge) kept.push_back({logits[id], id});
  }
  if (static_cast<size_t>(k) < kept.size()) {
    std::nth_element(kept.begin(), kept.begin() + k, kept.end(), ComesBefore);
    kept.resize(k);
  }
}

void SelectTopKSorted(absl::Span<const float> logits, int32_t k,
                      std::vector<Candidate>& kept) {
  SelectTopK(logits, k, kept);
  std::sort(kept.begin(), kept.end(), ComesBefore);
}

void SelectFewSorted(absl::Span<const float> logits, int32_t k,
                     std::vector<Candidate>& kept) {
  kept.clear();
  if (k <= 0) return;
  // Groups of kStep logits, kLanes apart, so that their maxima are lane-wise
  // maxima. The k-th best group maximum is at most the k-th best logit, and
  // only groups that reach it hold one of the best k.
  constexpr size_t kLanes = 32;
  constexpr size_t kStep = 32;
  constexpr size_t kBlock = kLanes * kStep;
  const float* data = logits.data();
  const size_t blocks = logits.size() / kBlock;
  const size_t count = static_cast<size_t>(k);
  std::vector<float> best;  // of the group maxima, ascending; at most k
  const auto offer = [&](float value) {
    if (best.size() == count && !(value > best.front())) return;
    if (!(value > kMinusInfinity)) return;
    if (best.size() == count) best.erase(best.begin());
    best.insert(std::lower_bound(best.begin(), best.end(), value), value);
  };
  std::vector<float> maxima(blocks * kLanes);
  for (size_t block = 0; block < blocks; ++block) {
    std::array<float, kLanes> lanes;
    lanes.fill(kMinusInfinity);
    const float* row = data + block * kBlock;
    for (size_t step = 0; step < kStep; ++step, row += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = row[lane] > lanes[lane] ? row[lane] : lanes[lane];
      }
    }
    std::copy(lanes.begin(), lanes.end(), maxima.begin() + block * kLanes);
    for (const float lane : lanes) offer(lane);
  }
  for (size_t i = blocks * kBlock; i < logits.size(); ++i) offer(data[i]);
  const float edge = best.size() < count ? kMinusInfinity : best.front();
  const auto take = [&](size_t i) {
    if (data[i] >= edge && data[i] > kMinusInfinity) {
      kept.push_back({data[i], static_cast<TokenId>(i)});
    }
  };
  for (size_t group = 0; group < maxima.size(); ++group) {
    if (!(maxima[group] >= edge)) continue;
    const size_t first = group / kLanes * kBlock + group % kLanes;
    for (size_t step = 0; step < kStep; ++step) take(first + step * kLanes);
  }
  for (size_t i = blocks * kBlock; i < logits.size(); ++i) take(i);
  std::sort(kept.begin(), kept.end(), ComesBefore);
  if (kept.size() > count) kept.resize(count);
}

void Filter(absl::Span<const float> logits, float max_logit,
            const SamplingParams& params, std::vector<Candidate>& kept) {
  const TokenId size = static_cast<TokenId>(logits.size());
  const auto scaled = [&](float logit) {
    return ScaledLogit(logit, max_logit, params.temperature);
  };
  if (params.top_k > 0 && params.top_k < size) {
    SelectTopK(logits, params.top_k, kept);
  } else {
    // Drop candidates whose weight rounds to 0 (e^-28 < 2^-40): they come after
    // everything top-p may keep. Without top-p, min-p alone compares in float,
    // where FixedExp is 0 below -87.
    const float lowest = params.top_p < 1.0f ? -28.0f : -90.0f;
    kept.clear();
    for (TokenId id = 0; id < size; ++id) {
      if (scaled(logits[id]) >= lowest) kept.push_back({logits[id], id});
    }
  }
  if (params.top_p < 1.0f) ApplyTopP(max_logit, params, kept);
  if (params.min_p > 0.0f) {
    // p(id) / p(best) is FixedExp(scaled): min-p needs no normalisation.
    kept.erase(std::remove_if(kept.begin(), kept.end(),
                              [&](const Candidate& c) {
                                return FixedExp(scaled(c.logit)) < params.min_p;
                              }),
               kept.end());
  }
  // The best candidate has weight 1 and passes every filter.
  FORETOKEN_CHECK(!kept.empty());
}

}  // namespace foretoken
