// VerifyMailbox: listener of a caller that blocks until its answers arrive.
// Thread-safe; only one thread may wait.
#ifndef FORETOKEN_COMMON_SPECULATION_VERIFY_MAILBOX_H_
#define FORETOKEN_COMMON_SPECULATION_VERIFY_MAILBOX_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/timed_wait.h"
#include "common/speculation/verify_session.h"

namespace foretoken {

class VerifyMailbox final : public VerifyListener {
 public:
  // `clock`: that of the deadlines below.
  explicit VerifyMailbox(Clock clock = MonotonicClock())
      : clock_(std::move(clock)) {}

  void OnOpened(const std::string& numerics_fingerprint) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    fingerprint_ = numerics_fingerprint;
    opened_ = true;
  }
  void OnPrefilled(PrefillResult result) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    prefilled_ = std::move(result);
  }
  void OnRound(RoundResult result) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    round_ = std::move(result);
  }
  // The first status is kept.
  void OnFailed(absl::Status status) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = std::move(status);
  }

  // Waits for OnOpened. The error that ended the session before, or nothing if
  // there was neither by `deadline`.
  std::optional<absl::Status> AwaitOpened(absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return opened_ || !failure_.ok();
    };
    if (!AwaitFor(mu_, absl::Condition(&ready), deadline - clock_())) {
      return std::nullopt;
    }
    return opened_ ? absl::OkStatus() : failure_;
  }

  // Waits for the answer or the error that ended the session; the error takes
  // precedence over an answer not yet collected. DeadlineExceeded if neither
  // arrives by `deadline`.
  absl::StatusOr<PrefillResult> CollectPrefill(absl::Time deadline) {
    return Collect(prefilled_, deadline);
  }
  absl::StatusOr<RoundResult> CollectRound(absl::Time deadline) {
    return Collect(round_, deadline);
  }

  // Valid once a PrefillResult has arrived.
  std::string fingerprint() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return fingerprint_;
  }

 private:
  template <typename Result>
  absl::StatusOr<Result> Collect(std::optional<Result>& slot,
                                 absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return slot.has_value() || !failure_.ok();
    };
    if (!AwaitFor(mu_, absl::Condition(&ready), deadline - clock_())) {
      return absl::DeadlineExceededError("the request's deadline has passed");
    }
    if (!failure_.ok()) return failure_;
    absl::StatusOr<Result> result = *std::move(slot);
    slot.reset();
    return result;
  }

  const Clock clock_;
  mutable absl::Mutex mu_;
  bool opened_ ABSL_GUARDED_BY(mu_) = false;
  std::string fingerprint_ ABSL_GUARDED_BY(mu_);
  std::optional<PrefillResult> prefilled_ ABSL_GUARDED_BY(mu_);
  std::optional<RoundResult> round_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPECULATION_VERIFY_MAILBOX_H_
