// EngineVerifySessions: the verifier as its callers see it, in one process and
// behind gRPC: sessions on a VerifyEngine with a thread of its own.
//
// Requests that the engine would refuse are rejected on the caller's thread,
// before they are queued: other numerics, too long a prompt, too large a tree.
// A constraint whose grammar is not known yet is compiled on another thread
// (constraint_compiler.h), and its session is queued for the engine then.
//
// Thread-safe; sessions must be destroyed first. Locks: that of a caller, under
// which it may open, ask and destroy sessions; mu_; those of the loop and the
// compiler. Listeners are called with none of them held.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_ENGINE_VERIFY_SESSIONS_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_ENGINE_VERIFY_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/engine/engine_loop.h"
#include "common/speculation/verify_session.h"
#include "services/verifier/core/constraint_compiler.h"
#include "services/verifier/core/verify_engine.h"

namespace foretoken::verifier {

struct EngineVerifyOptions {
  int32_t max_tree_nodes = 64;         // draft nodes of a round
  int32_t max_rows_per_session = 320;  // draft and probe nodes of a round
  ConstraintCompilerOptions constraints;
  EngineLoopOptions loop = {"verifier", 1024, absl::Milliseconds(10),
                            absl::Microseconds(100)};
};

class EngineVerifySessions final : public VerifySessions {
 public:
  using Loop = EngineLoop<VerifyEngine>;

  EngineVerifySessions(const EngineVerifyOptions& options,
                       std::unique_ptr<VerifyEngine> engine,
                       Loop::Observer observer, Clock clock = MonotonicClock())
      : options_(options),
        loop_(options.loop, std::move(engine), std::move(observer), clock),
        compiler_(options.constraints, std::move(clock)) {}

  absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest request,
      std::shared_ptr<VerifyListener> listener) override;

  // Fails every session with `status`: those of the engine after the pass in
  // progress, those that wait for a compilation at once, in this thread.
  void FailAll(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  Loop& loop() { return loop_; }
  const Loop& loop() const { return loop_; }

 private:
  class Session;         // of the engine
  class PendingSession;  // one that waited for a compilation
  struct Pending;

  absl::Status Check(const SessionRequest& request) const;
  absl::Status CheckTree(const RoundRequest& request) const;
  absl::StatusOr<std::unique_ptr<VerifySession>> OpenWhenCompiled(
      SessionRequest request, std::shared_ptr<VerifyListener> listener)
      ABSL_LOCKS_EXCLUDED(mu_);
  // On a thread of the compiler, or in FailAll.
  void OnCompiled(Pending& pending,
                  const ConstraintCompiler::Compiled& compiled)
      ABSL_LOCKS_EXCLUDED(mu_);

  const EngineVerifyOptions options_;
  // Guards all Pending, too.
  absl::Mutex mu_;
  int64_t failures_ ABSL_GUARDED_BY(mu_) = 0;  // calls of FailAll
  absl::Status failure_ ABSL_GUARDED_BY(mu_);  // of the last one
  Loop loop_;
  // Last: its threads use all of the above. Once it is gone, every session that
  // is left is the engine's or has failed.
  ConstraintCompiler compiler_;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_ENGINE_VERIFY_SESSIONS_H_
