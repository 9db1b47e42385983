#include "common/rpc/run_service.h"

#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/log.h"
#include "common/base/log_output.h"
#include "common/base/process_limits.h"
#include "common/base/status_macros.h"
#include "common/net/bound_socket.h"
#include "common/net/listener.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/signals.h"

namespace foretoken::rpc {
namespace {

constexpr char kLoopback[] = "127.0.0.1:";

// Start order: files and addresses, whose errors are then seen at once;
// dependencies and model; /metrics, then the listeners, so that no call reaches
// a service that is not ready.
absl::StatusOr<int> Run(const ServiceInfo& info,
                        const AddFlagsFunction& add_flags,
                        const MakeFunction& make, int argc,
                        const char* const* argv) {
  FORETOKEN_ASSIGN_OR_RETURN(const ServiceConfig config,
                             ParseFlags(info, add_flags, argc, argv));
  FORETOKEN_LOG(kInfo, "config ", config.changes);
  FORETOKEN_RETURN_IF_ERROR(config.rpc.CheckFiles());
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<net::ReservedAddress> addresses,
                             net::ReserveAddresses(config.rpc.listen));
  FORETOKEN_ASSIGN_OR_RETURN(std::optional<net::BoundSocket> metrics_address,
                             metrics::Exposer::Bind(config.metrics));
  metrics::Registry registry;
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Servable> service,
                             make(registry));
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto exposer,
      metrics::Exposer::Start(config.metrics, std::move(metrics_address),
                              registry));
  if (exposer->port() > 0) {
    FORETOKEN_LOG(kInfo, "/metrics on port ", exposer->port());
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<Server> server,
      Server::Start(config.rpc, std::move(addresses), {service.get()}));
  if (const auto callers = server->callers()) {
    registry.AddTotal(metrics::kUnauthenticated,
                      [callers] { return callers->strangers(); });
  }
  for (const std::string& address : server->addresses()) {
    FORETOKEN_LOG(kInfo, "listening on ", address);
  }
  if (config.rpc.listen.empty()) {
    FORETOKEN_LOG(kInfo, "no gRPC: give --listen to open it");
  }
  // The last line of the start.
  if (const std::string url = service->Url(); !url.empty()) {
    FORETOKEN_LOG(kInfo, "serving ", url);
  }
  return ServeUntilSignal(*server, config.rpc.drain_timeout);
}

}  // namespace

absl::StatusOr<ServiceConfig> ParseFlags(const ServiceInfo& info,
                                         const AddFlagsFunction& add_flags,
                                         int argc, const char* const* argv) {
  ServiceConfig config;
  config.rpc.listen = {absl::StrCat(kLoopback, info.port)};
  config.metrics.address = absl::StrCat(kLoopback, info.metrics_port);
  Flags flags(info.program, info.description);
  add_flags(flags);
  config.rpc.AddFlags(flags);
  config.metrics.AddFlags(flags);
  FORETOKEN_RETURN_IF_ERROR(flags.Parse(argc, argv));
  if (info.other_listener != nullptr && flags.Given(info.other_listener)) {
    if (!flags.Given("listen")) config.rpc.listen.clear();
    if (!flags.Given("metrics-listen")) config.metrics.address.clear();
  }
  config.changes = flags.Changes();
  return config;
}

int RunMain(const std::function<absl::StatusOr<int>()>& run) {
  absl::Status error;
  // Constructors of threads and containers throw; this is the one place that
  // turns it into an exit with a message.
  try {
    // First: gRPC aborts where it gets no descriptor or thread.
    RaiseFileLimit();
    for (const absl::Status& limit :
         {CheckFileLimit(), CheckThreadMemory(kStartMebibytes)}) {
      if (!limit.ok()) return ExitWithError(limit);
    }
    RedirectGrpcLog();
    // Debian's Abseil looks for deadlocks at every lock, gRPC's included.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    CatchSignals();
    const absl::StatusOr<int> exit_code = run();
    if (exit_code.ok()) {
      FlushLog();
      return *exit_code;
    }
    error = exit_code.status();
  } catch (const std::bad_alloc&) {
    error = absl::ResourceExhaustedError("out of memory");
  } catch (const std::system_error& thrown) {
    error = absl::ResourceExhaustedError(
        absl::StrCat("out of descriptors or threads: ", thrown.what()));
  }
  return ExitWithError(error);
}

int RunService(const ServiceInfo& info, const AddFlagsFunction& add_flags,
               const MakeFunction& make, int argc, const char* const* argv) {
  return RunMain([&] { return Run(info, add_flags, make, argc, argv); });
}

}  // namespace foretoken::rpc
