#include "common/rpc/draft_stream.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert_draft.h"
#include "common/rpc/status.h"

namespace foretoken::rpc {

// One call. gRPC's reactions and the session's answers meet under mu_. While
// `handling_`, session_ belongs to the reaction that read a message; else to
// the owner of mu_. gRPC keeps the reactor alive until OnDone, the session's
// listener until the session is closed, hence shared.
class DraftStreams::Stream final : public Reactor,
                                   public std::enable_shared_from_this<Stream> {
 public:
  // The session lets go of it once it is closed.
  class Listener final : public DraftListener {
   public:
    explicit Listener(std::shared_ptr<Stream> stream)
        : stream_(std::move(stream)) {}
    ~Listener() override { stream_->OnClosed(); }
    void OnAnswer(DraftAnswer answer) override {
      stream_->OnAnswer(std::move(answer));
    }
    void OnFailed(absl::Status status) override { stream_->End(status); }

   private:
    const std::shared_ptr<Stream> stream_;
  };

  explicit Stream(DraftStreams& owner) : owner_(owner) {}

  void Begin(const absl::Status& admitted) {
    const Lock lock(*this);
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
    const Lock lock(*this);
    EndLocked(status);
  }

  void OnReadDone(bool ok) override {
    // What is handled may let it end.
    const std::shared_ptr<Stream> alive = shared_from_this();
    {
      const Lock lock(*this);
      if (ending_) return;
      if (!ok) {
        EndLocked(absl::OkStatus());
        return;
      }
      if (!std::exchange(spoken_, true)) first_message_.Stop();
      handling_ = true;
    }
    const absl::Status status = Handle();
    const Lock lock(*this);
    handling_ = false;
    if (!status.ok()) EndLocked(status);
    // The answer to a round starts the next read.
    if (!ending_ && request_.has_open()) StartRead(&request_);
    Continue();
  }

  void OnAnswer(DraftAnswer answer) {
    const Lock lock(*this);
    if (ending_) return;
    owner_.observer_.OnAnswer(answer);
    answer_ = std::move(answer);
    answered_ = true;
    Continue();
  }

  void OnClosed() {
    const Lock lock(*this);
    open_ = false;
    Continue();
  }

  void OnSilence(const absl::Status& status) {
    const Lock lock(*this);
    if (!spoken_) EndLocked(status);
  }

  void OnWriteDone(bool ok) override {
    const Lock lock(*this);
    writing_ = false;
    if (!ok) EndLocked(absl::CancelledError("the client is gone"));
    Continue();
  }

  void OnCancel() override {
    End(absl::CancelledError("the call was cancelled"));
  }

  // No reaction follows; the session may still be on its way out.
  void OnDone() override {
    const std::shared_ptr<Stream> last = std::move(self_);
    owner_.Done(last);
  }

 private:
  // Holds mu_. A session that is to be closed goes after it: its listener may
  // go with it.
  class ABSL_SCOPED_LOCKABLE Lock {
   public:
    explicit Lock(Stream& stream) ABSL_EXCLUSIVE_LOCK_FUNCTION(stream.mu_)
        : stream_(stream) {
      stream_.mu_.Lock();
    }
    ~Lock() ABSL_UNLOCK_FUNCTION() {
      const std::unique_ptr<DraftSession> closing = std::move(stream_.closing_);
      stream_.mu_.Unlock();
    }

   private:
    Stream& stream_;
  };

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
    auto listener = std::make_shared<Listener>(shared_from_this());
    open_ = true;
    FORETOKEN_ASSIGN_OR_RETURN(
        session_, owner_.sessions_.Open(std::move(open), std::move(listener)));
    return absl::OkStatus();
  }

  absl::Status Round() {
    if (session_ == nullptr) {
      return absl::FailedPreconditionError("round: want open first");
    }
    FORETOKEN_ASSIGN_OR_RETURN(DraftRound round, FromProto(request_.round()));
    session_->Ask(std::move(round));
    return absl::OkStatus();
  }

  // Sends what is to be sent; at the end frees the session, then finishes.
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || handling_ || finished_) return;
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
    if (session_ != nullptr) closing_ = std::move(session_);
    if (open_) return;
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
  DraftAnswer answer_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<DraftSession> session_;
  std::unique_ptr<DraftSession> closing_ ABSL_GUARDED_BY(mu_);
  std::string request_id_;
  absl::Status final_ ABSL_GUARDED_BY(mu_);
  bool spoken_ ABSL_GUARDED_BY(mu_) = false;  // a message came
  bool handling_ ABSL_GUARDED_BY(mu_) = false;
  bool open_ = false;                           // the session's listener lives
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
