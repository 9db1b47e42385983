// PairSchedule: which modes run when, and how many pairs a concurrency needs.
//
// In a pair every mode runs once, over the same requests. The order is random,
// and every second pair runs the order of the pair before it backwards: a
// machine that gets slower or faster steadily favours no mode over two pairs.
//
// Thread-compatible.
#ifndef FORETOKEN_TOOLS_CLI_MODE_BENCH_PAIR_SCHEDULE_H_
#define FORETOKEN_TOOLS_CLI_MODE_BENCH_PAIR_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tools/cli/mode_bench/statistics.h"

namespace foretoken::mode_bench {

struct PairOptions {
  int pairs = 10;      // of every concurrency, at least 1
  int max_pairs = 30;  // with `until`
  // Pairs are added until every interval lies within this share of its mean;
  // 0: none are added.
  double until = 0;
  uint64_t seed = 1;

  int most() const {
    return until > 0 && max_pairs > pairs ? max_pairs : pairs;
  }
};

class PairSchedule {
 public:
  PairSchedule(const PairOptions& options, size_t modes)
      : options_(options), modes_(modes) {}

  // The modes of pair 0, 1, ... in the order in which they run. Different
  // `stream`s (one for each concurrency) have different orders.
  std::vector<size_t> Order(int pair, uint64_t stream) const;

  // Whether a concurrency with this many pairs, and these ratios of its modes,
  // needs another.
  bool NeedsMore(int pairs, absl::Span<const Interval> ratios) const;

 private:
  const PairOptions options_;
  const size_t modes_;
};

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TOOLS_CLI_MODE_BENCH_PAIR_SCHEDULE_H_
