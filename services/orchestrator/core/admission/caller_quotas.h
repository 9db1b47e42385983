// CallerQuotas: requests and tokens a minute, by caller.
//
// Each quota is a token bucket that holds at most a minute's worth and starts
// full. A request takes what it asks for, prompt and output, and gets back what
// it did not use. One that asks for more than a minute's worth needs a full
// bucket, and leaves a debt. Quotas are the caller's current ones: a change
// takes effect with the next request. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_CALLER_QUOTAS_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_CALLER_QUOTAS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/generation/generation.h"

namespace foretoken::orchestrator {

class CallerQuotas {
 public:
  explicit CallerQuotas(Clock clock) : clock_(std::move(clock)) {}

  // ResourceExhausted, with the time until the request fits as its retry hint
  // and with nothing taken, if one of the quotas is used up.
  absl::Status Take(const Caller& caller, int64_t tokens);
  // Gives back tokens of an earlier Take; they may be negative. With
  // `requests`, also that many requests.
  void GiveBack(const Caller& caller, int64_t tokens, int64_t requests = 0);

  // Number of accounts in memory.
  int64_t accounts() const;

 private:
  struct Bucket {
    double level = 0;
    absl::Time filled = absl::InfinitePast();  // when `level` was right
    int64_t per_minute = 0;                    // of the last Take; 0: no quota
  };
  struct Account {
    Bucket requests;
    Bucket tokens;
  };

  // Accounts with full buckets are as good as none. They are dropped when there
  // are this many accounts; those with a debt stay.
  static constexpr size_t kManyAccounts = 4096;

  // Brings the bucket up to date.
  static void Fill(Bucket& bucket, int64_t per_minute, absl::Time now);
  // Time until `amount` can be taken.
  static absl::Duration Wait(const Bucket& bucket, int64_t per_minute,
                             int64_t amount);
  void DropFullAccounts(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static bool IsFull(Bucket bucket, absl::Time now);

  const Clock clock_;
  mutable absl::Mutex mu_;
  absl::flat_hash_map<std::string, Account> accounts_ ABSL_GUARDED_BY(mu_);
  absl::Time next_drop_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_CALLER_QUOTAS_H_
