#include "common/tracing/otlp_exporter.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/timed_wait.h"
#include "common/net/address.h"
#include "common/tracing/otlp_json.h"

namespace foretoken {
namespace {

// Maximum bytes of the status line, the only part of the answer that is read.
constexpr size_t kMaxAnswerBytes = 256;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

// A non-blocking TCP connection whose calls end at a deadline.
class Connection {
 public:
  explicit Connection(absl::Time deadline) : deadline_(deadline) {}
  ~Connection() {
    if (fd_ >= 0) close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Takes no longer than until `by`.
  absl::Status Connect(const addrinfo& address, absl::Time by) {
    fd_ = socket(address.ai_family,
                 address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                 address.ai_protocol);
    if (fd_ < 0) return absl::ErrnoToStatus(errno, "socket");
    if (connect(fd_, address.ai_addr, address.ai_addrlen) == 0) {
      return absl::OkStatus();
    }
    if (errno != EINPROGRESS) return absl::ErrnoToStatus(errno, "connect");
    FORETOKEN_RETURN_IF_ERROR(Await(POLLOUT, by));
    // A connected socket and a refused one both become writable; SO_ERROR tells
    // them apart.
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? absl::OkStatus()
                      : absl::ErrnoToStatus(error, "connect");
  }

  absl::Status Write(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
      } else if (errno == EAGAIN) {
        FORETOKEN_RETURN_IF_ERROR(Await(POLLOUT, deadline_));
      } else if (errno != EINTR) {
        return absl::ErrnoToStatus(errno, "send");
      }
    }
    return absl::OkStatus();
  }

  // The first line of the answer.
  absl::StatusOr<std::string> ReadLine() {
    std::string line;
    while (line.size() < kMaxAnswerBytes) {
      char byte = 0;
      // Byte by byte: a status line is short, and nothing after it is needed.
      const ssize_t got = recv(fd_, &byte, 1, 0);
      if (got == 1) {
        if (byte == '\n') return line;
        line.push_back(byte);
      } else if (got == 0) {
        return absl::UnavailableError("the connection was closed");
      } else if (errno == EAGAIN) {
        FORETOKEN_RETURN_IF_ERROR(Await(POLLIN, deadline_));
      } else if (errno != EINTR) {
        return absl::ErrnoToStatus(errno, "recv");
      }
    }
    return absl::InvalidArgumentError("the answer is no HTTP");
  }

 private:
  absl::Status Await(short events, absl::Time by) {
    while (true) {
      const int64_t left = absl::ToInt64Milliseconds(by - MonotonicNow());
      pollfd socket{fd_, events, 0};
      const int ready =
          left <= 0 ? 0 : poll(&socket, 1, static_cast<int>(left) + 1);
      if (ready > 0) return absl::OkStatus();
      if (ready == 0) return absl::DeadlineExceededError("no answer in time");
      if (errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    }
  }

  const absl::Time deadline_;
  int fd_ = -1;
};

}  // namespace

absl::StatusOr<OtlpEndpoint> OtlpEndpoint::Parse(absl::string_view url) {
  const auto bad = [&] {
    return absl::InvalidArgumentError("want http://HOST[:PORT][/PATH]");
  };
  OtlpEndpoint endpoint;
  if (!absl::ConsumePrefix(&url, "http://")) return bad();
  // The parts go into the HTTP request: no blank or control character may end a
  // header line early.
  for (const char c : url) {
    if (c <= ' ' || c > '~') return bad();
  }
  const size_t slash = std::min(url.find('/'), url.size());
  if (slash + 1 < url.size()) endpoint.path = std::string(url.substr(slash));
  const absl::string_view authority = url.substr(0, slash);
  const auto [host, port] = net::SplitHostPort(authority);
  // Without brackets, the last group of an IPv6 address would be the port.
  if (host.empty() || (host.find(':') != host.npos && authority[0] != '[')) {
    return bad();
  }
  endpoint.host = std::string(host);
  if (!port.empty()) endpoint.port = std::string(port);
  if (net::ParsePort(endpoint.port).value_or(0) == 0) return bad();
  return endpoint;
}

std::string OtlpEndpoint::authority() const {
  return net::JoinHostPort(host, port);
}

absl::Status HttpPost(const OtlpEndpoint& endpoint, absl::string_view body,
                      absl::Duration timeout) {
  const absl::Time deadline = MonotonicNow() + timeout;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(endpoint.host.c_str(), endpoint.port.c_str(), &hints, &list);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(list);
  absl::Status status = absl::UnavailableError("no address");
  int untried = 0;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) ++untried;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    Connection connection(deadline);
    // An address that does not answer must not use up the time of the others:
    // each gets an equal part of what is left.
    const absl::Time now = MonotonicNow();
    status = connection.Connect(*at, now + (deadline - now) / untried);
    --untried;
    if (!status.ok()) continue;
    FORETOKEN_RETURN_IF_ERROR(connection.Write(absl::StrCat(
        "POST ", endpoint.path, " HTTP/1.1\r\nHost: ", endpoint.authority(),
        "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
        "\r\nConnection: close\r\n\r\n")));
    FORETOKEN_RETURN_IF_ERROR(connection.Write(body));
    FORETOKEN_ASSIGN_OR_RETURN(const std::string line, connection.ReadLine());
    if (absl::StartsWith(line, "HTTP/1.") && line.size() > 9 &&
        line[9] == '2') {
      return absl::OkStatus();
    }
    return absl::UnavailableError(
        absl::StrCat("the collector answered: ", line));
  }
  return status;
}

