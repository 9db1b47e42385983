// EngineThread: the one thread that owns the VerifyEngine, and the bounded
// queue through which everybody else reaches it.
//
// Between two passes the thread takes what has been queued (opens, rounds,
// closes), so that a cancel or a deadline frees what it held within one pass.
// After a pass it waits a moment for the sessions it has just answered, so that
// requests of equal speed share passes instead of alternating.
// Thread-safe.
#ifndef FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_THREAD_H_
#define FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_THREAD_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/infer/pass_timing.h"
#include "common/speculation/round.h"
#include "services/verifier/adapters/engine_port.h"
#include "services/verifier/core/verify_engine.h"

namespace foretoken::verifier {

// Numbers about the engine as of its last pass.
struct EngineSnapshot {
  int64_t sessions = 0;
  int64_t queue_length = 0;
  KvUsage kv;
  EngineTotals totals;
  PassStats last_pass;
  PassTiming pass_timing;
};

// Hears of every pass, on the engine thread.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void OnPass(const EngineSnapshot& snapshot) = 0;
  // The state changed without a pass: sessions came or went.
  virtual void OnChange(const EngineSnapshot& snapshot) = 0;
};

struct EngineThreadOptions {
  // Messages that may wait; closes are always taken.
  int32_t queue_capacity = 1024;
  // Longest wait after a pass for the sessions that it answered; never more
  // than an eighth of that pass. Zero: none.
  absl::Duration gather_time = absl::Milliseconds(10);
  PassTiming pass_timing;  // what is known at the start
};

class EngineThread final : public EnginePort {
 public:
  // `observer` may be nullptr, else it must outlive the thread.
  EngineThread(const EngineThreadOptions& options,
               std::unique_ptr<VerifyEngine> engine, EngineObserver* observer);
  // Stops after the pass in progress; sessions left over are failed.
  ~EngineThread() override;

  absl::StatusOr<Ticket> Open(SessionRequest request,
                              std::shared_ptr<SessionSink> sink) override;
  absl::Status Round(Ticket ticket, RoundRequest request) override;
  void Close(Ticket ticket) override;

  // Fails every session with `status` after the pass in progress.
  void FailAll(const absl::Status& status);

  EngineSnapshot Snapshot() const;

  // Fixed at start.
  const ModelConfig& model() const { return model_; }
  const std::string& numerics_fingerprint() const { return fingerprint_; }

 private:
  struct OpenCommand {
    SessionRequest request;
    std::shared_ptr<SessionSink> sink;
  };
  struct CloseCommand {};
  struct FailAllCommand {
    absl::Status status;
  };
  struct Command {
    Ticket ticket = 0;
    std::variant<OpenCommand, RoundRequest, CloseCommand, FailAllCommand> what;
    absl::Time arrived = absl::InfinitePast();
  };
  struct Client {  // of the engine thread
    Ticket ticket = 0;
    std::shared_ptr<SessionSink> sink;
  };

  absl::Status Enqueue(Command command, bool may_refuse);
  void Main();
  void LingerForCommands() const;
  // False: stop.
  bool TakeCommands(std::vector<Command>& commands);
  bool MustWait() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // True if there is news to publish at once.
  bool Execute(std::vector<Command>& commands);
  void ExecuteOpen(Ticket ticket, OpenCommand& open);
  // False if no pass will follow from it.
  bool ExecuteRound(Ticket ticket, RoundRequest& round, absl::Time arrived);
  void ExecuteClose(Ticket ticket);
  void FailClient(SessionKey key, const absl::Status& status);
  void Deliver(PassReport& report);
  void Publish(const PassStats* pass);

  const EngineThreadOptions options_;
  EngineObserver* const observer_;
  const ModelConfig model_;
  const std::string fingerprint_;

  mutable absl::Mutex mu_;
  absl::CondVar wake_;
  std::vector<Command> queue_ ABSL_GUARDED_BY(mu_);
  std::atomic<int> queued_{0};  // its size, for those without the lock
  Ticket next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  EngineSnapshot snapshot_ ABSL_GUARDED_BY(mu_);

  // Of the engine thread alone.
  std::unique_ptr<VerifyEngine> engine_;
  std::map<SessionKey, Client> clients_;
  std::map<Ticket, SessionKey> keys_;
  // Answered in the last pass, and not heard of since.
  std::set<Ticket> gathering_;
  absl::Time gather_until_ = absl::InfinitePast();
  absl::Time linger_until_ = absl::InfinitePast();
  PassTiming pass_timing_;

  std::thread thread_;  // last: starts when all else stands
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_ADAPTERS_ENGINE_THREAD_H_
