// The crest service: look-ups in named datastores, their versions, publishing.
//
// Owns its datastores and their watchers. Health: "foretoken.v1.Crest" while
// some datastore can answer, "foretoken.v1.Crest/NAME" for each; an empty
// datastore answers, with nothing. Thread-safe.
#ifndef FORETOKEN_SERVICES_CREST_SERVER_H_
#define FORETOKEN_SERVICES_CREST_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/worker_pool.h"
#include "common/metrics/registry.h"
#include "common/rpc/server.h"
#include "common/text/tokenizer.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "services/crest/adapters/crest_metrics.h"
#include "services/crest/adapters/ingest_calls.h"
#include "services/crest/adapters/lookup_streams.h"
#include "services/crest/core/crest_sessions.h"
#include "services/crest/core/datastores.h"

namespace foretoken::crest {

struct CrestServerOptions {
  DatastoreOptions datastores;
  LookupOptions lookup;
  IngestOptions ingest;
  bool enable_publish = false;
};

class CrestServer final : public v1::Crest::CallbackService,
                          public rpc::Servable,
                          private DatastoreObserver {
 public:
  // `tokenizer` may be null; if given, every version must match it. Ingest
  // requires it. Errors are those of Datastores::Create. `registry` must
  // outlive the server.
  static absl::StatusOr<std::unique_ptr<CrestServer>> Create(
      CrestServerOptions options, std::vector<NamedOrigin> origins,
      std::shared_ptr<const Tokenizer> tokenizer, metrics::Registry& registry);
  ~CrestServer() override;

  LookupStreams::Reactor* Lookup(grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ListVersions(
      grpc::CallbackServerContext* context,
      const v1::ListVersionsRequest* request,
      v1::ListVersionsResponse* response) override;
  IngestCalls::Reactor* Ingest(grpc::CallbackServerContext* context,
                               v1::IngestResponse* response) override;
  grpc::ServerUnaryReactor* Publish(grpc::CallbackServerContext* context,
                                    const v1::PublishRequest* request,
                                    v1::PublishResponse* response) override;

  grpc::Service* grpc_service() override { return this; }
  std::string health_name() const override { return "foretoken.v1.Crest"; }
  bool Ready() const override;
  std::vector<rpc::PartHealth> Parts() const override;
  void WatchHealth(std::function<void()> changed) override;
  void BeginDrain() override;
  bool Idle() const override;
  void EndAll() override;

  // For callers in the same process, which bypass the streams.
  DraftSessions& drafts() { return *drafts_; }
  const Datastores& datastores() const { return *datastores_; }

 private:
  CrestServer(const CrestServerOptions& options, CrestMetrics metrics);

  void OnSwitch(const std::string& name, const VersionInfo& now) override;
  void OnFailedLoad(const std::string& name) override;
  void OnStateChange(const std::string& name, bool ready) override;

  // Runs `work`, which may block, outside the callback and ends the call with
  // its status.
  grpc::ServerUnaryReactor* RunBlocking(grpc::CallbackServerContext* context,
                                        std::function<absl::Status()> work);
  absl::Status List(const v1::ListVersionsRequest& request,
                    v1::ListVersionsResponse& response) const;
  absl::Status SwitchTo(const v1::PublishRequest& request,
                        v1::PublishResponse& response) const;

  const CrestServerOptions options_;
  CrestMetrics metrics_;
  absl::Mutex health_mu_;
  std::function<void()> health_changed_ ABSL_GUARDED_BY(health_mu_);
  // Set once by Create. Watchers call the observer above until destroyed.
  std::unique_ptr<Datastores> datastores_;
  std::unique_ptr<LookupStreams> streams_;
  std::unique_ptr<CrestSessions> drafts_;
  std::unique_ptr<IngestCalls> ingests_;
  std::unique_ptr<WorkerPool> blocking_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_SERVER_H_
