// Discovery: the members behind a list of targets, kept up to date.
//
// A target is an address (address.h), which is a member for ever, or
// "dns:///HOST:PORT", whose members are the addresses of the host: a thread
// resolves it again and again. A name that does not resolve keeps the addresses
// that it had, since name servers fail more often than all members vanish; the
// users of the members find out themselves which are up. Every name has a
// thread of its own, so that one that hangs delays no other.
#ifndef FORETOKEN_COMMON_RPC_DISCOVERY_H_
#define FORETOKEN_COMMON_RPC_DISCOVERY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/config/flags.h"
#include "common/rpc/resolver.h"

namespace foretoken::rpc {

// InvalidArgument names the target and the expected form.
absl::Status ValidateTarget(const std::string& target);
// The target itself, or HOST:PORT of a name.
std::string AddressOf(const std::string& target);

struct DiscoveryOptions {
  absl::Duration interval = absl::Seconds(5);  // between two resolutions
  int32_t max_members = 64;                    // of one list of targets
  std::shared_ptr<Resolver> resolver;          // null: the system's

  // --resolve-interval, --max-members
  void AddFlags(Flags& flags);
};

struct Member {
  std::string address;
  // The host that was resolved, which the member's certificate names; empty for
  // an address that was given.
  std::string host;
};

class Discovery {
 public:
  using OnMembers = std::function<void(const std::vector<Member>&)>;

  // Calls `on_members` with the given addresses before it returns and, if there
  // are names, after every resolution of one, changed or not, on a thread of
  // its own: sorted by address after the given ones, each once, at most
  // max_members, or all given ones if they are more. One call at a time. The
  // targets must be valid.
  Discovery(const DiscoveryOptions& options,
            const std::vector<std::string>& targets, OnMembers on_members);
  // Waits for a call of on_members that is under way; it is not called again.
  // Does not wait for a look-up, since the system's may take a minute: the copy
  // of on_members lives until that has ended.
  ~Discovery();

 private:
  class State;

  // Shared with the threads: one in a look-up outlives this object.
  const std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;  // one for each name
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_DISCOVERY_H_
