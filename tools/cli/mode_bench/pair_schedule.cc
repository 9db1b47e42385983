#include "tools/cli/mode_bench/pair_schedule.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace foretoken::mode_bench {

std::vector<size_t> PairSchedule::Order(int pair, uint64_t stream) const {
  std::vector<size_t> order(modes_);
  std::iota(order.begin(), order.end(), size_t{0});
  // The order depends on seed, group and pair alone, so that a run can be
  // repeated. seed_seq spreads neighbouring numbers over the whole state.
  std::seed_seq seeds{options_.seed, stream, static_cast<uint64_t>(pair / 2)};
  std::mt19937_64 random(seeds);
  std::shuffle(order.begin(), order.end(), random);
  // The second of two pairs runs the order of the first backwards: a drift of
  // the machine within a pair then favours each mode once.
  if (pair % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

bool PairSchedule::NeedsMore(int pairs,
                             absl::Span<const Interval> ratios) const {
  if (pairs < options_.pairs) return true;
  if (pairs >= options_.most()) return false;
  // Until the least certain mode is certain enough: stopping at the first would
  // favour lucky intervals.
  return std::any_of(ratios.begin(), ratios.end(), [&](const Interval& ratio) {
    return ratio.relative_width() > options_.until;
  });
}

}  // namespace foretoken::mode_bench
