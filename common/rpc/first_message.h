// FirstMessageTimer: notices a stream whose client opened it and says nothing,
// so that it does not hold a slot for ever. (A client that vanishes later is
// noticed by the connection's keepalive.)
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_RPC_FIRST_MESSAGE_H_
#define FORETOKEN_COMMON_RPC_FIRST_MESSAGE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"

namespace foretoken::rpc {

class FirstMessageTimer {
 public:
  // Calls stream->OnSilence(status) after `time`, on a thread of gRPC's, unless
  // Stop came before or the stream is gone. Once. A call that is under way goes
  // on during Stop: the stream has to see for itself whether it was spoken to.
  template <typename Stream>
  void Start(absl::Duration time, const std::shared_ptr<Stream>& stream) {
    alarm_.Set(absl::ToChronoTime(absl::Now() + time),
               [time, weak = std::weak_ptr<Stream>(stream)](bool expired) {
                 const std::shared_ptr<Stream> silent = weak.lock();
                 if (!expired || silent == nullptr) return;
                 silent->OnSilence(absl::DeadlineExceededError(
                     absl::StrCat("no message within ",
                                  absl::FormatDuration(time), " of the call")));
               });
  }

  void Stop() { alarm_.Cancel(); }

 private:
  grpc::Alarm alarm_;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_FIRST_MESSAGE_H_
