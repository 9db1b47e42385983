// GenerateStream: the server's side of one Generate call: messages go out one
// at a time, a slow reader holds its own writer back, a vanished one ends it.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATE_STREAM_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATE_STREAM_H_

#include <deque>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "foretoken/v1/generation.grpc.pb.h"

namespace foretoken::orchestrator {

class GenerateStream : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  // Messages that may wait for a slow reader.
  static constexpr size_t kMaxUnsent = 64;

  // Keeps itself alive until the call is done.
  static std::shared_ptr<GenerateStream> Create();

  // Blocks while kMaxUnsent messages wait. Cancelled once the client is gone.
  absl::Status Send(v1::GenerateResponse message);

  // What was sent is still delivered. Once.
  void End(const absl::Status& status);

  // `action` runs once, at once or when the client goes; nullptr takes it back,
  // and when that returns it is not running.
  void SetCancelAction(std::function<void()> action);
  bool cancelled() const;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  GenerateStream() = default;
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteCancelled();

  v1::GenerateResponse response_;  // being written
  // Held while the action runs; taken before mu_.
  absl::Mutex action_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  std::function<void()> action_ ABSL_GUARDED_BY(action_mu_);
  mutable absl::Mutex mu_;
  std::deque<v1::GenerateResponse> unsent_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<GenerateStream> self_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_ADAPTERS_GENERATE_STREAM_H_
