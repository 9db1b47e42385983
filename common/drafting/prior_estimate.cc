#include "common/drafting/prior_estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace foretoken {
namespace {

constexpr double kTiny = 1e-9;  // keeps logarithms finite

// Weight of n-gram i in its context's distribution: occurrences at the longest
// level, distinct left neighbours below it (Kneser-Ney).
double WeightOf(const NgramLevel& level, bool longest, size_t i) {
  return longest || level.left_kinds[i] == 0 ? level.counts[i]
                                             : level.left_kinds[i];
}

// Discounts for weights 1, 2, and 3 or more; [0] is unused.
using Discounts = std::array<double, 4>;

Discounts DiscountsOf(const NgramLevel& level, bool longest) {
  std::array<double, 5> of{};  // n-grams of weight 1..4
  for (size_t i = 0; i < level.size(); ++i) {
    const double weight = WeightOf(level, longest, i);
    if (weight < 4.5) ++of[static_cast<size_t>(weight + 0.5)];
  }
  // Typical values, for a corpus too small to estimate them.
  Discounts discounts{0.0, 0.6, 1.0, 1.4};
  if (of[1] == 0 || of[2] == 0 || of[3] == 0 || of[4] == 0) return discounts;
  // Chen and Goodman's estimate: D_k = k - (k + 1) Y n_(k+1) / n_k. The clamp
  // keeps small samples from discounting nothing or everything.
  const double y = of[1] / (of[1] + 2 * of[2]);
  for (int k = 1; k <= 3; ++k) {
    discounts[k] =
        std::clamp(k - (k + 1) * y * of[k + 1] / of[k], 0.1 * k, 0.95 * k);
  }
  return discounts;
}

void EstimateUnigrams(const NgramLevel& level, NgramEstimates& out) {
  double total = 0;
  for (size_t i = 0; i < level.size(); ++i) total += WeightOf(level, false, i);
  out.probability.resize(level.size());
  for (size_t i = 0; i < level.size(); ++i) {
    out.probability[i] = static_cast<float>(WeightOf(level, false, i) / total);
  }
  out.share = out.probability;
  out.worth.assign(level.size(), 0.0f);  // unigrams are never pruned
}

void EstimateLevel(const NgramLevel& above, const NgramLevel& level,
                   bool longest, NgramEstimates& lower, NgramEstimates& out) {
  const Discounts discounts = DiscountsOf(level, longest);
  out.share.resize(level.size());
  out.probability.resize(level.size());
  out.worth.resize(level.size());
  lower.backoff.assign(above.size(), 1.0f);
  for (size_t context = 0; context < above.size(); ++context) {
    const uint32_t first = above.children[context];
    const uint32_t end = above.children[context + 1];
    double total = 0;
    for (uint32_t i = first; i < end; ++i) total += WeightOf(level, longest, i);
    double listed = 0;
    for (uint32_t i = first; i < end; ++i) {
      const double weight = WeightOf(level, longest, i);
      const double off = discounts[weight > 2.5 ? 3 : weight > 1.5 ? 2 : 1];
      out.share[i] =
          static_cast<float>((weight - std::min(off, weight)) / total);
      listed += out.share[i];
    }
    // The discounted mass of the context goes to its shorter context.
    lower.backoff[context] = static_cast<float>(1.0 - listed);
    for (uint32_t i = first; i < end; ++i) {
      out.probability[i] =
          out.share[i] +
          lower.backoff[context] * lower.probability[level.suffixes[i]];
    }
  }
}

// Runs from the longest n-grams down; `longer` is null at the last level.
void ValueLevel(const NgramLevel& level, const NgramEstimates& lower,
                const NgramEstimates* longer, NgramEstimates& out) {
  for (size_t i = 0; i < level.size(); ++i) {
    // P(w | h) if the n-gram were pruned: backoff alone.
    const double without = double{lower.backoff[level.parents[i]]} *
                           lower.probability[level.suffixes[i]];
    const double gain =
        level.counts[i] * std::log(std::max(double{out.probability[i]}, kTiny) /
                                   std::max(without, kTiny));
    float worth = static_cast<float>(std::max(0.0, gain));
    // Pruning an n-gram prunes those that it begins, so it is worth as much as
    // the best of them.
    if (longer != nullptr) {
      for (uint32_t c = level.children[i]; c < level.children[i + 1]; ++c) {
        worth = std::max(worth, longer->worth[c]);
      }
    }
    out.worth[i] = worth;
  }
}

}  // namespace

std::vector<NgramEstimates> EstimateNgrams(const NgramCounts& counts) {
  const int order = counts.order();
  std::vector<NgramEstimates> estimates(order);
  EstimateUnigrams(counts.level(1), estimates[0]);
  for (int n = 2; n <= order; ++n) {
    EstimateLevel(counts.level(n - 1), counts.level(n), n == order,
                  estimates[n - 2], estimates[n - 1]);
  }
  for (int n = order; n >= 2; --n) {
    ValueLevel(counts.level(n), estimates[n - 2],
               n == order ? nullptr : &estimates[n], estimates[n - 1]);
  }
  return estimates;
}

}  // namespace foretoken
