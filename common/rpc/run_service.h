// RunService: the body of every service's main().
//
// A service is a struct of options with three members:
//
//   struct TrieDrafterService {
//     static constexpr rpc::ServiceInfo kInfo = {
//         "foretoken-trie-drafter", "Drafts from ...", 50053, 9103};
//     // The fields' values are the flags' defaults.
//     void AddFlags(Flags& flags);
//     // The service, a rpc::Servable; `registry` outlives it.
//     absl::StatusOr<std::unique_ptr<TrieDrafterServer>> Make(
//         metrics::Registry& registry) const;
//   };
//
// Every service also has the flags of ServerOptions and ExposerOptions.
#ifndef FORETOKEN_COMMON_RPC_RUN_SERVICE_H_
#define FORETOKEN_COMMON_RPC_RUN_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/config/version.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"

namespace foretoken::rpc {

struct ServiceInfo {
  const char* program;      // "foretoken-verifier"
  const char* description;  // for --help
  int port;                 // default ports, on loopback
  int metrics_port;
  // A flag that names another listener of the service. Where it is given, the
  // two ports are opened only if their own flags are given, too.
  const char* other_listener = nullptr;
};

// Options of every service, besides its own.
struct ServiceConfig {
  ServerOptions rpc;
  metrics::ExposerOptions metrics;
  std::string changes;  // flags that differ from their defaults
};

using AddFlagsFunction = std::function<void(Flags& flags)>;
using MakeFunction = std::function<absl::StatusOr<std::unique_ptr<Servable>>(
    metrics::Registry& registry)>;

// Errors are those of Flags::Parse.
absl::StatusOr<ServiceConfig> ParseFlags(const ServiceInfo& info,
                                         const AddFlagsFunction& add_flags,
                                         int argc, const char* const* argv);
template <typename Service>
absl::StatusOr<ServiceConfig> ParseFlags(int argc, const char* const* argv,
                                         Service* service) {
  return ParseFlags(
      Service::kInfo, [service](Flags& flags) { service->AddFlags(flags); },
      argc, argv);
}

// The body of main(): sets up logs and signals, calls `run` and returns its exit
// code, after logging its error if it has one. Exceptions for want of
// descriptors, threads or memory, which libraries throw, count as errors.
int RunMain(const std::function<absl::StatusOr<int>()>& run);

// Parses the flags, makes the service, serves it and /metrics until SIGTERM or
// SIGINT, then drains. Returns main's exit code.
int RunService(const ServiceInfo& info, const AddFlagsFunction& add_flags,
               const MakeFunction& make, int argc, const char* const* argv);
// A template, so that the program and no library links the version.
template <typename Service>
int RunService(int argc, const char* const* argv) {
  Service service;
  return RunService(
      Service::kInfo,
      [&service](Flags& flags) {
        flags.Version(VersionLine(Service::kInfo.program));
        service.AddFlags(flags);
      },
      [&service](metrics::Registry& registry) {
        return service.Make(registry);
      },
      argc, argv);
}

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_RUN_SERVICE_H_
