// SessionSource: a DraftSource on a drafting service in this process, called
// straight from the request's thread: no message, no queue, no other thread but
// the one that opens the session while the target reads its prompt, and ends
// it.
//
// For services whose rounds are short. A session that is refused for want of
// room is asked for again, one that fails is left.
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_SESSION_SOURCE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_SESSION_SOURCE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/worker_pool.h"
#include "common/drafting/draft_session.h"
#include "common/speculation/modes.h"
#include "services/orchestrator/core/draft_source.h"

namespace foretoken::orchestrator {

// A drafting service of this process; all outlive the requests.
struct DraftServiceHere {
  DraftSessions* sessions = nullptr;
  // Opens and ends sessions; neither is short.
  WorkerPool* workers = nullptr;
  // For metrics; may be null.
  std::function<void(const DraftAnswer&)> on_answer;
  std::function<void(absl::StatusCode)> on_failed;
};

class SessionSource final : public DraftSource {
 public:
  SessionSource(DrafterId id, Mode mode, std::string tokenizer_fingerprint,
                DraftServiceHere service, Clock clock);
  ~SessionSource() override;

  DrafterId id() const override { return id_; }
  void Start(const DraftOpen& open) override;
  void Ask(const DraftRound& round) override;
  DraftOutcome Collect(absl::Time deadline, SourceDraft& draft) override;

 private:
  // A session that a worker opens; shared with the worker.
  struct Opening {
    absl::Mutex mu;
    bool done ABSL_GUARDED_BY(mu) = false;
    absl::StatusOr<std::unique_ptr<DraftSession>> session ABSL_GUARDED_BY(mu) =
        absl::UnavailableError("not open yet");
  };

  void Open();
  // Takes the session over once it is open; false if it is not by `deadline`.
  bool TakeSession(absl::Time deadline);
  // Tells the session what it has not heard of, and takes its answer.
  void RunRound();
  void EndSession();
  void Failed(const absl::Status& status);

  const DrafterId id_;
  const Mode mode_;
  const std::string tokenizer_fingerprint_;
  const DraftServiceHere service_;
  const Clock clock_;
  // A refused session is asked for again after so many asks.
  static constexpr int kAsksBeforeAnother = 32;

  DraftOpen open_;  // its tokens: all of the text
  std::shared_ptr<Opening> opening_;
  std::unique_ptr<DraftSession> session_;
  DraftRound round_;  // the last ask, with all that the session has not heard
  bool pending_ = false;  // it is still to be run
  bool given_up_ = false;
  bool logged_ = false;
  int asks_to_skip_ = 0;
  DraftAnswer answer_;
  DraftOutcome outcome_ = DraftOutcome::kNotAsked;
  absl::Duration latency_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_SESSION_SOURCE_H_
