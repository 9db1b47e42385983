#include "common/base/process_limits.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"

namespace foretoken {
namespace {

// A process with all services opens about 18 before it has a peer or a client;
// each of its two HTTP threads opens 3 more with its first client. Sending
// spans to a collector takes 4: a socket, epoll, a timer and an event.
constexpr int64_t kOwnDescriptors = 28;
constexpr int64_t kLeastDescriptors = 32;
// One part is the page's, the others are the servers'.
constexpr int64_t kParts = 7;

std::atomic<int> servers{0};

int64_t FileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kLeastDescriptors;
  constexpr rlim_t kMax = rlim_t{1} << 30;  // RLIM_INFINITY is not a count
  return static_cast<int64_t>(std::min(limit.rlim_cur, kMax));
}

int64_t SharedDescriptors() {
  const int64_t limit = FileLimit();
  return std::max<int64_t>(0, limit - std::max(kOwnDescriptors, limit / 4));
}

}  // namespace

int64_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);  // if refused, the old limit stays
  }
  return FileLimit();
}

absl::Status CheckFileLimit() {
  const int64_t limit = FileLimit();
  if (limit >= kLeastDescriptors) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("open files: the limit (ulimit -n) is ", limit,
                   ", want at least ", kLeastDescriptors));
}

absl::Status CheckThreadMemory(int64_t mebibytes) {
  const size_t bytes = static_cast<size_t>(mebibytes) << 20;
  // Without access it counts as address space, and not as memory.
  void* const room = mmap(nullptr, bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED) {
    munmap(room, bytes);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("address space: the limit (ulimit -v) leaves no ", mebibytes,
                   " MiB for threads"));
}

void CountServers(int change) { servers += change; }

int64_t MaxServerConnections() {
  const int64_t all = SharedDescriptors() * (kParts - 1) / kParts;
  return std::max<int64_t>(1, all / std::max(1, servers.load()));
}

int64_t MaxPageConnections() {
  return std::max<int64_t>(1, SharedDescriptors() / kParts);
}

}  // namespace foretoken
