// DraftReader: what a stream to a drafting service receives, for the session's
// listener.
#ifndef FORETOKEN_COMMON_RPC_DRAFT_READER_H_
#define FORETOKEN_COMMON_RPC_DRAFT_READER_H_

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/drafting/draft_session.h"
#include "common/rpc/bidi_call.h"

namespace foretoken::rpc {

template <typename Response>
class DraftReader final : public BidiReader<Response> {
 public:
  // `parse` makes the answer, or says what is wrong with the message.
  using Parse = absl::StatusOr<DraftAnswer> (*)(const Response&);

  DraftReader(Parse parse, std::shared_ptr<DraftListener> listener)
      : parse_(parse), listener_(std::move(listener)) {}

  // Called before the message that asks; thread-safe.
  void Expect() { ++owed_; }

  bool OnMessage(Response& message) override {
    if (failed_) return false;
    absl::StatusOr<DraftAnswer> answer = parse_(message);
    // (A service that talks unasked must not fill this process.)
    if (!answer.ok() || --owed_ < 0) {
      Fail(absl::DataLossError("an answer that makes no sense"));
      return false;
    }
    listener_->OnAnswer(*std::move(answer));
    return true;
  }
  void OnEnd(const absl::Status& status) override {
    Fail(status.ok() ? absl::UnavailableError("the service ended the stream")
                     : status);
  }

 private:
  void Fail(const absl::Status& status) {
    if (!std::exchange(failed_, true)) listener_->OnFailed(status);
  }

  const Parse parse_;
  const std::shared_ptr<DraftListener> listener_;
  std::atomic<int> owed_{0};
  bool failed_ = false;
};

}  // namespace foretoken::rpc

#endif  // FORETOKEN_COMMON_RPC_DRAFT_READER_H_
