#include "services/verifier/adapters/engine_thread.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace foretoken::verifier {
namespace {

// Share of a pass that gathering may cost.
constexpr int kGatherDivisor = 8;
// Longest wait that keeps a processor busy.
constexpr absl::Duration kLinger = absl::Microseconds(100);

absl::Status Stopping() {
  return absl::UnavailableError("the verifier is stopping");
}

}  // namespace

EngineThread::EngineThread(const EngineThreadOptions& options,
                           std::unique_ptr<VerifyEngine> engine,
                           EngineObserver* observer)
    : options_(options),
      observer_(observer),
      model_(engine->model()),
      fingerprint_(engine->numerics_fingerprint()),
      engine_(std::move(engine)),
      pass_timing_(options.pass_timing) {
  Publish(nullptr);
  thread_ = std::thread([this] { Main(); });
}

EngineThread::~EngineThread() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    wake_.Signal();
  }
  thread_.join();
}

absl::Status EngineThread::Enqueue(Command command, bool may_refuse) {
  absl::MutexLock lock(&mu_);
  if (stop_) return Stopping();
  if (may_refuse &&
      queue_.size() >= static_cast<size_t>(options_.queue_capacity)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the engine's queue is full: ", queue_.size(), " messages"));
  }
  queue_.push_back(std::move(command));
  queued_.fetch_add(1, std::memory_order_release);
  wake_.Signal();
  return absl::OkStatus();
}

absl::StatusOr<Ticket> EngineThread::Open(SessionRequest request,
                                          std::shared_ptr<SessionSink> sink) {
  Ticket ticket;
  {
    absl::MutexLock lock(&mu_);
    ticket = next_ticket_++;
  }
  const absl::Status queued =
      Enqueue({ticket, OpenCommand{std::move(request), std::move(sink)}}, true);
  if (!queued.ok()) return queued;
  return ticket;
}

absl::Status EngineThread::Round(Ticket ticket, RoundRequest request) {
  // One a session, as the protocol sees to: newcomers never crowd it out.
  return Enqueue({ticket, std::move(request), absl::Now()}, false);
}

void EngineThread::Close(Ticket ticket) {
  // One a session, so it needs no bound; refused only when all are gone anyway.
  Enqueue({ticket, CloseCommand{}}, false).IgnoreError();
}

void EngineThread::FailAll(const absl::Status& status) {
  Enqueue({0, FailAllCommand{status}}, false).IgnoreError();
}

EngineSnapshot EngineThread::Snapshot() const {
  absl::MutexLock lock(&mu_);
  EngineSnapshot snapshot = snapshot_;
  snapshot.queue_length = static_cast<int64_t>(queue_.size());
  return snapshot;
}

// True while the engine has nothing to do, or better company for it is on its
// way.
bool EngineThread::MustWait() const {
  if (!queue_.empty() || stop_) return false;
  if (!engine_->HasWork()) return true;
  return !gathering_.empty() && absl::Now() < gather_until_;
}

// Whoever was answered is likely to come again at once: to be awake then saves
// the time it takes to wake up.
void EngineThread::LingerForCommands() const {
  while (queued_.load(std::memory_order_acquire) == 0 &&
         absl::Now() < linger_until_) {
  }
}

bool EngineThread::TakeCommands(std::vector<Command>& commands) {
  if (!gathering_.empty() && !engine_->HasWork()) LingerForCommands();
  absl::MutexLock lock(&mu_);
  while (MustWait()) {
    const absl::Time until =
        engine_->HasWork() ? gather_until_ : engine_->NextDeadline();
    wake_.WaitWithDeadline(&mu_, until);
  }
  commands.swap(queue_);
  queued_.store(0, std::memory_order_relaxed);
  return !stop_;
}

void EngineThread::Main() {
  std::vector<Command> commands;
  while (TakeCommands(commands)) {
    const bool changed = Execute(commands);
    commands.clear();
    if (changed) Publish(nullptr);
    {
      absl::MutexLock lock(&mu_);
      if (MustWait()) continue;
    }
    if (!engine_->HasWork()) continue;
    const absl::Time start = absl::Now();
    PassReport report = engine_->RunPass();
    const absl::Duration took = absl::Now() - start;
    // Rows of text have no output: they cost less than those of a tree.
    if (report.stats.prefill_rows == 0) {
      pass_timing_.Observe(report.stats.rows, took);
    }
    Deliver(report);
    linger_until_ = absl::Now() + std::min(kLinger, took / kGatherDivisor);
    gather_until_ =
        absl::Now() + std::min(options_.gather_time, took / kGatherDivisor);
    Publish(&report.stats);
  }
  for (auto& [key, client] : clients_) client.sink->OnFailed(Stopping());
  // Opens that came too late to be executed.
  for (Command& command : commands) {
    if (auto* open = std::get_if<OpenCommand>(&command.what)) {
      open->sink->OnFailed(Stopping());
    }
  }
  clients_.clear();
}

