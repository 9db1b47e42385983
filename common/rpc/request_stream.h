// RequestStream: the server side of a call with one request, whose memory is
// charged to a budget.
//
// The client's side is unary or server-streaming. The server handles the call
// as bidirectional, as bytes, so that its handler runs before there is a
// message: a call that sends none is closed after first_message_time, and a
// message is charged, with what it will be once it is parsed, before that. The
// handler takes the message's part over (TakeRequestCharge). A message that
// finds no room may end calls that have sent no message (silent_calls.h).
#ifndef FORETOKEN_COMMON_RPC_REQUEST_STREAM_H_
#define FORETOKEN_COMMON_RPC_REQUEST_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/byte_budget.h"
#include "common/base/silent_calls.h"
#include "common/base/status_macros.h"
#include "common/rpc/parsed_bytes.h"
#include "common/rpc/stream_server.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/byte_buffer.h"

namespace foretoken::rpc {

template <typename Request, typename Response>
class RequestStream : public BidiStream<grpc::ByteBuffer, Response> {
 protected:
  // `budget` and `silent`, the silent calls charged to it, must outlive the
  // call; `owner` is who is charged. A message of more than `max_wire_bytes` is
  // refused.
  RequestStream(StreamServer& server, ByteBudget& budget, SilentCalls& silent,
                std::string owner, int64_t max_wire_bytes)
      : RequestStream::BidiStream(server),
        budget_(budget),
        silent_(silent),
        owner_(std::move(owner)),
        max_wire_bytes_(max_wire_bytes) {}
  ~RequestStream() override { silent_.Remove(silent_id_); }

  // Handles the request, or the reason why it was refused or not readable.
  virtual void OnRequest(absl::StatusOr<Request> request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) = 0;

  // The part of the budget that the request has taken, for its handler. The
  // call keeps the charge for its own state.
  ByteBudget::Share TakeRequestCharge()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    return charge_.Split(charge_.bytes() - kCallBytes);
  }
  // Whether the call holds a part of the budget; without one it must end soon.
  bool charged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    return charge_.bytes() > 0;
  }

 private:
  // (What gRPC receives for a call unasked is part of the receive buffers,
  // which have a limit of their own.)
  static constexpr int64_t kCallBytes = SilentCalls::kCallBytes;

  void OnStart() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    const auto take = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
      auto charge = budget_.Take(owner_, kCallBytes);
      if (charge.ok()) charge_ = *std::move(charge);
      return charge.status();
    };
    const absl::Status charged = silent_.TakeWithRoom(owner_, kCallBytes, take);
    received_ = !charged.ok();  // no message is read then
    if (!charged.ok()) {
      OnRequest(charged);
      return;
    }
    const auto self =
        std::static_pointer_cast<RequestStream>(this->shared_from_this());
    silent_id_ = silent_.Add(owner_, [weak = std::weak_ptr(self)] {
      const std::shared_ptr<RequestStream> call = weak.lock();
      return call != nullptr && call->EndIfSilent();
    });
  }
  // Charges the call for the bytes of its message and what will be made of it.
  absl::Status Charge(int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    return silent_.TakeWithRoom(owner_, bytes,
                                [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
                                  return charge_.Resize(kCallBytes + bytes);
                                });
  }
  // Does not wait for the lock, since another call's thread may hold that
  // call's: a call that is busy is asked again when there is no room.
  bool EndIfSilent() {
    if (!this->mu_.TryLock()) return false;
    const bool silent = !received_ && !this->ended();
    if (silent) {
      this->End(this->server_.WithRetryHint(absl::ResourceExhaustedError(
          "the call had sent no request when its memory was needed")));
      charge_.Release();
    }
    this->mu_.Unlock();
    return silent;
  }
  void OnMessage(grpc::ByteBuffer& message) final
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this->mu_) {
    received_ = true;
    silent_.Remove(std::exchange(silent_id_, SilentCalls::kNone));
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
  SilentCalls& silent_;
  const std::string owner_;
  const int64_t max_wire_bytes_;
  SilentCalls::Id silent_id_ ABSL_GUARDED_BY(this->mu_) = SilentCalls::kNone;
  bool received_ ABSL_GUARDED_BY(this->mu_) = false;
  ByteBudget::Share charge_ ABSL_GUARDED_BY(this->mu_);
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_REQUEST_STREAM_H_
