#include "common/engine/engine_watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/log_output.h"
#include "common/base/timed_wait.h"

namespace foretoken {

EngineWatchdog::EngineWatchdog(WatchdogOptions options,
                               std::function<bool()> hangs,
                               std::function<void(bool hangs)> report,
                               std::function<void()> end)
    : options_(std::move(options)),
      // Several looks within the timeout, but at most one per millisecond and
      // at least one per second.
      interval_(std::clamp(options_.hang_timeout / kLooksWithinTimeout,
                           absl::Milliseconds(1), absl::Seconds(1))),
      ask_(std::move(hangs)),
      report_(std::move(report)),
      // _exit, because exit() runs destructors, which would wait for the engine
      // that hangs. The log is flushed by hand.
      end_(end != nullptr ? std::move(end)
                          : std::function<void()>([] {
                              FlushLog();
                              _exit(1);
                            })),
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
  return absl::DeadlineExceededError(absl::StrCat(
      "the ", options_.name,
      "'s engine does not finish its pass, or has lost its device"));
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
  // Told once: a failure is final.
  if (!failed_ && options_.has_failed && options_.has_failed()) {
    failed_ = true;
    absl::MutexLock lock(&watch_mu_);
    if (changed_) changed_();
  }
  hanging_looks_ = ask_() ? hanging_looks_ + 1 : 0;
  // A single look may fall into a time in which the whole process stood still.
  const bool hangs = hanging_looks_ >= kLooks;
  if (hangs != hangs_) Tell(hangs);
  if (!hangs || options_.exit_after <= absl::ZeroDuration()) return;
  // Count checks, not time: a suspended process must not be killed when it
  // resumes.
  if ((hanging_looks_ - kLooks) * interval_ < options_.exit_after) return;
  FORETOKEN_LOG(kError, "the ", options_.name, "'s engine has hung for ",
                absl::FormatDuration(options_.exit_after),
                ": the process ends");
  end_();
}

void EngineWatchdog::Tell(bool hangs) {
  if (hangs) {
    FORETOKEN_LOG(kError, "the ", options_.name,
                  "'s engine hangs: not serving until its pass has ended, or "
                  "until a restart if its device has failed");
  } else {
    FORETOKEN_LOG(kInfo, "the ", options_.name, "'s engine works again");
  }
  absl::MutexLock lock(&watch_mu_);
  hangs_ = hangs;
  report_(hangs);
  if (changed_) changed_();
}

}  // namespace foretoken
