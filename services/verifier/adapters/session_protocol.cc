#include "services/verifier/adapters/session_protocol.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"

namespace foretoken::verifier {

void SessionProtocol::OnMessage(const v1::VerifyRequest& message,
                                absl::Time deadline,
                                const std::shared_ptr<SessionSink>& sink) {
  if (ended()) return;
  absl::Status status;
  switch (message.message_case()) {
    case v1::VerifyRequest::kOpen:
      status = Open(message.open(), deadline, sink);
      break;
    case v1::VerifyRequest::kRound:
      status = Round(message.round());
      break;
    case v1::VerifyRequest::MESSAGE_NOT_SET:
      status = absl::InvalidArgumentError("message: want open or round");
  }
  if (!status.ok()) End(std::move(status));
}

absl::Status SessionProtocol::Open(const v1::OpenSession& message,
                                   absl::Time deadline,
                                   const std::shared_ptr<SessionSink>& sink) {
  if (state_ != State::kNew) {
    return absl::FailedPreconditionError(
        "open: the stream has a session already");
  }
  FORETOKEN_RETURN_IF_ERROR(rpc::CheckRequestId(message.request_id()));
  request_id_ = message.request_id();
  if (!message.numerics_fingerprint().empty() &&
      message.numerics_fingerprint() != options_.numerics_fingerprint) {
    return absl::AbortedError(absl::StrCat(
        "numerics_fingerprint: the session has another than this verifier's ",
        options_.numerics_fingerprint));
  }
  // What the engine would refuse must not wait in its queue.
  if (message.token_ids_size() > options_.max_positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token_ids: ", message.token_ids_size(),
        " tokens, the model's context is ", options_.max_positions));
  }
  FORETOKEN_ASSIGN_OR_RETURN(SessionRequest request, rpc::FromProto(message));
  request.deadline = deadline;
  want_row_tokens_ = message.want_row_tokens();
  want_logprobs_ = request.sampling.logprobs >= 0;
  FORETOKEN_ASSIGN_OR_RETURN(ticket_, engine_.Open(std::move(request), sink));
  state_ = State::kOpening;
  return absl::OkStatus();
}

absl::Status SessionProtocol::CheckTree(const RoundRequest& request) const {
  const int32_t probes = static_cast<int32_t>(
      std::count(request.probe.begin(), request.probe.end(), true));
  const int32_t drafts = request.tree.size() - probes;
  if (drafts > options_.max_tree_nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree: ", drafts, " draft nodes, want at most ",
                     options_.max_tree_nodes));
  }
  if (request.tree.size() > options_.max_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree: ", request.tree.size(), " nodes, want at most ",
                     options_.max_rows));
  }
  return absl::OkStatus();
}

absl::Status SessionProtocol::Round(const v1::Round& message) {
  if (state_ == State::kNew || state_ == State::kOpening) {
    return absl::FailedPreconditionError("round: the session is not open yet");
  }
  const int64_t base = message.committed_length();
  if (base < length_ || (state_ == State::kBusy && base == round_base_)) {
    return absl::OkStatus();  // stale or repeated: changes nothing
  }
  if (state_ != State::kReady || base != length_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "round: it builds on ", base, " tokens, the session has ", length_,
        state_ == State::kBusy ? " and a round under way" : ""));
  }
  FORETOKEN_ASSIGN_OR_RETURN(RoundRequest request, rpc::FromProto(message));
  FORETOKEN_RETURN_IF_ERROR(CheckTree(request));
  FORETOKEN_RETURN_IF_ERROR(engine_.Round(ticket_, std::move(request)));
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

void SessionProtocol::OnDisconnect() {
  if (!ended()) End(absl::CancelledError("the client is gone"));
}

void SessionProtocol::OnRefused(absl::Status status) {
  if (!ended()) End(std::move(status));
}

void SessionProtocol::OnOpened() {
  if (ended()) return;
  v1::VerifyResponse response;
  response.mutable_opened()->set_numerics_fingerprint(
      options_.numerics_fingerprint);
  output_.Send(std::move(response));
}

void SessionProtocol::OnPrefilled(const PrefillResult& result) {
  if (ended()) return;
  length_ = result.length;
  state_ = State::kReady;
  v1::VerifyResponse response;
  rpc::ToProto(result, want_logprobs_, response.mutable_prefilled());
  output_.Send(std::move(response));
  if (half_closed_ || result.finish != FinishReason::kNone) {
    End(absl::OkStatus());
  }
}

void SessionProtocol::OnRound(const RoundResult& result) {
  if (ended()) return;
  length_ = result.length;
  state_ = State::kReady;
  v1::VerifyResponse response;
  rpc::ToProto(result, want_logprobs_, want_row_tokens_,
               response.mutable_result());
  output_.Send(std::move(response));
  if (half_closed_ || result.finish != FinishReason::kNone) {
    End(absl::OkStatus());
  }
}

void SessionProtocol::OnFailed(const absl::Status& status) {
  if (ended()) return;
  ticket_ = 0;
  End(status);
}

void SessionProtocol::End(absl::Status status) {
  state_ = State::kEnded;
  if (ticket_ != 0) engine_.Close(ticket_);
  if (absl::IsResourceExhausted(status)) {
    status = rpc::WithRetryAfter(std::move(status), options_.retry_after);
  }
  output_.End(status);
}

}  // namespace foretoken::verifier
