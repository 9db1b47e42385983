// LiveCalls: the calls of one channel that are not quite gone.
//
// gRPC must not lose the last reference to a channel in one of its own
// callbacks, so the owner of a channel owns one of these, too, and destroys it
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

// A call counts from its construction until its members are gone: a class of
// calls names LiveCall as its first base.
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
  // The destructor of a class of calls begins with it: from then on the call is
  // not cancelled.
  void Forget();

 private:
  LiveCalls& calls_;
  std::atomic<bool> done_{false};
};

class LiveCalls {
 public:
  // Cancels what there still is and waits for its end.
  ~LiveCalls();

  // Takes a call that has been told to end: it is cancelled where its service
  // does not end it in time, so that a hung service holds nothing.
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

// Another service, and the calls to it. The calls go before the channel.
struct Peer {
  explicit Peer(Endpoint to) : endpoint(std::move(to)) {}

  const Endpoint endpoint;
  LiveCalls calls;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_LIVE_CALLS_H_
