#include "common/base/byte_budget.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/timed_wait.h"

namespace foretoken {
namespace {

// Interval at which a wait checks whether it was cancelled.
constexpr absl::Duration kCancelPoll = absl::Milliseconds(100);

}  // namespace

ByteBudget::Share::Share(ByteBudget& budget, std::string owner, int64_t bytes)
    : budget_(&budget), owner_(std::move(owner)), bytes_(bytes) {}

ByteBudget::Share::Share(Share&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      owner_(std::move(other.owner_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

ByteBudget::Share& ByteBudget::Share::operator=(Share&& other) noexcept {
  if (this == &other) return *this;
  Release();
  // The moved-from share is empty: two shares of the same bytes would give them
  // back twice.
  budget_ = std::exchange(other.budget_, nullptr);
  owner_ = std::move(other.owner_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

absl::Status ByteBudget::Share::Resize(int64_t bytes) {
  FORETOKEN_CHECK(budget_ != nullptr && bytes >= 0);
  if (bytes > bytes_) {
    // Against the largest share of all, for which no waiting would help, and
    // then against what is free.
    FORETOKEN_RETURN_IF_ERROR(budget_->Check(bytes));
    FORETOKEN_RETURN_IF_ERROR(budget_->Add(owner_, bytes - bytes_));
  } else if (bytes < bytes_) {
    budget_->Subtract(owner_, bytes_ - bytes);
  }
  bytes_ = bytes;
  return absl::OkStatus();
}

ByteBudget::Share ByteBudget::Share::Split(int64_t bytes) {
  FORETOKEN_CHECK(0 <= bytes && bytes <= bytes_);
  Share part;
  part.budget_ = budget_;
  part.owner_ = owner_;
  part.bytes_ = bytes;
  bytes_ -= bytes;
  return part;
}

void ByteBudget::Share::Release() {
  if (budget_ != nullptr && bytes_ > 0) budget_->Subtract(owner_, bytes_);
  budget_ = nullptr;
  bytes_ = 0;
}

absl::StatusOr<ByteBudget::Share> ByteBudget::Take(const std::string& owner,
                                                   int64_t bytes) {
  FORETOKEN_CHECK(bytes >= 0);
  FORETOKEN_RETURN_IF_ERROR(Check(bytes));
  FORETOKEN_RETURN_IF_ERROR(Add(owner, bytes));
  return Share(*this, owner, bytes);
}

absl::StatusOr<ByteBudget::Share> ByteBudget::TakeWhenFree(
    const std::string& owner, int64_t bytes, absl::Duration time,
    const std::function<bool()>& cancelled) {
  FORETOKEN_CHECK(bytes >= 0);
  FORETOKEN_RETURN_IF_ERROR(Check(bytes));
  const absl::Time end = MonotonicNow() + time;
  absl::MutexLock lock(&mu_);
  // In order of arrival; MayTake looks at those before.
  const auto waiter = waiters_.insert(waiters_.end(), Waiter{owner, bytes});
  const auto may_take = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return MayTake(waiter);
  };
  absl::Status status;
  while (true) {
    const absl::Duration left = end - MonotonicNow();
    // Without a way to cancel there is nothing to poll for.
    if (AwaitFor(mu_, absl::Condition(&may_take),
                 cancelled == nullptr ? left : std::min(left, kCancelPoll))) {
      break;
    }
    if (MonotonicNow() >= end) {
      status = absl::DeadlineExceededError(
          "the request's deadline passed while it waited for memory");
      break;
    }
    // `cancelled` may take locks that others hold while they take bytes.
    mu_.Unlock();
    const bool stop = cancelled != nullptr && cancelled();
    mu_.Lock();
    if (stop) {
      status = absl::CancelledError("the request was cancelled");
      break;
    }
  }
  waiters_.erase(waiter);
  FORETOKEN_RETURN_IF_ERROR(status);
  // Fits was true under the lock that is still held, so this cannot fail.
  AddFitting(owner, bytes);
  return Share(*this, owner, bytes);
}

bool ByteBudget::MayTake(Waiters::const_iterator waiter) const {
  // Small requests may pass a large one that does not fit, but never for good
  // (below).
  if (!Fits(waiter->owner, waiter->bytes)) return false;
  // An owner's own requests keep their order, so that what it holds becomes
  // less and it is let in before others in the end.
  const auto stays_first =
      [&](const Waiter& earlier) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return earlier.owner == waiter->owner || Owned(earlier.owner) == 0;
      };
  return std::none_of(waiters_.begin(), waiter, stays_first);
}

int64_t ByteBudget::used() const {
  absl::MutexLock lock(&mu_);
  return used_;
}

int64_t ByteBudget::held(const std::string& owner) const {
  absl::MutexLock lock(&mu_);
  return Owned(owner);
}

int64_t ByteBudget::waiting() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(waiters_.size());
}

absl::Status ByteBudget::Check(int64_t bytes) const {
  if (bytes <= max_share()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the request needs ", bytes,
                   " bytes of memory, want at most ", max_share()));
}

int64_t ByteBudget::Owned(const std::string& owner) const {
  const auto it = owners_.find(owner);
  return it == owners_.end() ? 0 : it->second;
}

bool ByteBudget::Fits(const std::string& owner, int64_t bytes) const {
  // An owner may hold kGreed times what is left to others: alone it can take
  // much, in a crowd little.
  return Owned(owner) + bytes <= kGreed * (limit_ - used_ - bytes);
}

void ByteBudget::AddFitting(const std::string& owner, int64_t bytes) {
  if (bytes == 0) return;
  ChangeUsed(bytes);
  owners_[owner] += bytes;
}

void ByteBudget::ChangeUsed(int64_t bytes) {
  used_ += bytes;
  // Under mu_, so that reports come in the order of the changes; it must not
  // call back.
  if (on_change_ != nullptr) on_change_(used_);
}

absl::Status ByteBudget::Add(const std::string& owner, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  if (!Fits(owner, bytes)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the memory for requests is in use: ", used_, " of ",
                     limit_, " bytes, ", Owned(owner), " by this caller; ",
                     bytes, " more were needed"));
  }
  AddFitting(owner, bytes);
  return absl::OkStatus();
}

void ByteBudget::Subtract(const std::string& owner, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  ChangeUsed(-bytes);
  const auto it = owners_.find(owner);
  // More given back than taken is a fault of ours, and the sum would be wrong
  // for good.
  FORETOKEN_CHECK(it != owners_.end() && it->second >= bytes);
  it->second -= bytes;
  // Owners come and go without end; those without bytes are forgotten.
  if (it->second == 0) owners_.erase(it);
}

}  // namespace foretoken
