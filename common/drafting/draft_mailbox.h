// DraftMailbox: the listener of a caller that waits for its answers, at most
// until a deadline. Thread-safe; Collect is for one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_DRAFT_MAILBOX_H_
#define FORETOKEN_COMMON_DRAFTING_DRAFT_MAILBOX_H_

#include <deque>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/drafting/draft_session.h"

namespace foretoken {

class DraftMailbox final : public DraftListener {
 public:
  struct Letter {
    DraftAnswer answer;
    absl::Time arrived;
  };

  explicit DraftMailbox(Clock clock = SystemClock())
      : clock_(std::move(clock)) {}

  void OnAnswer(DraftAnswer answer) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    letters_.push_back({std::move(answer), clock_()});
  }
  void OnFailed(absl::Status status) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = std::move(status);
  }

  // The next answer; once all are taken, the error that ended the session.
  // Nothing where neither has come by `deadline`.
  std::optional<absl::StatusOr<Letter>> Collect(absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !failure_.ok() || !letters_.empty();
    };
    if (!ready()) {
      // A wait that has no time left still costs a call into the kernel.
      const absl::Duration left = deadline - clock_();
      if (left <= absl::ZeroDuration() ||
          !mu_.AwaitWithTimeout(absl::Condition(&ready), left)) {
        return std::nullopt;
      }
    }
    if (letters_.empty()) return failure_;
    Letter letter = std::move(letters_.front());
    letters_.pop_front();
    return letter;
  }

 private:
  const Clock clock_;
  absl::Mutex mu_;
  std::deque<Letter> letters_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_DRAFT_MAILBOX_H_
