// RoundPace: moving averages over a request's latest rounds. SharedPace: the
// same across requests, from which a new request starts.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ECONOMICS_ROUND_PACE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ECONOMICS_ROUND_PACE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/speculation/round.h"
#include "services/orchestrator/core/economics/pass_costs.h"

namespace foretoken::orchestrator {

// Thread-compatible.
class RoundPace {
 public:
  // A round that committed `tokens`, after `draft_time` of waiting for drafts
  // and `verify_time` for the verifier.
  void Note(const RoundStats& stats, int64_t tokens, absl::Duration draft_time,
            absl::Duration verify_time);

  // False before the first round: the values below are then meaningless.
  bool known() const { return known_; }
  absl::Duration verify_time() const { return verify_time_; }
  absl::Duration round_time() const { return round_time_; }
  double tokens() const { return tokens_; }  // committed per round
  const PassLoad& load() const { return load_; }

 private:
  // Splits a round's time outside its pass. The time that it takes without
  // contention is fixed: it stays when passes get shorter. The rest is spent
  // waiting for the work of others; assuming that they draft as this request
  // does, it shrinks with the pass. On a verifier that is never idle, part of
  // the fixed time overlaps with passes of others and shrinks too: the larger
  // the share of waiting, the larger that part.
  void Weigh();

  bool known_ = false;
  absl::Duration verify_time_;
  absl::Duration round_time_;
  double tokens_ = 1.0;
  // Milliseconds of a round: round trip to the verifier without contention, or
  // the shortest seen; drafting; the pass; waiting for others.
  double way_ms_ = 0.0;
  double draft_ms_ = 0.0;
  double pass_ms_ = 0.0;
  double wait_ms_ = 0.0;
  PassLoad load_;
};

// Thread-safe.
class SharedPace {
 public:
  // Publishes a request's pace after a round that ended at `now`.
  void Publish(const RoundPace& pace, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // The latest pace of any request, on any verifier: those of one model are
  // assumed to be alike. Unknown if it is too old.
  RoundPace Recent(absl::Time now) const ABSL_LOCKS_EXCLUDED(mu_);
  // The arm that a verifier announced, kNone if none did, and the latest one of
  // any verifier; kNone if it is too old.
  void PublishArm(DraftArm arm, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  DraftArm RecentArm(absl::Time now) const ABSL_LOCKS_EXCLUDED(mu_);
  // A unique number for every round of every request, in random order.
  uint64_t NextTurn() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable absl::Mutex mu_;
  uint64_t turns_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  RoundPace pace_ ABSL_GUARDED_BY(mu_);
  absl::Time arm_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  DraftArm arm_ ABSL_GUARDED_BY(mu_) = DraftArm::kNone;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ECONOMICS_ROUND_PACE_H_