OtlpExporter::OtlpExporter(OtlpOptions options, Count count)
    : options_(std::move(options)),
      count_(std::move(count)),
      thread_([this] { Main(); }) {}

OtlpExporter::~OtlpExporter() {
  {
    absl::MutexLock lock(&mu_);
    stop_ = true;
    send_by_ = MonotonicNow() + options_.send_timeout;
  }
  thread_.join();
}

void OtlpExporter::Take(std::vector<Span> spans) {
  int64_t dropped = 0;
  {
    absl::MutexLock lock(&mu_);
    const size_t room = options_.queue_spans - queue_.size();
    const size_t taken = std::min(room, spans.size());
    dropped = static_cast<int64_t>(spans.size() - taken);
    queue_.insert(queue_.end(), std::make_move_iterator(spans.begin()),
                  std::make_move_iterator(spans.begin() + taken));
  }
  if (dropped > 0) count_(false, dropped);
}

void OtlpExporter::Main() {
  const auto enough = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || queue_.size() >= options_.batch_spans;
  };
  while (true) {
    std::vector<Span> spans;
    bool last = false;
    {
      absl::MutexLock lock(&mu_);
      AwaitFor(mu_, absl::Condition(&enough), options_.batch_time);
      // Taken as a whole, so that Take is never held up by a request.
      spans.swap(queue_);
      last = stop_;
    }
    absl::Span<const Span> left = spans;
    while (!left.empty()) {
      const absl::Time deadline = NextDeadline();
      if (deadline <= MonotonicNow()) break;  // stopped, and out of time
      const size_t size = std::min(left.size(), options_.batch_spans);
      Send(left.first(size), deadline);
      left.remove_prefix(size);
      // Give up the rest after a lost batch: each would wait for the whole
      // timeout again.
      if (!reachable_) break;
    }
    if (!left.empty()) count_(false, static_cast<int64_t>(left.size()));
    if (last) return;
  }
}

absl::Time OtlpExporter::NextDeadline() {
  absl::MutexLock lock(&mu_);
  return std::min(send_by_, MonotonicNow() + options_.send_timeout);
}

void OtlpExporter::Send(absl::Span<const Span> batch, absl::Time deadline) {
  // Computed for every batch, so that dates follow corrections of the machine's
  // clock; spans are timed by the monotonic one.
  const absl::Duration to_wall = absl::Now() - MonotonicNow();
  const std::string body = OtlpJson(options_.service, batch, to_wall);
  const absl::Status sent =
      HttpPost(options_.endpoint, body, deadline - MonotonicNow());
  count_(sent.ok(), static_cast<int64_t>(batch.size()));
  // Logged when it changes, not for every batch.
  if (sent.ok() == reachable_) return;
  reachable_ = sent.ok();
  if (reachable_) {
    FORETOKEN_LOG(kInfo, "spans reach the collector again");
  } else {
    FORETOKEN_LOG(kWarning, "spans are lost: ", sent.message());
  }
}

}  // namespace foretoken
