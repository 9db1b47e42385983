// LiveCalls: the calls of one channel that are not quite gone.
//
// gRPC must not lose the last reference to a channel in one of its own
// callbacks, so the owner of a channel owns one of these, too, and destroys it
// first. Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_LIVE_CALLS_H_
#define FORETOKEN_COMMON_RPC_LIVE_CALLS_H_

#include <deque>
#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken::rpc {

class LiveCall {
 public:
  virtual ~LiveCall() = default;
  // Ends the call now.
  virtual void Cancel() = 0;
  virtual bool done() const = 0;
};

class LiveCalls {
 public:
  // Cancels what there still is and waits for its end.
  ~LiveCalls();

  // Takes a call that has been told to end: it is cancelled where its service
  // does not end it in time, so that a hung service holds nothing.
  void LetEnd(std::shared_ptr<LiveCall> call) ABSL_LOCKS_EXCLUDED(mu_);

  // Of a call: declared before all of its members that hold the channel.
  class Membership {
   public:
    Membership(LiveCalls& owner, LiveCall* call);
    ~Membership();
    Membership(const Membership&) = delete;
    Membership& operator=(const Membership&) = delete;

    LiveCalls& calls;
  };
  // `call` is being destroyed: it is not to be cancelled any more.
  void Forget(LiveCall* call) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Ending {
    absl::Time since;
    std::shared_ptr<LiveCall> call;
  };

  absl::Mutex mu_;
  std::set<LiveCall*> calls_ ABSL_GUARDED_BY(mu_);
  int count_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Ending> ending_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_LIVE_CALLS_H_
