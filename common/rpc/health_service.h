// grpc.health.v1.Health with a bound: each Watch stream lasts as long as its
// client likes, and gRPC's own service admits any number of them.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_HEALTH_SERVICE_H_
#define FORETOKEN_COMMON_RPC_HEALTH_SERVICE_H_

#include <google/protobuf/wrappers.pb.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/server_callback.h"

namespace foretoken::rpc {

class HealthService final : public grpc::Service {
 public:
  // Watches at a time, in all and of one peer (PeerName). Further ones end with
  // RESOURCE_EXHAUSTED; Check is not limited.
  HealthService(int32_t max_watches, int32_t max_watches_per_peer);
  ~HealthService() override;

  // Tells those who watch the service. Names are of our own services, and stay.
  void Set(const std::string& name, bool serving) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // HealthCheckRequest and HealthCheckResponse look like these on the wire.
  using Request = google::protobuf::StringValue;
  using Response = google::protobuf::Int32Value;
  class Watch;

  grpc::ServerUnaryReactor* StartCheck(grpc::CallbackServerContext* context,
                                       const Request& request,
                                       Response* response);
  grpc::ServerWriteReactor<Response>* StartWatch(
      const grpc::CallbackServerContext& context, const Request& request);
  absl::Status Admit(const std::string& name, const std::string& peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget(Watch* watch) ABSL_LOCKS_EXCLUDED(mu_);
  // Of the protocol: a serving status, or unknown.
  int32_t StatusOf(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int32_t max_watches_;
  const int32_t max_watches_per_peer_;
  absl::Mutex mu_;  // taken before a Watch's
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::set<Watch*>> watches_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int32_t> of_peer_ ABSL_GUARDED_BY(mu_);
  int32_t open_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_HEALTH_SERVICE_H_
