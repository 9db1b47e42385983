// ByteBudget: the memory that all requests of a process may hold together.
//
// A request takes its bytes before anything is copied for it and holds them as
// a Share until they are freed. An owner may hold kGreed times what is left
// free: one owner alone gets three quarters of the budget, a second one always
// finds room, and so does a third.
//
// Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for
// Shared-Memory Packet Switches" (IEEE/ACM Transactions on Networking, 1998).
//
// Thread-safe, but for the Shares, which are thread-compatible.
#ifndef FORETOKEN_COMMON_BASE_BYTE_BUDGET_H_
#define FORETOKEN_COMMON_BASE_BYTE_BUDGET_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken {

class ByteBudget {
 public:
  // Bytes that are held until the object is destroyed. A share of a
  // default-constructed object is empty and cannot grow.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept;
    Share& operator=(Share&& other) noexcept;
    ~Share() { Release(); }

    int64_t bytes() const { return bytes_; }
    // Makes the share smaller, or larger if that fits; ResourceExhausted, with
    // the share unchanged, if it does not, InvalidArgument if it never will.
    absl::Status Resize(int64_t bytes);
    void Release();

   private:
    friend class ByteBudget;
    Share(ByteBudget& budget, std::string owner, int64_t bytes);

    ByteBudget* budget_ = nullptr;
    std::string owner_;
    int64_t bytes_ = 0;
  };

  static constexpr int64_t kGreed = 3;

  explicit ByteBudget(int64_t limit) : limit_(limit) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // ResourceExhausted if the bytes do not fit now, InvalidArgument if they are
  // more than one owner ever gets. The budget must outlive the share.
  absl::StatusOr<Share> Take(const std::string& owner, int64_t bytes);

  // As Take, but waits until the bytes fit; DeadlineExceeded if they do not
  // within `time`. Only for bytes whose holders wait for nothing themselves.
  absl::StatusOr<Share> TakeWhenFree(const std::string& owner, int64_t bytes,
                                     absl::Duration time);

  int64_t limit() const { return limit_; }
  // The most that one owner gets.
  int64_t max_share() const { return limit_ / (kGreed + 1) * kGreed; }
  int64_t used() const;

 private:
  absl::Status Check(int64_t bytes) const;
  int64_t Owned(const std::string& owner) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Fits(const std::string& owner, int64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddFitting(const std::string& owner, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Add(const std::string& owner, int64_t bytes);
  void Subtract(const std::string& owner, int64_t bytes);

  const int64_t limit_;
  mutable absl::Mutex mu_;
  int64_t used_ ABSL_GUARDED_BY(mu_) = 0;
  // Bytes by owner; owners without any are left out.
  absl::flat_hash_map<std::string, int64_t> owners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_BYTE_BUDGET_H_
