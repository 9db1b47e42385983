// EngineLoop: the one thread that owns an engine, and the bounded queue through
// which all other threads reach it.
//
// Between two passes the thread takes what has been queued (opens, rounds,
// closes), so that a close or a deadline frees what it held within one pass.
// Answers go to each session's listener on that thread. A session whose caller
// has not closed it always hears of its end: a refused open, a bad round, a
// failed pass and the loop's stop all reach OnFailed, after which the listener
// is not called again.
//
// An engine is synchronous, owned by one thread, and has
//
//   OpenRequest, RoundRequest, Report, Snapshot      types
//   Listener: OnOpened(fingerprint), OnFailed(status), and its answers
//   Open(request) -> StatusOr<SessionId>, Submit(id, round, arrived),
//   Close(id), HasWork(), NextDeadline(), RunPass() -> Report, snapshot(),
//   model(), numerics_fingerprint(), lost() of its backend
//
// One that drafts also has has_drafts(): whether its next pass does, and does
// not only read texts.
//
// Its Report has `failures`, `stats` and Deliver(listener_of), which calls
// listener_of(id, goes_on) for the session of every answer, goes_on if another
// round may follow, and gives the answer to the Listener* that it returns,
// unless that is nullptr.
#ifndef FORETOKEN_COMMON_ENGINE_ENGINE_LOOP_H_
#define FORETOKEN_COMMON_ENGINE_ENGINE_LOOP_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/stopping.h"
#include "common/base/wakeup.h"
#include "common/engine/busy_watch.h"
#include "common/engine/engine_report.h"
#include "common/engine/pass_turns.h"
#include "common/infer/backend.h"

namespace foretoken {

struct EngineLoopOptions {
  std::string name = "engine";  // in errors: "the verifier is stopping"
  // Messages that may wait before opens are refused. Rounds and closes never
  // are: each session has at most one of either.
  int32_t queue_capacity = 1024;
  // Maximum wait after a pass for the sessions it answered, so that sessions of
  // equal speed share passes instead of alternating; never more than an eighth
  // of that pass. Zero: none.
  absl::Duration gather_time = absl::ZeroDuration();
  // Maximum part of that wait that keeps a processor busy: a session that was
  // answered is likely to come again before a sleeping thread could wake up.
  absl::Duration linger_time = absl::ZeroDuration();
  // Publish a pass's numbers before its answers, so that a caller with an
  // answer finds it counted; else after them, which delays no answer.
  bool publish_first = false;
  // Minimum time after which one pass is taken for hanging, and an estimate of
  // the largest pass's length, zero if it is unknown (BusyWatch).
  absl::Duration hang_timeout = absl::Seconds(60);
  absl::Duration longest_pass = absl::ZeroDuration();
  // Time of hanging after which the process ends; zero: never (EngineWatchdog,
  // which belongs to the server).
  absl::Duration hang_exit = absl::ZeroDuration();
  // Makes the passes of this engine and of others run one at a time; null if
  // there are no others.
  std::shared_ptr<PassTurns> turns = nullptr;
};

// Thread-safe.
template <typename Engine>
class EngineLoop {
  struct Client;

 public:
  using OpenRequest = typename Engine::OpenRequest;
  using RoundRequest = typename Engine::RoundRequest;
  using Listener = typename Engine::Listener;
  using Report = typename Engine::Report;
  using Snapshot = typename Engine::Snapshot;
  // Called on the engine thread after every change; the thread waits for it.
  using Observer = std::function<void(const Snapshot&)>;

  // A session that was queued for opening. Destruction closes it. Thread-safe.
  class Session {
   public:
    Session(EngineLoop& loop, std::shared_ptr<Client> client)
        : loop_(loop), client_(std::move(client)) {}
    ~Session() { Close(); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // Queues a round. Unavailable once the loop stops. A round of a session
    // that has failed or was closed is dropped.
    absl::Status Ask(RoundRequest request) {
      return loop_.Enqueue(
          {client_, RoundCommand{std::move(request), loop_.clock_()}});
    }

    // Frees the session after the pass in progress, in any state. The listener
    // may still be called for work that was under way.
    void Close() { loop_.Enqueue({client_, CloseCommand()}).IgnoreError(); }

   private:
    EngineLoop& loop_;
    const std::shared_ptr<Client> client_;
  };

