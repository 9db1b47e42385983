#include "tests/support/wall_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {
std::atomic<int64_t> shift{0};
}  // namespace

// In place of the C library's, for every part of the program.
extern "C" int clock_gettime(clockid_t clock, struct timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += shift;
  return static_cast<int>(result);
}

namespace foretoken::testing {

ShiftedWallClock::ShiftedWallClock(int64_t seconds) { shift = seconds; }
ShiftedWallClock::~ShiftedWallClock() { shift = 0; }

}  // namespace foretoken::testing
