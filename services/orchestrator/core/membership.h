// Membership: reconciles a list of members with the names that they should
// have. A member whose name is gone is leaving: it stays while it is in use,
// and stays for good if its name comes back meanwhile.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_MEMBERSHIP_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_MEMBERSHIP_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace foretoken::orchestrator {

// `Member` has `name`, `leaving` and `uses`.
template <typename Member>
using Members = std::vector<std::unique_ptr<Member>>;

// Marks the members that are not in `names` as leaving, and the others as not.
// Returns the indexes in `names` of those that are not members yet.
template <typename Member>
std::vector<size_t> MarkMembers(Members<Member>& members,
                                const std::vector<std::string>& names) {
  for (const auto& member : members) member->leaving = true;
  std::vector<size_t> added;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found =
        std::find_if(members.begin(), members.end(), [&](const auto& member) {
          return member->leaving && member->name == names[i];
        });
    if (found == members.end()) {
      added.push_back(i);
    } else {
      (*found)->leaving = false;
    }
  }
  return added;
}

// Takes the members out that are leaving and not in use.
template <typename Member>
Members<Member> TakeGone(Members<Member>& members) {
  const auto gone = std::stable_partition(
      members.begin(), members.end(),
      [](const auto& member) { return !member->leaving || member->uses > 0; });
  Members<Member> taken(std::make_move_iterator(gone),
                        std::make_move_iterator(members.end()));
  members.erase(gone, members.end());
  return taken;
}

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_MEMBERSHIP_H_
