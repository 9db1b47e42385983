// HttpPost against servers that answer as they should, and against some that do
// not.
#include "common/net/http_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/net/address.h"
#include "common/net/bound_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/http_collector.h"
#include "tests/support/status_matchers.h"

namespace foretoken::net {
namespace {

using ::foretoken::testing::HttpCollector;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

HttpUrl UrlOf(int port) {
  return *HttpUrl::Parse(absl::StrCat("http://127.0.0.1:", port), "80",
                         "/path");
}

// Serves one connection: `serve` gets it once the head of the request has
// arrived. It is closed when `serve` returns.
class OneConnection {
 public:
  explicit OneConnection(std::function<void(int fd)> serve) {
    auto bound = BoundSocket::Bind("127.0.0.1:0");
    FORETOKEN_CHECK(bound.ok());
    port_ = bound->port();
    listener_ = *(*std::move(bound)).Listen(1);
    thread_ = std::thread([this, serve = std::move(serve)] {
      pollfd ready{listener_, POLLIN, 0};
      poll(&ready, 1, -1);
      const int fd = accept(listener_, nullptr, nullptr);
      char byte = 0;
      while (!absl::EndsWith(head_, "\r\n\r\n") && recv(fd, &byte, 1, 0) == 1) {
        head_ += byte;
      }
      serve(fd);
      close(fd);
    });
  }
  ~OneConnection() {
    if (thread_.joinable()) thread_.join();
    close(listener_);
  }
  HttpUrl url() const { return UrlOf(port_); }
  // Waits until the connection has been served.
  const std::string& head() {
    thread_.join();
    return head_;
  }

