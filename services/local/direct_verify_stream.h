// DirectVerifyStream: a Verify stream to a verifier in this process, without
// gRPC: the same protocol, and one thread less on each way. Rounds go from the
// request's thread to the engine's and back.
#ifndef FORETOKEN_SERVICES_LOCAL_DIRECT_VERIFY_STREAM_H_
#define FORETOKEN_SERVICES_LOCAL_DIRECT_VERIFY_STREAM_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "foretoken/v1/verifier.pb.h"
#include "services/local/answer_queue.h"
#include "services/orchestrator/adapters/verifier_pool.h"
#include "services/verifier/adapters/session_protocol.h"
#include "services/verifier/server.h"

namespace foretoken::local {

using orchestrator::VerifyStream;

class DirectVerifyStream final
    : public VerifyStream,
      public VerifyListener,
      public verifier::SessionProtocol::Output,
      public std::enable_shared_from_this<DirectVerifyStream> {
 public:
  // `server` must outlive the stream; a stream that was started is Finished or
  // Cancelled.
  static std::shared_ptr<DirectVerifyStream> Start(
      verifier::VerifierServer& server, absl::Time deadline);

  void Send(v1::VerifyRequest message) override ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<absl::StatusOr<Received>> Receive(absl::Time deadline) override;
  void Finish() override ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel() override ABSL_LOCKS_EXCLUDED(mu_);
  bool done() const override { return answers_.ended(); }

  // VerifyListener: from the engine.
  void OnOpened(const std::string& numerics_fingerprint) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void OnPrefilled(PrefillResult result) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnRound(RoundResult result) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnFailed(absl::Status status) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  DirectVerifyStream(verifier::VerifierServer& server, absl::Time deadline);

  // Output: from the protocol.
  void Send(v1::VerifyResponse message) override;
  void End(const absl::Status& status) override;

  verifier::VerifierServer& server_;
  const absl::Time deadline_;
  const absl::Status admitted_;
  AnswerQueue<Received> answers_;
  absl::Mutex mu_;
  verifier::SessionProtocol protocol_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::local

#endif  // FORETOKEN_SERVICES_LOCAL_DIRECT_VERIFY_STREAM_H_
