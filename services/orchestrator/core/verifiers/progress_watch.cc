#include "services/orchestrator/core/verifiers/progress_watch.h"

#include <algorithm>

namespace foretoken::orchestrator {

void ProgressWatch::OnProbe(absl::Time now, std::optional<int64_t> passes,
                            absl::Duration limit) {
  // Fewer are those of a process that was started since.
  const bool moved = passes != passes_;
  stalled_ = !moved && passes.has_value() && probed_.has_value();
  // A probe that was long in coming must not count for more than a prober that
  // works would have seen.
  step_ = stalled_ ? std::min(now - *probed_, options_.longest_step)
                   : absl::ZeroDuration();
  if (moved) avoided_ = false;
  probed_ = now;
  passes_ = passes;
  // The verifier knows its own passes best; the floor keeps a fault in its
  // answer from breaking every stream.
  limit_ = std::max(limit, options_.least_limit);
}

void ProgressWatch::OnNoProbe() {
  probed_.reset();
  stalled_ = false;
}

bool ProgressWatch::IsLeft(Wait& wait) {
  // Odd while a wait is under way. Read without the lock of the request: a
  // stale value only delays the verdict by a probe.
  const int64_t turn = wait.turn_.load(std::memory_order_relaxed);
  if (!stalled_ || turn % 2 == 0 || turn != wait.seen_) {
    // Waits that end and begin between two probes are different ones.
    wait.seen_ = turn;
    wait.silence_ = absl::ZeroDuration();
    return false;
  }
  wait.silence_ += step_;
  if (wait.silence_ < limit_) return false;
  if (!avoided_) {
    // Set once for a stall; the pauses between trials then grow instead of
    // starting again with each session.
    avoided_ = true;
    trial_pause_ = options_.first_trial;
    next_trial_ = *probed_ + trial_pause_;
  }
  return true;
}

void ProgressWatch::OnTrial(absl::Time now) {
  trial_pause_ = std::min(2 * trial_pause_, options_.max_trial);
  next_trial_ = now + trial_pause_;
}

}  // namespace foretoken::orchestrator
