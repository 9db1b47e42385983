#include "common/rpc/draft_stream.h"

#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert_draft.h"

namespace foretoken::rpc {

// While handling_ is set, session_ and refused_ belong to OnMessage, which does
// not hold mu_; otherwise they belong to the holder of mu_.
class DraftStreams::Stream final
    : public BidiStream<v1::DraftRequest, v1::DraftResponse> {
 public:
  Stream(StreamServer& server, DraftStreams& owner)
      : BidiStream(server), owner_(owner) {}

 private:
  // Held by the session until it is closed. It keeps the stream alive, and its
  // destruction tells the stream that no callback can come any more: CanFinish
  // waits for that.
  class Listener final : public DraftListener {
   public:
    Listener(Stream& stream, std::shared_ptr<ServerStream> alive)
        : stream_(stream), alive_(std::move(alive)) {}
    ~Listener() override { stream_.OnSessionClosed(); }
    void OnAnswer(DraftAnswer answer) override { stream_.OnAnswer(answer); }
    void OnFailed(absl::Status status) override {
      stream_.OnSessionFailed(status);
    }
    bool gone() const override { return stream_.closed_; }

   private:
    Stream& stream_;
    const std::shared_ptr<ServerStream> alive_;
  };

  void OnMessage(v1::DraftRequest& request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    handling_ = true;
    asked_ = request.has_round();
    // Without the lock: the session may answer within Ask, and OnAnswer takes
    // it. No other message is read meanwhile.
    mu_.Unlock();
    const absl::Status status = Handle(request);
    mu_.Lock();
    handling_ = false;
    // The stream ended while the session was in use; OnClosed left it to us.
    if (ended()) {
      CloseSession();
    } else if (refused_) {
      EndCounted(server_.WithRetryHint(status));
    } else if (!status.ok()) {
      End(server_.WithRetryHint(status));
    }
  }
  void OnClosed(const absl::Status&) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    // At once, though a message under way puts off the end of the session.
    closed_ = true;
    if (!handling_) CloseSession();
  }
  // Reads the next message once the answer to a round has been sent.
  bool CanRead() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !asked_ && unsent() == 0;
  }
  bool CanFinish() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !handling_ && !open_;
  }
  std::string LogName(const absl::Status&) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return absl::StrCat("session ", request_id_);
  }

  void OnAnswer(const DraftAnswer& answer) {
    absl::MutexLock lock(&mu_);
    if (ended()) return;
    asked_ = false;
    response_.Clear();
    ToProto(answer, &response_);
    Send(std::move(response_));
    Continue();
  }
  void OnSessionFailed(const absl::Status& status) {
    // End closes the session, which destroys the listener, which may hold the
    // last reference to the stream.
    const auto self = shared_from_this();
    absl::MutexLock lock(&mu_);
    EndCounted(server_.WithRetryHint(status));
  }
  void OnSessionClosed() {
    absl::MutexLock lock(&mu_);
    open_ = false;
    Continue();
  }

  // Releases mu_: the session may destroy the listener, which takes mu_.
  void CloseSession() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (session_ == nullptr) return;
    std::unique_ptr<DraftSession> closing = std::move(session_);
    mu_.Unlock();
    closing.reset();
    mu_.Lock();
  }

  absl::Status Handle(const v1::DraftRequest& request) {
    switch (request.message_case()) {
      case v1::DraftRequest::kOpen:
        return Open(request.open());
      case v1::DraftRequest::kRound:
        return Round(request.round());
      case v1::DraftRequest::MESSAGE_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError("message: want open or round");
  }

  absl::Status Open(const v1::OpenDrafting& message) {
    if (session_ != nullptr) {
      return absl::FailedPreconditionError(
          "open: the stream has a session already");
    }
    FORETOKEN_RETURN_IF_ERROR(server_.CheckNotDraining());
    FORETOKEN_ASSIGN_OR_RETURN(DraftOpen open, FromProto(message));
    const std::string& own = owner_.options_.tokenizer_fingerprint;
    if (!own.empty() && !open.tokenizer_fingerprint.empty() &&
        own != open.tokenizer_fingerprint) {
      return absl::FailedPreconditionError(absl::StrCat(
          "tokenizer_fingerprint: the request's tokenizer is not that of ",
          owner_.options_.service));
    }
    // open_ before the session exists: its listener may be destroyed, and clear
    // it, within Open.
    {
      absl::MutexLock lock(&mu_);
      request_id_ = open.request_id;
      open_ = true;
    }
    auto session = owner_.sessions_.Open(
        std::move(open), std::make_shared<Listener>(*this, shared_from_this()));
    refused_ = !session.ok();
    FORETOKEN_RETURN_IF_ERROR(session.status());
    session_ = *std::move(session);
    return absl::OkStatus();
  }

  absl::Status Round(const v1::DraftRound& message) {
    if (session_ == nullptr) {
      return absl::FailedPreconditionError("round: want open first");
    }
    FORETOKEN_ASSIGN_OR_RETURN(DraftRound round, FromProto(message));
    session_->Ask(std::move(round));
    return absl::OkStatus();
  }

  DraftStreams& owner_;
  std::unique_ptr<DraftSession> session_;
  bool refused_ = false;  // the service has opened no session
  std::atomic<bool> closed_{false};  // the stream has ended
  // Scratch; its memory is kept from round to round.
  v1::DraftResponse response_ ABSL_GUARDED_BY(mu_);
  std::string request_id_ ABSL_GUARDED_BY(mu_);
  bool handling_ ABSL_GUARDED_BY(mu_) = false;
  bool asked_ ABSL_GUARDED_BY(mu_) = false;  // a round is unanswered
  bool open_ ABSL_GUARDED_BY(mu_) = false;   // the session has a listener
};

DraftStreams::Reactor* DraftStreams::Start(
    grpc::CallbackServerContext* context) {
  return streams_.Start<Stream>(context, *this);
}

}  // namespace foretoken::rpc
