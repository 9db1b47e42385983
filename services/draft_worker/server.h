// The draft worker's gRPC service: streams to sessions, metrics.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_SERVER_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/drafting/observed_draft_sessions.h"
#include "common/engine/engine_watchdog.h"
#include "common/metrics/registry.h"
#include "common/rpc/draft_stream.h"
#include "common/rpc/server.h"
#include "foretoken/v1/draft_worker.grpc.pb.h"
#include "services/draft_worker/adapters/draft_metrics.h"
#include "services/draft_worker/core/engine_draft_sessions.h"

namespace foretoken::draft_worker {

struct DraftServerOptions {
  std::string model_name;             // in the log; never a path
  std::string tokenizer_fingerprint;  // raw SHA-256; empty: accepts any
  rpc::StreamOptions streams;
  EngineLoopOptions loop = {.name = "draft worker", .publish_first = true};
};

class DraftWorkerServer final : public v1::DraftWorker::CallbackService,
                                public rpc::Servable {
 public:
  // `registry` must outlive the server.
  DraftWorkerServer(const DraftServerOptions& options,
                    std::unique_ptr<DraftEngine> engine,
                    metrics::Registry& registry);

  rpc::DraftStreams::Reactor* Draft(
      grpc::CallbackServerContext* context) override;

  grpc::Service* grpc_service() override { return this; }
  std::string health_name() const override {
    return "foretoken.v1.DraftWorker";
  }
  bool Ready() const override { return !watchdog_.hangs(); }
  void WatchHealth(std::function<void()> changed) override {
    watchdog_.Watch(std::move(changed));
  }
  void BeginDrain() override { streams_.BeginDrain(); }
  bool Idle() const override { return streams_.Idle(); }
  void EndAll() override { streams_.EndAll(); }

  // For callers in the same process, which bypass the streams.
  DraftSessions& drafts() { return drafts_; }
  EngineDraftSessions::Loop& loop() { return sessions_.loop(); }

 private:
  const DraftServerOptions options_;
  DraftMetrics metrics_;
  EngineDraftSessions sessions_;
  ObservedDraftSessions drafts_;
  rpc::DraftStreams streams_;
  EngineWatchdog watchdog_;
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_SERVER_H_
