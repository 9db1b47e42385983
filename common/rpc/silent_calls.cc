#include "common/rpc/silent_calls.h"

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace foretoken::rpc {
namespace {

// Minimum interval between searches, so that a flood of calls does not cause a
// flood of searches.
constexpr absl::Duration kSearchInterval = absl::Milliseconds(10);

}  // namespace

SilentCalls::Id SilentCalls::Add(const std::string& owner,
                                 std::function<bool()> end) {
  const absl::Time now = clock_();
  absl::MutexLock lock(&mu_);
  calls_.emplace_hint(calls_.end(), ++last_, Call{owner, now, std::move(end)});
  return last_;
}

void SilentCalls::Remove(Id id) {
  absl::MutexLock lock(&mu_);
  calls_.erase(id);
}

bool SilentCalls::MakeRoom(const std::string& owner, int64_t count) {
  const absl::Time now = clock_();
  std::vector<std::function<bool()>> ends;
  {
    absl::MutexLock lock(&mu_);
    if (now < next_search_) return false;
    next_search_ = now + kSearchInterval;
    std::optional<std::string> heaviest;
    int64_t most = budget_.held(owner) - 1;
    absl::flat_hash_map<std::string, int64_t> held;
    for (const auto& [id, call] : calls_) {
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
      ends.push_back(std::move(at->second.end));
      calls_.erase(at);
    }
  }
  // Not under the lock: ending a call takes the call's own.
  bool any = false;
  for (const auto& end : ends) any = end() || any;
  return any;
}

}  // namespace foretoken::rpc
