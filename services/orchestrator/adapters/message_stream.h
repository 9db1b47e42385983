// MessageStream: one bidirectional stream to a service as blocking calls,
// whatever carries it: gRPC (bidi_call.h) or, in one process, the service
// itself.
//
//   (Send | Receive)* -> Finish
//
// Send, Receive and Finish are for one thread; Cancel may come from any.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_MESSAGE_STREAM_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_MESSAGE_STREAM_H_

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace foretoken::orchestrator {

// A stream that may be on its way out, whatever it carries.
class AnyCall {
 public:
  virtual ~AnyCall() = default;
  // Ends the stream now; Receive returns Cancelled.
  virtual void Cancel() = 0;
  virtual bool done() const = 0;
};

template <typename Request, typename Response>
class MessageStream : public AnyCall {
 public:
  struct Received {
    Response message;
    absl::Time arrived;
  };

  // Queues the message; an error shows in the next Receive.
  virtual void Send(Request message) = 0;

  // The next message, or the status that ended the stream: never OK, a stream
  // that ended well while a message was awaited is Unavailable. Nothing where
  // neither came by `deadline`.
  virtual std::optional<absl::StatusOr<Received>> Receive(
      absl::Time deadline) = 0;

  // As Receive, without end.
  absl::StatusOr<Response> Receive() {
    auto received = *Receive(absl::InfiniteFuture());
    if (!received.ok()) return received.status();
    return std::move(received->message);
  }

  // No more messages; the stream ends by itself. Once, after the last Send.
  virtual void Finish() = 0;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_MESSAGE_STREAM_H_
