// The gRPC server of one process: listeners, credentials, limits, health,
// reflection, drain.
//
// Closed by default: loopback unless told; a listener beyond this machine needs
// TLS, or --insecure said aloud; bearer tokens never go over such a listener in
// the clear. Every RPC but grpc.health.v1 needs a token once a token file is
// given. In-process channels are trusted.
#ifndef FORETOKEN_COMMON_RPC_SERVER_H_
#define FORETOKEN_COMMON_RPC_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/config/flags.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"

namespace foretoken::rpc {

struct ServerOptions {
  std::vector<std::string> listen;  // addresses; empty: in-process only
  bool insecure = false;
  std::string tls_cert;  // PEM files; both or neither
  std::string tls_key;
  std::string tls_client_ca;  // given: clients must show a certificate of it
  std::string token_file;
  bool reflection = false;
  int32_t max_message_bytes = 16 << 20;   // of one received message
  int32_t max_concurrent_streams = 4096;  // of one connection
  absl::Duration keepalive_time = absl::Seconds(30);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  absl::Duration drain_timeout = absl::Seconds(30);

  // InvalidArgument for what contradicts itself or is not safe.
  absl::Status Validate() const;
};

// --listen --insecure --tls-cert --tls-key --tls-client-ca --auth-token-file
// --reflection --max-message-bytes --max-concurrent-streams --keepalive-time
// --keepalive-timeout --drain-timeout, with their rules.
void AddServerFlags(Flags& flags, const std::string& default_listen,
                    ServerOptions* options);

struct PartHealth {
  std::string name;  // "foretoken.v1.Crest/code"
  bool serving = false;
};

// What a server serves. Thread-safe.
class Servable {
 public:
  virtual ~Servable() = default;
  virtual grpc::Service* grpc_service() = 0;
  // Full name, "foretoken.v1.Verifier": its health is reported under it.
  virtual std::string health_name() const = 0;
  // Whether it can do its work: what health_name() reports while the server
  // serves. Parts of it may report under names of their own.
  virtual bool Ready() const { return true; }
  virtual std::vector<PartHealth> Parts() const { return {}; }
  // `changed` is to be called, by any thread that holds no lock of Ready's or
  // Parts', when their answers may have changed. Null: not again, and no call
  // is under way when this returns.
  virtual void WatchHealth(std::function<void()> /*changed*/) {}
  // From now on new work is refused with UNAVAILABLE; what runs goes on.
  virtual void BeginDrain() = 0;
  // No work is left.
  virtual bool Idle() const = 0;
  // Ends what still runs with UNAVAILABLE, soon after the call.
  virtual void EndAll() = 0;
};

class Server {
 public:
  // Listens at once, SERVING. InvalidArgument for bad options, NotFound for a
  // missing file, Unavailable for an address that cannot be bound; each names
  // what it is about. `servables` must outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, const std::vector<Servable*>& servables);
  ~Server();

  // The bound addresses, in the order of options.listen, real ports filled in.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // A channel without sockets, for services that share the process.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Health of every service, its parts, and of the whole (""), which needs all
  // services ready; NOT_SERVING for good once a drain has begun.
  void SetServing(bool serving);

  // NOT_SERVING, then no new work, then waits until all are idle, at most for
  // `timeout`; what is left is cancelled. Afterwards nothing is served.
  // True if nothing had to be cancelled.
  bool Drain(absl::Duration timeout);

 private:
  Server() = default;
  void ReportHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::vector<Servable*> servables_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
  absl::Mutex mu_;
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

// Blocks until SIGTERM or SIGINT (CatchSignals must have run), then drains; a
// second signal kills. Returns main's exit code.
int ServeUntilSignal(Server& server, absl::Duration drain_timeout);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_SERVER_H_
