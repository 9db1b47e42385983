#include "common/engine/engine_watchdog.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/timed_wait.h"

namespace foretoken {

EngineWatchdog::EngineWatchdog(std::string name, absl::Duration least,
                               std::function<bool()> hangs)
    : name_(std::move(name)),
      interval_(std::clamp(least / kLooksWithinLeast, absl::Milliseconds(1),
                           absl::Seconds(1))),
      ask_(std::move(hangs)),
      thread_([this] { Main(); }) {}

EngineWatchdog::~EngineWatchdog() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  thread_.join();
}

absl::Status EngineWatchdog::Check() const {
  if (!hangs_) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("the ", name_, "'s engine does not finish its pass"));
}

void EngineWatchdog::Watch(std::function<void()> changed) {
  absl::MutexLock lock(&watch_mu_);
  changed_ = std::move(changed);
}

void EngineWatchdog::Main() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (AwaitFor(mu_, absl::Condition(&stop_), interval_)) return;
    }
    Look();
  }
}

void EngineWatchdog::Look() {
  const bool hangs = ask_();
  if (hangs == hangs_) return;
  if (hangs) {
    FORETOKEN_LOG(kError, "the ", name_,
                  "'s engine hangs: not serving until its pass has ended");
  } else {
    FORETOKEN_LOG(kInfo, "the ", name_, "'s engine works again");
  }
  absl::MutexLock lock(&watch_mu_);
  hangs_ = hangs;
  if (changed_) changed_();
}

}  // namespace foretoken
