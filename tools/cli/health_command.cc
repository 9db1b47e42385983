// foretoken health: checks that servers are serving, for start scripts and
// probes.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/health.h"
#include "tools/cli/command.h"
#include "tools/cli/server_channel.h"

namespace foretoken::cli {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(50);

struct HealthOptions {
  std::vector<std::string> servers;
  ServerFlags access;
  double wait_seconds = 0;
};

// Checks until the server serves or `until` has passed; at least once.
absl::Status AwaitServing(const std::string& address,
                          const rpc::ChannelOptions& options,
                          absl::Time until) {
  while (true) {
    // A channel backs off for seconds after a refused connection; a new one
    // connects at once.
    FORETOKEN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                               rpc::CreateChannel(address, options));
    // Bounds one attempt, which may hang in the network, so that --wait can try
    // again.
    const absl::StatusOr<bool> serving =
        rpc::IsServing(channel, "", MonotonicNow() + absl::Seconds(2));
    if (serving.ok() && *serving) return absl::OkStatus();
    if (MonotonicNow() >= until) {
      return absl::UnavailableError(absl::StrCat(
          address, ": ",
          serving.ok() ? "not serving" : serving.status().message()));
    }
    absl::SleepFor(kPause);
  }
}

absl::Status Health(const HealthOptions& options) {
  const rpc::ChannelOptions channel = ChannelOf(options.access);
  // One limit for all servers together.
  const absl::Time until = MonotonicNow() + absl::Seconds(options.wait_seconds);
  for (const std::string& server : options.servers) {
    FORETOKEN_RETURN_IF_ERROR(AwaitServing(server, channel, until));
    std::printf("%s SERVING\n", server.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

void AddHealthCommand(Command root) {
  const auto [command, options] = root.AddCommand<HealthOptions>(
      "health", "Check that servers are serving; fails unless all are", Health);
  command
      .Add("--server", options.servers,
           "HOST:PORT or unix:/PATH; may be repeated")
      .Required();
  command
      .Add("--wait", options.wait_seconds,
           "Seconds to wait until all are serving")
      .InRange(0.0, 86400.0);
  AddServerFlags(command, options.access);
}

}  // namespace foretoken::cli
