// The orchestrator's gRPC service: the public Generation API.
//
// Converts messages for GenerationService, which does the work. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_SERVER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/rpc/stream_server.h"
#include "common/text/tokenizer.h"
#include "common/tracing/otlp_exporter.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "services/orchestrator/adapters/generation_metrics.h"
#include "services/orchestrator/adapters/principal_metrics.h"
#include "services/orchestrator/adapters/remote_verifier.h"
#include "services/orchestrator/adapters/verifier_pool.h"
#include "services/orchestrator/core/draft_services.h"
#include "services/orchestrator/core/generation_service.h"

namespace foretoken::orchestrator {

struct OrchestratorServerOptions : GenerationOptions {
  std::string model_name = "model";  // shown to clients; never a path
  absl::Duration stall_timeout = absl::Seconds(30);
  absl::Duration retry_after = absl::Milliseconds(200);
  std::string otlp_endpoint;  // OtlpEndpoint::Parse; empty: no traces
  RemoteVerifierOptions verifier;
  DraftServicesOptions drafters;
};

class OrchestratorServer final : public v1::Generation::CallbackService,
                                 public rpc::Servable {
 public:
  // `tokenizer` may be null: token ids alone then. InvalidArgument for a
  // default mode that does not run here. `registry` must outlive the server.
  static absl::StatusOr<std::unique_ptr<OrchestratorServer>> Create(
      const OrchestratorServerOptions& options,
      std::unique_ptr<VerifierPool> pool,
      std::shared_ptr<const Tokenizer> tokenizer, metrics::Registry& registry);
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
  void SetCallers(std::shared_ptr<const rpc::Callers> callers) override {
    callers_ = std::move(callers);
  }
  void BeginDrain() override;
  bool Idle() const override;
  void EndAll() override;

  VerifierPool& pool() { return *pool_; }
  GenerationService& generation() { return *generation_; }

 private:
  OrchestratorServer(const OrchestratorServerOptions& options,
                     std::unique_ptr<VerifierPool> pool,
                     metrics::Registry& registry);
  absl::Status StartTracing(const std::string& endpoint);
  // Runs a call on a text of `bytes` bytes; `work` fills its response.
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context,
                                absl::string_view field, size_t bytes,
                                std::function<absl::Status()> work);

  const std::string model_name_;
  const std::unique_ptr<VerifierPool> pool_;
  GenerationMetrics metrics_;
  PrincipalMetrics principals_;
  prometheus::Counter& spans_exported_;
  prometheus::Counter& spans_dropped_;
  std::unique_ptr<OtlpExporter> spans_;            // null: no traces
  std::shared_ptr<const rpc::Callers> callers_;    // null: everybody may call
  std::unique_ptr<GenerationService> generation_;  // uses the above
  rpc::StreamServer streams_;  // last: its watcher may still cancel requests
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_SERVER_H_
