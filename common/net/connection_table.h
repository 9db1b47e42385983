// ConnectionTable: the accepted connections of a server, counted by peer, with
// a limit for each peer and for all.
//
// gRPC owns a connection's descriptor and does not say when it closes it. An
// entry is therefore the descriptor's number with the inode of its socket: once
// the number names another file or none, the connection is gone.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_NET_CONNECTION_TABLE_H_
#define FORETOKEN_COMMON_NET_CONNECTION_TABLE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace foretoken::net {

struct ConnectionLimits {
  int32_t total = 4096;
  int32_t per_peer = 2048;
  // A peer at its limit loses a connection that has been open for this long
  // without a call when it opens another one.
  absl::Duration silent = absl::Seconds(1);

  // `total` within 3/4 of the process's open files, whose limit is raised: the
  // rest is for outgoing connections, files and listeners. `per_peer`: 0 for
  // half of all.
  static ConnectionLimits WithinFileLimit(int32_t total, int32_t per_peer);
};

class ConnectionTable {
 public:
  explicit ConnectionTable(ConnectionLimits limits,
                           Clock clock = MonotonicClock());

  // Adds the connected socket `fd`, which the caller still owns. False if a
  // limit is reached and no silent connection could be closed: the caller
  // closes `fd`.
  bool Add(int fd);

  // Number of open connections as of the last Add.
  int64_t size() const { return static_cast<int64_t>(connections_.size()); }

 private:
  struct Connection {
    ino_t inode = 0;
    std::string peer;
    absl::Time since;
  };
  using Connections = std::map<int, Connection>;

  bool HasRoom(const std::string& peer) const;
  // Drops the entries of closed connections.
  void Sweep();
  // Shuts down the oldest silent connection: of `peer` if it is at its limit,
  // otherwise of the peer with the most connections.
  bool CloseSilent(const std::string& peer);
  void Erase(Connections::iterator connection);

  const ConnectionLimits limits_;
  const Clock clock_;
  Connections connections_;  // by descriptor
  absl::flat_hash_map<std::string, int32_t> by_peer_;
  absl::Time next_search_ = absl::InfinitePast();
};

}  // namespace foretoken::net

#endif  // FORETOKEN_COMMON_NET_CONNECTION_TABLE_H_
