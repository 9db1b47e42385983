#include "common/base/request_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "common/base/retry_after.h"
#include "common/base/thread_vector.h"
#include "common/base/timed_wait.h"

namespace foretoken {
namespace {

// Weight of a request in the mean time of recent ones.
constexpr double kRecency = 1.0 / 16;
constexpr absl::Duration kMaxRetryAfter = absl::Minutes(1);

}  // namespace

Jitter RandomJitter() {
  return [random = std::mt19937_64(std::random_device()())]() mutable {
    return std::uniform_real_distribution<double>()(random);
  };
}

RequestPool::RequestPool(const RequestPoolOptions& options, Clock clock,
                         Jitter jitter)
    : options_(options),
      clock_(std::move(clock)),
      jitter_(std::move(jitter)),
      queue_(options.waiting, options.quantum),
      watcher_([this] { WatchQueue(); }) {
  StartOneMore(threads_, [this] { RunRequests(); });
}

RequestPool::~RequestPool() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    threads.swap(threads_);
  }
  // Threads also run the queue: one ends only when nothing may run.
  // Before the watcher: requests that still run may be refused or leave others
  // to refuse.
  for (std::thread& thread : threads) thread.join();
  {
    absl::MutexLock lock(&mu_);
    threads_ended_ = true;
    watcher_wanted_ = true;
  }
  watcher_.join();
}

RequestPool::Ticket RequestPool::Submit(PooledRequest request) {
  absl::MutexLock lock(&mu_);
  const absl::StatusOr<Ticket> placed = Place(request);
  if (placed.ok()) return *placed;
  Refuse(std::move(request), placed.status());
  return kNotWaiting;
}

absl::StatusOr<RequestPool::Ticket> RequestPool::TrySubmit(
    PooledRequest request) {
  absl::MutexLock lock(&mu_);
  return Place(request);
}

absl::StatusOr<RequestPool::Ticket> RequestPool::Place(PooledRequest& request) {
  const FairItem item = request.item;
  owners_[item.owner].max_running = request.max_running;
  StartWaiting();  // the limit may have been raised
  if (running_ < options_.max_running && MayRun(item.owner)) {
    Begin(std::move(request));
    return kNotWaiting;
  }
  std::vector<PooledRequest> pushed_out;
  const auto pushed = queue_.Push(item, request, pushed_out);
  // A request with a better claim may push out others that wait; they are told
  // like refused ones.
  for (PooledRequest& other : pushed_out) {
    Count(other.item.owner, &Owner::waiting, -1);
    absl::Status no_room = NoRoom(other);
    Refuse(std::move(other), std::move(no_room));
  }
  if (!pushed.has_value()) {
    // Forgets an owner that has nothing here.
    Count(item.owner, &Owner::waiting, 0);
    return NoRoom(request);
  }
  Count(item.owner, &Owner::waiting, 1);
  // The watcher sleeps until the earliest deadline it knows.
  if (item.deadline < next_deadline_) watcher_wanted_ = true;
  return *pushed;
}

absl::Status RequestPool::NoRoom(const PooledRequest& request) {
  return WithRetryAfter(
      absl::ResourceExhaustedError(
          "the queue is full, mostly with requests of this caller"),
      RetryAfterLocked(request.item.owner, request.max_running));
}

void RequestPool::Remove(Ticket ticket, const absl::Status& reason) {
  absl::MutexLock lock(&mu_);
  std::optional<PooledRequest> request = queue_.Remove(ticket);
  if (!request.has_value()) return;
  Count(request->item.owner, &Owner::waiting, -1);
  Refuse(*std::move(request), reason);
}

void RequestPool::Refuse(PooledRequest request, absl::Status reason) {
  // Told by the watcher's thread, never under mu_: `refuse` may call this pool.
  refused_.push_back({std::move(request), std::move(reason)});
  ++refusing_;
  watcher_wanted_ = true;
}

absl::Duration RequestPool::RetryAfter(const std::string& owner,
                                       int32_t max_running) {
  absl::MutexLock lock(&mu_);
  return RetryAfterLocked(owner, max_running);
}

absl::Duration RequestPool::RetryAfterLocked(const std::string& owner,
                                             int32_t max_running) {
  // Requests that must end before one of this caller starts, over those that
  // run at the same time: in all, and of its own, if it has a limit.
  const auto turns = [](int64_t waiting, int32_t slots) {
    return static_cast<double>(waiting + 1) / std::max(slots, 1);
  };
  double wait = turns(queue_.size(), options_.max_running);
  const auto it = owners_.find(owner);
  if (max_running > 0 && it != owners_.end()) {
    wait = std::max(wait, turns(it->second.waiting, max_running));
  }
  const absl::Duration mean =
      std::clamp(wait * service_time_, options_.min_retry_after,
                 std::max(kMaxRetryAfter, options_.min_retry_after));
  // 0.75 to 1.25 of it, so that refused clients do not all come back at once.
  return (0.75 + 0.5 * jitter_()) * mean;
}