 private:
  int port_ = 0;
  int listener_ = -1;
  std::string head_;
  std::thread thread_;
};

// Writes; false once the client has gone.
bool Say(int fd, const std::string& text) {
  return send(fd, text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}
// Reads until the client has gone.
void AwaitEnd(int fd) {
  char bytes[512];
  while (recv(fd, bytes, sizeof(bytes), 0) > 0) {
  }
}

absl::Status Post(const HttpUrl& url,
                  absl::Duration timeout = absl::Seconds(60)) {
  return HttpPost(url, "text/plain", "the body", timeout);
}

TEST(HttpUrlTest, HasAHostAndMaybeAPortAndAPath) {
  const auto full =
      HttpUrl::Parse("http://collector:99/some/path", "4318", "/v1/traces");
  FORETOKEN_ASSERT_OK(full);
  EXPECT_EQ(full->host, "collector");
  EXPECT_EQ(full->port, "99");
  EXPECT_EQ(full->path, "/some/path");
  EXPECT_EQ(JoinHostPort(full->host, full->port), "collector:99");
  for (const char* url :
       {"http://[::1]:4318", "http://[::1]", "http://[::1]/"}) {
    const auto plain = HttpUrl::Parse(url, "4318", "/v1/traces");
    FORETOKEN_ASSERT_OK(plain);
    EXPECT_EQ(plain->host, "::1");
    EXPECT_EQ(plain->port, "4318");
    EXPECT_EQ(plain->path, "/v1/traces");
    EXPECT_EQ(JoinHostPort(plain->host, plain->port), "[::1]:4318");
  }
  for (const char* url :
       {"", "collector:99", "https://collector", "http://", "http://:99",
        "http://a:0", "http://a:x", "http://a b", "http://a\r\nX: y",
        "http://[::1", "http://::1", "http://::1:99"}) {
    EXPECT_THAT(HttpUrl::Parse(url, "4318", "/v1/traces"),
                StatusIs(absl::StatusCode::kInvalidArgument, _))
        << url;
  }
}

TEST(HttpClientTest, PostsABody) {
  HttpCollector collector;
  const HttpUrl url = UrlOf(collector.port());
  FORETOKEN_EXPECT_OK(Post(url));
  EXPECT_THAT(collector.lines(), ElementsAre("POST /path HTTP/1.1"));
  EXPECT_THAT(collector.bodies(), ElementsAre("the body"));
  collector.SetStatus(204);
  FORETOKEN_EXPECT_OK(Post(url));
  collector.SetStatus(503);
  EXPECT_THAT(Post(url), StatusIs(absl::StatusCode::kUnavailable,
                                  HasSubstr("HTTP status 503")));
}

TEST(HttpClientTest, TheHeadNamesTheHostAndClosesTheConnection) {
  OneConnection server([](int fd) {
    Say(fd, "HTTP/1.1 200 OK\r\n\r\n");
    AwaitEnd(fd);  // a close before the body was read would reset
  });
  const HttpUrl url = server.url();
  FORETOKEN_EXPECT_OK(Post(url));
  const std::string& head = server.head();
  EXPECT_THAT(head, HasSubstr("\r\nHost: 127.0.0.1:" + url.port + "\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nContent-Type: text/plain\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 8\r\n"));
  EXPECT_THAT(head, HasSubstr("\r\nConnection: close\r\n"));
}

TEST(HttpClientTest, AnAnswerThatIsNotHttpIsAnError) {
  for (const std::string& answer :
       {std::string("SSH-2.0-OpenSSH_9.2\r\n\r\n"), std::string(),
        std::string("HTTP/1.1 20"), std::string("HTTP/1.1 2000 OK\r\n"),
        std::string("HTTP/1.1  200 OK\r\n"),
        std::string("HTTP/1.1 2x0 OK\r\n")}) {
    OneConnection server([&answer](int fd) {
      Say(fd, answer);
      shutdown(fd, SHUT_WR);
      AwaitEnd(fd);
    });
    EXPECT_THAT(Post(server.url()), StatusIs(absl::StatusCode::kUnavailable, _))
        << answer.substr(0, 40);
  }
}

// The body was delivered, whatever follows the status.
TEST(HttpClientTest, AStatusIsAnAnswer) {
  for (const std::string& answer :
       {std::string("HTTP/1.1 200\r\n\r\n"), std::string("HTTP/1.0 204 \r\n"),
        std::string("HTTP/1.1 200 OK\r\nCut: of"),
        // A head without an end.
        "HTTP/1.1 202 Accepted\r\nLong: " + std::string(64 << 10, 'x')}) {
    OneConnection server([&answer](int fd) {
      Say(fd, answer);
      shutdown(fd, SHUT_WR);
      AwaitEnd(fd);
    });
    FORETOKEN_EXPECT_OK(Post(server.url())) << answer.substr(0, 40);
  }
}

// "localhost" is ::1 and 127.0.0.1 where a machine has both, and either may be
// the one that answers.
TEST(HttpClientTest, EveryAddressOfAHostIsTried) {
  OneConnection server([](int fd) {
    Say(fd, "HTTP/1.1 200 OK\r\n\r\n");
    AwaitEnd(fd);
  });
  HttpUrl url = server.url();
  url.host = "localhost";
  FORETOKEN_EXPECT_OK(Post(url));
}

TEST(HttpClientTest, ASilentServerCostsTheTimeout) {
  OneConnection server(AwaitEnd);
  EXPECT_THAT(Post(server.url(), absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
}

TEST(HttpClientTest, ATrickledAnswerDoesNotExtendTheTimeout) {
  OneConnection server([](int fd) {
    // Ends when the client has gone.
    const std::string answer = "HTTP/1.1 200 OK\r\n\r\n";
    for (const char byte : answer) {
      if (!Say(fd, std::string(1, byte))) break;
      absl::SleepFor(absl::Milliseconds(100));
    }
  });
  EXPECT_THAT(Post(server.url(), absl::Milliseconds(150)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
}

TEST(HttpClientTest, AServerThatIsGoneIsAnError) {
  int port = 0;
  { port = HttpCollector().port(); }
  EXPECT_THAT(Post(UrlOf(port)), StatusIs(absl::StatusCode::kUnavailable, _));
}

}  // namespace
}  // namespace foretoken::net
