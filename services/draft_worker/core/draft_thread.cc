#include "services/draft_worker/core/draft_thread.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"

namespace foretoken::draft_worker {
namespace {

absl::Status Stopping() {
  return absl::UnavailableError("the draft worker is stopping");
}

}  // namespace

class DraftThread::Client final : public DraftSession {
 public:
  Client(DraftThread& thread, DraftKey key) : thread_(thread), key_(key) {}
  ~Client() override { thread_.Close(key_); }

  absl::Status Round(const DraftRound& round, DraftAnswer& answer) override {
    return thread_.Round(key_, round, answer);
  }
  void Cancel() override { thread_.Cancel(key_); }

 private:
  DraftThread& thread_;
  const DraftKey key_;
};

DraftThread::DraftThread(const DraftThreadOptions& options,
                         std::unique_ptr<DraftEngine> engine,
                         DraftObserver* observer)
    : options_(options),
      observer_(observer),
      model_(engine->model()),
      engine_(std::move(engine)) {
  Publish({});
  thread_ = std::thread([this] { Main(); });
}

DraftThread::~DraftThread() {
  BeginStop();
  thread_.join();
}

void DraftThread::BeginStop() {
  const std::lock_guard<std::mutex> lock(mu_);
  stop_ = true;
  wake_.notify_one();
}

absl::Status DraftThread::Run(Call& call) {
  std::unique_lock<std::mutex> lock(mu_);
  if (stop_) return Stopping();
  // A session has one round at a time, which bounds those.
  if (call.open != nullptr &&
      calls_.size() >= static_cast<size_t>(options_.queue_capacity)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the engine's queue is full: ", calls_.size(), " calls"));
  }
  calls_.push_back(&call);
  if (call.round != nullptr) under_way_.insert(call.key);
  wake_.notify_one();
  call.ready.wait(lock, [&call] { return call.done; });
  if (call.round != nullptr) under_way_.erase(call.key);
  return std::move(call.status);
}

absl::StatusOr<std::unique_ptr<DraftSession>> DraftThread::Open(
    DraftOpen open) {
  Call call;
  call.open = &open;
  FORETOKEN_RETURN_IF_ERROR(Run(call));
  return std::make_unique<Client>(*this, call.key);
}

absl::Status DraftThread::Round(DraftKey key, const DraftRound& round,
                                DraftAnswer& answer) {
  Call call;
  call.round = &round;
  call.answer = &answer;
  call.key = key;
  call.arrived = absl::Now();
  return Run(call);
}

void DraftThread::Cancel(DraftKey key) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (under_way_.count(key) == 0 ||
      std::find(cancels_.begin(), cancels_.end(), key) != cancels_.end()) {
    return;
  }
  cancels_.push_back(key);
  wake_.notify_one();
}

void DraftThread::Close(DraftKey key) {
  const std::lock_guard<std::mutex> lock(mu_);
  closes_.push_back(key);
  wake_.notify_one();
}

DraftSnapshot DraftThread::Snapshot() const {
  const std::lock_guard<std::mutex> lock(mu_);
  DraftSnapshot snapshot = snapshot_;
  snapshot.waiting = static_cast<int64_t>(calls_.size());
  return snapshot;
}

bool DraftThread::TakeCalls() {
  std::unique_lock<std::mutex> lock(mu_);
  wake_.wait(lock, [this] {
    return stop_ || !calls_.empty() || !cancels_.empty() || !closes_.empty() ||
           engine_->HasWork();
  });
  taken_calls_.swap(calls_);
  taken_cancels_.swap(cancels_);
  taken_closes_.swap(closes_);
  return !stop_;
}

void DraftThread::Main() {
  while (TakeCalls()) {
    Execute();
    DraftReport report = engine_->RunPass();
    // First the numbers, so that whoever has an answer finds it counted.
    Publish(report.stats);
    Deliver(report);
  }
  for (Call* call : taken_calls_) Finish(*call, Stopping());
  while (!running_.empty()) FinishRound(running_.begin()->first, Stopping());
}

void DraftThread::Execute() {
  const bool changed = !taken_calls_.empty() || !taken_closes_.empty();
  for (Call* call : taken_calls_) Execute(*call);
  taken_calls_.clear();
  // After the calls: a cancel is about a round that came before it.
  for (const DraftKey key : taken_cancels_) {
    if (running_.count(key) == 0) continue;
    engine_->Close(key).IgnoreError();
    FinishRound(key, absl::CancelledError("the round was cancelled"));
  }
  taken_cancels_.clear();
  for (const DraftKey key : taken_closes_) engine_->Close(key).IgnoreError();
  taken_closes_.clear();
  if (changed) Publish({});
}

void DraftThread::Execute(Call& call) {
  if (call.open != nullptr) {
    absl::StatusOr<DraftKey> key = engine_->Open(std::move(*call.open));
    if (key.ok()) call.key = *key;
    Finish(call, std::move(key).status());
    return;
  }
  absl::Status submitted = engine_->Submit(call.key, *call.round, call.arrived);
  if (submitted.ok()) {
    running_[call.key] = &call;
    return;
  }
  // Whatever is wrong with a round, the session is not where its owner thinks.
  engine_->Close(call.key).IgnoreError();
  Finish(call, std::move(submitted));
}

void DraftThread::Finish(Call& call, absl::Status status) {
  const std::lock_guard<std::mutex> lock(mu_);
  call.status = std::move(status);
  call.done = true;
  // Under the lock: the call is gone as soon as its owner has it.
  call.ready.notify_one();
}

void DraftThread::FinishRound(DraftKey key, absl::Status status) {
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  Call& call = *found->second;
  running_.erase(found);
  Finish(call, std::move(status));
}

void DraftThread::Deliver(DraftReport& report) {
  for (DraftReport::Answer& answer : report.answers) {
    const auto found = running_.find(answer.session);
    if (found == running_.end()) continue;
    *found->second->answer = std::move(answer.answer);
    FinishRound(answer.session, absl::OkStatus());
  }
  for (DraftReport::Failure& failure : report.failures) {
    FinishRound(failure.session, std::move(failure.status));
  }
}

void DraftThread::Publish(const DraftPassStats& pass) {
  DraftSnapshot snapshot;
  snapshot.sessions = engine_->sessions();
  snapshot.pool_phrases = engine_->pool_phrases();
  snapshot.kv = engine_->kv_usage();
  snapshot.totals = engine_->totals();
  snapshot.last_pass = pass;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    snapshot.waiting = static_cast<int64_t>(calls_.size());
    snapshot_ = snapshot;
  }
  if (observer_ != nullptr) observer_->OnChange(snapshot);
}

}  // namespace foretoken::draft_worker
