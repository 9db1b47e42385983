// foretoken-gateway
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/config/version.h"
#include "common/rpc/run_service.h"
#include "common/rpc/signals.h"
#include "services/gateway/config.h"

namespace foretoken::gateway {
namespace {

absl::StatusOr<int> Run(int argc, const char* const* argv) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const GatewayConfig config,
      GatewayConfig::Parse(VersionLine("foretoken-gateway"), argc, argv));
  // The config holds no secrets: flags.Changes() masks them.
  FORETOKEN_LOG(kInfo, "config ", config.changes);
  metrics::Registry registry;
  // /metrics is up before the server, so that a start that takes long can be
  // watched.
  FORETOKEN_ASSIGN_OR_RETURN(const auto exposer,
                             metrics::Exposer::Start(config.metrics, registry));
  FORETOKEN_ASSIGN_OR_RETURN(const auto server, config.Start(registry));
  FORETOKEN_LOG(kInfo, "listening on ",
                absl::StrJoin(server->addresses(), ", "));
  if (const std::string url = server->Url(); !url.empty()) {
    FORETOKEN_LOG(kInfo, "serving ", url);
  }
  // The server works in its own threads; this one only waits. The second signal
  // ends the process at once.
  const int signal_number = rpc::WaitForSignal();
  FORETOKEN_LOG(kInfo, "signal ", signal_number, ": draining");
  server->Drain(config.drain_timeout);
  return 0;
}

}  // namespace
}  // namespace foretoken::gateway

int main(int argc, char** argv) {
  return foretoken::rpc::RunMain(
      [&] { return foretoken::gateway::Run(argc, argv); });
}
