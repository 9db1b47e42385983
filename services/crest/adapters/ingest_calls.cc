#include "services/crest/adapters/ingest_calls.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/timed_wait.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"

namespace foretoken::crest {

// One Ingest call, shared by gRPC's threads, which receive its messages, and
// the worker, which takes them and builds.
//
// Flow: the worker sets wanted_ and waits; CanRead then allows one read, whose
// message belongs to the worker until it wants the next one. Once submitted,
// only the worker ends the call; a stream that ends earlier (cancel,
// disconnect, EndAll) sets stopped_, which makes the worker stop.
class IngestCalls::Call final : public rpc::ReadStream<v1::IngestRequest> {
 public:
  Call(rpc::StreamServer& server, IngestCalls& owner,
       v1::IngestResponse* response)
      : ReadStream(server), owner_(owner), response_(response) {}

 private:
  void OnStart() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    deadline_ = std::min(deadline(), MonotonicNow() + owner_.options_.timeout);
    const absl::Status submitted = Submit();
    running_ = submitted.ok();
    if (!running_) End(submitted);
  }
  void OnMessage(v1::IngestRequest& message) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    wanted_ = false;
    message_ = &message;
  }
  // Unlike the default, does not end the stream: the answer comes after the
  // build.
  void OnHalfClose() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    no_more_ = true;
  }
  void OnClosed(const absl::Status& status) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    stopped_ = status;
  }
  bool CanRead() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return wanted_;
  }
  // The worker uses the response until running_ is false.
  bool CanFinish() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !running_;
  }
  std::string LogName(const absl::Status&) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return "";
  }

  absl::Status Submit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!owner_.options_.enabled) {
      return absl::UnimplementedError(
          "Ingest is not enabled on this server (--enable-ingest)");
    }
    const absl::Status submitted =
        // The worker has one thread and no queue: a second call is refused.
        owner_.worker_.Submit([this, self = shared_from_this()] { Run(); });
    if (submitted.ok()) return submitted;
    return server_.WithRetryHint(
        absl::ResourceExhaustedError("ingest: another call is running"));
  }

  // Runs on the worker's thread.
  void Run() {
    const absl::StatusOr<IngestResult> result = Drive();
    if (result.ok()) {
      response_->set_version(result->version);
      response_->set_documents(result->documents);
      response_->set_tokens(result->tokens);
    } else {
      FORETOKEN_LOG(kWarning, "ingest ended: ", result.status().ToString());
    }
    owner_.metrics_.IngestEnded(result.status().code());
    // End may be the second one: a stream that is gone ignores it, and Continue
    // then lets it finish.
    absl::MutexLock lock(&mu_);
    running_ = false;
    End(result.status());
    Continue();
  }

  // The reason to stop the build; OK to continue.
  absl::Status Stopped() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (ended()) return stopped_;
    if (MonotonicNow() < deadline_) return absl::OkStatus();
    return absl::DeadlineExceededError("ingest: out of time");
  }

  // Fills message_; false at the end of the stream.
  absl::StatusOr<bool> Next() {
    absl::MutexLock lock(&mu_);
    wanted_ = true;
    message_ = nullptr;
    // Re-evaluates CanRead, which starts the read.
    Continue();
    const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return message_ != nullptr || no_more_ || ended();
    };
    AwaitFor(mu_, absl::Condition(&done), deadline_ - MonotonicNow());
    FORETOKEN_RETURN_IF_ERROR(Stopped());
    return message_ != nullptr;
  }

  absl::StatusOr<IngestResult> Drive() {
    FORETOKEN_ASSIGN_OR_RETURN(const bool first, Next());
    if (!first || !message_->has_config()) {
      return absl::InvalidArgumentError("ingest: want a config first");
    }
    // A copy: the message is overwritten by the next read.
    const v1::IngestConfig config = message_->config();
    FORETOKEN_ASSIGN_OR_RETURN(Datastore * datastore,
                               owner_.datastores_.Find(config.datastore()));
    FORETOKEN_ASSIGN_OR_RETURN(
        const std::unique_ptr<Ingest> ingest,
        Ingest::Begin(owner_.options_.limits, config.max_n(), config.top()));
    while (true) {
      FORETOKEN_ASSIGN_OR_RETURN(const bool more, Next());
      if (!more) break;
      if (message_->message_case() != v1::IngestRequest::kDocument) {
        return absl::InvalidArgumentError(
            "ingest: want documents after the config");
      }
      FORETOKEN_RETURN_IF_ERROR(ingest->Add(message_->document()));
    }
    absl::StatusOr<IngestResult> result =
        ingest->Finish(*owner_.tokenizer_, datastore->origin(), [this] {
          absl::MutexLock lock(&mu_);
          return !Stopped().ok();
        });
    if (result.ok()) {
      FORETOKEN_LOG(kInfo, "ingest: version ", result->version, " of ",
                    datastore->name(), " published, ", result->documents,
                    " documents");
      datastore->Poke();
    }
    // The build reports only Cancelled; report the reason instead.
    if (absl::IsCancelled(result.status())) {
      absl::MutexLock lock(&mu_);
      FORETOKEN_RETURN_IF_ERROR(Stopped());
    }
    return result;
  }

  IngestCalls& owner_;
  v1::IngestResponse* const response_;
  absl::Time deadline_;
  const v1::IngestRequest* message_ =
      nullptr;  // owned by the worker while !wanted_
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;
  bool no_more_ ABSL_GUARDED_BY(mu_) = false;
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status stopped_ ABSL_GUARDED_BY(mu_);
};

IngestCalls::IngestCalls(const IngestOptions& options,
                         const rpc::StreamOptions& streams,
                         const Datastores& datastores,
                         std::shared_ptr<const Tokenizer> tokenizer,
                         CrestMetrics& metrics)
    : options_(options),
      datastores_(datastores),
      tokenizer_(std::move(tokenizer)),
      metrics_(metrics),
      streams_("the crest service", streams, nullptr),
      worker_(/*max_threads=*/1, /*max_waiting=*/0) {}

IngestCalls::~IngestCalls() { EndAll(); }

IngestCalls::Reactor* IngestCalls::Start(grpc::CallbackServerContext* context,
                                         v1::IngestResponse* response) {
  return streams_.Start<Call>(context, *this, response);
}

}  // namespace foretoken::crest
