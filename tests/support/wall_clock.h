// The wall clock of this process, shifted against the kernel's: to a timed wait
// it looks as if the clock had been set meanwhile. The monotonic clock stays.
#ifndef FORETOKEN_TESTS_SUPPORT_WALL_CLOCK_H_
#define FORETOKEN_TESTS_SUPPORT_WALL_CLOCK_H_

#include <cstdint>

namespace foretoken::testing {

// Until it is destroyed, the process believes that it is `seconds` later than
// the kernel does. One at a time.
class ShiftedWallClock {
 public:
  explicit ShiftedWallClock(int64_t seconds);
  ~ShiftedWallClock();
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_WALL_CLOCK_H_
