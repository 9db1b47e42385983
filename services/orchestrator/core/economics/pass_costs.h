// The cost of a forward pass by its number of rows, and how many draft nodes
// are worth their cost.
//
// Thread-compatible.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ECONOMICS_PASS_COSTS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ECONOMICS_PASS_COSTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace foretoken::orchestrator {

class PassCosts {
 public:
  PassCosts() = default;
  // Measured (rows, milliseconds), in any order; invalid points are left out.
  // Points are measured under varying load, and where one from a busy time
  // precedes one from a quiet time, rows would look free. So costs are made
  // non-decreasing, and a row costs at least a quarter of what it costs on the
  // lower convex hull: a step is kept at three quarters of its height, noise
  // makes no row free.
  explicit PassCosts(std::vector<std::pair<int32_t, double>> measured);

  // False with fewer than two points: no slope is known, and no price.
  bool known() const { return points_.size() >= 2; }
  bool empty() const { return points_.empty(); }
  // Milliseconds, interpolated; extrapolated with the last slope. 0 if nothing
  // was measured.
  double At(double rows) const;

 private:
  std::vector<std::pair<int32_t, double>> points_;  // ascending in both
};

// Load of a round besides its own rows.
struct PassLoad {
  double other_sessions = 0;  // that share its pass
  double other_rows = 0;      // of these
  double other_tokens = 0;    // tokens that they commit
  // Time spent waiting for the work of others, in passes: sessions that share
  // a verifier share the price of rows.
  double passes_waited = 0;
  double overhead_ms = 0;  // of the round, however long passes are
};

// Number of draft nodes, likeliest first with probabilities `probs`, that
// maximizes a round's tokens per time. Rows: one for the last committed token,
// one per node, and the others'. If a larger number pays once every session
// that shares the pass takes as many, it is that number: each session alone
// would stop below a step of the costs. All nodes if costs are not known.
int WorthwhileNodes(absl::Span<const float> probs, const PassCosts& costs,
                    const PassLoad& load);

// Number of the likeliest nodes that are few and likely, whatever costs say of
// the rest: kMaxNarrowNodes at most, and no more than fit into the passes of
// all sessions, if each has as many, at about the cost of no nodes.
inline constexpr int kMaxNarrowNodes = 8;
int NarrowNodes(absl::Span<const float> probs, const PassCosts& costs,
                const PassLoad& load);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ECONOMICS_PASS_COSTS_H_
