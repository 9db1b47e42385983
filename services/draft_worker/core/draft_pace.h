// DraftPace: the time that a session's rounds take per committed token, by the
// arrival of its rounds: drafting, verification and everything between them.
// What a pass of the draft model adds is worth its time if it comes at this
// pace or faster. Owned by one thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_PACE_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_PACE_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace foretoken::draft_worker {

class DraftPace {
 public:
  // A round that arrived at `now`, `tokens` after the one before.
  void Note(absl::Time now, int64_t tokens) {
    if (tokens <= 0) return;
    if (last_.has_value()) {
      const absl::Duration time =
          std::max(now - *last_, absl::ZeroDuration()) / tokens;
      if (token_time_ == absl::ZeroDuration()) {
        token_time_ = time;
      } else {
        // A client that paused says little about the rounds.
        token_time_ +=
            (std::min(time, token_time_ * kMaxRise) - token_time_) * kNewest;
      }
    }
    last_ = now;
  }

  // Zero before the second round.
  absl::Duration token_time() const { return token_time_; }

 private:
  static constexpr double kNewest = 0.125;  // weight of the latest round
  static constexpr double kMaxRise = 4.0;

  std::optional<absl::Time> last_;
  absl::Duration token_time_;
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_PACE_H_
