// The orchestrator's gRPC service: the public Generation API.
//
// A request runs on a thread of its own out of a bounded pool: it drives the
// decode loop and waits for its verifier; a client that reads slowly stops its
// own request and no other. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_SERVER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_SERVER_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/worker_pool.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/speculation/modes.h"
#include "common/text/tokenizer.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "services/orchestrator/adapters/generation_metrics.h"
#include "services/orchestrator/adapters/remote_services.h"
#include "services/orchestrator/adapters/remote_verifier.h"
#include "services/orchestrator/adapters/verifier_pool.h"

namespace foretoken::orchestrator {

struct OrchestratorServerOptions {
  std::string model_name = "model";  // shown to clients; never a path
  std::string default_mode = "auto";
  int32_t max_tree_nodes = 64;
  int32_t max_requests = 128;         // running at once
  int32_t max_waiting_requests = 64;  // beside those
  int64_t max_prompt_bytes = 4 << 20;
  absl::Duration retry_after = absl::Milliseconds(200);
  RemoteVerifierOptions verifier;
  RemoteServicesOptions drafters;
  DraftWait draft_wait;
  bool trace = false;  // log a line for every round
};

class OrchestratorServer final : public v1::Generation::CallbackService,
                                 public rpc::Servable {
 public:
  // `tokenizer` may be null: token ids alone then. InvalidArgument for a
  // default mode that does not run here. `registry` must outlive the server.
  static absl::StatusOr<std::unique_ptr<OrchestratorServer>> Create(
      const OrchestratorServerOptions& options,
      std::unique_ptr<VerifierPool> pool, std::unique_ptr<Tokenizer> tokenizer,
      metrics::Registry& registry);
  ~OrchestratorServer() override;

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context,
      const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(
      grpc::CallbackServerContext* context,
      const v1::DetokenizeRequest* request,
      v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(
      grpc::CallbackServerContext* context,
      const v1::GetModelInfoRequest* request,
      v1::GetModelInfoResponse* response) override;

  grpc::Service* grpc_service() override { return this; }
  std::string health_name() const override { return "foretoken.v1.Generation"; }
  // Without a verifier the orchestrator cannot serve.
  bool Ready() const override { return pool_->any_up(); }
  void WatchHealth(std::function<void()> changed) override {
    pool_->WatchHealth(std::move(changed));
  }
  void BeginDrain() override;
  bool Idle() const override;
  void EndAll() override;

  VerifierPool& pool() { return *pool_; }

 private:
  class Call;

  OrchestratorServer(const OrchestratorServerOptions& options, Mode mode,
                     std::unique_ptr<RemoteServices> drafters,
                     std::unique_ptr<VerifierPool> pool,
                     std::unique_ptr<Tokenizer> tokenizer,
                     metrics::Registry& registry);
  // Registers the call; Unavailable while draining.
  absl::Status Enter(Call* call);
  void Leave(Call* call);
  absl::Status Submit(std::function<void()> work);
  absl::StatusOr<Mode> ModeOf(const v1::SpeculationConfig& config) const;
  absl::StatusOr<std::unique_ptr<DecodeLoop>> MakeLoop(const Call& call,
                                                       uint64_t seed,
                                                       std::string* mode) const;

  void Run(Call& call);
  absl::Status Drive(Call& call, uint64_t seed, RemoteVerifier& verifier,
                     v1::GenerateResult& result);

  const OrchestratorServerOptions options_;
  const Mode default_mode_;
  const std::unique_ptr<VerifierPool> pool_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  const std::unique_ptr<RemoteServices> drafters_;
  const std::shared_ptr<DraftEstimates> estimates_;  // shared with requests
  GenerationMetrics metrics_;

  mutable absl::Mutex mu_;
  std::set<Call*> calls_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;

  WorkerPool workers_;  // last: its threads use all of the above
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_SERVER_H_
