#include "common/net/connection_table.h"

#include <linux/tcp.h>  // libc's tcp_info lacks the bytes received
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/process_limits.h"
#include "common/net/peer_name.h"

namespace foretoken::net {
namespace {

// The HTTP/2 preface with its first frames, or a TLS ClientHello, takes less
// than this; the headers of a call come on top.
constexpr uint64_t kBytesWithoutCall = 320;
// Minimum interval between searches of a full table, so that a flood of
// connections does not cause a flood of searches.
constexpr absl::Duration kSearchInterval = absl::Milliseconds(10);

std::optional<ino_t> SocketInode(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return std::nullopt;
  return info.st_ino;
}

// Whether the peer has sent too little for a call. Unknown for Unix sockets.
bool IsSilent(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
         info.tcpi_bytes_received < kBytesWithoutCall;
}

// The limits reduced to the server's current part of the process's descriptors;
// a peer's share shrinks in proportion.
ConnectionLimits LimitsNow(ConnectionLimits limits) {
  const int64_t most = MaxServerConnections();
  if (most < limits.total) {
    limits.per_peer = static_cast<int32_t>(
        std::max<int64_t>(1, limits.per_peer * most / limits.total));
    limits.total = static_cast<int32_t>(most);
  }
  return limits;
}

}  // namespace

ConnectionLimits ConnectionLimits::WithinFileLimit(int32_t total,
                                                   int32_t per_peer) {
  ConnectionLimits limits;
  limits.total = static_cast<int32_t>(
      std::clamp<int64_t>(RaiseFileLimit() / 4 * 3, 1, total));
  limits.per_peer = per_peer > 0 ? per_peer : std::max(limits.total / 2, 1);
  return limits;
}

ConnectionTable::ConnectionTable(ConnectionLimits limits, Clock clock)
    : limits_(limits), clock_(std::move(clock)) {}

bool ConnectionTable::Add(int fd) {
  const std::optional<ino_t> inode = SocketInode(fd);
  if (!inode.has_value()) return false;
  // The kernel reuses a descriptor number only after it was closed: an entry
  // with this number is of a connection that is gone.
  const auto former = connections_.find(fd);
  if (former != connections_.end()) Erase(former);
  const std::string peer = PeerOfSocket(fd);
  if (!HasRoom(peer)) {
    const absl::Time now = clock_();
    if (now < next_search_) return false;
    next_search_ = now + kSearchInterval;
    Sweep();
    if (!HasRoom(peer) && !CloseSilent(peer)) return false;
  }
  connections_.emplace(fd, Connection{*inode, peer, clock_()});
  ++by_peer_[peer];
  return true;
}

bool ConnectionTable::HasRoom(const std::string& peer) const {
  const auto found = by_peer_.find(peer);
  const int32_t own = found == by_peer_.end() ? 0 : found->second;
  const ConnectionLimits limits = LimitsNow(limits_);
  return own < limits.per_peer && size() < limits.total;
}

void ConnectionTable::Sweep() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto connection = it++;
    // gRPC closes connections without telling us. An inode that is not the one
    // recorded means that the number has been closed or reused.
    if (SocketInode(connection->first) != connection->second.inode) {
      Erase(connection);
    }
  }
}

// Makes room by closing a connection that has sent too little for a call for
// longer than `silent`: of the newcomer's peer if that is at its limit, else of
// the peer with the most connections. A flood from one address thus displaces
// its own.
bool ConnectionTable::CloseSilent(const std::string& peer) {
  const auto own = by_peer_.find(peer);
  const bool peer_is_full =
      own != by_peer_.end() && own->second >= LimitsNow(limits_).per_peer;
  const auto fewer = [](const auto& a, const auto& b) {
    return a.second < b.second;
  };
  const std::string& crowd =
      peer_is_full
          ? peer
          : std::max_element(by_peer_.begin(), by_peer_.end(), fewer)->first;
  const absl::Time before = clock_() - limits_.silent;
  auto oldest = connections_.end();
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    const Connection& connection = it->second;
    if (connection.peer != crowd || connection.since > before) continue;
    if (oldest != connections_.end() &&
        oldest->second.since <= connection.since) {
      continue;
    }
    if (IsSilent(it->first)) oldest = it;
  }
  if (oldest == connections_.end()) return false;
  // gRPC may close the descriptor at any moment, and its number may then name
  // another file. A duplicate is ours: it can be checked and does not change.
  const int duplicate = dup(oldest->first);
  if (duplicate >= 0) {
    if (SocketInode(duplicate) == oldest->second.inode) {
      shutdown(duplicate, SHUT_RDWR);
    }
    close(duplicate);
  }
  Erase(oldest);
  return true;
}

void ConnectionTable::Erase(Connections::iterator connection) {
  const auto peer = by_peer_.find(connection->second.peer);
  if (--peer->second == 0) by_peer_.erase(peer);
  connections_.erase(connection);
}

}  // namespace foretoken::net
