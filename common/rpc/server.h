// The gRPC server of one process: listeners, credentials, limits, health,
// reflection, drain.
//
// Closed by default: listeners are loopback; one beyond this machine needs TLS
// or --insecure, and never carries bearer tokens in the clear. With a token
// file, every RPC but grpc.health.v1 needs a token. In-process channels are
// trusted. Compressed messages are refused with UNIMPLEMENTED.
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
#include "common/net/listener.h"
#include "common/rpc/auth.h"
#include "common/rpc/health_service.h"
#include "common/rpc/listen_options.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace foretoken::rpc {

// Without an address, services are reachable in this process only.
struct ServerOptions : ListenOptions {
  std::string token_file;
  bool reflection = false;
  int32_t max_message_bytes = 16 << 20;   // of one received message
  int32_t max_concurrent_streams = 4096;  // of one connection
  // Maximum time of a TLS and HTTP/2 handshake.
  absl::Duration handshake_timeout = absl::Seconds(10);
  // Closes a connection that has had no calls for this long.
  absl::Duration connection_idle = absl::Minutes(5);
  // Asks a client to connect anew (GOAWAY) after this long, give or take a
  // tenth (gRPC's jitter), so that long-lived clients come to use new replicas;
  // never if zero. Calls that run go on: what is left of them at the end of the
  // grace, or of the longest call that a service allows if later, is cut off.
  absl::Duration max_connection_age = absl::Minutes(30);
  absl::Duration max_connection_age_grace = absl::Hours(2);
  // Closes a connection whose peer takes no data for this long.
  absl::Duration send_timeout = absl::Seconds(30);
  absl::Duration keepalive_time = absl::Seconds(30);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  absl::Duration drain_timeout = absl::Seconds(30);

  // --listen --insecure --tls-cert --tls-key --tls-client-ca
  // --auth-token-file --reflection --max-message-bytes
  // --max-concurrent-streams --max-connections --max-connections-per-peer
  // --handshake-timeout --connection-idle --max-connection-age
  // --max-connection-age-grace --send-timeout --keepalive-time
  // --keepalive-timeout --drain-timeout, with their rules.
  void AddFlags(Flags& flags);

  // InvalidArgument for options that contradict each other or are unsafe.
  absl::Status Validate() const;

  // Validate, and whether the files can be read: before anything slow begins.
  // Errors name the file.
  absl::Status CheckFiles() const;
};

struct PartHealth {
  std::string name;  // "foretoken.v1.Crest/code"
  bool serving = false;
};

// A gRPC service and its life in a Server. Thread-safe.
class Servable {
 public:
  virtual ~Servable() = default;
  virtual grpc::Service* grpc_service() = 0;
  // The full name of the gRPC service, "foretoken.v1.Verifier", under which its
  // health is reported.
  virtual std::string health_name() const = 0;
  // Whether the service can work: its health while the server serves. Parts of
  // it may report under names of their own.
  virtual bool Ready() const { return true; }
  virtual std::vector<PartHealth> Parts() const { return {}; }
  // Where a browser finds the service; empty: nowhere.
  virtual std::string Url() const { return ""; }
  // Time limit of its calls, if it sets one.
  virtual absl::Duration LongestCall() const { return absl::ZeroDuration(); }
  // The service calls `changed` when the answer of Ready or Parts may have
  // changed, holding no lock that these take. Null stops that: no call is under
  // way when WatchHealth returns.
  virtual void WatchHealth(std::function<void()> /*changed*/) {}
  // Called once, before the first call, if the server has a token file.
  virtual void SetCallers(std::shared_ptr<const Callers> /*callers*/) {}
  // Memory that gRPC may hold for messages that it has not handed over yet;
  // beyond it, it cancels calls. 0: no limit.
  virtual int64_t receive_bytes() const { return 0; }
  // Size of its largest request; gRPC answers larger ones RESOURCE_EXHAUSTED
  // without handing them over. 0: no limit but max_message_bytes.
  virtual int64_t max_request_bytes() const { return 0; }
  // Refuse new work with UNAVAILABLE; running work goes on.
  virtual void BeginDrain() = 0;
  // No work is left.
  virtual bool Idle() const = 0;
  // End running work with UNAVAILABLE soon.
  virtual void EndAll() = 0;
};

class Server {
 public:
  // Listens at once, SERVING. InvalidArgument for bad options, NotFound for a
  // missing file, Unavailable for an address that cannot be bound; each names
  // the option, file or address. `servables` must outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, const std::vector<Servable*>& servables);
  // Likewise, on addresses that were reserved before: those of options.listen.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, std::vector<net::ReservedAddress> addresses,
      const std::vector<Servable*>& servables);
  ~Server();

  // The bound addresses, in the order of options.listen, real ports filled in.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Those of the token file; null without one.
  std::shared_ptr<const Callers> callers() const { return callers_; }

  // A channel without sockets, for services that share the process.
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Health of every service, its parts, and of the whole (""), which needs all
  // services ready. NOT_SERVING permanently once a drain has begun.
  void SetServing(bool serving);

  // In this order: reports NOT_SERVING and stops listening; gives clients a
  // moment to notice; sends GOAWAY on every connection, so that clients make
  // new calls elsewhere, and refuses new work; waits up to `timeout` until
  // every service is idle; cancels the rest. Nothing is served afterwards. True
  // if nothing was cancelled.
  bool Drain(absl::Duration timeout);

 private:
  Server() = default;
  void ReportHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::vector<Servable*> servables_;
  std::unique_ptr<HealthService> health_;  // outlives server_
  // Give accepted connections to the server; used by the listener's thread.
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>>
      acceptors_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<net::Listener> listener_;
  std::vector<std::string> addresses_;
  std::shared_ptr<const Callers> callers_;
  absl::Mutex mu_;
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

// Blocks until SIGTERM or SIGINT (CatchSignals must have run), then drains; a
// second signal kills. Returns main's exit code.
int ServeUntilSignal(Server& server, absl::Duration drain_timeout);

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_SERVER_H_
