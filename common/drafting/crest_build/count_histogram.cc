#include "common/drafting/crest_build/count_histogram.h"

#include <algorithm>

namespace foretoken {

template <typename Visit>
void CountHistogram::Descend(Visit visit) const {
  for (auto it = sparse_.rbegin(); it != sparse_.rend(); ++it) {
    visit(it->first, it->second);
  }
  // Count 0 does not occur.
  for (uint64_t count = kDense; count-- > 1;) {
    if (dense_[count] > 0) visit(count, dense_[count]);
  }
}

void CountHistogram::Merge(const CountHistogram& other) {
  for (uint64_t count = 0; count < kDense; ++count) {
    dense_[count] += other.dense_[count];
  }
  for (const auto& [count, ngrams] : other.sparse_) sparse_[count] += ngrams;
}

uint64_t CountHistogram::distinct() const {
  uint64_t sum = 0;
  Descend([&](uint64_t, uint64_t ngrams) { sum += ngrams; });
  return sum;
}

uint64_t CountHistogram::occurrences() const {
  uint64_t sum = 0;
  Descend([&](uint64_t count, uint64_t ngrams) { sum += count * ngrams; });
  return sum;
}

uint64_t CountHistogram::With(uint64_t count) const {
  if (count < kDense) return dense_[count];
  const auto it = sparse_.find(count);
  return it == sparse_.end() ? 0 : it->second;
}

CountHistogram::Threshold CountHistogram::Top(uint64_t top,
                                              uint64_t min_count) const {
  // From the highest count down, until `top` n-grams are taken.
  Threshold threshold{min_count, 0, 0};
  Descend([&](uint64_t count, uint64_t ngrams) {
    if (count < min_count || threshold.kept == top) return;
    // Every count but the last is taken whole, so the fields of the last one
    // stay.
    threshold.count = count;
    threshold.ties = std::min(ngrams, top - threshold.kept);
    threshold.kept += threshold.ties;
  });
  return threshold;
}

std::vector<CoveragePoint> CountHistogram::Coverage() const {
  const uint64_t last = distinct();
  const double all = static_cast<double>(occurrences());
  std::vector<uint64_t> ranks;
  for (uint64_t decade = 1; decade <= last; decade *= 10) {
    for (const uint64_t step : {1, 2, 5}) {
      if (decade * step < last) ranks.push_back(decade * step);
    }
  }
  if (last > 0) ranks.push_back(last);
  std::vector<CoveragePoint> points;
  uint64_t rank = 0;
  uint64_t covered = 0;
  Descend([&](uint64_t count, uint64_t ngrams) {
    while (points.size() < ranks.size() &&
           ranks[points.size()] <= rank + ngrams) {
      // All n-grams of one count are interchangeable, so a rank within them has
      // an exact share.
      const uint64_t at = ranks[points.size()];
      const uint64_t sum = covered + (at - rank) * count;
      points.push_back({at, static_cast<double>(sum) / all});
    }
    rank += ngrams;
    covered += ngrams * count;
  });
  return points;
}

}  // namespace foretoken
