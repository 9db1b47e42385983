#include "services/trie_drafter/adapters/redis_client.h"

#include <hiredis/hiredis.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"

namespace foretoken::trie_drafter {
namespace {

// Maximum bytes of a Redis error in a message.
constexpr size_t kMaxErrorBytes = 200;

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what,
                   ": want redis://[USER][:PASSWORD@]HOST[:PORT][/N] or "
                   "unix:///PATH"));
}

// hiredis allocates by the size in an array's header before the elements
// arrive: a few bytes could ask for gigabytes. The reader functions below bound
// it; nullptr makes the reader fail.
constexpr size_t kMaxElements = 4096;
redisReplyObjectFunctions* default_functions = nullptr;

void* CreateBoundedArray(const redisReadTask* task, int elements) {
  if (elements < 0 || static_cast<size_t>(elements) > kMaxElements) {
    return nullptr;
  }
  return default_functions->createArray(task, elements);
}

redisReplyObjectFunctions* BoundedFunctions(redisReader& reader) {
  // Built once from the first reader; all readers start with the same
  // functions.
  static redisReplyObjectFunctions bounded = [&reader] {
    default_functions = reader.fn;
    redisReplyObjectFunctions functions = *reader.fn;
    functions.createArray = CreateBoundedArray;
    return functions;
  }();
  return &bounded;
}

absl::StatusOr<std::vector<std::string>> Strings(const redisReply& reply) {
  std::vector<std::string> strings;
  switch (reply.type) {
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
      strings.emplace_back(reply.str, reply.len);
      return strings;
    case REDIS_REPLY_INTEGER:
      strings.push_back(absl::StrCat(reply.integer));
      return strings;
    case REDIS_REPLY_NIL:
      return strings;
    // Escaped and cut, because it goes to the log and Redis may quote our
    // binary arguments.
    case REDIS_REPLY_ERROR:
      return absl::AbortedError(absl::StrCat(
          "Redis refuses: ",
          absl::CHexEscape(absl::string_view(
              reply.str, std::min<size_t>(reply.len, kMaxErrorBytes)))));
    case REDIS_REPLY_ARRAY:
      for (size_t i = 0; i < reply.elements; ++i) {
        const redisReply& element = *reply.element[i];
        if (element.type == REDIS_REPLY_NIL) continue;
        if (element.type != REDIS_REPLY_STRING) {
          return absl::DataLossError("an array element is not a string");
        }
        strings.emplace_back(element.str, element.len);
      }
      return strings;
    default:
      return absl::DataLossError("a reply of unknown type");
  }
}

timeval Timeout(absl::Duration duration) {
  return absl::ToTimeval(std::max(duration, absl::Milliseconds(1)));
}

}  // namespace

absl::StatusOr<RedisAddress> RedisAddress::Parse(const std::string& url) {
  RedisAddress address;
  absl::string_view rest = url;
  const bool unix_socket = absl::ConsumePrefix(&rest, "unix://");
  if (!unix_socket && !absl::ConsumePrefix(&rest, "redis://")) {
    return Bad("scheme of the Redis URL");
  }
  // The last '@', since a password may contain one.
  const size_t at = rest.rfind('@');
  if (at != absl::string_view::npos) {
    const absl::string_view user = rest.substr(0, at);
    rest.remove_prefix(at + 1);
    const size_t colon = user.find(':');
    address.user = std::string(user.substr(0, colon));
    // USER alone is refused: AUTH needs a password.
    if (colon == absl::string_view::npos || colon + 1 == user.size()) {
      return Bad("password of the Redis URL");
    }
    address.password = std::string(user.substr(colon + 1));
  }
  if (unix_socket) {
    if (rest.empty() || rest[0] != '/') return Bad("path of the Redis URL");
    address.path = std::string(rest);
    return address;
  }
  const size_t slash = rest.find('/');
  if (slash != absl::string_view::npos && slash + 1 < rest.size() &&
      (!absl::SimpleAtoi(rest.substr(slash + 1), &address.database) ||
       address.database < 0)) {
    return Bad("database of the Redis URL");
  }
  const auto [host, port] = net::SplitHostPort(rest.substr(0, slash));
  if (host.empty()) return Bad("host of the Redis URL");
  address.host = std::string(host);
  if (!port.empty()) address.port = net::ParsePort(port).value_or(0);
  if (address.port == 0) return Bad("port of the Redis URL");
  return address;
}

std::string RedisAddress::ToString() const {
  return host.empty() ? path : absl::StrCat(host, ":", port, "/", database);
}

RedisClient::RedisClient(const RedisClientOptions& options,
                         redisContext* context)
    : options_(options), context_(context) {
  context_->reader->fn = BoundedFunctions(*context_->reader);
}

RedisClient::~RedisClient() { redisFree(context_); }

