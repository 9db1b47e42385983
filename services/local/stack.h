// Stack: every service of Foretoken in one process: the same code as across
// machines, without sockets. The orchestrator calls the sessions of the
// verifier and of the drafting services directly, without channels.
//
// The embedded default, and what most end-to-end tests start. With an address
// for it, the HTTP API is in the process, too.
#ifndef FORETOKEN_SERVICES_LOCAL_STACK_H_
#define FORETOKEN_SERVICES_LOCAL_STACK_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/flags.h"
#include "common/engine/pass_turns.h"
#include "common/infer/factory/draft_loading.h"
#include "common/metrics/registry.h"
#include "common/net/listener.h"
#include "common/rpc/server.h"
#include "common/text/tokenizer.h"
#include "services/crest/config.h"
#include "services/draft_worker/config.h"
#include "services/gateway/server.h"
#include "services/orchestrator/config.h"
#include "services/trie_drafter/config.h"
#include "services/verifier/config.h"

namespace foretoken::local {

class Stack;

struct LocalService {
  static constexpr rpc::ServiceInfo kInfo = {
      "foretoken-local", "All services in one process, joined without sockets.",
      50050, 9100, "http-listen"};

  verifier::VerifierService verifier;
  orchestrator::OrchestratorServerOptions orchestrator;
  std::string draft_model;  // a directory; empty: no draft worker
  DraftLoading draft_loading;
  // A file of n-grams for the trie drafter, and for the ids that the draft
  // model computes; empty: none.
  std::string prior;
  trie_drafter::ScopePriorOptions scope_prior;  // of the trie drafter
  std::string redis_url;                        // its warm start; empty: none
  std::string crest;  // a datastore's snapshot; empty: no crest service
  // Listens nowhere by default; its model is the verifier's.
  gateway::GatewayServerOptions gateway;

  void AddFlags(Flags& flags);
  // Binds the HTTP API's addresses and checks all files, then loads the models
  // and starts verifier, drafting services and orchestrator. `registry` must
  // outlive the stack.
  absl::StatusOr<std::unique_ptr<Stack>> Make(
      metrics::Registry& registry) const;

 private:
  // The gateway's, with the model if it has a tokenizer.
  gateway::GatewayServerOptions GatewayOptions(bool has_tokenizer) const;
  absl::Status CheckFiles(const Tokenizer* tokenizer) const;
};

// Serves the public API. Thread-safe.
class Stack final : public rpc::Servable {
 public:
  ~Stack() override;

  orchestrator::GenerationService& generation() {
    return orchestrator_->generation();
  }

  grpc::Service* grpc_service() override { return orchestrator_.get(); }
  std::string health_name() const override {
    return orchestrator_->health_name();
  }
  bool Ready() const override { return orchestrator_->Ready(); }
  void WatchHealth(std::function<void()> changed) override {
    orchestrator_->WatchHealth(std::move(changed));
  }
  void SetCallers(std::shared_ptr<const rpc::Callers> callers) override {
    orchestrator_->SetCallers(std::move(callers));
  }
  std::string Url() const override {
    return gateway_ == nullptr ? "" : gateway_->Url();
  }
  absl::Duration LongestCall() const override {
    return orchestrator_->LongestCall();
  }
  int64_t receive_bytes() const override {
    return orchestrator_->receive_bytes();
  }
  int64_t max_request_bytes() const override {
    return orchestrator_->max_request_bytes();
  }
  void BeginDrain() override;
  bool Idle() const override;
  void EndAll() override { orchestrator_->EndAll(); }

 private:
  friend struct LocalService;
  Stack() = default;
  // Those that draft without a model, which start at once: the trie drafter and
  // the datastore.
  absl::Status StartDrafters(const LocalService& config,
                             const Tokenizer* tokenizer,
                             metrics::Registry& registry);
  absl::Status StartDraftModel(const LocalService& config,
                               metrics::Registry& registry);
  void OfferDrafters(orchestrator::DraftServicesOptions* drafters);

  absl::Status StartGateway(const gateway::GatewayServerOptions& options,
                            std::vector<net::ReservedAddress> addresses,
                            metrics::Registry& registry);

  // Null without HTTP. Stopped first and destroyed last: the orchestrator's
  // requests tell it of their ends.
  std::unique_ptr<gateway::GatewayServer> gateway_;
  std::shared_ptr<PassTurns> turns_;  // null without a draft model
  // Destroyed in reverse order: callers before what they call.
  std::unique_ptr<verifier::VerifierServer> verifier_;
  std::unique_ptr<trie_drafter::TrieDrafterServer> trie_drafter_;
  std::unique_ptr<crest::CrestServer> crest_;
  std::unique_ptr<draft_worker::DraftWorkerServer> draft_worker_;
  std::unique_ptr<orchestrator::OrchestratorServer> orchestrator_;
};

}  // namespace foretoken::local

#endif  // FORETOKEN_SERVICES_LOCAL_STACK_H_
