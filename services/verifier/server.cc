#include "services/verifier/server.h"

#include <cmath>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"

namespace foretoken::verifier {
namespace {

absl::Status Draining() {
  return absl::UnavailableError("the verifier is draining");
}

}  // namespace

// One stream. gRPC's reactions, the engine's answers and the final status meet
// under mu_. gRPC keeps the reactor alive until OnDone; the engine may still
// hold the listener after that, so that the object owns itself until OnDone and
// the engine shares it.
class VerifierServer::Stream final
    : public grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>,
      public VerifyListener,
      public SessionProtocol::Output {
 public:
  // The protocol's listener is the stream itself, hence the two steps.
  static Stream* Start(VerifierServer& server,
                       grpc::CallbackServerContext* context) {
    std::shared_ptr<Stream> stream(new Stream(server, context));
    absl::MutexLock lock(&stream->mu_);
    stream->self_ = stream;
    const absl::Status admitted = server.AdmitStream();
    stream->admitted_ = admitted.ok();
    if (admitted.ok()) {
      stream->first_message_.Start(server.options_.streams.first_message_time,
                                   stream);
      stream->StartRead(&stream->request_);
    } else {
      stream->End(admitted);
    }
    return stream.get();
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    if (!ok) {
      protocol_.OnHalfClose();
      return;
    }
    if (!std::exchange(spoken_, true)) first_message_.Stop();
    // The stream may be older than the drain.
    if (request_.has_open() && server_.draining()) {
      protocol_.OnRefused(Draining());
    } else {
      protocol_.OnMessage(request_, deadline_, self_);
    }
    ReadNext();
  }

  void OnSilence(const absl::Status& status) {
    absl::MutexLock lock(&mu_);
    if (!spoken_) protocol_.OnRefused(status);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) protocol_.OnDisconnect();
    WriteNext();
    if (!reading_) ReadNext();
  }

  void OnCancel() override {
    absl::MutexLock lock(&mu_);
    protocol_.OnDisconnect();
  }

  void OnDone() override {
    // No reaction follows; the engine may still call, and finds us ended.
    if (admitted_) server_.StreamDone();
    const std::shared_ptr<Stream> last = std::move(self_);
  }

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

  // The protocol's output; mu_ is held by whoever called the protocol.
  void Send(v1::VerifyResponse message) override
      ABSL_NO_THREAD_SAFETY_ANALYSIS {
    unsent_.push_back(std::move(message));
    WriteNext();
  }

  void End(const absl::Status& status) override ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (ending_) return;
    if (!status.ok()) {
      server_.metrics_.Failed(status.code());
      // Cancels, deadlines and refusals are the clients' daily life: counted.
      if (!absl::IsCancelled(status) && !absl::IsDeadlineExceeded(status) &&
          !absl::IsResourceExhausted(status)) {
        FORETOKEN_LOG(kWarning, "session ", protocol_.request_id(),
                      " ended: ", status.ToString());
      }
    }
    ending_ = true;
    final_ = status;
    // An error need not wait for what was still to be said.
    if (!status.ok()) unsent_.clear();
    WriteNext();
  }

 private:
  Stream(VerifierServer& server, grpc::CallbackServerContext* context)
      : server_(server),
        deadline_(rpc::DeadlineOf(context->deadline())),
        protocol_(server.sessions_, server.options_.streams.retry_after,
                  *this) {}

  // One who reads no answers is not heard any further.
  void ReadNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    reading_ = !ending_ && unsent_.size() < kMaxUnsent;
    if (reading_) StartRead(&request_);
  }

  // Starts the next write, or the end once all is written.
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) return;
    if (!unsent_.empty()) {
      response_ = std::move(unsent_.front());
      unsent_.pop_front();
      writing_ = true;
      StartWrite(&response_);
    } else if (ending_) {
      finished_ = true;
      Finish(rpc::ToGrpcStatus(final_));
    }
  }

  VerifierServer& server_;
  const absl::Time deadline_;
  bool admitted_ = false;
  rpc::FirstMessageTimer first_message_;

  absl::Mutex mu_;
  SessionProtocol protocol_ ABSL_GUARDED_BY(mu_);
  v1::VerifyRequest request_;
  v1::VerifyResponse response_;  // being written
  // Answers to kMaxUnsent messages at most, and to the one under way.
  static constexpr size_t kMaxUnsent = 4;
  std::deque<v1::VerifyResponse> unsent_ ABSL_GUARDED_BY(mu_);
  absl::Status final_ ABSL_GUARDED_BY(mu_);
  bool spoken_ ABSL_GUARDED_BY(mu_) = false;  // a message came
  bool reading_ ABSL_GUARDED_BY(mu_) = true;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<Stream> self_;
};

VerifierServer::VerifierServer(const VerifierServerOptions& options,
                               std::unique_ptr<VerifyEngine> engine,
                               metrics::Registry& registry)
    : options_(options),
      metrics_(registry),
      sessions_(options.sessions, std::move(engine),
                [this](const VerifySnapshot& snapshot) {
                  metrics_.OnChange(snapshot);
                }) {}

VerifierServer::~VerifierServer() = default;

absl::Status VerifierServer::AdmitStream() {
  absl::MutexLock lock(&mu_);
  if (draining_) return Draining();
  if (streams_ >= options_.streams.max_streams) {
    return rpc::WithRetryAfter(
        absl::ResourceExhaustedError(absl::StrCat(
            "all ", options_.streams.max_streams, " streams are in use")),
        options_.streams.retry_after);
  }
  ++streams_;
  metrics_.SetStreams(streams_);
  return absl::OkStatus();
}

void VerifierServer::StreamDone() {
  absl::MutexLock lock(&mu_);
  --streams_;
  metrics_.SetStreams(streams_);
}

grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>*
VerifierServer::Verify(grpc::CallbackServerContext* context) {
  return Stream::Start(*this, context);
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
  if (draining()) return Draining();
  const VerifySnapshot snapshot = sessions_.loop().snapshot();
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
  return info;
}

bool VerifierServer::draining() const {
  absl::MutexLock lock(&mu_);
  return draining_;
}

void VerifierServer::BeginDrain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

bool VerifierServer::Idle() const {
  absl::MutexLock lock(&mu_);
  return streams_ == 0;
}

void VerifierServer::EndAll() {
  sessions_.loop().FailAll(
      absl::UnavailableError("the verifier is stopping: replay elsewhere"));
}

}  // namespace foretoken::verifier
