// ByteBudget: the memory that all requests of a process may hold together.
//
// A request takes its bytes before anything is copied for it and holds them as
// a Share until they are freed. An owner may hold kGreed times what is left
// free: one owner alone gets three quarters of the budget, a second one then
// three quarters of the rest, and so on. Every owner finds room for something,
// but the fifth that takes all it can is left a thousandth of the budget: what
// is larger than that has no room beside five greedy owners.
//
// Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for
// Shared-Memory Packet Switches" (IEEE/ACM Transactions on Networking, 1998).
//
// Thread-safe, but for the Shares, which are thread-compatible.
#ifndef FORETOKEN_COMMON_BASE_BYTE_BUDGET_H_
#define FORETOKEN_COMMON_BASE_BYTE_BUDGET_H_

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <utility>

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
    // Takes `bytes` of the share, at most all, into one of its own.
    Share Split(int64_t bytes);
    void Release();

   private:
    friend class ByteBudget;
    Share(ByteBudget& budget, std::string owner, int64_t bytes);

    ByteBudget* budget_ = nullptr;
    std::string owner_;
    int64_t bytes_ = 0;
  };

  static constexpr int64_t kGreed = 3;

  // `on_change`, if given, is called with the bytes in use after every change,
  // with a lock held: it must be quick.
  explicit ByteBudget(int64_t limit,
                      std::function<void(int64_t used)> on_change = nullptr)
      : limit_(limit), on_change_(std::move(on_change)) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // ResourceExhausted if the bytes do not fit now, InvalidArgument if they are
  // more than one owner ever gets. The budget must outlive the share.
  absl::StatusOr<Share> Take(const std::string& owner, int64_t bytes);

  // As Take, but waits until the bytes fit; DeadlineExceeded if they do not
  // within `time`. Only for bytes whose holders wait for nothing themselves.
  // Those who wait get their bytes in order, but one whose owner holds bytes
  // already lets other owners pass: what is large is not starved by what is
  // small. `cancelled`, if given, is asked now and then without a lock held;
  // Cancelled once it returns true.
  absl::StatusOr<Share> TakeWhenFree(
      const std::string& owner, int64_t bytes, absl::Duration time,
      const std::function<bool()>& cancelled = nullptr);

  int64_t limit() const { return limit_; }
  // The most that one owner gets.
  int64_t max_share() const { return limit_ / (kGreed + 1) * kGreed; }
  int64_t used() const;
  // The bytes of one owner.
  int64_t held(const std::string& owner) const;
  // Number of waits in TakeWhenFree.
  int64_t waiting() const;

 private:
  struct Waiter {
    const std::string& owner;
    const int64_t bytes;
  };
  using Waiters = std::list<Waiter>;  // in the order of their arrival

  absl::Status Check(int64_t bytes) const;
  int64_t Owned(const std::string& owner) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Fits(const std::string& owner, int64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the waiter may take its bytes now.
  bool MayTake(Waiters::const_iterator waiter) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddFitting(const std::string& owner, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ChangeUsed(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Add(const std::string& owner, int64_t bytes);
  void Subtract(const std::string& owner, int64_t bytes);

  const int64_t limit_;
  const std::function<void(int64_t)> on_change_;
  mutable absl::Mutex mu_;
  int64_t used_ ABSL_GUARDED_BY(mu_) = 0;
  // Bytes by owner; owners without any are left out.
  absl::flat_hash_map<std::string, int64_t> owners_ ABSL_GUARDED_BY(mu_);
  Waiters waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_BYTE_BUDGET_H_
