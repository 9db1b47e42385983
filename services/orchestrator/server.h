// The orchestrator's gRPC service: the public Generation API.
//
// Converts messages for GenerationService, which does the work. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_SERVER_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/metrics/registry.h"
#include "common/rpc/discovery.h"
#include "common/rpc/server.h"
#include "common/rpc/stream_server.h"
#include "common/text/tokenizer.h"
#include "common/tracing/otlp_exporter.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "services/orchestrator/adapters/generation_metrics.h"
#include "services/orchestrator/core/drafters/draft_services.h"
#include "services/orchestrator/core/generation_service.h"
#include "services/orchestrator/core/verifiers/remote_verifier.h"
#include "services/orchestrator/core/verifiers/verifier_pool.h"

namespace foretoken::orchestrator {

struct OrchestratorServerOptions : GenerationOptions {
  absl::Duration stall_timeout = absl::Seconds(30);
  std::string otlp_endpoint;  // ParseOtlpEndpoint; empty: no traces
  RemoteVerifierOptions verifier;
  DraftServicesOptions drafters;
};

class OrchestratorServer final : public v1::Generation::Service,
                                 public rpc::Servable {
 public:
  // `tokenizer` may be null: token ids alone then. InvalidArgument for a
  // default mode that does not run here. `registry` must outlive the server.
  static absl::StatusOr<std::unique_ptr<OrchestratorServer>> Create(
      const OrchestratorServerOptions& options,
      std::unique_ptr<VerifierPool> pool,
      std::shared_ptr<const Tokenizer> tokenizer, metrics::Registry& registry);
  ~OrchestratorServer() override;

  grpc::Service* grpc_service() override { return this; }
  std::string health_name() const override { return "foretoken.v1.Generation"; }
  // Without a verifier the orchestrator cannot serve.
  bool Ready() const override { return pool_->any_up(); }
  void WatchHealth(std::function<void()> changed) override {
    pool_->WatchHealth(std::move(changed));
  }
  absl::Duration LongestCall() const override {
    return generation_->options().max_request_time;
  }
  void SetCallers(std::shared_ptr<const rpc::Callers> callers) override {
    callers_ = std::move(callers);
  }
  int64_t receive_bytes() const override;
  int64_t max_request_bytes() const override;
  void BeginDrain() override;
  bool Idle() const override;
  void EndAll() override;

  // Keeps what tells the pool or the drafters of their members.
  void Follow(std::unique_ptr<rpc::Discovery> discovery) {
    discoveries_.push_back(std::move(discovery));
  }

  VerifierPool& pool() { return *pool_; }
  DraftServices& drafters() { return *drafters_; }
  GenerationService& generation() { return *generation_; }

 private:
  OrchestratorServer(const OrchestratorServerOptions& options,
                     std::unique_ptr<VerifierPool> pool,
                     metrics::Registry& registry);
  absl::Status StartTracing(const std::string& endpoint);
  // Handles the calls of the method with `index` in the contract with a Stream
  // (of server.cc), see RequestStream.
  template <typename Stream>
  void Serve(int index);

  const std::unique_ptr<VerifierPool> pool_;
  GenerationMetrics metrics_;
  prometheus::Counter& spans_exported_;
  prometheus::Counter& spans_dropped_;
  std::unique_ptr<OtlpExporter> spans_;            // null: no traces
  std::shared_ptr<const rpc::Callers> callers_;    // null: everybody may call
  std::unique_ptr<GenerationService> generation_;  // uses the above
  DraftServices* drafters_ = nullptr;              // of generation_
  rpc::StreamServer streams_;  // its watcher may still cancel requests
  std::vector<std::unique_ptr<rpc::Discovery>> discoveries_;  // use all above
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_SERVER_H_
