#include "tools/cli/interrupt.h"

#include <signal.h>

#include <atomic>

namespace foretoken::cli {
namespace {

std::atomic<bool> interrupted{false};
// A signal handler may only touch lock-free atomics.
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void CatchInterrupt() {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  // RESETHAND: a second Ctrl-C ends the process, in case the first one is not
  // noticed. RESTART: reads of stdin go on rather than fail with EINTR.
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

void ReleaseInterrupt() { signal(SIGINT, SIG_DFL); }

bool Interrupted() { return interrupted; }

}  // namespace foretoken::cli
