#include "services/gateway/server.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"
#include "common/rpc/auth.h"
#include "common/rpc/tls.h"
#include "common/rpc/token_names.h"
#include "services/gateway/page/page.h"

namespace foretoken::gateway {
namespace {

// Time between bad health and the end of listening, so that load balancers
// lose no request.
constexpr absl::Duration kNotice = absl::Milliseconds(300);
constexpr absl::Duration kDrainPoll = absl::Milliseconds(10);

absl::StatusOr<std::shared_ptr<const rpc::Callers>> LoadKeys(
    const GatewayServerOptions& options) {
  // Limits in the file would look as if they were enforced; without
  // `limits_callers` nothing enforces them.
  if (!options.limits_callers) {
    FORETOKEN_RETURN_IF_ERROR(rpc::CheckNamesOnly(options.key_file));
  }
  return rpc::Callers::Load(options.key_file);
}

}  // namespace

void GatewayServerOptions::AddFlags(Flags& flags, const std::string& prefix) {
  http.AddFlags(flags, prefix);
  flags.String("chat-template", &chat_template,
               "File of a chat template (Jinja) to use instead of the model's "
               "own");
  flags.String("api-key-file", &key_file,
               "File of keys, in the form of a token file: KEY [NAME] ...; "
               "without one, everybody may call");
  flags.Duration("max-template-time", &gateway.max_template_time,
                 {absl::Milliseconds(1), absl::Hours(1)},
                 "Time limit for the chat template of a request");
  flags.List("cors-origins", &gateway.cors_origins,
             "Sites whose pages may call the API from a browser, "
             "https://HOST[:PORT]; * for all; none by default");
  flags.Bool("prefix-sharing", &gateway.prefix_sharing,
             "Let a caller's requests that name no cache scope share prefix "
             "pages; callers are told apart by their keys");
  flags.Bool("single-user", &gateway.single_user,
             "Without keys: let requests from this machine share prefix pages, "
             "as those of one user, unless a proxy forwarded them");
  flags.Require("single-user", [this]() -> std::string {
    // Response times tell which prefixes were sent before; only addresses that
    // no other machine reaches keep that within one user.
    if (!gateway.single_user) return "";
    for (const std::string& address : http.listen) {
      // Requests to a socket file never share: most often a proxy calls there.
      if (net::IsUnixAddress(address) || !net::IsLocalAddress(address)) {
        return absl::StrCat(
            "want loopback addresses (HOST:PORT of this machine) alone, not ",
            address);
      }
    }
    return "";
  });
  flags.List("allowed-hosts", &gateway.allowed_hosts,
             "Names under which clients on this machine, such as a proxy, may "
             "call the API without keys, beyond localhost; * for all");
}

absl::Status GatewayServerOptions::CheckFiles() const {
  // Before any connection is made, so that a wrong path ends the start with its
  // name instead of the first request.
  FORETOKEN_RETURN_IF_ERROR(rpc::CheckTlsFiles(http.tls_files()));
  if (!key_file.empty()) {
    FORETOKEN_RETURN_IF_ERROR(LoadKeys(*this).status());
  }
  if (model.empty()) return absl::OkStatus();
  return ModelChat::Load(model, chat_template).status();
}

absl::StatusOr<std::unique_ptr<GatewayServer>> GatewayServer::Start(
    const GatewayServerOptions& options, std::shared_ptr<Generator> generator,
    metrics::Registry& registry, std::vector<net::ReservedAddress> addresses) {
  std::unique_ptr<GatewayServer> server(new GatewayServer(registry));
  GatewayParts parts;
  if (!options.model.empty()) {
    // The parts hold pointers into the server, which outlives its service.
    FORETOKEN_ASSIGN_OR_RETURN(
        server->chat_, ModelChat::Load(options.model, options.chat_template));
    parts.tokenizer = &server->chat_->tokenizer();
    parts.chat = server->chat_.get();
  }
  if (!options.key_file.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(auto callers, LoadKeys(options));
    // Shared: the keys are reloaded as their file changes, and a look-up may
    // still run while the server is torn down.
    parts.find_caller = [callers](absl::string_view authorization) {
      return callers->Find(authorization);
    };
  }
  if (options.gateway.single_user && options.gateway.prefix_sharing &&
      options.key_file.empty()) {
    FORETOKEN_LOG(kInfo,
                  "--single-user: requests from this machine share prefix "
                  "pages");
  }
  server->tls_ = !options.http.tls_cert.empty();
  parts.page = {std::string(PageHtml()), std::string(PagePolicy())};
  server->generator_ = std::move(generator);
  // Wall-clock time for what clients see (created, templates that print a
  // date), `options.clock` for what is measured.
  server->service_ = std::make_unique<GatewayService>(
      options.gateway, std::move(parts), *server->generator_, server->metrics_,
      [] { return absl::Now(); }, options.clock);
  // Last, since requests arrive as soon as this returns.
  FORETOKEN_ASSIGN_OR_RETURN(
      server->http_,
      BeastServer::Start(options.http, *server->service_, server->metrics_,
                         std::move(addresses)));
  return server;
}

std::string GatewayServer::Url() const {
  for (const std::string& address : addresses()) {
    if (net::IsUnixAddress(address)) continue;
    // Every address of the machine is no address to ask.
    const auto [host, port] = net::SplitHostPort(address);
    const bool any = host == "0.0.0.0" || host == "::";
    return absl::StrCat(tls_ ? "https://" : "http://",
                        any ? absl::StrCat("localhost:", port) : address, "/");
  }
  return "";
}

GatewayServer::~GatewayServer() {
  Stop();
  // Before the service, by which the calls answer.
  generator_.reset();
  service_.reset();
}

void GatewayServer::Stop() {
  // The HTTP server first: no new request may reach a service that has stopped.
  if (http_ != nullptr) http_->Stop();
  if (service_ != nullptr) service_->Stop();
}

void GatewayServer::BeginDrain() {
  service_->BeginDrain();
  http_->BeginDrain();
}

void GatewayServer::Drain(absl::Duration timeout) {
  const absl::Time deadline = MonotonicNow() + timeout;
  // Health goes bad first while requests are still taken; load balancers need a
  // moment to notice, and what they send meanwhile must be served.
  service_->BeginDrain();
  absl::SleepFor(std::min(kNotice, timeout));
  BeginDrain();
  // Polled: there is no event for "idle", and a drain happens once.
  while (!Idle() && MonotonicNow() < deadline) absl::SleepFor(kDrainPoll);
  // The count is read before Stop, which ends them.
  if (const int64_t active = http_->active(); active > 0) {
    FORETOKEN_LOG(kWarning, "cut off ", active,
                  " requests at the end of the drain");
  }
  http_->Stop();
}

}  // namespace foretoken::gateway
