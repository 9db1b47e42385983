#include "services/verifier/server.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/stopping.h"
#include "common/grammar/constraint.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"

namespace foretoken::verifier {
namespace {

// Predicted largest passes that may take no longer than one does: prompts
// differ by their contexts, and other work may share the machine.
constexpr int kSilentPasses = 10;
// The first pass of all may read the model's file from the disk.
constexpr absl::Duration kFirstPass = absl::Minutes(1);

}  // namespace

// One stream: the client's messages and the engine's answers meet in the
// protocol, under the stream's lock. The engine shares the stream as a
// listener.
class VerifierServer::Stream final
    : public rpc::BidiStream<v1::VerifyRequest, v1::VerifyResponse>,
      public VerifyListener,
      public SessionProtocol::Output {
 public:
  Stream(rpc::StreamServer& server, VerifierServer& owner,
         SessionProtocol::Method method)
      : BidiStream(server),
        protocol_(method, owner.sessions_, server.options().retry_after,
                  *this) {}

  void OnOpened(const std::string& numerics_fingerprint) override {
    absl::MutexLock lock(&mu_);
    protocol_.OnOpened(numerics_fingerprint);
  }
  void OnPrefilled(PrefillResult result) override {
    absl::MutexLock lock(&mu_);
    protocol_.OnPrefilled(result);
  }
  void OnRound(RoundResult result) override {
    absl::MutexLock lock(&mu_);
    protocol_.OnRound(result);
  }
  void OnFailed(absl::Status status) override {
    absl::MutexLock lock(&mu_);
    protocol_.OnFailed(status);
  }

  // The protocol's output; its callers hold mu_.
  void Send(v1::VerifyResponse message) override
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    BidiStream::Send(std::move(message));
  }
  void End(const absl::Status& status) override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    BidiStream::End(status);
  }

 private:
  void OnMessage(v1::VerifyRequest& request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // The stream may have been opened before the drain.
    const absl::Status refused =
        request.has_open() ? server_.CheckNotDraining() : absl::OkStatus();
    if (refused.ok()) {
      protocol_.OnMessage(
          request, deadline(),
          std::shared_ptr<VerifyListener>(shared_from_this(), this));
    } else {
      End(refused);
    }
  }
  void OnHalfClose() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    protocol_.OnHalfClose();
  }
  void OnClosed(const absl::Status& status) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    protocol_.OnFailed(status);
  }
  std::string LogName(const absl::Status&) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return absl::StrCat("session ", protocol_.request_id());
  }

  SessionProtocol protocol_ ABSL_GUARDED_BY(mu_);
};

VerifierServer::VerifierServer(const VerifierServerOptions& options,
                               std::unique_ptr<VerifyEngine> engine,
                               metrics::Registry& registry)
    : options_(options),
      metrics_(registry),
      streams_("the verifier", options_.streams, &metrics_),
      sessions_(options.sessions, std::move(engine),
                [this](const VerifySnapshot& snapshot) {
                  metrics_.OnChange(snapshot);
                }),
      watchdog_(
          {options.sessions.loop.name, options.sessions.loop.hang_timeout,
           options.sessions.loop.hang_exit, [this] { return HasFailed(); }},
          [this] { return sessions_.loop().Hangs(); },
          [this](bool hangs) { metrics_.OnHang(hangs); }) {}

VerifierServer::~VerifierServer() = default;

bool VerifierServer::HasFailed() const {
  const absl::Status fault = model_fault();
  if (fault.ok()) return false;
  FORETOKEN_LOG(kError, "the verifier does not serve: ", fault.message());
  return true;
}

grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>*
VerifierServer::Verify(grpc::CallbackServerContext* context) {
  return streams_.Start<Stream>(context, *this,
                                SessionProtocol::Method::kVerify);
}

grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>*
VerifierServer::Embed(grpc::CallbackServerContext* context) {
  return streams_.Start<Stream>(context, *this,
                                SessionProtocol::Method::kEmbed);
}

grpc::ServerUnaryReactor* VerifierServer::GetVerifierInfo(
    grpc::CallbackServerContext* context, const v1::GetVerifierInfoRequest*,
    v1::GetVerifierInfoResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<VerifierInfo> info = Info();
  if (info.ok()) rpc::ToProto(*info, response);
  reactor->Finish(rpc::ToGrpcStatus(info.status()));
  return reactor;
}

absl::StatusOr<VerifierInfo> VerifierServer::Info() {
  // Fail the probe so that orchestrators stop routing here.
  FORETOKEN_RETURN_IF_ERROR(streams_.CheckNotDraining());
  FORETOKEN_RETURN_IF_ERROR(watchdog_.Check());
  const VerifySnapshot snapshot = sessions_.loop().snapshot();
  // Not Unavailable: clients would try again, and the model is the same then.
  if (!snapshot.model_fault.ok()) {
    return absl::FailedPreconditionError(snapshot.model_fault.message());
  }
  const ModelConfig& model = sessions_.loop().model();
  VerifierInfo info;
  info.numerics_fingerprint = sessions_.loop().numerics_fingerprint();
  info.vocab_size = model.vocab_size;
  info.max_positions = static_cast<int32_t>(model.max_positions);
  info.max_tree_nodes = options_.sessions.max_tree_nodes;
  info.max_rows_per_session = options_.sessions.max_rows_per_session;
  info.sessions = static_cast<int32_t>(snapshot.sessions);
  info.kv_pages_total = snapshot.kv.pages_total;
  info.kv_pages_free = snapshot.kv.pages_free;
  for (const PassTiming::Point& point : snapshot.pass_timing.points()) {
    info.pass_costs.emplace_back(static_cast<int32_t>(std::lround(point.rows)),
                                 point.seconds * 1e3);
  }
  info.model = options_.model_name;
  info.tokenizer_fingerprint = options_.tokenizer_fingerprint;
  info.end_tokens.assign(model.eos_tokens.begin(), model.eos_tokens.end());
  info.passes = snapshot.totals.passes;
  info.embedding_size = model.d_model;
  info.model_pooling = model.pooling;
  // Without a tokenizer it cannot keep to a constraint.
  if (!options_.tokenizer_fingerprint.empty()) {
    info.grammar_version = kGrammarVersion;
  }
  // Sessions without pages make no pass until an idle one gives up its own.
  info.silence_limit =
      std::max(kSilentPasses * snapshot.largest_pass, 2 * snapshot.idle_time);
  if (info.passes == 0) {
    info.silence_limit = std::max(info.silence_limit, kFirstPass);
  }
  return info;
}

void VerifierServer::EndAll() {
  streams_.EndAll();
  // Callers in this process have no stream.
  sessions_.FailAll(StoppingError(streams_.service()));
}

}  // namespace foretoken::verifier