  // `observer` may be empty.
  EngineLoop(const EngineLoopOptions& options, std::unique_ptr<Engine> engine,
             Observer observer, Clock clock = MonotonicClock())
      : options_(options),
        observer_(std::move(observer)),
        clock_(std::move(clock)),
        busy_(options.hang_timeout, options.longest_pass),
        model_(engine->model()),
        fingerprint_(engine->numerics_fingerprint()),
        seat_(options.turns, wakeup_),
        engine_(std::move(engine)) {
    Publish(PassStats());
    thread_ = std::thread([this] { Main(); });
  }
  // Stops; sessions must be gone before the loop.
  ~EngineLoop() {
    Stop();
    thread_.join();
  }

  // Queues an open, which OnOpened or OnFailed answers. ResourceExhausted when
  // the queue is full, Unavailable once the loop stops.
  absl::StatusOr<std::unique_ptr<Session>> Open(
      OpenRequest request, std::shared_ptr<Listener> listener) {
    auto client = std::make_shared<Client>();
    client->listener = std::move(listener);
    FORETOKEN_RETURN_IF_ERROR(
        Enqueue({client, OpenCommand{std::move(request)}}));
    return std::make_unique<Session>(*this, std::move(client));
  }

  // Fails every session with `status` after the pass in progress.
  void FailAll(const absl::Status& status) {
    Enqueue({nullptr, FailAllCommand{status}}).IgnoreError();
  }

  // Refuses all calls from now on; after the pass in progress every session
  // that is left fails with Unavailable.
  void Stop() {
    {
      absl::MutexLock lock(&mu_);
      stop_ = true;
    }
    wakeup_.Signal();
  }

  // The engine as of its last change.
  Snapshot snapshot() const {
    absl::MutexLock lock(&mu_);
    Snapshot snapshot = snapshot_;
    snapshot.queue_length = static_cast<int64_t>(queue_.size());
    return snapshot;
  }

  // True while the engine hangs, and once its device is lost. Waits for
  // nothing.
  bool Hangs() const { return busy_.Hangs(clock_()); }

  // Fixed at start.
  const ModelConfig& model() const { return model_; }
  const std::string& numerics_fingerprint() const { return fingerprint_; }

 private:
  // Share of a pass that gathering may cost.
  static constexpr int kGatherDivisor = 8;

  // Owned by its Session, by commands in the queue and, while it is open, by
  // clients_. The fields are the engine thread's.
  struct Client {
    std::shared_ptr<Listener> listener;  // nullptr once closed or failed
    SessionId id = -1;
    // Number of the last pass that answered it; 0 once its caller has sent
    // something.
    int64_t answered_in = 0;
  };
  struct OpenCommand {
    OpenRequest request;
  };
  struct RoundCommand {
    RoundRequest request;
    absl::Time arrived;
  };
  struct CloseCommand {};
  struct FailAllCommand {
    absl::Status status;
  };
  struct Command {
    std::shared_ptr<Client> client;
    std::variant<OpenCommand, RoundCommand, CloseCommand, FailAllCommand> what;
  };

  absl::Status Stopping() const {
    return StoppingError(absl::StrCat("the ", options_.name));
  }

