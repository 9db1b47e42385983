// EngineVerifySessions: the verifier as its callers see it, in one process and
// behind gRPC: sessions on a VerifyEngine with a thread of its own.
//
// Requests that the engine would refuse are rejected on the caller's thread,
// before they are queued: other numerics, too long a prompt, too large a tree.
// Constraints are compiled there, too.
// Thread-safe; sessions must be destroyed first.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_ENGINE_VERIFY_SESSIONS_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_ENGINE_VERIFY_SESSIONS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/engine/engine_loop.h"
#include "common/grammar/grammar_cache.h"
#include "common/speculation/verify_session.h"
#include "services/verifier/core/verify_engine.h"

namespace foretoken::verifier {

struct EngineVerifyOptions {
  int32_t max_tree_nodes = 64;         // draft nodes of a round
  int32_t max_rows_per_session = 320;  // draft and probe nodes of a round
  grammar::GrammarCacheOptions grammars;
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
        grammars_(options.grammars),
        loop_(options.loop, std::move(engine), std::move(observer),
              std::move(clock)) {}

  absl::StatusOr<std::unique_ptr<VerifySession>> Open(
      SessionRequest request,
      std::shared_ptr<VerifyListener> listener) override;

  Loop& loop() { return loop_; }
  const Loop& loop() const { return loop_; }

 private:
  class Session;

  absl::Status Check(const SessionRequest& request) const;
  absl::Status CheckTree(const RoundRequest& request) const;

  const EngineVerifyOptions options_;
  grammar::GrammarCache grammars_;
  Loop loop_;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_ENGINE_VERIFY_SESSIONS_H_
