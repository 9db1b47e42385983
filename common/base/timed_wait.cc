#include "common/base/timed_wait.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace foretoken {
namespace {

using Steady = std::chrono::steady_clock;

// Longer waits than this have no end.
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

// A waiter's mutex may be busy when its time is over: look again after this.
constexpr std::chrono::milliseconds kLookAgain(1);

struct Alarm;
using Alarms = std::multimap<Steady::time_point, Alarm*>;

struct Alarm {
  absl::Mutex* const mu;
  bool rung = false;         // guarded by *mu
  Alarms::iterator place{};  // guarded by AlarmClock::mu_; valid until it rings
};

// Rings alarms on a thread of its own, which lives as long as the process.
//
// An alarm that has not rung is in alarms_, as seen under its own mutex: it is
// removed and marked as rung in one piece, under both mutexes. The waiter holds
// its mutex when it looks, so it either finds the mark or cancels in time.
//
// Thread-safe. Alarm::mu is taken before mu_; the other way round it is only
// tried, so that a mutex held for long stops no other alarm.
class AlarmClock {
 public:
  static AlarmClock& Get() {
    static AlarmClock* const clock = new AlarmClock();
    return *clock;
  }

  // The caller holds *alarm.mu. `alarm` must live until it has rung or was
  // cancelled.
  void Set(Alarm& alarm, absl::Duration timeout) {
    const Steady::time_point at =
        Steady::now() + absl::ToChronoNanoseconds(timeout);
    const std::lock_guard<std::mutex> lock(mu_);
    alarm.place = alarms_.emplace(at, &alarm);
    // A thread that wakes up earlier finds this alarm then.
    // No need to wake the thread for an alarm after its next one.
    if (at < sleeps_until_) earlier_.notify_one();
  }

  // The caller holds *alarm.mu, and the alarm has not rung. It never will.
  void Cancel(const Alarm& alarm) {
    const std::lock_guard<std::mutex> lock(mu_);
    alarms_.erase(alarm.place);
  }

 private:
  AlarmClock() {
    std::thread([this] { Main(); }).detach();
  }

  void Main() {
    std::unique_lock<std::mutex> lock(mu_);
    while (true) {
      const Steady::time_point now = Steady::now();
      const Steady::time_point next =
          alarms_.empty() ? now + absl::ToChronoNanoseconds(kLongestWait)
                          : alarms_.begin()->first;
      if (now < next) {
        sleeps_until_ = next;
        earlier_.wait_until(lock, next);
        continue;
      }
      // The alarm and its mutex exist: cancelling takes mu_.
      Alarms::node_type node = alarms_.extract(alarms_.begin());
      Alarm& alarm = *node.mapped();
      absl::Mutex& mu = *alarm.mu;
      // A try only: its holder may be waiting for mu_ in Set or Cancel.
      if (!mu.TryLock()) {
        node.key() = now + kLookAgain;
        alarm.place = alarms_.insert(std::move(node));
        continue;
      }
      alarm.rung = true;
      lock.unlock();
      // Lets the waiter go on, and with it `alarm` and `mu` may go.
      mu.Unlock();
      lock.lock();
    }
  }

  std::mutex mu_;
  std::condition_variable earlier_;
  Alarms alarms_;
  Steady::time_point sleeps_until_ = Steady::time_point::max();
};

}  // namespace

bool AwaitFor(absl::Mutex& mu, const absl::Condition& condition,
              absl::Duration timeout) {
  if (condition.Eval()) return true;
  if (timeout <= absl::ZeroDuration()) return false;
  if (timeout > kLongestWait) {
    mu.Await(condition);
    return true;
  }
  Alarm alarm{&mu};
  // A lambda over both, because Await takes one condition.
  AlarmClock::Get().Set(alarm, timeout);
  const auto woken = [&] { return alarm.rung || condition.Eval(); };
  mu.Await(absl::Condition(&woken));
  if (!alarm.rung) AlarmClock::Get().Cancel(alarm);
  return condition.Eval();
}

}  // namespace foretoken