  absl::Status Enqueue(Command command) {
    {
      absl::MutexLock lock(&mu_);
      if (stop_) return Stopping();
      if (std::holds_alternative<OpenCommand>(command.what) &&
          queue_.size() >= static_cast<size_t>(options_.queue_capacity)) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "the engine's queue is full: ", queue_.size(), " messages"));
      }
      queue_.push_back(std::move(command));
      queued_.fetch_add(1, std::memory_order_release);
    }
    // Without the lock, which the engine's thread takes when it wakes up.
    wakeup_.Signal();
    return absl::OkStatus();
  }

  void Main() {
    std::vector<Command> commands;
    while (TakeCommands(commands)) {
      busy_.Begin(clock_());
      const bool changed = Execute(commands);
      // A round may copy KV on the device.
      if (engine_->lost()) busy_.Lose();
      if (changed) Publish(PassStats());
      commands.clear();
      // Also where commands have come meanwhile: those that it waits for.
      if (!engine_->HasWork() || Gathers()) {
        seat_.GiveUp();
        busy_.Idle();
        continue;
      }
      const absl::Time start = clock_();
      // Rounds that come while it waits join the pass.
      if (!seat_.TryBegin(start, GoesFirst())) {
        busy_.Idle();
        continue;
      }
      busy_.Begin(start);
      Report report = engine_->RunPass();
      const absl::Time end = clock_();
      const absl::Duration length = end - start;
      seat_.End(end, engine_->HasWork(), GoesFirst());
      busy_.EndPass(length);
      if (engine_->lost()) busy_.Lose();
      const absl::Duration share = length / kGatherDivisor;
      if (options_.publish_first) Publish(report.stats);
      Deliver(report);
      const absl::Time delivered = clock_();
      linger_until_ = delivered + std::min(options_.linger_time, share);
      gather_until_ = delivered + std::min(options_.gather_time, share);
      if (!options_.publish_first) Publish(report.stats);
      busy_.Idle();
    }
    seat_.GiveUp();
    // Opens that arrived too late to run are among the commands.
    for (Command& command : commands) {
      if (command.client != nullptr) Fail(*command.client, Stopping());
    }
    FailClients(Stopping());
  }

  // True while the next pass waits for more sessions to join it.
  bool Gathers() const { return gathering_ > 0 && clock_() < gather_until_; }
  // Until when there is nothing to take or to run, at most; nullopt if there
  // is. Everything is looked at once: time passes between two looks.
  std::optional<absl::Time> MustWait() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!queue_.empty() || stop_) return std::nullopt;
    if (!engine_->HasWork()) return engine_->NextDeadline();
    const absl::Time now = clock_();
    if (gathering_ > 0 && now < gather_until_) return gather_until_;
    if (seat_.refused() && now < seat_.retry_at()) return seat_.retry_at();
    return std::nullopt;
  }
  // True if the next pass has drafts that a target waits for.
  bool GoesFirst() const {
    if constexpr (requires(const Engine& engine) { engine.has_drafts(); }) {
      return engine_->has_drafts();
    }
    return false;
  }

  // Returns false when the loop must stop.
  bool TakeCommands(std::vector<Command>& commands) {
    if (gathering_ > 0 && !engine_->HasWork()) {
      // It is safe to spin: the time is short (at most linger_time and an
      // eighth of the last pass), and neither mu_ nor the seat is held, so
      // that callers queue their commands and other engines run passes
      // meanwhile. A stale count costs one more look; what is taken is read
      // under mu_ below.
      while (queued_.load(std::memory_order_acquire) == 0 &&
             clock_() < linger_until_) {
      }
    }
    while (true) {
      std::optional<absl::Time> until;
      {
        absl::MutexLock lock(&mu_);
        until = MustWait();
        if (!until.has_value()) {
          commands.swap(queue_);
          queued_.store(0, std::memory_order_relaxed);
          return !stop_;
        }
      }
      // A command that was queued since mu_ was released has signalled
      // wakeup_, which then does not sleep.
      wakeup_.SleepFor(*until - clock_());
    }
  }

  // Returns true if the snapshot must be published now; rounds are published
  // with their pass.
  bool Execute(std::vector<Command>& commands) {
    bool changed = false;
    for (Command& command : commands) {
      if (auto* failure = std::get_if<FailAllCommand>(&command.what)) {
        for (const auto& [id, client] : clients_) {
          engine_->Close(id).IgnoreError();
        }
        FailClients(failure->status);
        changed = true;
        continue;
      }
      Client& client = *command.client;
      NoteHeard(client);
      if (client.listener == nullptr) {  // closed or failed meanwhile
        changed = true;                  // the published queue length is stale
        continue;
      }
      if (auto* round = std::get_if<RoundCommand>(&command.what)) {
        changed |= !ExecuteRound(client, *round);
        continue;
      }
      changed = true;
      if (auto* open = std::get_if<OpenCommand>(&command.what)) {
        ExecuteOpen(command.client, *open);
      } else {
        engine_->Close(client.id).IgnoreError();
        Forget(client);
      }
    }
    return changed;
  }

  void ExecuteOpen(const std::shared_ptr<Client>& client, OpenCommand& open) {
    absl::StatusOr<SessionId> id = engine_->Open(std::move(open.request));
    if (!id.ok()) {
      Fail(*client, id.status());
      return;
    }
    client->id = *id;
    clients_[*id] = client;
    client->listener->OnOpened(fingerprint_);
  }

  // Returns false if the round starts no pass.
  bool ExecuteRound(Client& client, RoundCommand& round) {
    const absl::Status submitted =
        engine_->Submit(client.id, std::move(round.request), round.arrived);
    if (submitted.ok()) return true;
    // A refused round means that the caller and the engine disagree about the
    // session's state: close it.
    engine_->Close(client.id).IgnoreError();
    Fail(client, submitted);
    return false;
  }

  void Deliver(Report& report) {
    ++passes_;
    gathering_ = 0;
    report.Deliver([this](SessionId id, bool goes_on) -> Listener* {
      const auto found = clients_.find(id);
      if (found == clients_.end()) return nullptr;
      Client& client = *found->second;
      if (goes_on) {
        client.answered_in = passes_;
        ++gathering_;
      }
      return client.listener.get();
    });
    for (SessionFailure& failure : report.failures) {
      const auto found = clients_.find(failure.session);
      if (found == clients_.end()) continue;
      const std::shared_ptr<Client> client = found->second;
      Fail(*client, std::move(failure.status));
    }
  }

  void NoteHeard(Client& client) {
    if (client.answered_in == passes_) --gathering_;
    client.answered_in = 0;
  }

  // Removes a session that the engine has closed or never had. Returns its
  // listener.
  std::shared_ptr<Listener> Forget(Client& client) {
    NoteHeard(client);
    std::shared_ptr<Listener> listener = std::move(client.listener);
    client.listener.reset();
    clients_.erase(client.id);  // `client` may be gone
    return listener;
  }

  void Fail(Client& client, absl::Status status) {
    const std::shared_ptr<Listener> listener = Forget(client);
    if (listener != nullptr) listener->OnFailed(std::move(status));
  }

  void FailClients(const absl::Status& status) {
    while (!clients_.empty()) Fail(*clients_.begin()->second, status);
  }

  void Publish(const PassStats& pass) {
    Snapshot snapshot = engine_->snapshot();
    snapshot.last_pass = pass;
    {
      absl::MutexLock lock(&mu_);
      snapshot.queue_length = static_cast<int64_t>(queue_.size());
      snapshot_ = snapshot;
    }
    if (observer_) observer_(snapshot);
  }

  const EngineLoopOptions options_;
  const Observer observer_;
  const Clock clock_;
  BusyWatch busy_;
  const ModelConfig model_;
  const std::string fingerprint_;

  mutable absl::Mutex mu_;
  Wakeup wakeup_;  // signalled after every change of queue_ and stop_
  std::vector<Command> queue_ ABSL_GUARDED_BY(mu_);
  std::atomic<int> queued_{0};  // queue_.size(), readable without the lock
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  Snapshot snapshot_ ABSL_GUARDED_BY(mu_);

  // The engine thread's alone.
  PassTurns::Seat seat_;
  const std::unique_ptr<Engine> engine_;
  std::map<SessionId, std::shared_ptr<Client>> clients_;
  int64_t passes_ = 1;
  // Clients that the last pass answered and that sent nothing since.
  int gathering_ = 0;
  absl::Time gather_until_ = absl::InfinitePast();
  absl::Time linger_until_ = absl::InfinitePast();

  std::thread thread_;  // last: starts once all other members are set
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_ENGINE_LOOP_H_
