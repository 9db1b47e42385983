// One connection to Redis: commands one at a time, each under a deadline, with
// bounded replies. Throws no exception and raises no SIGPIPE.
//
// Owned by one thread.
#ifndef FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_REDIS_CLIENT_H_
#define FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_REDIS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

struct redisContext;

namespace foretoken::trie_drafter {

//   redis://[USER][:PASSWORD@]HOST[:PORT][/DATABASE]
//   unix:///PATH  or  unix://[USER][:PASSWORD@]/PATH
struct RedisAddress {
  std::string host;  // empty: `path`
  int port = 6379;
  std::string path;
  std::string user;
  std::string password;
  int database = 0;

  // InvalidArgument says what is wrong and never repeats the URL.
  static absl::StatusOr<RedisAddress> Parse(const std::string& url);
  // Without user and password: for logs.
  std::string ToString() const;
};

struct RedisClientOptions {
  absl::Duration connect_timeout = absl::Milliseconds(500);
  absl::Duration command_timeout = absl::Seconds(1);  // of a whole command
  size_t max_reply_bytes = size_t{16} << 20;
};

class RedisClient {
 public:
  // Connects, logs in, chooses the database and pings. Unavailable or
  // DeadlineExceeded; PermissionDenied where the login is refused.
  static absl::StatusOr<std::unique_ptr<RedisClient>> Connect(
      const RedisAddress& address, const RedisClientOptions& options);
  ~RedisClient();

  // Returns the reply's strings: one for a string, status or integer, the
  // elements of an array (without nil), none for nil. Aborted, with Redis'
  // message, if Redis refuses the command; after any other error the connection
  // cannot be used.
  absl::StatusOr<std::vector<std::string>> Run(
      const std::vector<std::string>& command);

 private:
  RedisClient(const RedisClientOptions& options, redisContext* context);

  absl::Status Send(const std::string& bytes, absl::Time deadline);
  absl::Status Wait(short events, absl::Time deadline);
  // The next reply (a redisReply), owned by the caller.
  absl::StatusOr<void*> Receive(absl::Time deadline);

  const RedisClientOptions options_;
  redisContext* const context_;
};

}  // namespace foretoken::trie_drafter

#endif  // FORETOKEN_SERVICES_TRIE_DRAFTER_ADAPTERS_REDIS_CLIENT_H_
