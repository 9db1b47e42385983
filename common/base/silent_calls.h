// SilentCalls: the calls that have sent no message yet but are charged to a
// budget. When there is no room for another call, the oldest of them end.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_SILENT_CALLS_H_
#define FORETOKEN_COMMON_BASE_SILENT_CALLS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/byte_budget.h"
#include "common/base/clock.h"

namespace foretoken {

class SilentCalls {
 public:
  using Id = uint64_t;
  static constexpr Id kNone = 0;

  // `budget` must outlive the object. Calls younger than `grace` are left
  // alone: their message may be on its way.
  explicit SilentCalls(const ByteBudget& budget,
                       absl::Duration grace = absl::Seconds(1),
                       Clock clock = MonotonicClock())
      : budget_(budget), grace_(grace), clock_(std::move(clock)) {}

  // Adds a call that is charged to `owner`. `end` ends the call and frees what
  // it holds if it is still silent, and returns whether it did. It may be
  // called  // after Remove, several times, and by another call's thread, which
  // may hold that call's lock: it must not wait for its own.
  Id Add(const std::string& owner, std::function<bool()> end);
  void Remove(Id id);

  // Makes room for a call of `owner`: ends up to `count` calls, the oldest of
  // the owner that holds most, unless `owner` itself holds more. Returns
  // whether any ended. Searches at most once in 10 ms for one owner, so that a
  // flood of its calls takes no other owner's turn, and returns false between.
  bool MakeRoom(const std::string& owner, int64_t count);
  // Runs `take`, which takes `bytes` of the budget for `owner`, and if there is
  // no room for them, once more after silent calls have ended.
  absl::Status TakeWithRoom(const std::string& owner, int64_t bytes,
                            absl::FunctionRef<absl::Status()> take);

  // The budget's charge for a call without a message: its state.
  static constexpr int64_t kCallBytes = 16 << 10;

 private:
  struct Call {
    std::string owner;
    absl::Time since;
    std::function<bool()> end;
  };

  // Whether `owner` may cause a search now; notes that it does.
  bool MaySearch(const std::string& owner, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ByteBudget& budget_;
  const absl::Duration grace_;
  const Clock clock_;
  absl::Mutex mu_;
  std::map<Id, Call> calls_ ABSL_GUARDED_BY(mu_);  // oldest first
  Id last_ ABSL_GUARDED_BY(mu_) = kNone;
  // When an owner that has asked for room may cause the next search.
  absl::flat_hash_map<std::string, absl::Time> next_search_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_SILENT_CALLS_H_
