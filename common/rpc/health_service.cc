#include "common/rpc/health_service.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/rpc_service_method.h"

namespace foretoken::rpc {
namespace {

// Values of HealthCheckResponse.ServingStatus in grpc.health.v1.
constexpr int32_t kServing = 1;
constexpr int32_t kNotServing = 2;
constexpr int32_t kServiceUnknown = 3;

// Watches keep the requested name, which may be of an unknown service.
constexpr size_t kMaxNameBytes = 200;

}  // namespace

// One stream. It writes the latest status when its client has taken the one
// before, so that it holds two at most and a slow client misses intermediate
// ones. Deletes itself in OnDone.
class HealthService::Watch final
    : public grpc::ServerWriteReactor<HealthService::Response> {
 public:
  // In `owner` if `admitted` is OK; otherwise it ends at once.
  Watch(HealthService& owner, std::string name, std::string peer,
        const absl::Status& admitted)
      : owner_(owner), name_(std::move(name)), peer_(std::move(peer)) {
    if (admitted.ok()) return;
    refused_ = true;
    absl::MutexLock lock(&mu_);
    End(ToGrpcStatus(admitted));
  }

  const std::string& name() const { return name_; }
  const std::string& peer() const { return peer_; }

  void Send(int32_t status) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    latest_ = status;
    WriteLatest();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (ok) {
      WriteLatest();
    } else {
      End(grpc::Status(grpc::StatusCode::CANCELLED, "the watch has ended"));
    }
  }
  void OnCancel() override {
    absl::MutexLock lock(&mu_);
    End(grpc::Status(grpc::StatusCode::CANCELLED, "the watch was cancelled"));
  }
  void OnDone() override {
    if (!refused_) owner_.Forget(this);
    delete this;
  }

 private:
  void WriteLatest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || ended_ || latest_ == message_.value()) return;
    writing_ = true;
    message_.set_value(latest_);
    StartWrite(&message_);
  }
  void End(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!ended_) Finish(status);
    ended_ = true;
  }

  HealthService& owner_;
  const std::string name_;
  const std::string peer_;
  bool refused_ = false;
  absl::Mutex mu_;
  int32_t latest_ ABSL_GUARDED_BY(mu_) = 0;
  Response message_ ABSL_GUARDED_BY(mu_);  // 0 before the first one
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

HealthService::HealthService(int32_t max_local_watches)
    : max_local_watches_(max_local_watches) {
  using grpc::internal::RpcMethod;
  using grpc::internal::RpcServiceMethod;
  AddMethod(new RpcServiceMethod("/grpc.health.v1.Health/Check",
                                 RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodCallback(
      0, new grpc::internal::CallbackUnaryHandler<Request, Response>(
             [this](grpc::CallbackServerContext* context,
                    const Request* request, Response* response) {
               return StartCheck(context, *request, response);
             }));
  AddMethod(new RpcServiceMethod("/grpc.health.v1.Health/Watch",
                                 RpcMethod::SERVER_STREAMING, nullptr));
  MarkMethodCallback(
      1,
      new grpc::internal::CallbackServerStreamingHandler<Request, Response>(
          [this](grpc::CallbackServerContext* context, const Request* request) {
            return StartWatch(*context, *request);
          }));
}

HealthService::~HealthService() = default;

void HealthService::Set(const std::string& name, bool serving) {
  absl::MutexLock lock(&mu_);
  serving_[name] = serving;
  const auto watches = watches_.find(name);
  if (watches == watches_.end()) return;
  // Lock order: mu_ before a Watch's. OnDone calls Forget without the Watch's
  // lock.
  for (Watch* watch : watches->second) watch->Send(StatusOf(name));
}

grpc::ServerUnaryReactor* HealthService::StartCheck(
    grpc::CallbackServerContext* context, const Request& request,
    Response* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  {
    absl::MutexLock lock(&mu_);
    response->set_value(StatusOf(request.value()));
  }
  // The protocol wants NOT_FOUND from Check, but SERVICE_UNKNOWN as a message
  // from Watch, which then goes on: the service may be added later.
  reactor->Finish(
      response->value() == kServiceUnknown
          ? grpc::Status(grpc::StatusCode::NOT_FOUND, "no service of this name")
          : grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthService::Response>* HealthService::StartWatch(
    const grpc::CallbackServerContext& context, const Request& request) {
  const std::string peer = context.peer();
  const std::string& name = request.value();
  absl::MutexLock lock(&mu_);
  const absl::Status admitted = Admit(name, peer);
  // Under mu_, so that no Set between the first status and the registration is
  // missed.
  Watch* const watch = new Watch(*this, name, peer, admitted);
  if (!admitted.ok()) return watch;
  ++of_peer_[peer];
  watches_[name].insert(watch);
  watch->Send(StatusOf(name));
  return watch;
}

absl::Status HealthService::Admit(const std::string& name,
                                  const std::string& peer) {
  if (name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "service name: ", name.size(), " bytes, want <= ", kMaxNameBytes));
  }
  // A TCP peer's name has its port and so names one connection; all clients of
  // a Unix socket share one name.
  const bool has_port =
      absl::StartsWith(peer, "ipv4:") || absl::StartsWith(peer, "ipv6:");
  const int32_t limit = has_port ? kMaxWatches : max_local_watches_;
  const auto of_peer = of_peer_.find(peer);
  if (of_peer != of_peer_.end() && of_peer->second >= limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "all ", limit, " health watches of ", peer, " are in use"));
  }
  return absl::OkStatus();
}

void HealthService::Forget(Watch* watch) {
  absl::MutexLock lock(&mu_);
  const auto peer = of_peer_.find(watch->peer());
  if (--peer->second == 0) of_peer_.erase(peer);
  const auto watches = watches_.find(watch->name());
  watches->second.erase(watch);
  if (watches->second.empty()) watches_.erase(watches);
}

int32_t HealthService::StatusOf(const std::string& name) const {
  const auto found = serving_.find(name);
  if (found == serving_.end()) return kServiceUnknown;
  return found->second ? kServing : kNotServing;
}

}  // namespace foretoken::rpc
