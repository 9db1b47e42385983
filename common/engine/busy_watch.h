// BusyWatch: whether an engine thread hangs, as others see it.
//
// A pass that never ends, on a device that does not answer or in a loop, leaves
// everything around the engine alive: the server answers probes, and sessions
// wait for ever. The engine thread says when it begins to work and when a pass
// has ended; other threads ask without a lock. An engine whose device has
// failed for good hangs, too: only another process can serve its sessions.
#ifndef FORETOKEN_COMMON_ENGINE_BUSY_WATCH_H_
#define FORETOKEN_COMMON_ENGINE_BUSY_WATCH_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace foretoken {

// Begin, EndPass, Idle and Lose belong to the engine thread; Hangs is
// thread-safe.
class BusyWatch {
 public:
  // Passes of the same kind differ by their rows and contexts.
  static constexpr int kLongestPasses = 16;
  // Work after which a long pass counts as a third of what it was: the next
  // long prefill may come hours later.
  static constexpr absl::Duration kMemory = absl::Hours(1);

  // `estimate`: the length of the largest pass, for the time before one was
  // seen; zero if it is unknown. One far above `least` is not believed, because
  // it may follow from passes of a few rows.
  BusyWatch(absl::Duration least, absl::Duration estimate)
      : least_(least),
        floor_ns_(absl::ToInt64Nanoseconds(std::min(estimate, least))),
        longest_ns_(floor_ns_) {}

  // Work begins, on commands or on a pass.
  void Begin(absl::Time now) { since_ns_ = absl::ToUnixNanos(now); }
  // A pass of this length has ended.
  void EndPass(absl::Duration length) {
    const double kept = 1 - std::min(1.0, absl::FDivDuration(length, kMemory));
    longest_ns_ = std::max(
        {floor_ns_, absl::ToInt64Nanoseconds(length),
         static_cast<int64_t>(kept * static_cast<double>(longest_ns_.load()))});
  }
  void Idle() { since_ns_ = kIdle; }
  // No pass will succeed again.
  void Lose() { lost_ = true; }

  // True while one piece of work has taken longer than the least time and
  // kLongestPasses times the longest pass, seen or estimated; and from Lose on.
  bool Hangs(absl::Time now) const {
    if (lost_) return true;
    const int64_t since = since_ns_;
    if (since == kIdle) return false;
    const absl::Duration longest = absl::Nanoseconds(longest_ns_.load());
    return now - absl::FromUnixNanos(since) >
           std::max(least_, kLongestPasses * longest);
  }

 private:
  static constexpr int64_t kIdle = INT64_MIN;

  const absl::Duration least_;
  const int64_t floor_ns_;
  std::atomic<int64_t> since_ns_{kIdle};
  std::atomic<int64_t> longest_ns_;
  std::atomic<bool> lost_{false};
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_BUSY_WATCH_H_
