// What a forward pass costs by its number of rows, and how many draft nodes
// are worth their price.
//
// Thread-compatible.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_PASS_COSTS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_PASS_COSTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace foretoken::orchestrator {

class PassCosts {
 public:
  PassCosts() = default;
  // Measured (rows, milliseconds), in any order; nonsense is left out. Points
  // are measured at times of different load, and where a busy hour's stand
  // before a quiet one's, rows would look free. So what falls is levelled, and
  // then the lower convex hull is taken: a further row costs no less than one
  // before it.
  explicit PassCosts(std::vector<std::pair<int32_t, double>> measured);

  // With less than two points no slope is known, and no price.
  bool known() const { return points_.size() >= 2; }
  bool empty() const { return points_.empty(); }
  // Milliseconds, interpolated; beyond the last point as steep as before it.
  // 0 where nothing was measured.
  double At(double rows) const;

 private:
  std::vector<std::pair<int32_t, double>> points_;  // ascending in both
};

// What a round has beside its own rows.
struct PassLoad {
  double other_rows = 0;    // of the sessions that share its pass
  double other_tokens = 0;  // that they commit
  // It waits for the work of others as well, as long as this many of its
  // passes: who shares the verifier shares the price of rows.
  double passes_waited = 0;
  double overhead_ms = 0;  // of the round, however long passes are
};

// How many of the draft nodes, likeliest first with probabilities `probs`, make
// the most tokens per time of a round: one row for the last committed token,
// one for each node, and the others'. All, where costs are not known.
int WorthwhileNodes(absl::Span<const float> probs, const PassCosts& costs,
                    const PassLoad& load);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_PASS_COSTS_H_
