#include "common/rpc/draft_stream.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert_draft.h"
#include "common/rpc/status.h"

namespace foretoken::rpc {
namespace {

// A round that commits more is work for a worker.
constexpr int kCommittedAtOnce = 256;

}  // namespace

// One call. gRPC's reactions and the worker meet under mu_. While `working_`,
// session_, request_ and answer_ belong to the worker; else to whoever holds
// mu_. gRPC keeps the reactor alive until OnDone, the worker until it returned,
// hence shared.
class DraftStreams::Stream final : public Reactor,
                                   public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(DraftStreams& owner) : owner_(owner) {}

  void Begin(const absl::Status& admitted) {
    absl::MutexLock lock(&mu_);
    self_ = shared_from_this();
    if (admitted.ok()) {
      first_message_.Start(owner_.options_.streams.first_message_time,
                           shared_from_this());
      StartRead(&request_);
    } else {
      EndLocked(admitted);
    }
  }

  void End(const absl::Status& status) {
    absl::MutexLock lock(&mu_);
    EndLocked(status);
  }

  void OnReadDone(bool ok) override {
    // Work may let it end.
    const std::shared_ptr<Stream> alive = shared_from_this();
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      if (!ok) {
        EndLocked(absl::OkStatus());
        return;
      }
      if (!std::exchange(spoken_, true)) first_message_.Stop();
      if (!owner_.options_.rounds_at_once || !request_.has_round() ||
          request_.round().committed_size() > kCommittedAtOnce) {
        Submit(&Stream::Work);
        if (!working_) EndLocked(NoRoom());
        return;
      }
      working_ = true;
    }
    Work();
  }

  void OnSilence(const absl::Status& status) {
    absl::MutexLock lock(&mu_);
    if (!spoken_) EndLocked(status);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    if (!ok) EndLocked(absl::CancelledError("the client is gone"));
    Continue();
  }

  void OnCancel() override {
    absl::MutexLock lock(&mu_);
    EndLocked(absl::CancelledError("the call was cancelled"));
  }

  // No reaction follows; a worker may still be on its way out.
  void OnDone() override {
    const std::shared_ptr<Stream> last = std::move(self_);
    owner_.Done(last);
  }

 private:
  // Runs `work` on a worker; leaves working_ false where there is no room.
  void Submit(void (Stream::*work)()) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    working_ = true;
    const absl::Status submitted = owner_.workers_.Submit(
        [self = shared_from_this(), work] { (self.get()->*work)(); });
    working_ = submitted.ok();
  }

  absl::Status NoRoom() const {
    return absl::ResourceExhaustedError(
        absl::StrCat(owner_.options_.service, " has too much to do"));
  }

  // On a worker, or where it was read: one message.
  void Work() {
    {
      absl::MutexLock lock(&mu_);
      if (ending_) {  // it ended while the message waited for a worker
        working_ = false;
        Continue();
        return;
      }
    }
    const absl::Status status = Handle();
    absl::MutexLock lock(&mu_);
    working_ = false;
    if (!status.ok()) EndLocked(status);
    if (!ending_ && !answered_) StartRead(&request_);
    Continue();
  }

  // On a worker: the end of the session.
  void Release() {
    session_.reset();
    absl::MutexLock lock(&mu_);
    working_ = false;
    Continue();
  }

  absl::Status Handle() {
    switch (request_.message_case()) {
      case v1::DraftRequest::kOpen:
        return Open();
      case v1::DraftRequest::kRound:
        return Round();
      case v1::DraftRequest::MESSAGE_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError("message: want open or round");
  }

  absl::Status Open() {
    if (session_ != nullptr) {
      return absl::FailedPreconditionError(
          "open: the stream has a session already");
    }
    FORETOKEN_RETURN_IF_ERROR(owner_.CheckNotDraining());
    FORETOKEN_ASSIGN_OR_RETURN(DraftOpen open, FromProto(request_.open()));
    const std::string& own = owner_.options_.tokenizer_fingerprint;
    if (!own.empty() && !open.tokenizer_fingerprint.empty() &&
        own != open.tokenizer_fingerprint) {
      return absl::FailedPreconditionError(absl::StrCat(
          "tokenizer_fingerprint: the request's tokenizer is not that of ",
          owner_.options_.service));
    }
    request_id_ = open.request_id;
    FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<DraftSession> session,
                               owner_.sessions_.Open(std::move(open)));
    absl::MutexLock lock(&mu_);
    session_ = std::move(session);
    return absl::OkStatus();
  }

  absl::Status Round() {
    if (session_ == nullptr) {
      return absl::FailedPreconditionError("round: want open first");
    }
    FORETOKEN_ASSIGN_OR_RETURN(const DraftRound round,
                               FromProto(request_.round()));
    answer_.Clear();
    FORETOKEN_RETURN_IF_ERROR(session_->Round(round, answer_));
    owner_.observer_.OnAnswer(answer_);
    absl::MutexLock lock(&mu_);
    answered_ = true;
    return absl::OkStatus();
  }

  // Sends what is to be sent; at the end frees the session, then finishes.
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || working_ || finished_) return;
    if (answered_) {
      response_.Clear();
      ToProto(answer_, &response_);
      answered_ = false;
      writing_ = true;
      StartWrite(&response_);
      if (!ending_) StartRead(&request_);
      return;
    }
    if (!ending_) return;
    if (session_ != nullptr) {
      Submit(&Stream::Release);
      if (working_) return;
      session_.reset();
    }
    finished_ = true;
    Finish(ToGrpcStatus(final_));
  }

  void EndLocked(const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (ending_) return;
    ending_ = true;
    final_ = absl::IsResourceExhausted(status)
                 ? WithRetryAfter(status, owner_.options_.streams.retry_after)
                 : status;
    // An error need not wait for what was still to be said.
    if (!status.ok()) {
      answered_ = false;
      Report(status);
    }
    if (working_ && session_ != nullptr) session_->Cancel();
    Continue();
  }

  void Report(const absl::Status& status) {
    owner_.observer_.OnFailed(status.code());
    // Cancels, deadlines and refusals are the clients' daily life: counted.
    if (absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ||
        absl::IsResourceExhausted(status)) {
      return;
    }
    FORETOKEN_LOG(kWarning, owner_.options_.service, ": session ", request_id_,
                  " ended: ", status.ToString());
  }

  DraftStreams& owner_;
  FirstMessageTimer first_message_;
  std::shared_ptr<Stream> self_;  // until OnDone
  absl::Mutex mu_;
  v1::DraftRequest request_;
  v1::DraftResponse response_;  // being written
  DraftAnswer answer_;
  std::unique_ptr<DraftSession> session_;
  std::string request_id_;
  absl::Status final_ ABSL_GUARDED_BY(mu_);
  bool spoken_ ABSL_GUARDED_BY(mu_) = false;  // a message came
  bool working_ ABSL_GUARDED_BY(mu_) = false;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;  // answer_ is to be written
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

