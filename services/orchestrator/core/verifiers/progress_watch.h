// ProgressWatch: whether sessions that wait at one verifier are queued there or
// left without an answer.
//
// A verifier tells its probers how many passes its engine has ended. While that
// number rises, a session is queued, however long it waits. While it stands
// still, the waits of its sessions count, and one that has lasted for the limit
// is over: the session was left. The verifier then gets no requests until a
// pass has ended. Since it may have no work for one, a session is opened for
// that alone, and again ever more rarely.
//
// Waits are counted in steps from probe to probe, and a step that took long
// counts no more than one that took the usual time, so that a process that was
// suspended (SIGSTOP, a frozen container), this one or the verifier's, is not
// taken for silent. Older verifiers, which do not count their passes, are not
// judged.
//
// Thread-compatible, except for Wait.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_PROGRESS_WATCH_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_PROGRESS_WATCH_H_

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace foretoken::orchestrator {

struct ProgressOptions {
  // The least time of waiting without a pass after which a session was left. A
  // verifier whose passes take long asks for more.
  absl::Duration least_limit = absl::Seconds(5);
  // The most that counts of the time between two probes.
  absl::Duration longest_step = absl::Seconds(3);
  // Between trials of a verifier that has left a session; they double.
  absl::Duration first_trial = absl::Seconds(5);
  absl::Duration max_trial = absl::Minutes(1);
};

class ProgressWatch {
 public:
  // The waits of one session. Begin and End belong to its request's thread and
  // take no lock; the rest is the watch's.
  class Wait {
   public:
    void Begin() { Become(true); }
    void End() { Become(false); }

   private:
    friend class ProgressWatch;
    void Become(bool waits) {
      const int64_t turn = turn_.load(std::memory_order_relaxed);
      if ((turn % 2 == 1) == waits) return;
      turn_.store(turn + 1, std::memory_order_relaxed);
    }

    std::atomic<int64_t> turn_{0};  // odd while it waits
    int64_t seen_ = 0;              // turn_ at the last probe
    absl::Duration silence_;        // of this turn
  };

  explicit ProgressWatch(const ProgressOptions& options) : options_(options) {}

  // A probe was answered at `now`: so many passes have ended, and sessions may
  // wait for the next for up to `limit`.
  void OnProbe(absl::Time now, std::optional<int64_t> passes,
               absl::Duration limit);
  // A probe was not answered, or refused: says nothing about the engine.
  void OnNoProbe();
  // After OnProbe, once for every session: whether it was left. The verifier is
  // avoided from then on.
  bool IsLeft(Wait& wait);

  // Whether it has left a session and not ended a pass since.
  bool avoided() const { return avoided_; }
  // Whether a trial of a verifier that is avoided is due.
  bool MayTry(absl::Time now) const { return now >= next_trial_; }
  // It is tried.
  void OnTrial(absl::Time now);

 private:
  const ProgressOptions options_;
  std::optional<absl::Time> probed_;  // at the last probe; none: unknown
  std::optional<int64_t> passes_;
  absl::Duration limit_;
  absl::Duration step_;   // between the last two probes
  bool stalled_ = false;  // no pass ended between them
  bool avoided_ = false;
  absl::Time next_trial_;  // while it is avoided
  absl::Duration trial_pause_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_VERIFIERS_PROGRESS_WATCH_H_
