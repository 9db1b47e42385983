// EngineWatchdog: tells a server when its engine begins and ceases to hang.
//
// Thread-safe; has a thread of its own, because the engine's is the one that
// may hang.
#ifndef FORETOKEN_COMMON_ENGINE_ENGINE_WATCHDOG_H_
#define FORETOKEN_COMMON_ENGINE_ENGINE_WATCHDOG_H_

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken {

class EngineWatchdog {
 public:
  // Asks `hangs`, which must not wait for the engine, several times within
  // `least`, the time after which an engine may hang. `name`: "verifier".
  EngineWatchdog(std::string name, absl::Duration least,
                 std::function<bool()> hangs);
  ~EngineWatchdog();

  bool hangs() const { return hangs_; }
  // DeadlineExceeded while the engine hangs: to a prober, the same as a process
  // that does not answer.
  absl::Status Check() const;
  // Calls `changed` when hangs() has changed. Null stops that: no call is under
  // way when Watch returns.
  void Watch(std::function<void()> changed) ABSL_LOCKS_EXCLUDED(watch_mu_);

 private:
  static constexpr int kLooksWithinLeast = 8;

  void Main() ABSL_LOCKS_EXCLUDED(mu_, watch_mu_);
  void Look() ABSL_LOCKS_EXCLUDED(watch_mu_);

  const std::string name_;
  const absl::Duration interval_;
  const std::function<bool()> ask_;
  std::atomic<bool> hangs_{false};
  absl::Mutex watch_mu_;  // held while `changed_` runs
  std::function<void()> changed_ ABSL_GUARDED_BY(watch_mu_);
  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_ENGINE_WATCHDOG_H_