DraftStreams::Reactor* DraftStreams::Start(grpc::CallbackServerContext*) {
  const auto stream = std::make_shared<Stream>(*this);
  stream->Begin(Admit(stream));
  return stream.get();
}

absl::Status DraftStreams::CheckNotDraining() const {
  absl::MutexLock lock(&mu_);
  if (!draining_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(options_.service, " is draining"));
}

absl::Status DraftStreams::Admit(const std::shared_ptr<Stream>& stream) {
  FORETOKEN_RETURN_IF_ERROR(CheckNotDraining());
  absl::MutexLock lock(&mu_);
  if (static_cast<int32_t>(streams_.size()) >= options_.streams.max_streams) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "all ", options_.streams.max_streams, " streams are in use"));
  }
  streams_.insert(stream);
  observer_.OnStreams(static_cast<int>(streams_.size()));
  return absl::OkStatus();
}

void DraftStreams::Done(const std::shared_ptr<Stream>& stream) {
  absl::MutexLock lock(&mu_);
  if (streams_.erase(stream) == 0) return;  // it was not admitted
  observer_.OnStreams(static_cast<int>(streams_.size()));
}

void DraftStreams::BeginDrain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

bool DraftStreams::Idle() const {
  absl::MutexLock lock(&mu_);
  return streams_.empty();
}

void DraftStreams::EndAll() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    absl::MutexLock lock(&mu_);
    streams.assign(streams_.begin(), streams_.end());
  }
  const absl::Status status =
      absl::UnavailableError(absl::StrCat(options_.service, " is stopping"));
  for (const auto& stream : streams) stream->End(status);
}

}  // namespace foretoken::rpc
