// The verifier's gRPC service: streams to sessions and back, info, metrics.
//
// All work happens on the engine thread. Thread-safe.
#ifndef FORETOKEN_SERVICES_VERIFIER_SERVER_H_
#define FORETOKEN_SERVICES_VERIFIER_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/engine/engine_watchdog.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/rpc/stream_server.h"
#include "common/speculation/verifier_peer.h"
#include "foretoken/v1/verifier.grpc.pb.h"
#include "services/verifier/adapters/engine_metrics.h"
#include "services/verifier/adapters/session_protocol.h"
#include "services/verifier/core/engine_verify_sessions.h"

namespace foretoken::verifier {

struct VerifierServerOptions {
  std::string model_name;             // shown to clients; never a path
  std::string tokenizer_fingerprint;  // raw SHA-256; empty: no tokenizer
  rpc::StreamOptions streams;
  EngineVerifyOptions sessions;
};

class VerifierServer final : public v1::Verifier::CallbackService,
                             public rpc::Servable {
 public:
  // `registry` must outlive the server.
  VerifierServer(const VerifierServerOptions& options,
                 std::unique_ptr<VerifyEngine> engine,
                 metrics::Registry& registry);
  ~VerifierServer() override;

  grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>* Verify(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>* Embed(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetVerifierInfo(
      grpc::CallbackServerContext* context,
      const v1::GetVerifierInfoRequest* request,
      v1::GetVerifierInfoResponse* response) override;

  grpc::Service* grpc_service() override { return this; }
  std::string health_name() const override { return "foretoken.v1.Verifier"; }
  bool Ready() const override {
    return !watchdog_.hangs() && model_fault().ok();
  }
  void WatchHealth(std::function<void()> changed) override {
    watchdog_.Watch(std::move(changed));
  }
  void BeginDrain() override { streams_.BeginDrain(); }
  bool Idle() const override { return streams_.Idle(); }
  void EndAll() override;

  EngineVerifySessions& sessions() { return sessions_; }

  // Unavailable while draining, DeadlineExceeded while the engine hangs;
  // FailedPrecondition, with the reason, if the model cannot be served.
  absl::StatusOr<VerifierInfo> Info();

  // For sessions in the same process, which have no stream. Unavailable while
  // draining, ResourceExhausted over max_streams.
  absl::Status AdmitStream() { return streams_.Admit(); }
  void StreamDone() { streams_.Release(); }  // of one that was admitted
  void StreamFailed(absl::StatusCode code) { metrics_.OnFailed(code); }

 private:
  class Stream;

  absl::Status model_fault() const {
    return sessions_.loop().snapshot().model_fault;
  }
  bool HasFailed() const;  // logs why

  const VerifierServerOptions options_;
  EngineMetrics metrics_;
  rpc::StreamServer streams_;
  // After the streams: its destructor fails the sessions that are left.
  EngineVerifySessions sessions_;
  EngineWatchdog watchdog_;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_SERVER_H_
