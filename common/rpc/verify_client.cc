#include "common/rpc/verify_client.h"

#include <atomic>
#include <utility>

#include "common/base/status_macros.h"
#include "common/rpc/bidi_call.h"
#include "common/rpc/convert.h"
#include "common/rpc/unary_call.h"
#include "foretoken/v1/verifier.grpc.pb.h"

namespace foretoken::rpc {
namespace {

using Call = BidiCall<v1::VerifyRequest, v1::VerifyResponse>;

absl::Status OutOfTurn() {
  return absl::UnavailableError("the verifier answered out of turn");
}

// Checks the protocol of one stream: an opened message, then a prefilled one,
// then one result per round sent. Any other order ends the session. waits_ and
// tree_size_ are atomic because Ask writes them while gRPC's thread may read
// them.
class Reader final : public BidiReader<v1::VerifyResponse> {
 public:
  explicit Reader(std::shared_ptr<VerifyListener> listener)
      : listener_(std::move(listener)) {}

  // Called before the round is sent: its answer may arrive at once.
  void Expect(const RoundRequest& request) {
    tree_size_ = request.tree.size();
    waits_ = true;
  }
  // Whether an answer is still expected.
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
      FORETOKEN_ASSIGN_OR_RETURN(PrefillResult result,
                                 FromProto(message.prefilled()));
      Answered(result.finish);
      listener_->OnPrefilled(std::move(result));
      return absl::OkStatus();
    }
    if (!message.has_result() || tree_size_ < 0) return OutOfTurn();
    FORETOKEN_ASSIGN_OR_RETURN(RoundResult result,
                               FromProto(message.result(), tree_size_));
    Answered(result.finish);
    listener_->OnRound(std::move(result));
    return absl::OkStatus();
  }

  void Answered(FinishReason finish) {
    waits_ = false;
    // The verifier closes a finished session; the end of its stream is then no
    // failure.
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
  std::atomic<int32_t> tree_size_{-1};  // of the current round; -1: prefill
};

class Session final : public VerifySession {
 public:
  Session(Peer& peer, v1::Verifier::Stub& stub, const SessionRequest& request,
          std::shared_ptr<VerifyListener> listener) {
    auto reader = std::make_unique<Reader>(std::move(listener));
    reader_ = reader.get();
    call_ = Call::Start(
        [&](auto* context, auto* reactor) {
          AddTraceparent(*context, request.traceparent);
          // A verifier of a version without embeddings has no such method: it
          // must not generate instead.
          if (request.pooling == Pooling::kNone) {
            stub.async()->Verify(context, reactor);
          } else {
            stub.async()->Embed(context, reactor);
          }
        },
        request.deadline, peer, std::move(reader));
    v1::VerifyRequest message;
    ToProto(request, message.mutable_open());
    call_->Send(std::move(message));
  }
  ~Session() override {
    // The pending answer is no longer needed: cancel, so that the verifier
    // drops the work. Without one, half-closing lets the stream end in order.
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
  Reader* reader_;  // owned by call_
  std::shared_ptr<Call> call_;
};

class VerifyClient final : public VerifierPeer {
 public:
  explicit VerifyClient(const Endpoint& endpoint)
      : stub_(v1::Verifier::NewStub(endpoint.channel)), peer_(endpoint) {}

  absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest request,
      std::shared_ptr<VerifyListener> listener) override {
    return std::make_unique<Session>(peer_, *stub_, request,
                                     std::move(listener));
  }

  void GetInfo(absl::Time deadline, OnInfo done) override {
    using InfoCall =
        UnaryCall<v1::GetVerifierInfoRequest, v1::GetVerifierInfoResponse>;
    InfoCall::Start(
        [this](auto... arguments) {
          stub_->async()->GetVerifierInfo(std::move(arguments)...);
        },
        {}, deadline, peer_,
        [done = std::move(done)](const absl::Status& status,
                                 const v1::GetVerifierInfoResponse& response) {
          if (status.ok()) {
            done(FromProto(response));
          } else {
            done(status);
          }
        });
  }

 private:
  const std::unique_ptr<v1::Verifier::Stub> stub_;
  Peer peer_;
};

}  // namespace

std::shared_ptr<VerifierPeer> MakeVerifyClient(const Endpoint& endpoint) {
  return std::make_shared<VerifyClient>(endpoint);
}

}  // namespace foretoken::rpc
