#include "common/rpc/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/check.h"

namespace foretoken::rpc {
namespace {

// Written by the signal handler, in which write(2) is allowed and locks are
// not; read by the waiter.
int wake_pipe[2] = {-1, -1};

void OnSignal(int number) {
  const char byte = static_cast<char>(number);
  const int saved = errno;
  [[maybe_unused]] const ssize_t n = write(wake_pipe[1], &byte, 1);
  errno = saved;
}

}  // namespace

void CatchSignals() {
  if (wake_pipe[0] >= 0) return;
  FORETOKEN_CHECK(pipe2(wake_pipe, O_CLOEXEC) == 0);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  // SA_RESETHAND: a second signal finds the default action and kills a process
  // that hangs in its drain.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  FORETOKEN_CHECK(sigaction(SIGTERM, &action, nullptr) == 0);
  FORETOKEN_CHECK(sigaction(SIGINT, &action, nullptr) == 0);
}

int WaitForSignal() {
  FORETOKEN_CHECK(wake_pipe[0] >= 0);
  char number = 0;
  while (read(wake_pipe[0], &number, 1) != 1) {
    FORETOKEN_CHECK(errno == EINTR);
  }
  return number;
}

}  // namespace foretoken::rpc
