// PassTurns: the engines of one process that share its processors run their
// passes one at a time.
//
// Each has a thread on every processor, and every step of a pass waits for the
// slowest thread: two passes at once take longer than one after the other.
// Passes that draft go first, so that the drafts of all sessions are done
// before the target verifies them in one pass; but once the target has waited
// for as long as its last pass took, it is next. Passes that only read texts
// wait like those of the target.
#ifndef FORETOKEN_COMMON_ENGINE_PASS_TURNS_H_
#define FORETOKEN_COMMON_ENGINE_PASS_TURNS_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/wakeup.h"

namespace foretoken {

// Thread-safe. Shared by its seats.
class PassTurns {
 public:
  // An engine that has waited this long begins beside the pass under way: one
  // that hangs must not stop the others.
  static constexpr absl::Duration kPatience = absl::Seconds(1);
  // An engine is next at the latest after this long: its last pass may have
  // read a long prompt.
  static constexpr absl::Duration kMaxYield = absl::Milliseconds(250);

  // One engine's place. Owned by the engine's thread.
  //
  //   (TryBegin -> (End | GiveUp))*
  class Seat {
   public:
    // `wakeup` is signalled when it is time to try again. Without `turns`,
    // every pass may begin.
    Seat(std::shared_ptr<PassTurns> turns, Wakeup& wakeup);
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    // True if a pass may begin, which End must follow. False: try again once
    // `refused` is false, or at `retry_at`. `goes_first`: the pass drafts.
    bool TryBegin(absl::Time now, bool goes_first);
    // The pass has ended; `goes_on`: another one is wanted at once.
    void End(absl::Time now, bool goes_on, bool goes_first);
    // No pass is wanted any more.
    void GiveUp();

    bool waits() const { return waits_; }
    // True from a TryBegin that was false until another pass has ended.
    bool refused() const { return waits_ && !called_.load(); }
    absl::Time retry_at() const { return since_ + kPatience; }

   private:
    friend class PassTurns;

    const std::shared_ptr<PassTurns> turns_;  // its mutex guards what follows
    Wakeup& wakeup_;
    bool goes_first_ = false;
    bool waits_ = false;  // written by the engine's thread alone
    absl::Time since_ = absl::InfiniteFuture();  // that it waits; likewise
    absl::Time began_;
    absl::Duration last_pass_;
    std::atomic<bool> called_{false};
  };

 private:
  // Whether `other`, which waits, is to begin before `seat`.
  static bool GoesBefore(const Seat& other, const Seat& seat, absl::Time now);
  void CallOthers(const Seat& seat) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::vector<Seat*> seats_ ABSL_GUARDED_BY(mu_);
  int running_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_PASS_TURNS_H_
