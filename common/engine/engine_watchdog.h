// EngineWatchdog: tells a server when its engine begins and ceases to hang, and
// ends the process if the engine does not recover.
//
// Thread-safe; has a thread of its own, because the engine's is the one that
// may hang.
#ifndef FORETOKEN_COMMON_ENGINE_ENGINE_WATCHDOG_H_
#define FORETOKEN_COMMON_ENGINE_ENGINE_WATCHDOG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken {

struct WatchdogOptions {
  std::string name;             // "verifier"
  absl::Duration hang_timeout;  // the least time after which an engine hangs
  // End the process once its engine has hung for this long, so that what
  // supervises it starts another; zero: never.
  absl::Duration exit_after = absl::ZeroDuration();
  // Whether the engine has failed for another reason; null: never. Asked until
  // it is true, which those who watch are told.
  std::function<bool()> has_failed = nullptr;
};

class EngineWatchdog {
 public:
  // Looks in a row that must find the engine hanging. After a time in which the
  // whole process stood still (SIGSTOP, a frozen container), the first finds it
  // so although it works.
  static constexpr int kLooks = 3;

  // Asks `hangs`, which must not wait for the engine, several times within
  // `hang_timeout`. Calls `report` when hangs() has changed, and `end` instead
  // of ending the process where it is given.
  EngineWatchdog(WatchdogOptions options, std::function<bool()> hangs,
                 std::function<void(bool hangs)> report,
                 std::function<void()> end = nullptr);
  ~EngineWatchdog();

  bool hangs() const { return hangs_; }
  // DeadlineExceeded while the engine hangs: to a prober, the same as a process
  // that does not answer.
  absl::Status Check() const;
  // Calls `changed` when hangs() has changed or the engine has failed. Null
  // stops that: no call is under way when Watch returns.
  void Watch(std::function<void()> changed) ABSL_LOCKS_EXCLUDED(watch_mu_);

 private:
  static constexpr int kLooksWithinTimeout = 8;

  void Main() ABSL_LOCKS_EXCLUDED(mu_, watch_mu_);
  void Look() ABSL_LOCKS_EXCLUDED(watch_mu_);
  void Tell(bool hangs) ABSL_LOCKS_EXCLUDED(watch_mu_);

  const WatchdogOptions options_;
  const absl::Duration interval_;
  const std::function<bool()> ask_;
  const std::function<void(bool hangs)> report_;
  const std::function<void()> end_;
  // The thread's: looks in a row that found the engine hanging.
  int64_t hanging_looks_ = 0;
  bool failed_ = false;  // the thread's
  std::atomic<bool> hangs_{false};
  absl::Mutex watch_mu_;  // held while `changed_` runs
  std::function<void()> changed_ ABSL_GUARDED_BY(watch_mu_);
  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_ENGINE_WATCHDOG_H_
