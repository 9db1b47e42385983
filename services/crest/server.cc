#include "services/crest/server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"

namespace foretoken::crest {
namespace {

// Threads and queue of the calls that query the store. They are rare, but each
// may block for a statement's timeout.
constexpr int kBlockingThreads = 2;
constexpr int kBlockingWaiting = 16;

v1::DatastoreVersion ToProto(const VersionInfo& info, int64_t serving) {
  v1::DatastoreVersion version;
  version.set_version(info.version);
  version.set_serving(info.version == serving);
  version.set_ngrams(static_cast<int64_t>(info.meta.entries));
  version.set_nodes(static_cast<int64_t>(info.meta.nodes));
  version.set_bytes(static_cast<int64_t>(
      CrestMetaBytes() + info.meta.table_bytes() + info.meta.record_bytes));
  version.set_max_n(static_cast<int32_t>(info.meta.max_n));
  version.set_tokenizer_fingerprint(info.meta.tokenizer_fingerprint.data(),
                                    info.meta.tokenizer_fingerprint.size());
  version.set_created_unix_seconds(info.created_unix_seconds);
  return version;
}

}  // namespace

CrestServer::CrestServer(const CrestServerOptions& options,
                         CrestMetrics metrics)
    : options_(options), metrics_(std::move(metrics)) {}

absl::StatusOr<std::unique_ptr<CrestServer>> CrestServer::Create(
    CrestServerOptions options, std::vector<NamedOrigin> origins,
    std::shared_ptr<const Tokenizer> tokenizer, metrics::Registry& registry) {
  if (tokenizer != nullptr) {
    options.datastores.tokenizer = tokenizer->fingerprint();
  }
  std::vector<std::string> names;
  for (const NamedOrigin& named : origins) names.push_back(named.name);
  // With all names, because the metrics look their children up once.
  std::unique_ptr<CrestServer> server(
      new CrestServer(options, CrestMetrics(registry, names)));
  // `*server` gets the reports of loads, which may come at once from other
  // threads; everything that they use (metrics_, health_mu_) exists already.
  FORETOKEN_ASSIGN_OR_RETURN(
      server->datastores_,
      Datastores::Create(std::move(origins), options.datastores, *server));
  server->streams_ = std::make_unique<LookupStreams>(
      options.lookup, *server->datastores_, server->metrics_);
  server->drafts_ =
      std::make_unique<CrestSessions>(*server->datastores_, server->metrics_);
  server->ingests_ = std::make_unique<IngestCalls>(
      options.ingest, options.lookup.streams, *server->datastores_,
      std::move(tokenizer), server->metrics_);
  server->blocking_ =
      std::make_unique<WorkerPool>(kBlockingThreads, kBlockingWaiting);
  return server;
}

// The order matters: ingests and datastores answer through the streams, so they
// end first.
CrestServer::~CrestServer() {
  blocking_.reset();
  ingests_.reset();
  datastores_.reset();
}

LookupStreams::Reactor* CrestServer::Lookup(
    grpc::CallbackServerContext* context) {
  return streams_->Start(context);
}

IngestCalls::Reactor* CrestServer::Ingest(grpc::CallbackServerContext* context,
                                          v1::IngestResponse* response) {
  return ingests_->Start(context, response);
}

grpc::ServerUnaryReactor* CrestServer::ListVersions(
    grpc::CallbackServerContext* context,
    const v1::ListVersionsRequest* request,
    v1::ListVersionsResponse* response) {
  return RunBlocking(
      context, [this, request, response] { return List(*request, *response); });
}

grpc::ServerUnaryReactor* CrestServer::Publish(
    grpc::CallbackServerContext* context, const v1::PublishRequest* request,
    v1::PublishResponse* response) {
  if (!options_.enable_publish) {
    // Answered before the queue, so that a disabled method costs no thread.
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(rpc::ToGrpcStatus(absl::UnimplementedError(
        "Publish is not enabled on this server (--enable-publish)")));
    return reactor;
  }
  return RunBlocking(context, [this, request, response] {
    return SwitchTo(*request, *response);
  });
}

// gRPC's callback threads must not block, so the work runs on a small pool.
// Request and response live until Finish.
grpc::ServerUnaryReactor* CrestServer::RunBlocking(
    grpc::CallbackServerContext* context, std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Status submitted =
      blocking_->Submit([reactor, work = std::move(work)] {
        // The reactor belongs to gRPC and deletes itself after Finish, which is
        // called exactly once on every path.
        reactor->Finish(rpc::ToGrpcStatus(work()));
      });
  if (!submitted.ok()) {
    reactor->Finish(rpc::ToGrpcStatus(
        rpc::WithRetryAfter(submitted, options_.lookup.streams.retry_after)));
  }
  return reactor;
}

absl::Status CrestServer::List(const v1::ListVersionsRequest& request,
                               v1::ListVersionsResponse& response) const {
  FORETOKEN_ASSIGN_OR_RETURN(Datastore * datastore,
                             datastores_->Find(request.datastore()));
  absl::StatusOr<std::vector<VersionInfo>> versions =
      datastore->origin().List();
  // Read once: it may be switched at any time, and the answer must not name two
  // versions as the served one.
  const std::shared_ptr<const ServedVersion> served = datastore->current();
  if (!versions.ok()) {
    // The served version is known without the store.
    if (served == nullptr) return versions.status();
    versions = std::vector<VersionInfo>();
  }
  const int64_t serving = served == nullptr ? 0 : served->info.version;
  const bool listed =
      std::any_of(versions->begin(), versions->end(),
                  [&](const auto& info) { return info.version == serving; });
  // The served version may have been dropped from the store, or the store may
  // not answer.
  if (serving != 0 && !listed) {
    *response.add_versions() = ToProto(served->info, serving);
  }
  for (const VersionInfo& info : *versions) {
    *response.add_versions() = ToProto(info, serving);
  }
  return absl::OkStatus();
}

absl::Status CrestServer::SwitchTo(const v1::PublishRequest& request,
                                   v1::PublishResponse& response) const {
  // Versions count from 1; 0 is an unset field.
  if (request.version() <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("version: ", request.version(), ", want a version"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(Datastore * datastore,
                             datastores_->Find(request.datastore()));
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t previous,
                             datastore->origin().Switch(request.version()));
  FORETOKEN_LOG(kInfo, "published version ", request.version(), " of ",
                datastore->name(), ", replacing ", previous);
  // Switch at once instead of at the next poll.
  datastore->Poke();
  response.set_previous_version(previous);
  return absl::OkStatus();
}

bool CrestServer::Ready() const { return datastores_->AnyReady(); }

std::vector<rpc::PartHealth> CrestServer::Parts() const {
  std::vector<rpc::PartHealth> parts;
  for (const auto& [name, datastore] : datastores_->all()) {
    // One health entry for each datastore beside that of the service, so that a
    // probe may ask for the one it needs.
    parts.push_back(
        {absl::StrCat(health_name(), "/", name), datastore->state().ok()});
  }
  return parts;
}

void CrestServer::WatchHealth(std::function<void()> changed) {
  absl::MutexLock lock(&health_mu_);
  health_changed_ = std::move(changed);
}

void CrestServer::OnSwitch(const std::string& name, const VersionInfo& now) {
  metrics_.Switched(name, now.version);
}

void CrestServer::OnFailedLoad(const std::string& name) {
  metrics_.LoadFailed(name);
}

// health_mu_ is held during the call, so that WatchHealth(nullptr) returns only
// when none is under way.
void CrestServer::OnStateChange(const std::string& name, bool ready) {
  metrics_.SetReady(name, ready);
  absl::MutexLock lock(&health_mu_);
  if (health_changed_) health_changed_();
}

void CrestServer::BeginDrain() {
  ingests_->BeginDrain();
  streams_->BeginDrain();
}

bool CrestServer::Idle() const {
  return streams_->Idle() && ingests_->Idle() && blocking_->active() == 0;
}

void CrestServer::EndAll() {
  ingests_->EndAll();
  streams_->EndAll();
}

}  // namespace foretoken::crest
