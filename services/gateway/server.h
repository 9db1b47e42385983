// GatewayServer: the HTTP API in one piece, over any Generator: a client of an
// orchestrator (config.h), or foretoken-local's orchestrator itself.
//
// Thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_SERVER_H_
#define FORETOKEN_SERVICES_GATEWAY_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/config/flags.h"
#include "common/generation/generator.h"
#include "common/metrics/registry.h"
#include "common/text/chat/model_chat.h"
#include "services/gateway/adapters/beast_server.h"
#include "services/gateway/adapters/gateway_metrics.h"
#include "services/gateway/core/gateway_service.h"

namespace foretoken::gateway {

struct GatewayServerOptions {
  HttpServerOptions http;
  GatewayOptions gateway;
  // A model directory or GGUF file. Empty: no chat, and tokens are shown by
  // their ids.
  std::string model;
  std::string chat_template;  // a file to use instead of the model's own
  std::string key_file;  // keys of callers (rpc/auth.h); empty: all may call
  // Whether the key file's weights and limits count. Otherwise another server
  // applies its own, and a key file that has any is refused.
  bool limits_callers = false;
  Clock clock = MonotonicClock();  // of requests

  // The flags of the API; those of the listener with `prefix`.
  void AddFlags(Flags& flags, const std::string& prefix);

  // Whether the files of keys, templates and certificates can be used: before
  // anything slow begins. Errors name the file.
  absl::Status CheckFiles() const;
};

class GatewayServer {
 public:
  // Listens at once. Errors name the option or file. `registry` must outlive
  // the server. All calls of `generator` must end before the server is
  // destroyed: one that the server does not own must be destroyed between Stop
  // and that. `addresses`: those of the listener, reserved before; none: the
  // server binds them itself.
  static absl::StatusOr<std::unique_ptr<GatewayServer>> Start(
      const GatewayServerOptions& options, std::shared_ptr<Generator> generator,
      metrics::Registry& registry,
      std::vector<net::ReservedAddress> addresses = {});
  ~GatewayServer();

  // With real ports.
  const std::vector<std::string>& addresses() const {
    return http_->addresses();
  }

  // Where a browser on this machine finds the page, by the first address of
  // TCP; empty without one.
  std::string Url() const;

  // Reports bad health and refuses new work, gives clients a moment to notice,
  // stops listening, and waits up to `timeout` for the answers under way; the
  // rest is cut off.
  void Drain(absl::Duration timeout);
  // The parts of Drain, for those who wait elsewhere: refuses new work and
  // stops listening; whether all answers have been sent, and read as far as can
  // be told.
  void BeginDrain();
  // Cuts clients off, which cancels what they had asked for, and waits for what
  // is still being read.
  void Stop();
  bool Idle() const { return http_->active() == 0 && http_->lingering() == 0; }

 private:
  explicit GatewayServer(metrics::Registry& registry) : metrics_(registry) {}

  bool tls_ = false;
  GatewayMetrics metrics_;
  std::unique_ptr<ModelChat> chat_;  // null without a model
  // The destructor ends them in an order of its own.
  std::shared_ptr<Generator> generator_;
  std::unique_ptr<GatewayService> service_;
  std::unique_ptr<BeastServer> http_;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_SERVER_H_
