#include "common/base/timer_thread.h"

#include "common/base/timed_wait.h"

namespace foretoken {

TimerThread::TimerThread(Clock clock)
    : clock_(std::move(clock)), thread_([this] { Run(); }) {}

TimerThread::~TimerThread() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    wake_ = true;
  }
  thread_.join();
}

TimerThread::Ticket TimerThread::RunAt(absl::Time time,
                                       std::function<void()> work) {
  absl::MutexLock lock(&mu_);
  const Ticket ticket(time, ++last_);
  const auto at = work_.emplace(ticket, std::move(work)).first;
  // The thread sleeps until the earliest time; a later one need not wake it.
  if (at == work_.begin()) wake_ = true;
  return ticket;
}

void TimerThread::Hurry(const Ticket& ticket) {
  absl::MutexLock lock(&mu_);
  auto node = work_.extract(ticket);
  if (node.empty()) return;
  node.key().first = absl::InfinitePast();
  work_.insert(std::move(node));
  wake_ = true;
}

void TimerThread::HurryAll() {
  absl::MutexLock lock(&mu_);
  std::map<Ticket, std::function<void()>> due;
  for (auto& [ticket, work] : work_) {
    due.emplace_hint(due.end(), Ticket(absl::InfinitePast(), ticket.second),
                     std::move(work));
  }
  work_ = std::move(due);
  wake_ = true;
}

int64_t TimerThread::active() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(work_.size()) + (running_ ? 1 : 0);
}

void TimerThread::Run() {
  absl::MutexLock lock(&mu_);
  // Stopping runs all queued work at once, because its owners wait for it.
  while (!stop_ || !work_.empty()) {
    const auto next = work_.begin();
    const absl::Duration left = next == work_.end()
                                    ? absl::InfiniteDuration()
                                    : next->first.first - clock_();
    if (!stop_ && left > absl::ZeroDuration()) {
      wake_ = false;
      AwaitFor(mu_, absl::Condition(&wake_), left);
      continue;
    }
    std::function<void()> work = std::move(next->second);
    work_.erase(next);
    running_ = true;
    mu_.Unlock();
    work();
    work = nullptr;  // its captures may take locks, too
    mu_.Lock();
    running_ = false;
  }
}

}  // namespace foretoken
