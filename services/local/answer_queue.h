// AnswerQueue: the receiving half of a MessageStream without a network: what a
// service has said and its caller has not read. Thread-safe.
#ifndef FORETOKEN_SERVICES_LOCAL_ANSWER_QUEUE_H_
#define FORETOKEN_SERVICES_LOCAL_ANSWER_QUEUE_H_

#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace foretoken::local {

// `Received` is a MessageStream's.
template <typename Received>
class AnswerQueue {
 public:
  void Push(Received received) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (!ended_) received_.push_back(std::move(received));
  }

  // The first status counts. An error need not wait for what was not read.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return;
    status_ = status;
    if (!status.ok()) received_.clear();
  }

  bool ended() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return ended_;
  }

  // As MessageStream has it.
  std::optional<absl::StatusOr<Received>> Pop(absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return ended_ || !received_.empty();
    };
    if (!mu_.AwaitWithDeadline(absl::Condition(&ready), deadline)) {
      return std::nullopt;
    }
    if (!received_.empty()) {
      Received received = std::move(received_.front());
      received_.pop_front();
      return received;
    }
    if (!status_.ok()) return status_;
    return absl::UnavailableError("the service ended the stream early");
  }

 private:
  mutable absl::Mutex mu_;
  std::deque<Received> received_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::local

#endif  // FORETOKEN_SERVICES_LOCAL_ANSWER_QUEUE_H_
