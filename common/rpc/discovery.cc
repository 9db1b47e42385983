#include "common/rpc/discovery.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/log.h"
#include "common/base/timed_wait.h"
#include "common/rpc/address.h"

namespace foretoken::rpc {
namespace {

constexpr absl::string_view kDnsPrefix = "dns:///";

}  // namespace

absl::Status ValidateTarget(const std::string& target) {
  absl::string_view name = target;
  if (!absl::StartsWith(name, "dns:")) return ValidateAddress(target);
  const bool whole = absl::ConsumePrefix(&name, kDnsPrefix);
  const std::string host_port(name);
  if (whole && !IsUnixAddress(host_port) && PortOf(name) != "0" &&
      ValidateAddress(host_port).ok()) {
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

Discovery::Discovery(const DiscoveryOptions& options,
                     std::vector<std::string> targets, OnMembers on_members)
    : options_(options),
      resolver_(options.resolver != nullptr ? options.resolver
                                            : SystemResolver()),
      on_members_(std::move(on_members)) {
  for (const std::string& target : targets) {
    absl::string_view name = target;
    if (absl::ConsumePrefix(&name, kDnsPrefix)) {
      names_.push_back({std::string(name), {}, false});
    } else {
      given_.push_back({target, ""});
    }
  }
  Report();
  if (!names_.empty()) thread_ = std::thread([this] { Main(); });
}

Discovery::~Discovery() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Discovery::Main() {
  while (true) {
    for (Name& name : names_) {
      absl::StatusOr<std::vector<std::string>> found =
          resolver_->Resolve(name.host_port);
      const bool failed = !found.ok() || found->empty();
      if (failed && !name.failed) {
        FORETOKEN_LOG(
            kWarning, "cannot resolve ", name.host_port, ": ",
            found.ok() ? "no address" : found.status().message(),
            "; known addresses: ", absl::StrJoin(name.addresses, " "));
      }
      name.failed = failed;
      if (failed) continue;
      std::sort(found->begin(), found->end());
      if (*found != name.addresses) {
        FORETOKEN_LOG(kInfo, name.host_port, " is ",
                      absl::StrJoin(*found, " "));
      }
      name.addresses = *std::move(found);
    }
    // The lock is not held during a call, so that on_members may take long.
    {
      absl::MutexLock lock(&mu_);
      if (stop_) return;
    }
    Report();
    absl::MutexLock lock(&mu_);
    if (AwaitFor(mu_, absl::Condition(&stop_), options_.interval)) {
      return;
    }
  }
}

void Discovery::Report() {
  std::vector<Member> members = given_;
  const auto add = [&members](const std::string& address,
                              const std::string& host) {
    const bool known = std::any_of(
        members.begin(), members.end(),
        [&](const Member& member) { return member.address == address; });
    if (!known) members.push_back({address, host});
  };
  for (const Name& name : names_) {
    for (const std::string& address : name.addresses) {
      add(address, std::string(HostOf(name.host_port)));
    }
  }
  std::sort(
      members.begin() + static_cast<ptrdiff_t>(given_.size()), members.end(),
      [](const Member& a, const Member& b) { return a.address < b.address; });
  const size_t max =
      std::max(static_cast<size_t>(options_.max_members), given_.size());
  const bool too_many = members.size() > max;
  if (too_many && !std::exchange(too_many_, too_many)) {
    FORETOKEN_LOG(kWarning, members.size(), " addresses of ",
                  names_[0].host_port, ", using ", max);
  }
  too_many_ = too_many;
  if (too_many) members.resize(max);
  on_members_(members);
}

}  // namespace foretoken::rpc
