// Histogram of n-gram counts: sufficient to find the top t exactly, and the
// share of the corpus that they cover.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_COUNT_HISTOGRAM_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_COUNT_HISTOGRAM_H_

#include <cstdint>
#include <map>
#include <vector>

namespace foretoken {

// A point of the cumulative frequency curve: the `rank` most frequent n-grams
// account for `share` of all occurrences.
struct CoveragePoint {
  uint64_t rank;
  double share;
};

class CountHistogram {
 public:
  void Add(uint64_t count) {
    if (count < kDense) {
      ++dense_[count];
    } else {
      ++sparse_[count];
    }
  }
  void Merge(const CountHistogram& other);

  uint64_t distinct() const;
  uint64_t occurrences() const;
  uint64_t With(uint64_t count) const;  // n-grams that occur `count` times

  // The lowest count among the `top` most frequent n-grams, at least min_count,
  // and how many n-grams with exactly that count are included. {min_count, 0}
  // if no n-gram reaches min_count.
  struct Threshold {
    uint64_t count;
    uint64_t ties;  // how many with exactly `count` to take
    uint64_t kept;  // in total
  };
  Threshold Top(uint64_t top, uint64_t min_count) const;

  // At ranks 1, 2, 5, 10, 20, 50, ..., and at the last rank.
  std::vector<CoveragePoint> Coverage() const;

 private:
  static constexpr uint64_t kDense = 1024;

  // Calls visit(count, n-grams) from the highest count down.
  template <typename Visit>
  void Descend(Visit visit) const;

  std::vector<uint64_t> dense_ = std::vector<uint64_t>(kDense, 0);
  std::map<uint64_t, uint64_t> sparse_;  // counts of kDense and above
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_COUNT_HISTOGRAM_H_
