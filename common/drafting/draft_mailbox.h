// DraftMailbox: listener of a caller that blocks until its answers arrive or a
// deadline passes. Thread-safe; only one thread may call Collect.
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
#include "common/base/timed_wait.h"
#include "common/drafting/draft_session.h"

namespace foretoken {

class DraftMailbox final : public DraftListener {
 public:
  struct Letter {
    DraftAnswer answer;
    absl::Time arrived;
  };

  explicit DraftMailbox(Clock clock = MonotonicClock())
      : clock_(std::move(clock)) {}

  void OnAnswer(DraftAnswer answer) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    letters_.push_back({std::move(answer), clock_()});
  }
  void OnFailed(absl::Status status) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = std::move(status);
  }

  // Returns the next answer; after the last one, the error that ended the
  // session. nullopt if neither arrives by `deadline`.
  std::optional<absl::StatusOr<Letter>> Collect(absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !failure_.ok() || !letters_.empty();
    };
    if (!ready()) {
      const absl::Duration left = deadline - clock_();
      if (!AwaitFor(mu_, absl::Condition(&ready), left)) return std::nullopt;
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
