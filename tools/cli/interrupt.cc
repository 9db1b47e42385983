#include "tools/cli/interrupt.h"

#include <signal.h>

#include <atomic>

namespace foretoken::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void CatchInterrupt() {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

void ReleaseInterrupt() { signal(SIGINT, SIG_DFL); }

bool Interrupted() { return interrupted; }

}  // namespace foretoken::cli
