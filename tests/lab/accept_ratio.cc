#include "tests/lab/accept_ratio.h"

#include <algorithm>
#include <random>
#include <vector>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr int kResamples = 2000;

}  // namespace

double AcceptLength(absl::Span<const ReplayCounts> counts) {
  ReplayCounts sum;
  for (const ReplayCounts& one : counts) {
    sum.tokens += one.tokens;
    sum.rounds += one.rounds;
  }
  return sum.accept_length();
}

AcceptRatio CompareAcceptLength(absl::Span<const ReplayCounts> own,
                                absl::Span<const ReplayCounts> other) {
  FORETOKEN_CHECK(own.size() == other.size() && !own.empty());
  std::mt19937 random(1);
  std::vector<double> ratios;
  for (int i = 0; i < kResamples; ++i) {
    std::vector<ReplayCounts> a, b;
    for (size_t n = 0; n < own.size(); ++n) {
      const size_t at = random() % own.size();
      a.push_back(own[at]);
      b.push_back(other[at]);
    }
    ratios.push_back(AcceptLength(a) / AcceptLength(b));
  }
  std::sort(ratios.begin(), ratios.end());
  return {AcceptLength(own) / AcceptLength(other), ratios[kResamples / 40],
          ratios[kResamples - 1 - kResamples / 40]};
}

}  // namespace foretoken
