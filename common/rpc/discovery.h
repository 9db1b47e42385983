// Discovery: the members behind a list of targets, kept up to date.
//
// A target is an address (address.h), which is a member for ever, or
// "dns:///HOST:PORT", whose members are the addresses of the host: a thread
// resolves it again and again. A name that does not resolve keeps the addresses
// that it had, since name servers fail more often than all members vanish; the
// users of the members find out themselves which are up.
#ifndef FORETOKEN_COMMON_RPC_DISCOVERY_H_
#define FORETOKEN_COMMON_RPC_DISCOVERY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
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
  // are names, after every resolution on a thread of its own, changed or not:
  // sorted by address after the given ones, each once, at most max_members. The
  // targets must be valid.
  Discovery(const DiscoveryOptions& options, std::vector<std::string> targets,
            OnMembers on_members);
  // Waits for a resolution that is under way; on_members is not called again.
  ~Discovery();

 private:
  struct Name {
    std::string host_port;
    std::vector<std::string> addresses;  // of the last success
    bool failed = false;                 // the last resolution
  };

  void Main();
  void Report();

  const DiscoveryOptions options_;
  const std::shared_ptr<Resolver> resolver_;
  const OnMembers on_members_;
  std::vector<Member> given_;
  std::vector<Name> names_;  // used by the thread, once it runs
  bool too_many_ = false;
  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_DISCOVERY_H_
