#include "common/base/process_limits.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

// Whether `holds` in a process with this limit.
bool HoldsUnder(int resource, rlim_t limit,
                const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit both = {limit, limit};
    if (setrlimit(resource, &both) != 0) _exit(2);
    _exit(holds() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

TEST(ProcessLimitsTest, TooFewFilesAreAnErrorByName) {
  EXPECT_TRUE(HoldsUnder(RLIMIT_NOFILE, 31, [] {
    const absl::Status status = CheckFileLimit();
    return absl::IsResourceExhausted(status) &&
           absl::StrContains(status.message(), "open files") &&
           absl::StrContains(status.message(), "is 31");
  }));
  EXPECT_TRUE(
      HoldsUnder(RLIMIT_NOFILE, 32, [] { return CheckFileLimit().ok(); }));
}

TEST(ProcessLimitsTest, ListenersTogetherLeaveAQuarter) {
  EXPECT_TRUE(HoldsUnder(RLIMIT_NOFILE, 400, [] {
    if (MaxPageConnections() != 42 || MaxServerConnections() != 257) {
      return false;
    }
    CountServers(1);
    if (MaxServerConnections() != 257) return false;
    CountServers(1);
    if (MaxServerConnections() != 128 || MaxPageConnections() != 42) {
      return false;
    }
    CountServers(-1);
    return MaxServerConnections() == 257;
  }));
}

TEST(ProcessLimitsTest, OfFewFilesEveryListenerHasSome) {
  EXPECT_TRUE(HoldsUnder(RLIMIT_NOFILE, 32, [] {
    CountServers(2);
    return MaxServerConnections() == 1 && MaxPageConnections() == 1;
  }));
}

TEST(ProcessLimitsTest, WithoutRoomForThreadsThereIsAnError) {
  EXPECT_TRUE(CheckThreadMemory(kServerMebibytes).ok());
  EXPECT_TRUE(HoldsUnder(RLIMIT_AS, rlim_t{200} << 20, [] {
    const absl::Status status = CheckThreadMemory(kServerMebibytes);
    return absl::IsResourceExhausted(status) &&
           absl::StrContains(status.message(), "address space");
  }));
}

}  // namespace
}  // namespace foretoken