absl::StatusOr<std::unique_ptr<RedisClient>> RedisClient::Connect(
    const RedisAddress& address, const RedisClientOptions& options) {
  const timeval timeout = Timeout(options.connect_timeout);
  redisContext* const context =
      address.host.empty()
          ? redisConnectUnixWithTimeout(address.path.c_str(), timeout)
          : redisConnectWithTimeout(address.host.c_str(), address.port,
                                    timeout);
  if (context == nullptr) return absl::UnavailableError("no memory");
  std::unique_ptr<RedisClient> client(new RedisClient(options, context));
  if (context->err != 0) {
    return absl::UnavailableError(absl::StrCat("connect: ", context->errstr));
  }
  if (!address.password.empty()) {
    // AUTH with a user needs Redis 6 (ACL); with a password alone it means the
    // default user.
    std::vector<std::string> login = {"AUTH"};
    if (!address.user.empty()) login.push_back(address.user);
    login.push_back(address.password);
    const absl::Status status = client->Run(login).status();
    // Redis' error message may repeat the password.
    if (absl::IsAborted(status)) {
      return absl::PermissionDeniedError("AUTH was refused");
    }
    FORETOKEN_RETURN_IF_ERROR(status);
  }
  if (address.database != 0) {
    FORETOKEN_RETURN_IF_ERROR(
        client->Run({"SELECT", absl::StrCat(address.database)}).status());
  }
  // A server may accept connections and refuse every command, without a login
  // or while it loads its data.
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<std::string> pong,
                             client->Run({"PING"}));
  if (pong != std::vector<std::string>{"PONG"}) {
    return absl::DataLossError("unexpected answer to PING");
  }
  return client;
}

absl::Status RedisClient::Wait(short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - MonotonicNow();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("no answer in time");
    }
    pollfd waiting = {context_->fd, events, 0};
    // A millisecond more, so that a fraction is not polled with a timeout of 0
    // until the deadline.
    const int ready = poll(&waiting, 1,
                           static_cast<int>(absl::ToInt64Milliseconds(
                               left + absl::Milliseconds(1))));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("poll: ", strerror(errno)));
    }
  }
}

// Sends and receives by itself rather than through hiredis, whose timeout is
// one of every system call and whose writes may raise SIGPIPE.
absl::Status RedisClient::Send(const std::string& bytes, absl::Time deadline) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(context_->fd, bytes.data() + sent,
                           bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      FORETOKEN_RETURN_IF_ERROR(Wait(POLLOUT, deadline));
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("send: ", strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<void*> RedisClient::Receive(absl::Time deadline) {
  std::vector<char> chunk(size_t{64} << 10);
  size_t received = 0;
  while (true) {
    void* reply = nullptr;
    // Parses what has arrived; a null reply means that more is needed.
    if (redisReaderGetReply(context_->reader, &reply) != REDIS_OK) {
      return absl::DataLossError("the reply is not Redis' protocol");
    }
    if (reply != nullptr) return reply;
    FORETOKEN_RETURN_IF_ERROR(Wait(POLLIN, deadline));
    const ssize_t n =
        recv(context_->fd, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (n == 0) return absl::UnavailableError("Redis closed the connection");
    if (n < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) continue;
      return absl::UnavailableError(absl::StrCat("receive: ", strerror(errno)));
    }
    received += static_cast<size_t>(n);
    // The reader keeps what it was fed: bound it before feeding more.
    if (received > options_.max_reply_bytes) {
      return absl::DataLossError(absl::StrCat(
          "a reply of more than ", options_.max_reply_bytes, " bytes"));
    }
    if (redisReaderFeed(context_->reader, chunk.data(),
                        static_cast<size_t>(n)) != REDIS_OK) {
      return absl::DataLossError("the reply does not fit");
    }
  }
}

absl::StatusOr<std::vector<std::string>> RedisClient::Run(
    const std::vector<std::string>& command) {
  // Left-over data would be taken for the answer to this command, and every
  // later answer would be that of the command before.
  if (context_->reader->pos != context_->reader->len) {
    return absl::DataLossError("unexpected data after the reply");
  }
  std::vector<const char*> texts;
  std::vector<size_t> lengths;
  for (const std::string& part : command) {
    texts.push_back(part.data());
    lengths.push_back(part.size());
  }
  char* formatted = nullptr;
  const int64_t size = redisFormatCommandArgv(
      &formatted, static_cast<int>(texts.size()), texts.data(), lengths.data());
  if (size < 0) return absl::InternalError("command: cannot be written");
  const std::string bytes(formatted, static_cast<size_t>(size));
  redisFreeCommand(formatted);
  const absl::Time deadline = MonotonicNow() + options_.command_timeout;
  FORETOKEN_RETURN_IF_ERROR(Send(bytes, deadline));
  FORETOKEN_ASSIGN_OR_RETURN(void* received, Receive(deadline));
  const Reply reply(static_cast<redisReply*>(received));
  return Strings(*reply);
}

}  // namespace foretoken::trie_drafter
