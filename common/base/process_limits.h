// Limits that the operating system sets for this process, and how listeners
// share it.
//
// Every connection is a descriptor, and so is what the process needs for
// itself: files, sockets to peers, epoll. A listener that knows of no other
// could take the last one. A quarter of all, and at least a few, are the
// process's own; a seventh of the rest is the page of metrics', and servers
// share what is left.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_PROCESS_LIMITS_H_
#define FORETOKEN_COMMON_BASE_PROCESS_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace foretoken {

// Raises this process's soft limit of open files to its hard limit, and returns
// it.
int64_t RaiseFileLimit();

// ResourceExhausted, naming the limit, if the process may open too few files to
// serve anything. Libraries abort where a descriptor is refused to them.
absl::Status CheckFileLimit();

// ResourceExhausted, naming the limit, if less than `mebibytes` of address
// space are left for threads: each takes 8 MiB of stack, and what malloc sets
// aside for it. gRPC hangs or aborts if it cannot create a thread. No service
// starts in less than kStartMebibytes; gRPC's server needs kServerMebibytes of
// them.
inline constexpr int64_t kStartMebibytes = 1024;
inline constexpr int64_t kServerMebibytes = 256;
absl::Status CheckThreadMemory(int64_t mebibytes);

// Says that one server more accepts connections, or one less.
void CountServers(int change);

// Connections that a server, or the page of metrics, may have now; at least
// one.
int64_t MaxServerConnections();
int64_t MaxPageConnections();

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_PROCESS_LIMITS_H_
