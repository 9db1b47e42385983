// DraftThread: the one thread that owns the DraftEngine, behind the interface
// that every drafting service has.
//
// A session's Round blocks its caller until the engine has its draft; rounds of
// many callers share passes. Between two passes the thread takes what has come
// in, so that a cancel frees what it held within one pass. Opening only admits:
// the prompt is read in passes of its own while the caller goes on.
//
// Embedding it in a process:
//
//   DraftThread drafts(options, std::make_unique<DraftEngine>(...), nullptr);
//   auto session = drafts.Open(open);       // a DraftSession
//   (*session)->Round(round, answer);
//
// Thread-safe; sessions must be gone before it.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_THREAD_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_THREAD_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/drafting/draft_session.h"
#include "common/infer/backend.h"
#include "services/draft_worker/core/draft_engine.h"

namespace foretoken::draft_worker {

// Numbers about the engine as of its last pass.
struct DraftSnapshot {
  int64_t sessions = 0;
  int64_t waiting = 0;  // calls that the engine has not taken yet
  int64_t pool_phrases = 0;
  KvUsage kv;
  DraftEngineTotals totals;
  DraftPassStats last_pass;  // no rows: the state changed without a pass
};

// Hears of every change, on the engine thread, which waits.
class DraftObserver {
 public:
  virtual ~DraftObserver() = default;
  virtual void OnChange(const DraftSnapshot& snapshot) = 0;
};

struct DraftThreadOptions {
  int32_t queue_capacity = 1024;  // opens that may wait
};

class DraftThread final : public DraftSessions {
 public:
  // `observer` may be nullptr, else it must outlive the thread.
  DraftThread(const DraftThreadOptions& options,
              std::unique_ptr<DraftEngine> engine, DraftObserver* observer);
  // Stops after the pass in progress; rounds under way fail with Unavailable.
  ~DraftThread() override;

  // From now on all calls are refused with Unavailable; rounds under way fail
  // with it after the pass in progress.
  void BeginStop();

  // As DraftEngine::Open; ResourceExhausted also when the queue is full.
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(DraftOpen open) override;

  DraftSnapshot Snapshot() const;

  const ModelConfig& model() const { return model_; }  // fixed at start

 private:
  class Client;

  // What a caller waits for, on its stack.
  struct Call {
    DraftOpen* open = nullptr;          // else a round
    const DraftRound* round = nullptr;  // of session `key`
    DraftAnswer* answer = nullptr;
    DraftKey key = -1;  // given by an open
    absl::Time arrived;  // of a round
    absl::Status status;
    bool done = false;
    std::condition_variable ready;
  };

  absl::Status Run(Call& call);
  absl::Status Round(DraftKey key, const DraftRound& round,
                     DraftAnswer& answer);
  void Cancel(DraftKey key);
  void Close(DraftKey key);

  void Main();
  // False: stop.
  bool TakeCalls();
  void Execute();
  void Execute(Call& call);
  void Finish(Call& call, absl::Status status);
  void FinishRound(DraftKey key, absl::Status status);
  void Deliver(DraftReport& report);
  void Publish(const DraftPassStats& pass);

  const DraftThreadOptions options_;
  DraftObserver* const observer_;
  const ModelConfig model_;

  // Standard mutexes, which thread sanitizers know.
  mutable std::mutex mu_;
  std::condition_variable wake_;
  // Guarded by mu_, like the fields of a waiting Call.
  std::vector<Call*> calls_;
  std::set<DraftKey> under_way_;   // sessions whose owner waits for a round
  std::vector<DraftKey> cancels_;  // of those, at most one each
  std::vector<DraftKey> closes_;
  bool stop_ = false;
  DraftSnapshot snapshot_;

  // Of the engine thread alone.
  std::unique_ptr<DraftEngine> engine_;
  std::map<DraftKey, Call*> running_;  // rounds under way
  std::vector<Call*> taken_calls_;
  std::vector<DraftKey> taken_cancels_;
  std::vector<DraftKey> taken_closes_;

  std::thread thread_;  // last: starts when all else stands
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_THREAD_H_
