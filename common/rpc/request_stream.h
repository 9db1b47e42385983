// RequestStream: the server side of a call with one request, whose memory is
// charged to a budget.
//
// The client's side is unary or server-streaming. The server handles the call
// as bidirectional, as bytes, so that its handler runs before there is a
// message: a call that sends none is closed after first_message_time, and a
// message is charged, with what it will be once it is parsed, before that. The
// charge lasts as long as the call or its handler, whichever ends later.
#ifndef FORETOKEN_COMMON_RPC_REQUEST_STREAM_H_
#define FORETOKEN_COMMON_RPC_REQUEST_STREAM_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/byte_budget.h"
#include "common/base/status_macros.h"
#include "common/rpc/parsed_bytes.h"
#include "common/rpc/stream_server.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"

namespace foretoken::rpc {

template <typename Request, typename Response>
class RequestStream : public BidiStream<grpc::ByteBuffer, Response> {
 protected:
  // `budget` must outlive the call; `owner` is who is charged. A message of
  // more than `max_wire_bytes` is refused.
  RequestStream(StreamServer& server, ByteBudget& budget, std::string owner,
                int64_t max_wire_bytes)
      : RequestStream::BidiStream(server),
        budget_(budget),
        owner_(std::move(owner)),
        max_wire_bytes_(max_wire_bytes) {}

  // Handles the request, or the reason why it was refused or not readable. May
  // release mu_ meanwhile.
  virtual void OnRequest(absl::StatusOr<Request> request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) = 0;

  // Charges the call for `bytes` of its request and its answers from now on.
  absl::Status Charge(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    return charge_.Resize(kCallBytes + bytes);
  }

 private:
  // A call without a message: its state, and what gRPC receives for it unasked
  // (its flow-control window).
  static constexpr int64_t kCallBytes = 80 << 10;

  void OnStart() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    auto charge = budget_.Take(owner_, kCallBytes);
    received_ = !charge.ok();  // no message is read then
    if (charge.ok()) {
      charge_ = *std::move(charge);
    } else {
      OnRequest(charge.status());
    }
  }
  void OnMessage(grpc::ByteBuffer& message) final
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    received_ = true;
    auto request = Parse(message);
    message.Clear();
    OnRequest(std::move(request));
  }
  void OnHalfClose() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    if (!received_) {
      this->End(absl::InvalidArgumentError("the call has no request"));
    }
  }
  bool CanRead() const final ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    return !received_;
  }

  absl::StatusOr<Request> Parse(grpc::ByteBuffer& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    const auto bytes = static_cast<int64_t>(message.Length());
    if (bytes > max_wire_bytes_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the request has ", bytes, " bytes, want at most ", max_wire_bytes_));
    }
    FORETOKEN_RETURN_IF_ERROR(
        Charge(bytes + ParsedBytes(*Request::descriptor(), message)));
    Request request;
    if (!grpc::SerializationTraits<Request>::Deserialize(&message, &request)
             .ok()) {
      return absl::InvalidArgumentError("the request is malformed");
    }
    return request;
  }

  ByteBudget& budget_;
  const std::string owner_;
  const int64_t max_wire_bytes_;
  bool received_ ABSL_GUARDED_BY(this->mu_) = false;
  ByteBudget::Share charge_ ABSL_GUARDED_BY(this->mu_);
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_REQUEST_STREAM_H_
