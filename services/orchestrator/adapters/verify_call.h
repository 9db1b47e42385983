// VerifyCall: one Verify stream to one verifier, as blocking calls over the
// callback API: one read and one write outstanding.
//
//   Start -> Send(open) -> Receive* ; Send(round) -> Receive ; Finish
//
// Send and Receive are for one thread; Cancel may come from any.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_VERIFY_CALL_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_VERIFY_CALL_H_

#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "foretoken/v1/verifier.grpc.pb.h"

namespace foretoken::orchestrator {

class VerifyCall final
    : public grpc::ClientBidiReactor<v1::VerifyRequest, v1::VerifyResponse> {
 public:
  // gRPC holds the object until the stream is done, whoever lets go before.
  static std::shared_ptr<VerifyCall> Start(v1::Verifier::Stub& stub,
                                           absl::Time deadline,
                                           const std::string& token);

  // Queues the message; an error shows in the next Receive.
  void Send(v1::VerifyRequest message);

  // The next message, or the status that ended the stream: never OK, a stream
  // that ended well while a message was awaited is Unavailable.
  absl::StatusOr<v1::VerifyResponse> Receive();

  // No more messages; the stream ends by itself. Once, after the last Send.
  void Finish();

  // Ends the stream now; Receive returns Cancelled.
  void Cancel();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  VerifyCall() = default;
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  grpc::ClientContext context_;
  v1::VerifyRequest request_;    // being written
  v1::VerifyResponse response_;  // being read

  absl::Mutex mu_;
  std::deque<v1::VerifyRequest> unsent_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::VerifyResponse> received_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;     // writes go nowhere
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;  // the hold is to be given up
  bool hold_ ABSL_GUARDED_BY(mu_) = true;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<VerifyCall> self_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_VERIFY_CALL_H_
