// grpc.health.v1.Health with a bound: each Watch stream lasts as long as its
// client likes, and gRPC's own service admits any number of them.
//
// The bound is one for each connection, because a client needs a watch for each
// of its own, and the listener bounds connections. A limit for all, or for all
// of a machine, would let callers that need no token take every place and so
// make the service look down.
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
  // Watches at a time of one connection.
  static constexpr int32_t kMaxWatches = 8;

  // `max_local_watches`: of all connections from this machine that have no
  // address to tell them apart (unix sockets). Watches beyond a limit end with
  // RESOURCE_EXHAUSTED; Check is not limited.
  explicit HealthService(int32_t max_local_watches);
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
  // A serving status of the protocol, or unknown.
  int32_t StatusOf(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int32_t max_local_watches_;
  absl::Mutex mu_;  // taken before a Watch's
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::set<Watch*>> watches_ ABSL_GUARDED_BY(mu_);
  // Number of watches by peer as gRPC writes it, with the port.
  std::map<std::string, int32_t> of_peer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_HEALTH_SERVICE_H_
