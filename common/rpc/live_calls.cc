#include "common/rpc/live_calls.h"

#include <utility>
#include <vector>

#include "common/base/clock.h"

namespace foretoken::rpc {
namespace {

// Time that a half-closed call gets to end by itself before it is cancelled,
// and the number of such calls kept waiting.
constexpr absl::Duration kEndTime = absl::Seconds(5);
constexpr size_t kMaxEnding = 1024;

}  // namespace

LiveCalls::~LiveCalls() {
  std::deque<Ending> ending;
  {
    absl::MutexLock lock(&mu_);
    // Destroyed without the lock, which ~LiveCall takes.
    ending.swap(ending_);
    // Cancel, then wait for all: gRPC calls their reactions until OnDone, and
    // these use this object.
    for (LiveCall* call : calls_) call->Cancel();
  }
  ending.clear();
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return count_ == 0;
  };
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&none));
}

void LiveCalls::LetEnd(std::shared_ptr<LiveCall> call) {
  const absl::Time now = MonotonicNow();
  std::vector<std::shared_ptr<LiveCall>> gone;  // destroyed without the lock
  absl::MutexLock lock(&mu_);
  ending_.push_back({now, std::move(call)});
  // Oldest first, so that the first one that is neither done nor overdue ends
  // the walk.
  while (!ending_.empty()) {
    Ending& oldest = ending_.front();
    if (!oldest.call->done()) {
      const bool overdue =
          now - oldest.since > kEndTime || ending_.size() > kMaxEnding;
      if (!overdue) return;
      oldest.call->Cancel();
    }
    gone.push_back(std::move(oldest.call));
    ending_.pop_front();
  }
}

LiveCall::LiveCall(LiveCalls& calls) : calls_(calls) {
  absl::MutexLock lock(&calls.mu_);
  calls.calls_.insert(this);
  ++calls.count_;
}

LiveCall::~LiveCall() {
  absl::MutexLock lock(&calls_.mu_);
  --calls_.count_;
}

// Called first by the destructors of derived classes: from then on ~LiveCalls
// does not cancel the object, whose derived part is being destroyed.
void LiveCall::Forget() {
  absl::MutexLock lock(&calls_.mu_);
  calls_.calls_.erase(this);
}

}  // namespace foretoken::rpc
