// RoundPace: what a request's rounds are like at the moment, as moving
// averages; and what those of all requests are, from which a new one starts.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_PACE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_PACE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/speculation/round.h"
#include "services/orchestrator/core/pass_costs.h"

namespace foretoken::orchestrator {

// Thread-compatible.
class RoundPace {
 public:
  // A round that committed `tokens`, after `draft_time` of waiting for drafts
  // and `verify_time` for the verifier.
  void Note(const RoundStats& stats, int64_t tokens, absl::Duration draft_time,
            absl::Duration verify_time);

  // Nothing below says anything before.
  bool known() const { return known_; }
  absl::Duration verify_time() const { return verify_time_; }
  absl::Duration round_time() const { return round_time_; }
  double tokens() const { return tokens_; }  // that a round commits
  const PassLoad& load() const { return load_; }

 private:
  // Splits a round's time outside its pass. What it takes where nobody is in
  // the way stays when passes get shorter. The time beyond that is spent behind
  // the work of others: as they draft as this one does, it shrinks with the
  // pass. On a verifier that is never idle even the rest does, since others
  // have their passes meanwhile: the more of a round is waiting, the more of
  // the rest.
  void Weigh();

  bool known_ = false;
  absl::Duration verify_time_;
  absl::Duration round_time_;
  double tokens_ = 1.0;
  // Milliseconds of a round: to the verifier and back, seen when alone or at
  // the best; for drafts; in the pass; behind others.
  double way_ms_ = 0.0;
  double draft_ms_ = 0.0;
  double pass_ms_ = 0.0;
  double wait_ms_ = 0.0;
  PassLoad load_;
};

// Thread-safe.
class SharedPace {
 public:
  // How a request's rounds are after one that ended at `now`.
  void Publish(const RoundPace& pace, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // The latest of any request, whichever verifier it has: those of one model
  // are taken to be alike. Unknown where it is too long ago to hold.
  RoundPace Recent(absl::Time now) const ABSL_LOCKS_EXCLUDED(mu_);
  // A number of its own for every round of every request, in random order.
  uint64_t NextTurn() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  uint64_t turns_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  RoundPace pace_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_PACE_H_
