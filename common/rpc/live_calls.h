// LiveCalls: the calls of one channel that have not been destroyed yet.
//
// The last reference to a channel must not be dropped in one of gRPC's own
// callbacks, so the owner of a channel also owns a LiveCalls and destroys it
// first. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_LIVE_CALLS_H_
#define FORETOKEN_COMMON_RPC_LIVE_CALLS_H_

#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"

namespace foretoken::rpc {

class LiveCalls;

// Base of a call, which counts from its construction until its members are
// destroyed: derived classes must name LiveCall as their first base.
class LiveCall {
 public:
  explicit LiveCall(LiveCalls& calls);
  virtual ~LiveCall();
  LiveCall(const LiveCall&) = delete;
  LiveCall& operator=(const LiveCall&) = delete;

  // Ends the call now.
  virtual void Cancel() = 0;
  bool done() const { return done_; }

 protected:
  void SetDone() { done_ = true; }
  // Must come first in the destructor of a derived class: the call is no longer
  // cancelled afterwards.
  void Forget();

 private:
  LiveCalls& calls_;
  std::atomic<bool> done_{false};
};

class LiveCalls {
 public:
  // Cancels the remaining calls and waits until they are destroyed.
  ~LiveCalls();

  // Takes a call that has been finished, and cancels it if the service does not
  // end it in time, so that a hung service does not hold calls.
  void LetEnd(std::shared_ptr<LiveCall> call) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class LiveCall;

  struct Ending {
    absl::Time since;
    std::shared_ptr<LiveCall> call;
  };

  absl::Mutex mu_;
  std::set<LiveCall*> calls_ ABSL_GUARDED_BY(mu_);
  int count_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Ending> ending_ ABSL_GUARDED_BY(mu_);
};

// Another service and the calls to it. Calls are destroyed before the channel.
struct Peer {
  explicit Peer(Endpoint to) : endpoint(std::move(to)) {}

  const Endpoint endpoint;
  LiveCalls calls;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_LIVE_CALLS_H_
