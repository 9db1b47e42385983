#include "common/base/timed_wait.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace foretoken {
namespace {

using Steady = std::chrono::steady_clock;

// Longer waits than this have no end.
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

struct Alarm {
  absl::Mutex* const mu;
  bool rung = false;  // guarded by *mu
};

// Rings alarms on a thread of its own, which lives as long as the process.
// Thread-safe. Alarm::mu is taken before mu_.
class AlarmClock {
 public:
  static AlarmClock& Get() {
    static AlarmClock* const clock = new AlarmClock();
    return *clock;
  }

  using Place = std::multimap<Steady::time_point, Alarm*>::iterator;

  // `alarm` must live until it has rung or Cancel has returned true.
  Place Set(Alarm& alarm, absl::Duration timeout) {
    const Steady::time_point at =
        Steady::now() + absl::ToChronoNanoseconds(timeout);
    const std::lock_guard<std::mutex> lock(mu_);
    const Place place = alarms_.emplace(at, &alarm);
    // A thread that wakes up earlier finds this alarm then.
    if (at < sleeps_until_) earlier_.notify_one();
    return place;
  }

  // True if the alarm will not ring. False if it has rung or is about to.
  bool Cancel(const Alarm& alarm, Place place) {
    const std::lock_guard<std::mutex> lock(mu_);
    if (ringing_ == &alarm) return false;
    alarms_.erase(place);
    return true;
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
      Alarm* const alarm = alarms_.begin()->second;
      alarms_.erase(alarms_.begin());
      ringing_ = alarm;
      absl::Mutex& mu = *alarm->mu;
      lock.unlock();
      mu.Lock();
      alarm->rung = true;
      {
        const std::lock_guard<std::mutex> done(mu_);
        ringing_ = nullptr;
      }
      mu.Unlock();  // The alarm may be gone from here on.
      lock.lock();
    }
  }

  std::mutex mu_;
  std::condition_variable earlier_;
  std::multimap<Steady::time_point, Alarm*> alarms_;
  const Alarm* ringing_ = nullptr;  // removed from alarms_, not yet rung
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
  const AlarmClock::Place place = AlarmClock::Get().Set(alarm, timeout);
  const auto woken = [&] { return alarm.rung || condition.Eval(); };
  mu.Await(absl::Condition(&woken));
  if (!alarm.rung && !AlarmClock::Get().Cancel(alarm, place)) {
    // The clock's thread waits for `mu` to ring an alarm that lies here.
    mu.Await(absl::Condition(&alarm.rung));
  }
  return condition.Eval();
}

}  // namespace foretoken
