// Stack: every service of Foretoken in one process: the same code as across
// machines, without sockets. Verifier and trie drafter, which every round
// crosses, are called without a channel; the others are behind in-process
// channels.
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
#include "common/text/tokenizer.h"
#include "services/crest/config.h"
#include "services/draft_worker/config.h"
#include "services/orchestrator/config.h"
#include "services/trie_drafter/config.h"
#include "services/verifier/config.h"

namespace foretoken::local {

struct StackConfig {
  rpc::ServerOptions rpc;  // of the public API; no address: in-process only
  metrics::ExposerOptions metrics;
  BackendOptions backend;
  verifier::VerifyEngineOptions engine;
  verifier::VerifierServerOptions verifier;
  orchestrator::OrchestratorServerOptions orchestrator;
  std::string draft_model;  // its directory; empty: no draft worker
  std::string prior;      // a file of n-grams for the trie drafter; empty: none
  std::string crest;      // a datastore's snapshot; empty: no crest service
  std::string effective;  // to be logged

  static absl::StatusOr<StackConfig> Parse(int argc, const char* const* argv);
};

// Thread-safe once started.
class Stack {
 public:
  // Loads the model, starts verifier, drafting services and orchestrator,
  // listens. `registry` must outlive the stack.
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
  absl::Status StartDrafters(const StackConfig& config,
                             const Tokenizer* tokenizer,
                             metrics::Registry& registry,
                             orchestrator::RemoteServicesOptions* drafters);

  std::unique_ptr<verifier::VerifierServer> verifier_;
  std::unique_ptr<rpc::Server> verifier_server_;
  std::unique_ptr<trie_drafter::TrieDrafterServer> trie_drafter_;
  std::unique_ptr<crest::CrestServer> crest_;
  std::unique_ptr<draft_worker::DraftWorkerServer> draft_worker_;
  std::unique_ptr<rpc::Server> drafters_server_;
  std::unique_ptr<orchestrator::OrchestratorServer> orchestrator_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace foretoken::local

#endif  // FORETOKEN_SERVICES_LOCAL_STACK_H_