bool EngineThread::Execute(std::vector<Command>& commands) {
  bool changed = false;
  for (Command& command : commands) {
    gathering_.erase(command.ticket);
    if (auto* round = std::get_if<RoundRequest>(&command.what)) {
      // Published with its pass.
      changed |= !ExecuteRound(command.ticket, *round, command.arrived);
      continue;
    }
    changed = true;
    if (auto* open = std::get_if<OpenCommand>(&command.what)) {
      ExecuteOpen(command.ticket, *open);
    } else if (auto* fail = std::get_if<FailAllCommand>(&command.what)) {
      while (!clients_.empty()) {
        const SessionKey key = clients_.begin()->first;
        engine_->Close(key).IgnoreError();
        FailClient(key, fail->status);
      }
    } else {
      ExecuteClose(command.ticket);
    }
  }
  return changed;
}

void EngineThread::ExecuteOpen(Ticket ticket, OpenCommand& open) {
  absl::StatusOr<SessionKey> key = engine_->Open(std::move(open.request));
  if (!key.ok()) {
    open.sink->OnFailed(key.status());
    return;
  }
  Client& client = clients_[*key];
  client.ticket = ticket;
  client.sink = std::move(open.sink);
  keys_[ticket] = *key;
  client.sink->OnOpened();
}

bool EngineThread::ExecuteRound(Ticket ticket, RoundRequest& round,
                                absl::Time arrived) {
  const auto found = keys_.find(ticket);
  if (found == keys_.end()) return false;  // closed or failed meanwhile
  const SessionKey key = found->second;
  const absl::Status submitted =
      engine_->SubmitRound(key, std::move(round), arrived);
  if (submitted.ok()) return true;
  engine_->Close(key).IgnoreError();
  FailClient(key, submitted);
  return false;
}

void EngineThread::ExecuteClose(Ticket ticket) {
  const auto found = keys_.find(ticket);
  if (found == keys_.end()) return;
  engine_->Close(found->second).IgnoreError();
  clients_.erase(found->second);
  keys_.erase(found);
}

void EngineThread::FailClient(SessionKey key, const absl::Status& status) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return;
  const Client client = std::move(found->second);
  clients_.erase(found);
  keys_.erase(client.ticket);
  gathering_.erase(client.ticket);
  client.sink->OnFailed(status);
}

void EngineThread::Deliver(PassReport& report) {
  gathering_.clear();
  const auto answered = [this](const Client& client, FinishReason finish) {
    if (finish == FinishReason::kNone) gathering_.insert(client.ticket);
  };
  for (auto& [key, result] : report.prefilled) {
    const auto found = clients_.find(key);
    if (found == clients_.end()) continue;
    answered(found->second, result.finish);
    found->second.sink->OnPrefilled(std::move(result));
  }
  for (auto& [key, result] : report.rounds) {
    const auto found = clients_.find(key);
    if (found == clients_.end()) continue;
    answered(found->second, result.finish);
    found->second.sink->OnRound(std::move(result));
  }
  for (auto& [key, status] : report.failures) FailClient(key, status);
}

void EngineThread::Publish(const PassStats* pass) {
  EngineSnapshot snapshot;
  snapshot.sessions = engine_->sessions();
  snapshot.kv = engine_->kv_usage();
  snapshot.totals = engine_->totals();
  if (pass != nullptr) snapshot.last_pass = *pass;
  snapshot.pass_timing = pass_timing_;
  {
    absl::MutexLock lock(&mu_);
    snapshot.queue_length = static_cast<int64_t>(queue_.size());
    snapshot_ = snapshot;
  }
  if (observer_ == nullptr) return;
  if (pass != nullptr) {
    observer_->OnPass(snapshot);
  } else {
    observer_->OnChange(snapshot);
  }
}

}  // namespace foretoken::verifier
