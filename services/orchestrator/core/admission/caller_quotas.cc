#include "services/orchestrator/core/admission/caller_quotas.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/retry_after.h"

namespace foretoken::orchestrator {
namespace {

constexpr double kSecondsPerMinute = 60;
// Minimum interval between searches for full accounts.
constexpr absl::Duration kDropInterval = absl::Minutes(1);

absl::Status UsedUp(absl::string_view what, int64_t per_minute,
                    absl::Duration wait) {
  return WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat(
          "the caller's quota of ", per_minute, " ", what,
          " a minute is used up; there is room in ",
          absl::FormatDuration(absl::Ceil(wait, absl::Milliseconds(1))))),
      wait);
}

}  // namespace

absl::Status CallerQuotas::Take(const Caller& caller, int64_t tokens) {
  if (caller.requests_per_minute == 0 && caller.tokens_per_minute == 0) {
    return absl::OkStatus();
  }
  const absl::Time now = clock_();
  absl::MutexLock lock(&mu_);
  if (accounts_.size() >= kManyAccounts && now >= next_drop_) {
    next_drop_ = now + kDropInterval;
    DropFullAccounts(now);
  }
  // Made on the first call, full: a new caller has its whole quota at once.
  Account& account = accounts_[caller.name];
  Fill(account.requests, caller.requests_per_minute, now);
  Fill(account.tokens, caller.tokens_per_minute, now);
  const absl::Duration for_request =
      Wait(account.requests, caller.requests_per_minute, 1);
  const absl::Duration for_tokens =
      Wait(account.tokens, caller.tokens_per_minute, tokens);
  if (std::max(for_request, for_tokens) > absl::ZeroDuration()) {
    return for_request > for_tokens
               ? UsedUp("requests", caller.requests_per_minute, for_request)
               : UsedUp("tokens", caller.tokens_per_minute, for_tokens);
  }
  // (A quota that does not exist has an empty bucket, which fills at once when
  // it is introduced.)
  // Both checks come first: a request that lacks tokens must not use up a
  // request.
  if (caller.requests_per_minute > 0) account.requests.level -= 1;
  if (caller.tokens_per_minute > 0) {
    account.tokens.level -= static_cast<double>(tokens);
  }
  return absl::OkStatus();
}

void CallerQuotas::GiveBack(const Caller& caller, int64_t tokens,
                            int64_t requests) {
  if (caller.requests_per_minute == 0 && caller.tokens_per_minute == 0) return;
  absl::MutexLock lock(&mu_);
  const auto it = accounts_.find(caller.name);
  if (it == accounts_.end()) return;
  if (caller.requests_per_minute > 0) {
    it->second.requests.level += static_cast<double>(requests);
  }
  if (caller.tokens_per_minute > 0) {
    it->second.tokens.level += static_cast<double>(tokens);
  }
}

int64_t CallerQuotas::accounts() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(accounts_.size());
}

void CallerQuotas::Fill(Bucket& bucket, int64_t per_minute, absl::Time now) {
  if (per_minute == 0) {
    bucket = {};
    return;
  }
  const auto full = static_cast<double>(per_minute);
  const double elapsed = absl::ToDoubleSeconds(now - bucket.filled);
  bucket.level =
      std::min(full, bucket.level + elapsed * full / kSecondsPerMinute);
  bucket.filled = now;
  bucket.per_minute = per_minute;
}

absl::Duration CallerQuotas::Wait(const Bucket& bucket, int64_t per_minute,
                                  int64_t amount) {
  if (per_minute == 0) return absl::ZeroDuration();
  // A request larger than a whole minute's quota has to wait for a full bucket,
  // not forever; its bucket then goes below zero.
  const double missing =
      static_cast<double>(std::min(amount, per_minute)) - bucket.level;
  if (missing <= 0) return absl::ZeroDuration();
  return absl::Ceil(absl::Seconds(missing * kSecondsPerMinute /
                                  static_cast<double>(per_minute)),
                    absl::Milliseconds(1));
}

void CallerQuotas::DropFullAccounts(absl::Time now) {
  absl::erase_if(accounts_, [now](const auto& entry) {
    // A full bucket equals a new one, so nothing is forgotten.
    return IsFull(entry.second.requests, now) &&
           IsFull(entry.second.tokens, now);
  });
}

bool CallerQuotas::IsFull(Bucket bucket, absl::Time now) {
  const int64_t per_minute = bucket.per_minute;
  Fill(bucket, per_minute, now);
  return bucket.level >= static_cast<double>(per_minute);
}

}  // namespace foretoken::orchestrator