int64_t RequestPool::active() const {
  absl::MutexLock lock(&mu_);
  return running_ + queue_.size() + refusing_;
}

int64_t RequestPool::callers() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(owners_.size());
}

bool RequestPool::MayRun(const std::string& owner) const {
  const auto it = owners_.find(owner);
  return it == owners_.end() || it->second.max_running == 0 ||
         it->second.running < it->second.max_running;
}

void RequestPool::Count(const std::string& owner, int32_t Owner::*count,
                        int32_t change) {
  const auto it = owners_.try_emplace(owner).first;
  it->second.*count += change;
  // The limit of an owner is sent with each of its requests, so the entry can
  // go.
  if (it->second.running == 0 && it->second.waiting == 0) owners_.erase(it);
}

void RequestPool::Begin(PooledRequest request) {
  Count(request.item.owner, &Owner::running, 1);
  ++running_;
  begun_.push_back(std::move(request));
  // (The destructor joins those that there are; they run what is left.)
  if (!stop_ && idle_ < static_cast<int32_t>(begun_.size()) &&
      static_cast<int32_t>(threads_.size()) < options_.max_running) {
    StartOneMore(threads_, [this] { RunRequests(); });
  }
}

void RequestPool::StartWaiting() {
  const auto may_run =
      [this](const std::string& owner)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return MayRun(owner); };
  while (running_ < options_.max_running) {
    std::optional<PooledRequest> next = queue_.Pop(may_run);
    if (!next.has_value()) return;
    const std::string owner = next->item.owner;
    // Before the count of those that wait falls: between the two, the owner's
    // entry, and with it its limit, must not be erased.
    Begin(*std::move(next));
    Count(owner, &Owner::waiting, -1);
  }
}

void RequestPool::RunRequests() {
  // Linux nices single threads. Failing that, they run like all others.
  if (options_.nice > 0) setpriority(PRIO_PROCESS, 0, options_.nice);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || !begun_.empty();
  };
  absl::MutexLock lock(&mu_);
  // Invariant while mu_ is free: idle_ threads wait here, and running_ counts
  // every request that has begun, those in begun_ included. A thread counts as
  // idle again before it starts the next requests, so that they go to it and
  // not to a new thread.
  ++idle_;
  while (true) {
    mu_.Await(absl::Condition(&ready));
    --idle_;
    // Stopping; what has begun is still run.
    if (begun_.empty()) return;
    PooledRequest request = std::move(begun_.front());
    begun_.pop_front();
    mu_.Unlock();
    const absl::Time start = clock_();
    request.run();
    const absl::Duration time = clock_() - start;
    // Free their captures before it counts as finished, and not under the lock.
    request.run = nullptr;
    request.refuse = nullptr;
    mu_.Lock();
    service_time_ = service_time_ == absl::ZeroDuration()
                        ? time
                        : service_time_ + kRecency * (time - service_time_);
    --running_;
    Count(request.item.owner, &Owner::running, -1);
    ++idle_;
    StartWaiting();
  }
}

void RequestPool::WatchQueue() {
  absl::MutexLock lock(&mu_);
  while (true) {
    for (PooledRequest& late : queue_.TakeExpired(clock_())) {
      Count(late.item.owner, &Owner::waiting, -1);
      Refuse(std::move(late),
             absl::DeadlineExceededError(
                 "the request's deadline passed while it waited"));
    }
    if (!refused_.empty()) {
      std::vector<Refused> refused;
      refused.swap(refused_);
      const auto count = static_cast<int64_t>(refused.size());
      mu_.Unlock();
      for (const Refused& one : refused) one.request.refuse(one.reason);
      refused.clear();  // their captures may take locks, too
      mu_.Lock();
      // Only now: active() counts refusals until their callers have been told.
      refusing_ -= count;
      // More may have come meanwhile.
      continue;
    }
    if (threads_ended_) return;
    next_deadline_ = queue_.NextDeadline();
    watcher_wanted_ = false;
    AwaitFor(mu_, absl::Condition(&watcher_wanted_), next_deadline_ - clock_());
  }
}

}  // namespace foretoken
