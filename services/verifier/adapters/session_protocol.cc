#include "services/verifier/adapters/session_protocol.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"

namespace foretoken::verifier {

void SessionProtocol::OnMessage(
    const v1::VerifyRequest& message, absl::Time deadline,
    const std::shared_ptr<VerifyListener>& listener) {
  // Messages and answers may still be queued when the session ends; the client
  // has its final status and must see nothing after it.
  if (ended()) return;
  absl::Status status;
  switch (message.message_case()) {
    case v1::VerifyRequest::kOpen:
      status = Open(message.open(), deadline, listener);
      break;
    case v1::VerifyRequest::kRound:
      status = Round(message.round());
      break;
    case v1::VerifyRequest::MESSAGE_NOT_SET:
      status = absl::InvalidArgumentError("message: want open or round");
  }
  if (!status.ok()) End(std::move(status));
}

absl::Status SessionProtocol::Open(
    const v1::OpenSession& message, absl::Time deadline,
    const std::shared_ptr<VerifyListener>& listener) {
  if (state_ != State::kNew) {
    return absl::FailedPreconditionError(
        "open: the stream has a session already");
  }
  FORETOKEN_ASSIGN_OR_RETURN(SessionRequest request, rpc::FromProto(message));
  if ((request.pooling != Pooling::kNone) != (method_ == Method::kEmbed)) {
    return absl::InvalidArgumentError(
        method_ == Method::kEmbed ? "pooling: Embed needs one"
                                  : "pooling: want Embed for an embedding");
  }
  // Before it is compiled.
  if (request.pooling != Pooling::kNone && !request.constraint.empty()) {
    return absl::InvalidArgumentError("constraint: an embedding has no output");
  }
  request.deadline = deadline;
  request_id_ = request.request_id;
  // Remembered here because the request is moved away below, and every later
  // answer of the session is written by these three.
  want_row_tokens_ = request.want_row_tokens;
  want_logprobs_ = request.sampling.logprobs >= 0;
  FORETOKEN_ASSIGN_OR_RETURN(session_,
                             sessions_.Open(std::move(request), listener));
  state_ = State::kOpening;
  return absl::OkStatus();
}

absl::Status SessionProtocol::Round(const v1::Round& message) {
  if (state_ == State::kNew || state_ == State::kOpening) {
    // An answer under way is still owed to the client; Answer ends the stream
    // after sending it.
    return absl::FailedPreconditionError("round: the session is not open yet");
  }
  // A session only grows, so the length that a round builds on identifies the
  // round: one that is sent twice cannot run twice.
  const int64_t base = message.committed_length();
  if (base < length_ || (state_ == State::kBusy && base == round_base_)) {
    return absl::OkStatus();  // stale or repeated: changes nothing
  }
  if (state_ != State::kReady || base != length_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "round: it builds on ", base, " tokens, the session has ", length_,
        state_ == State::kBusy ? " and a round under way" : ""));
  }
  // The state changes only after Ask has taken the round; if either step fails
  // the session ends anyway, and `round_base_` is never that of a round that
  // the engine does not have.
  FORETOKEN_ASSIGN_OR_RETURN(RoundRequest request, rpc::FromProto(message));
  FORETOKEN_RETURN_IF_ERROR(session_->Ask(std::move(request)));
  round_base_ = base;
  state_ = State::kBusy;
  return absl::OkStatus();
}

void SessionProtocol::OnHalfClose() {
  if (ended()) return;
  half_closed_ = true;
  if (state_ == State::kOpening || state_ == State::kBusy) return;
  End(absl::OkStatus());
}

void SessionProtocol::OnOpened(const std::string& numerics_fingerprint) {
  if (ended()) return;
  v1::VerifyResponse response;
  response.mutable_opened()->set_numerics_fingerprint(numerics_fingerprint);
  output_.Send(std::move(response));
}

void SessionProtocol::OnPrefilled(const PrefillResult& result) {
  if (ended()) return;
  v1::VerifyResponse response;
  rpc::ToProto(result, want_logprobs_, response.mutable_prefilled());
  Answer(std::move(response), result.length, result.finish);
}

void SessionProtocol::OnRound(const RoundResult& result) {
  if (ended()) return;
  v1::VerifyResponse response;
  rpc::ToProto(result, want_logprobs_, want_row_tokens_,
               response.mutable_result());
  Answer(std::move(response), result.length, result.finish);
}

void SessionProtocol::Answer(v1::VerifyResponse response, int64_t length,
                             FinishReason finish) {
  length_ = length;
  state_ = State::kReady;
  output_.Send(std::move(response));
  if (half_closed_ || finish != FinishReason::kNone) End(absl::OkStatus());
}

void SessionProtocol::OnFailed(const absl::Status& status) {
  if (!ended()) End(status);
}

void SessionProtocol::End(absl::Status status) {
  state_ = State::kEnded;
  // Frees the verifier's pages now; the stream itself lives on until the client
  // has read what is queued.
  session_.reset();
  // A refusal without a hint would be retried at once by every refused client;
  // the verifier's own hint, if there is one, knows the load better than the
  // default.
  if (absl::IsResourceExhausted(status) &&
      !rpc::RetryAfter(status).has_value()) {
    status = rpc::WithRetryAfter(std::move(status), retry_after_);
  }
  output_.End(status);
}

}  // namespace foretoken::verifier
