// RequestPool: the threads that run requests, and the queue before them.
//
// A request that finds no free thread waits in a fair queue: every caller with
// waiting requests gets a share of the threads in proportion to its weight, a
// caller over its own limit waits while others go ahead, and a full queue
// evicts the newest request of the caller that fills it
// (common/base/fair_queue.h). A waiting request leaves at once when it is
// cancelled or its deadline passes.
//
// A refusal carries the time after which there should be room: what waits,
// divided by the threads, times the recent time of a request, with jitter so
// that refused callers do not return together. Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_REQUEST_POOL_H_
#define FORETOKEN_COMMON_BASE_REQUEST_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/fair_queue.h"

namespace foretoken {

struct RequestPoolOptions {
  int32_t max_running = 128;  // threads
  FairQueueLimits waiting;
  // Cost that an owner of weight 1 may take per turn. Smaller than most
  // requests, so that shares are kept by cost and not by count: a short answer,
  // in tokens.
  int64_t quantum = 128;
  absl::Duration min_retry_after = absl::Milliseconds(200);
  // The threads' nice value, above that of the process: they take only what
  // other threads leave.
  int nice = 0;
};

// Draws from [0, 1), evenly. Called by one thread at a time.
using Jitter = std::function<double()>;
Jitter RandomJitter();

// A request as the pool sees it. Its cost is the work it asks for, in the same
// unit as the pool's quantum.
struct PooledRequest {
  FairItem item;
  int32_t max_running = 0;  // requests of its owner at once; 0: no limit
  // Exactly one of the two is called, once, never from inside Submit or Remove:
  // `run` on a thread of its own, or `refuse`, which must not block, with
  // ResourceExhausted (the queue is full), DeadlineExceeded, or the reason
  // given to Remove. No lock is held.
  std::function<void()> run;
  std::function<void(const absl::Status& reason)> refuse;
};

class RequestPool {
 public:
  using Ticket = FairQueue<PooledRequest>::Ticket;
  static constexpr Ticket kNotWaiting = 0;

  explicit RequestPool(const RequestPoolOptions& options,
                       Clock clock = MonotonicClock(),
                       Jitter jitter = RandomJitter());
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;
  // Runs the waiting requests and returns when all have ended.
  ~RequestPool();

  // Returns the ticket of a waiting request, else kNotWaiting: it was started
  // or refused.
  Ticket Submit(PooledRequest request);
  // As Submit, but returns the refusal of a request that finds no room and calls
  // neither of its functions.
  absl::StatusOr<Ticket> TrySubmit(PooledRequest request);

  // Refuses a request that still waits with `reason`; does nothing otherwise.
  void Remove(Ticket ticket, const absl::Status& reason);

  // When a caller who is refused now should try again; `max_running` as in
  // PooledRequest.
  absl::Duration RetryAfter(const std::string& owner, int32_t max_running);

  // Number of requests that run, wait, or are being refused.
  int64_t active() const;
  // Number of callers with such requests.
  int64_t callers() const;

 private:
  struct Owner {
    int32_t running = 0;
    int32_t waiting = 0;
    int32_t max_running = 0;  // 0: no limit
  };
  struct Refused {
    PooledRequest request;
    absl::Status reason;
  };

  // Invariant: while fewer than max_running run, no waiting request may.
  bool MayRun(const std::string& owner) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds `change` to a count of the owner.
  void Count(const std::string& owner, int32_t Owner::*count, int32_t change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Duration RetryAfterLocked(const std::string& owner, int32_t max_running)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts the request or queues it; what it displaces is refused. An error is
  // NoRoom, with `request` unchanged.
  absl::StatusOr<Ticket> Place(PooledRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The refusal of a request that finds the queue full.
  absl::Status NoRoom(const PooledRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts waiting requests while there is room.
  void StartWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the request a thread.
  void Begin(PooledRequest request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RunRequests();
  // Has the watcher refuse the request.
  void Refuse(PooledRequest request, absl::Status reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Refuses requests: those that Refuse was called for, and those whose
  // deadline passes while they wait.
  void WatchQueue();

  const RequestPoolOptions options_;
  const Clock clock_;

  mutable absl::Mutex mu_;
  const Jitter jitter_ ABSL_GUARDED_BY(mu_);
  // Mean time of recent requests, from start to end.
  absl::Duration service_time_ ABSL_GUARDED_BY(mu_) = absl::ZeroDuration();
  FairQueue<PooledRequest> queue_ ABSL_GUARDED_BY(mu_);
  std::deque<PooledRequest> begun_ ABSL_GUARDED_BY(mu_);  // for idle threads
  absl::flat_hash_map<std::string, Owner> owners_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  int32_t idle_ ABSL_GUARDED_BY(mu_) = 0;
  int32_t running_ ABSL_GUARDED_BY(mu_) = 0;  // begun_ included
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Refused> refused_ ABSL_GUARDED_BY(mu_);
  int64_t refusing_ ABSL_GUARDED_BY(mu_) = 0;  // refused_ included
  bool threads_ended_ ABSL_GUARDED_BY(mu_) = false;
  // The deadline that the watcher sleeps until, and whether it must look
  // earlier: for an earlier one, for a refusal, or for the stop.
  absl::Time next_deadline_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool watcher_wanted_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_;  // last: uses all of the above
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_REQUEST_POOL_H_
