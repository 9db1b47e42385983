#include "services/orchestrator/core/request_pool.h"

#include <optional>
#include <utility>

namespace foretoken::orchestrator {
namespace {

// Cost in tokens that an owner of weight 1 may take per turn: a short answer.
// Smaller than most requests, so that shares are kept by cost and not by
// count.
constexpr int64_t kQuantum = 128;

}  // namespace

RequestPool::RequestPool(const RequestPoolOptions& options, Clock clock)
    : options_(options),
      clock_(std::move(clock)),
      queue_(options.waiting, kQuantum),
      watcher_([this] { WatchDeadlines(); }) {}

RequestPool::~RequestPool() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    threads.swap(threads_);
    deadline_changed_.Signal();
  }
  // Threads also run the queue: one ends only when nothing may run.
  for (std::thread& thread : threads) thread.join();
  watcher_.join();
}

RequestPool::Ticket RequestPool::Submit(PooledRequest request) {
  const FairItem item = request.item;
  std::vector<PooledRequest> refused;
  Ticket ticket = kNotWaiting;
  {
    absl::MutexLock lock(&mu_);
    owners_[item.owner].max_running = request.max_running;
    StartWaiting();  // the limit may have been raised
    if (running_ < options_.max_running && MayRun(item.owner)) {
      Begin(std::move(request));
      return kNotWaiting;
    }
    const auto pushed = queue_.Push(item, request, refused);
    for (const PooledRequest& other : refused) {
      Count(other.item.owner, &Owner::waiting, -1);
    }
    if (pushed.has_value()) {
      ticket = *pushed;
      Count(item.owner, &Owner::waiting, 1);
      if (item.deadline < next_deadline_) deadline_changed_.Signal();
    } else {
      Count(item.owner, &Owner::waiting, 0);
      refused.push_back(std::move(request));
    }
  }
  for (const PooledRequest& full : refused) {
    full.refuse(absl::ResourceExhaustedError(
        "the queue is full, mostly with requests of this caller"));
  }
  return ticket;
}

void RequestPool::Remove(Ticket ticket, const absl::Status& reason) {
  std::optional<PooledRequest> request;
  {
    absl::MutexLock lock(&mu_);
    request = queue_.Remove(ticket);
    if (!request.has_value()) return;
    Count(request->item.owner, &Owner::waiting, -1);
  }
  request->refuse(reason);
}

int64_t RequestPool::active() const {
  absl::MutexLock lock(&mu_);
  return running_ + queue_.size();
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
  if (it->second.running == 0 && it->second.waiting == 0) owners_.erase(it);
}

void RequestPool::Begin(PooledRequest request) {
  Count(request.item.owner, &Owner::running, 1);
  ++running_;
  begun_.push_back(std::move(request));
  if (idle_ < static_cast<int32_t>(begun_.size()) &&
      static_cast<int32_t>(threads_.size()) < options_.max_running) {
    threads_.emplace_back([this] { RunRequests(); });
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
    Begin(*std::move(next));
    Count(owner, &Owner::waiting, -1);
  }
}

void RequestPool::RunRequests() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || !begun_.empty();
  };
  absl::MutexLock lock(&mu_);
  ++idle_;
  while (true) {
    mu_.Await(absl::Condition(&ready));
    --idle_;
    if (begun_.empty()) return;
    PooledRequest request = std::move(begun_.front());
    begun_.pop_front();
    mu_.Unlock();
    request.run();
    request.run = nullptr;  // free its captures before it counts as finished
    mu_.Lock();
    --running_;
    Count(request.item.owner, &Owner::running, -1);
    ++idle_;
    StartWaiting();
  }
}

void RequestPool::WatchDeadlines() {
  absl::MutexLock lock(&mu_);
  while (!stop_) {
    const std::vector<PooledRequest> expired = queue_.TakeExpired(clock_());
    for (const PooledRequest& late : expired) {
      Count(late.item.owner, &Owner::waiting, -1);
    }
    if (!expired.empty()) {
      mu_.Unlock();
      for (const PooledRequest& late : expired) {
        late.refuse(absl::DeadlineExceededError(
            "the request's deadline passed while it waited"));
      }
      mu_.Lock();
      continue;
    }
    next_deadline_ = queue_.NextDeadline();
    deadline_changed_.WaitWithTimeout(&mu_, next_deadline_ - clock_());
  }
}

}  // namespace foretoken::orchestrator
