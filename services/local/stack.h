// Stack: every service of Foretoken in one process, joined by in-process
// channels: the same code as across machines, without sockets.
//
// The embedded default, and what most end-to-end tests start.
#ifndef FORETOKEN_SERVICES_LOCAL_STACK_H_
#define FORETOKEN_SERVICES_LOCAL_STACK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/flags.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "services/orchestrator/config.h"
#include "services/verifier/config.h"

namespace foretoken::local {

struct StackConfig {
  rpc::ServerOptions rpc;  // of the public API; no address: in-process only
  metrics::ExposerOptions metrics;
  BackendOptions backend;
  verifier::VerifyEngineOptions engine;
  verifier::VerifierServerOptions verifier;
  orchestrator::OrchestratorServerOptions orchestrator;
  std::string effective;  // to be logged

  static absl::StatusOr<StackConfig> Parse(int argc, const char* const* argv);
};

// Thread-safe once started.
class Stack {
 public:
  // Loads the model, starts verifier and orchestrator, listens. `registry`
  // must outlive the stack.
  static absl::StatusOr<std::unique_ptr<Stack>> Start(
      const StackConfig& config, metrics::Registry& registry);
  ~Stack();

  // The public API.
  rpc::Server& server() { return *server_; }
  std::shared_ptr<grpc::Channel> channel() {
    return server_->InProcessChannel();
  }

 private:
  Stack() = default;

  std::unique_ptr<verifier::VerifierServer> verifier_;
  std::unique_ptr<rpc::Server> verifier_server_;
  std::unique_ptr<orchestrator::OrchestratorServer> orchestrator_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace foretoken::local

#endif  // FORETOKEN_SERVICES_LOCAL_STACK_H_
