#include "common/rpc/verify_client.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/bidi_call.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"

namespace foretoken::rpc {
namespace {

using Call = BidiCall<v1::VerifyRequest, v1::VerifyResponse>;

absl::Status OutOfTurn() {
  return absl::UnavailableError("the verifier answered out of turn");
}

// One GetVerifierInfo.
struct InfoCall final : LiveCall {
  InfoCall(LiveCalls& calls, VerifierPeer::OnInfo done)
      : membership(calls, this), on_info(std::move(done)) {}
  ~InfoCall() override { membership.calls.Forget(this); }
  void Cancel() override { context.TryCancel(); }
  bool done() const override { return false; }

  LiveCalls::Membership membership;  // before what holds the channel
  grpc::ClientContext context;
  v1::GetVerifierInfoRequest request;
  v1::GetVerifierInfoResponse response;
  VerifierPeer::OnInfo on_info;
};

}  // namespace

class VerifyClient::Reader final : public BidiReader<v1::VerifyResponse> {
 public:
  explicit Reader(std::shared_ptr<VerifyListener> listener)
      : listener_(std::move(listener)) {}

  // Before the round is sent.
  void Expect(const RoundRequest& request) {
    tree_size_ = request.tree.size();
    waits_ = true;
  }
  // An answer is on its way, or may be.
  bool waits() const { return waits_; }

  bool OnMessage(v1::VerifyResponse& message) override {
    if (ended_) return false;
    const absl::Status status = Take(message);
    if (status.ok()) return true;
    End(status);
    return false;
  }
  void OnEnd(const absl::Status& status) override {
    End(status.ok() ? absl::UnavailableError("the verifier ended the stream")
                    : status);
  }

 private:
  absl::Status Take(const v1::VerifyResponse& message) {
    if (message.has_opened() && !opened_) {
      opened_ = true;
      listener_->OnOpened(message.opened().numerics_fingerprint());
      return absl::OkStatus();
    }
    if (!opened_ || !waits_) return OutOfTurn();
    if (message.has_prefilled() && tree_size_ < 0) {
      auto result = FromProto(message.prefilled());
      if (!result.ok()) return result.status();
      Answered(result->finish);
      listener_->OnPrefilled(*std::move(result));
      return absl::OkStatus();
    }
    if (!message.has_result() || tree_size_ < 0) return OutOfTurn();
    auto result = FromProto(message.result(), tree_size_);
    if (!result.ok()) return result.status();
    Answered(result->finish);
    listener_->OnRound(*std::move(result));
    return absl::OkStatus();
  }

  void Answered(FinishReason finish) {
    waits_ = false;
    ended_ = finish != FinishReason::kNone;
  }

  void End(const absl::Status& status) {
    waits_ = false;
    if (!std::exchange(ended_, true)) listener_->OnFailed(status);
  }

  const std::shared_ptr<VerifyListener> listener_;
  bool opened_ = false;
  bool ended_ = false;
  std::atomic<bool> waits_{true};
  std::atomic<int32_t> tree_size_{-1};  // of the round under way; -1: prefill
};

class VerifyClient::Session final : public VerifySession {
 public:
  Session(VerifyClient& client, const SessionRequest& request,
          std::shared_ptr<VerifyListener> listener) {
    auto reader = std::make_unique<Reader>(std::move(listener));
    reader_ = reader.get();
    call_ = Call::Start(
        [&client](grpc::ClientContext* context, Call::Reactor* reactor) {
          client.stub_->async()->Verify(context, reactor);
        },
        request.deadline, client.endpoint_.token, client.calls_,
        std::move(reader));
    v1::VerifyRequest message;
    ToProto(request, message.mutable_open());
    call_->Send(std::move(message));
  }
  ~Session() override {
    // What the verifier is at is of no use any more.
    if (reader_->waits()) call_->Cancel();
    call_->Finish();
  }

  absl::Status Ask(RoundRequest request) override {
    v1::VerifyRequest message;
    ToProto(request, message.mutable_round());
    reader_->Expect(request);
    call_->Send(std::move(message));
    return absl::OkStatus();
  }

 private:
  Reader* reader_;  // the call's
  std::shared_ptr<Call> call_;
};

VerifyClient::VerifyClient(Endpoint endpoint)
    : endpoint_(std::move(endpoint)),
      stub_(v1::Verifier::NewStub(endpoint_.channel)) {}

absl::StatusOr<std::unique_ptr<VerifySession>> VerifyClient::Open(
    SessionRequest request, std::shared_ptr<VerifyListener> listener) {
  return std::make_unique<Session>(*this, request, std::move(listener));
}

void VerifyClient::GetInfo(absl::Time deadline, OnInfo done) {
  auto call = std::make_shared<InfoCall>(calls_, std::move(done));
  PrepareCall(call->context, deadline, endpoint_.token);
  stub_->async()->GetVerifierInfo(&call->context, &call->request,
                                  &call->response, [call](grpc::Status status) {
                                    if (status.ok()) {
                                      call->on_info(FromProto(call->response));
                                    } else {
                                      call->on_info(FromGrpcStatus(status));
                                    }
                                  });
}

}  // namespace foretoken::rpc
