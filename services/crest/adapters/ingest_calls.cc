#include "services/crest/adapters/ingest_calls.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"

namespace foretoken::crest {

// Owns itself until OnDone; the worker shares it while it runs. Only the worker
// ends it, once it has been submitted.
class IngestCalls::Call final : public IngestCalls::Reactor {
 public:
  static std::shared_ptr<Call> Make(IngestCalls& owner, absl::Time deadline,
                                    v1::IngestResponse* response) {
    std::shared_ptr<Call> call(new Call(owner, deadline, response));
    call->self_ = call;
    return call;
  }

  // On the worker's thread.
  void Run() {
    const absl::StatusOr<IngestResult> result = Drive();
    if (result.ok()) {
      response_->set_version(result->version);
      response_->set_documents(result->documents);
      response_->set_tokens(result->tokens);
    }
    owner_.metrics_.IngestEnded(result.status().code());
    if (!result.ok()) {
      FORETOKEN_LOG(kWarning, "ingest ended: ", result.status().ToString());
    }
    Finish(rpc::ToGrpcStatus(result.status()));
  }

  void Abort(absl::Status why) {
    absl::MutexLock lock(&mu_);
    if (aborted_.ok()) aborted_ = std::move(why);
  }

  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    read_ = ok ? Read::kMessage : Read::kEnd;
  }
  void OnCancel() override { Abort(absl::CancelledError("ingest: cancelled")); }
  void OnDone() override {
    const std::shared_ptr<Call> last = std::move(self_);
  }

 private:
  enum class Read { kWaiting, kMessage, kEnd };

  Call(IngestCalls& owner, absl::Time deadline, v1::IngestResponse* response)
      : owner_(owner), deadline_(deadline), response_(response) {}

  // Why to stop, if there is a reason.
  absl::Status Stopped() {
    absl::MutexLock lock(&mu_);
    if (!aborted_.ok()) return aborted_;
    if (absl::Now() < deadline_) return absl::OkStatus();
    return absl::DeadlineExceededError("ingest: out of time");
  }

  // True and request_ filled; false at the end of the stream.
  absl::StatusOr<bool> Next() {
    FORETOKEN_RETURN_IF_ERROR(Stopped());
    {
      absl::MutexLock lock(&mu_);
      read_ = Read::kWaiting;
    }
    StartRead(&request_);
    const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return read_ != Read::kWaiting || !aborted_.ok();
    };
    bool more = false;
    {
      absl::MutexLock lock(&mu_);
      mu_.AwaitWithDeadline(absl::Condition(&done), deadline_);
      more = read_ == Read::kMessage;
    }
    FORETOKEN_RETURN_IF_ERROR(Stopped());
    return more;
  }

  absl::StatusOr<IngestResult> Drive() {
    FORETOKEN_ASSIGN_OR_RETURN(const bool first, Next());
    if (!first || !request_.has_config()) {
      return absl::InvalidArgumentError("ingest: want a config first");
    }
    const v1::IngestConfig config = request_.config();
    FORETOKEN_ASSIGN_OR_RETURN(Datastore * datastore,
                               owner_.datastores_.Find(config.datastore()));
    FORETOKEN_ASSIGN_OR_RETURN(
        const std::unique_ptr<Ingest> ingest,
        Ingest::Begin(owner_.options_.limits, config.max_n(), config.top()));
    while (true) {
      FORETOKEN_ASSIGN_OR_RETURN(const bool more, Next());
      if (!more) break;
      if (request_.message_case() != v1::IngestRequest::kDocument) {
        return absl::InvalidArgumentError(
            "ingest: want documents after the config");
      }
      FORETOKEN_RETURN_IF_ERROR(ingest->Add(request_.document()));
    }
    absl::StatusOr<IngestResult> result =
        ingest->Finish(*owner_.tokenizer_, datastore->origin(),
                       [this] { return !Stopped().ok(); });
    if (result.ok()) {
      FORETOKEN_LOG(kInfo, "ingest: version ", result->version, " of ",
                    datastore->name(), " published, ", result->documents,
                    " documents");
      datastore->Poke();
    }
    // The build knows that it was stopped, not why.
    if (absl::IsCancelled(result.status())) {
      FORETOKEN_RETURN_IF_ERROR(Stopped());
    }
    return result;
  }

  IngestCalls& owner_;
  const absl::Time deadline_;
  v1::IngestResponse* const response_;
  v1::IngestRequest request_;

  absl::Mutex mu_;
  Read read_ ABSL_GUARDED_BY(mu_) = Read::kWaiting;
  absl::Status aborted_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Call> self_;
};

IngestCalls::IngestCalls(const IngestOptions& options,
                         const Datastores& datastores,
                         std::shared_ptr<const Tokenizer> tokenizer,
                         CrestMetrics& metrics)
    : options_(options),
      datastores_(datastores),
      tokenizer_(std::move(tokenizer)),
      metrics_(metrics),
      worker_(/*max_threads=*/1, /*max_waiting=*/0) {}

IngestCalls::~IngestCalls() { EndAll(); }

IngestCalls::Reactor* IngestCalls::Start(grpc::CallbackServerContext* context,
                                         v1::IngestResponse* response) {
  const absl::Time deadline = std::min(rpc::DeadlineOf(context->deadline()),
                                       absl::Now() + options_.timeout);
  const std::shared_ptr<Call> call = Call::Make(*this, deadline, response);
  const absl::Status status = Submit(call);
  if (!status.ok()) call->Finish(rpc::ToGrpcStatus(status));
  return call.get();
}

absl::Status IngestCalls::Submit(const std::shared_ptr<Call>& call) {
  if (!options_.enabled) {
    return absl::UnimplementedError(
        "Ingest is not enabled on this server (--enable-ingest)");
  }
  absl::MutexLock lock(&mu_);
  if (draining_) return absl::UnavailableError("the server is draining");
  const absl::Status submitted = worker_.Submit([call] { call->Run(); });
  if (!submitted.ok()) {
    return rpc::WithRetryAfter(
        absl::ResourceExhaustedError("ingest: another call is running"),
        options_.retry_after);
  }
  running_ = call;
  return absl::OkStatus();
}

void IngestCalls::BeginDrain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

void IngestCalls::EndAll() {
  std::shared_ptr<Call> call;
  {
    absl::MutexLock lock(&mu_);
    call = running_.lock();
  }
  if (call != nullptr) {
    call->Abort(absl::UnavailableError("the server is stopping"));
  }
}

}  // namespace foretoken::crest
