#include "common/rpc/discovery.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/base/log.h"
#include "common/base/timed_wait.h"
#include "common/net/address.h"

namespace foretoken::rpc {
namespace {

constexpr absl::string_view kDnsPrefix = "dns:///";

}  // namespace

absl::Status ValidateTarget(const std::string& target) {
  absl::string_view name = target;
  if (!absl::StartsWith(name, "dns:")) return net::ValidateAddress(target);
  const bool whole = absl::ConsumePrefix(&name, kDnsPrefix);
  const std::string host_port(name);
  // Port 0 asks the system for a port when listening; nothing answers there.
  if (whole && !net::IsUnixAddress(host_port) &&
      net::SplitHostPort(name).port != "0" &&
      net::ValidateAddress(host_port).ok()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("address \"", target, "\": want dns:///HOST:PORT"));
}

std::string AddressOf(const std::string& target) {
  return std::string(absl::StripPrefix(target, kDnsPrefix));
}

void DiscoveryOptions::AddFlags(Flags& flags) {
  flags.Duration("resolve-interval", &interval,
                 {absl::Milliseconds(10), absl::Hours(1)},
                 "Interval between two resolutions of a dns:/// name");
  flags.Int("max-members", &max_members, {1, 1024},
            "Maximum number of members of a service; further addresses of a "
            "dns:/// name are not used");
}

// The names and what is known of them.
class Discovery::State {
 public:
  State(const DiscoveryOptions& options,
        const std::vector<std::string>& targets, OnMembers on_members)
      : options_(options),
        resolver_(options.resolver != nullptr ? options.resolver
                                              : SystemResolver()),
        on_members_(std::move(on_members)) {
    for (const std::string& target : targets) {
      absl::string_view host_port = target;
      if (absl::ConsumePrefix(&host_port, kDnsPrefix)) {
        // Addresses that are given do not change and need no thread.
        names_.push_back({std::string(host_port), {}, false, false});
      } else {
        Add({target, ""}, given_);
      }
    }
  }

  size_t names() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return names_.size();
  }

  // Resolves a name until Stop.
  void Follow(size_t index) ABSL_LOCKS_EXCLUDED(mu_);
  void Report() ABSL_LOCKS_EXCLUDED(mu_);
  // No look-up and no report begins any more. Returns for each name whether a
  // look-up is under way: then its thread uses nothing but this object.
  std::vector<bool> Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Name {
    std::string host_port;
    std::vector<std::string> addresses;  // of the last success
    bool failed;                         // the last resolution
    bool in_lookup;
  };

  static void Add(Member added, std::vector<Member>& members) {
    const bool known = std::any_of(
        members.begin(), members.end(),
        [&](const Member& member) { return member.address == added.address; });
    if (!known) members.push_back(std::move(added));
  }
  void Note(Name& name, absl::StatusOr<std::vector<std::string>> found)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<Member> CurrentMembers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const DiscoveryOptions options_;
  const std::shared_ptr<Resolver> resolver_;
  const OnMembers on_members_;
  std::vector<Member> given_;  // constant
  // One call of on_members_ at a time, and in the order of what they say.
  absl::Mutex report_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable absl::Mutex mu_;  // not held during a call, which may take long
  std::vector<Name> names_ ABSL_GUARDED_BY(mu_);  // their number is constant
  bool too_many_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
};

void Discovery::State::Follow(size_t index) {
  while (true) {
    std::string host_port;
    {
      absl::MutexLock lock(&mu_);
      if (stop_) return;
      host_port = names_[index].host_port;
      names_[index].in_lookup = true;
    }
    // Outside mu_: a name server may take a minute to answer.
    absl::StatusOr<std::vector<std::string>> found =
        resolver_->Resolve(host_port);
    {
      absl::MutexLock lock(&mu_);
      names_[index].in_lookup = false;
      // The Discovery may be gone by now: only members of State may be used.
      if (stop_) return;
      Note(names_[index], std::move(found));
    }
    Report();
    absl::MutexLock lock(&mu_);
    if (AwaitFor(mu_, absl::Condition(&stop_), options_.interval)) return;
  }
}

void Discovery::State::Note(Name& name,
                            absl::StatusOr<std::vector<std::string>> found) {
  const bool failed = !found.ok() || found->empty();
  if (failed && !name.failed) {
    FORETOKEN_LOG(kWarning, "cannot resolve ", name.host_port, ": ",
                  found.ok() ? "no address" : found.status().message(),
                  "; known addresses: ", absl::StrJoin(name.addresses, " "));
  }
  // A name that fails keeps its addresses: name servers fail more often than
  // all members vanish. Logged once per outage.
  name.failed = failed;
  if (failed) return;
  // Name servers rotate the order, which is no change of the members.
  std::sort(found->begin(), found->end());
  if (*found != name.addresses) {
    FORETOKEN_LOG(kInfo, name.host_port, " is ", absl::StrJoin(*found, " "));
  }
  name.addresses = *std::move(found);
}

void Discovery::State::Report() {
  // report_mu_ is held during the call, which keeps reports in the order of the
  // lists they carry; mu_ is not, so that other names go on.
  absl::MutexLock reporting(&report_mu_);
  std::vector<Member> members;
  {
    absl::MutexLock lock(&mu_);
    if (stop_) return;
    members = CurrentMembers();
  }
  on_members_(members);
}

std::vector<Member> Discovery::State::CurrentMembers() {
  std::vector<Member> members = given_;
  for (const Name& name : names_) {
    for (const std::string& address : name.addresses) {
      Add({address, std::string(net::SplitHostPort(name.host_port).host)},
          members);
    }
  }
  // Sorted, so that every process with the same names has the same list, and
  // that the same members are cut off beyond max_members.
  std::sort(
      members.begin() + static_cast<ptrdiff_t>(given_.size()), members.end(),
      [](const Member& a, const Member& b) { return a.address < b.address; });
  const size_t max =
      std::max(static_cast<size_t>(options_.max_members), given_.size());
  const bool too_many = members.size() > max;
  if (too_many && !too_many_) {
    FORETOKEN_LOG(kWarning, members.size(), " addresses of ",
                  names_[0].host_port, ", using ", max);
  }
  too_many_ = too_many;
  if (too_many) members.resize(max);
  return members;
}

std::vector<bool> Discovery::State::Stop() {
  absl::MutexLock lock(&mu_);
  stop_ = true;
  std::vector<bool> in_lookup;
  for (const Name& name : names_) in_lookup.push_back(name.in_lookup);
  return in_lookup;
}

Discovery::Discovery(const DiscoveryOptions& options,
                     const std::vector<std::string>& targets,
                     OnMembers on_members)
    : state_(std::make_shared<State>(options, targets, std::move(on_members))) {
  // Before any thread starts, so that the first report has the given addresses
  // and comes inside the constructor.
  state_->Report();
  for (size_t i = 0; i < state_->names(); ++i) {
    threads_.emplace_back([state = state_, i] { state->Follow(i); });
  }
}

Discovery::~Discovery() {
  const std::vector<bool> in_lookup = state_->Stop();
  for (size_t i = 0; i < threads_.size(); ++i) {
    // A look-up may take a minute. The detached thread shares state_ and uses
    // nothing else.
    if (in_lookup[i]) {
      threads_[i].detach();
    } else {
      threads_[i].join();
    }
  }
}

}  // namespace foretoken::rpc
