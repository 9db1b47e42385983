#include "common/base/silent_calls.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace foretoken {
namespace {

// Minimum interval between searches for one owner, so that a flood of calls
// does not cause a flood of searches.
constexpr absl::Duration kSearchInterval = absl::Milliseconds(10);
// Owners beyond this number are forgotten once their interval is over.
constexpr size_t kOwnersKept = 64;

}  // namespace

SilentCalls::Id SilentCalls::Add(const std::string& owner,
                                 std::function<bool()> end) {
  const absl::Time now = clock_();
  absl::MutexLock lock(&mu_);
  // Ids ascend, so calls_ is in order of arrival and the loops below may stop
  // at the first young one.
  calls_.emplace_hint(calls_.end(), ++last_, Call{owner, now, std::move(end)});
  return last_;
}

void SilentCalls::Remove(Id id) {
  absl::MutexLock lock(&mu_);
  calls_.erase(id);
}

bool SilentCalls::MaySearch(const std::string& owner, absl::Time now) {
  if (next_search_.size() > kOwnersKept) {
    absl::erase_if(next_search_,
                   [now](const auto& entry) { return entry.second <= now; });
  }
  absl::Time& next = next_search_.try_emplace(owner, now).first->second;
  if (now < next) return false;
  next = now + kSearchInterval;
  return true;
}

bool SilentCalls::MakeRoom(const std::string& owner, int64_t count) {
  const absl::Time now = clock_();
  std::vector<std::pair<Id, std::function<bool()>>> ends;
  {
    absl::MutexLock lock(&mu_);
    if (!MaySearch(owner, now)) return false;
    std::optional<std::string> heaviest;
    // At least as much as the caller itself: others must not be ended for one
    // that holds more.
    int64_t most = budget_.held(owner) - 1;
    absl::flat_hash_map<std::string, int64_t> held;
    for (const auto& [id, call] : calls_) {
      // Calls within their grace may be about to send their message.
      if (call.since + grace_ > now) break;
      const auto [known, is_new] = held.try_emplace(call.owner, 0);
      if (!is_new) continue;
      known->second = budget_.held(call.owner);
      if (known->second <= most) continue;
      heaviest = call.owner;
      most = known->second;
    }
    for (auto it = calls_.begin(); heaviest.has_value() && it != calls_.end() &&
                                   static_cast<int64_t>(ends.size()) < count;) {
      const auto at = it++;
      if (at->second.since + grace_ > now) break;
      if (at->second.owner != *heaviest) continue;
      ends.emplace_back(at->first, at->second.end);
    }
  }
  // Not under the lock: ending a call takes the call's own.
  bool any = false;
  for (const auto& [id, end] : ends) {
    // The call has sent its message meanwhile.
    if (!end()) continue;
    any = true;
    Remove(id);
  }
  return any;
}

absl::Status SilentCalls::TakeWithRoom(const std::string& owner, int64_t bytes,
                                       absl::FunctionRef<absl::Status()> take) {
  absl::Status status = take();
  if (!absl::IsResourceExhausted(status)) return status;
  // As many calls as would free the bytes, and one for the remainder.
  return MakeRoom(owner, bytes / kCallBytes + 1) ? take() : status;
}

}  // namespace foretoken
