// DepthAcceptance: the probability, learnt in the session, that the draft token
// at a depth is accepted given that all tokens before it were. Owned by one
// thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DEPTH_ACCEPTANCE_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DEPTH_ACCEPTANCE_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken::draft_worker {

class DepthAcceptance {
 public:
  // `prior`: expected acceptance before any observation, in (0, 1).
  explicit DepthAcceptance(float prior) : prior_(prior) {}

  // `committed` are the tokens at the positions of `drafted`. Depths beyond the
  // first difference, or beyond `committed`, are not counted.
  void Observe(absl::Span<const TokenId> drafted,
               absl::Span<const TokenId> committed) {
    const size_t known = std::min(drafted.size(), committed.size());
    for (size_t depth = 0; depth < known; ++depth) {
      Counts& counts = counts_[std::min(depth, kDepths - 1)];
      const bool accepted = drafted[depth] == committed[depth];
      ++counts.reached;
      counts.accepted += accepted;
      if (!accepted) return;
    }
  }

  // Acceptance at `depth` (0, 1, ...) given all before it, in (0, 1).
  float Conditional(size_t depth) const {
    const Counts& counts = counts_[std::min(depth, kDepths - 1)];
    return (static_cast<float>(counts.accepted) + prior_ * kPriorRounds) /
           (static_cast<float>(counts.reached) + kPriorRounds);
  }

 private:
  static constexpr size_t kDepths = 32;  // deeper ones share the last
  // The prior counts as this many observations.
  static constexpr float kPriorRounds = 4.0f;

  struct Counts {
    int64_t reached = 0;
    int64_t accepted = 0;
  };
  const float prior_;
  std::array<Counts, kDepths> counts_{};
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DEPTH_ACCEPTANCE_H_
