// PageServer through real sockets, beside connections that hold it up.
#include "common/net/page_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"

namespace foretoken::net {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::RawConnection;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PageServerTest : public ::testing::Test {
 protected:
  void Start(const PageServerOptions& options = {}) {
    Start(options, [this] { return absl::StrCat("page ", ++rendered_, "\n"); });
  }
  void Start(const PageServerOptions& options,
             std::function<std::string()> page) {
    auto bound = BoundSocket::Bind("127.0.0.1:0");
    FORETOKEN_ASSERT_OK(bound);
    auto server =
        PageServer::Start(options, *std::move(bound), std::move(page));
    FORETOKEN_ASSERT_OK(server);
    server_ = *std::move(server);
  }
  RawConnection Connect() const {
    return RawConnection(absl::StrCat("127.0.0.1:", server_->port()));
  }
  std::string Get(const std::string& line = "GET /metrics HTTP/1.1") const {
    const RawConnection connection = Connect();
    EXPECT_TRUE(connection.connected());
    connection.Say(line + "\r\nHost: localhost\r\n\r\n");
    return connection.ReadAll();
  }

  std::atomic<int> rendered_{0};
  std::unique_ptr<PageServer> server_;
};

TEST_F(PageServerTest, ServesThePageAndNothingElse) {
  Start();
  const std::string answer = Get();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 7\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\npage 1\n"));
  // One that arrives in the same turn of the loop gets the same page.
  EXPECT_THAT(Get("GET /metrics?name=x HTTP/1.0"),
              AnyOf(EndsWith("page 1\n"), EndsWith("page 2\n")));
  EXPECT_THAT(Get("GET / HTTP/1.1"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("POST /metrics HTTP/1.1"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Get("nonsense"), StartsWith("HTTP/1.1 400"));
  EXPECT_LE(rendered_, 2);
}

TEST_F(PageServerTest, AWebPageCannotTakeTheServersPlace) {
  PageServerOptions options;
  options.allowed_hosts = {"metrics.example"};
  Start(options);
  const auto ask = [this](const std::string& headers) {
    const RawConnection connection = Connect();
    connection.Say("GET /metrics HTTP/1.1\r\n" + headers + "\r\n");
    return connection.ReadAll();
  };
  for (const char* host :
       {"evil.example", "evil.example:9100", "localhost.evil.example",
        "127.0.0.1.evil.example"}) {
    EXPECT_THAT(ask(absl::StrCat("host:", host, "\r\n")),
                StartsWith("HTTP/1.1 403 "))
        << host;
  }
  EXPECT_EQ(rendered_, 0);
  for (const char* headers :
       {"", "Host: localhost:9100\r\n", "Host:127.0.0.1:9100\r\n",
        "Host: [::1]\r\n", "HOST: Metrics.example\r\n"}) {
    EXPECT_THAT(ask(headers), StartsWith("HTTP/1.1 200 ")) << headers;
  }
  EXPECT_THAT(ask("Host: localhost\r\nHost: evil.example\r\n"),
              StartsWith("HTTP/1.1 400 "));
}

TEST_F(PageServerTest, IdleConnectionsKeepNoScraperOut) {
  // (Descriptors for both ends.)
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Start();
  std::vector<RawConnection> idle;
  const int connections =
      static_cast<int>(std::min<rlim_t>(1000, limit.rlim_cur / 2));
  for (int i = 0; i < connections; ++i) {
    idle.push_back(Connect());
    if (i % 100 != 99) continue;
    EXPECT_THAT(Get(), StartsWith("HTTP/1.1 200 OK"));
  }
}

// A scraper with an address of its own, whose request comes in two parts.
class SlowScraper {
 public:
  explicit SlowScraper(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in own = Address("127.0.0.2", 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)),
              0);
    const sockaddr_in server = Address("127.0.0.1", port);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&server),
                      sizeof(server)),
              0);
  }
  SlowScraper(const SlowScraper&) = delete;
  SlowScraper& operator=(const SlowScraper&) = delete;
  ~SlowScraper() { close(fd_); }

  void Say(const std::string& bytes) const {
    send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  std::string ReadAll() const {
    std::string all;
    char bytes[512];
    ssize_t n;
    while ((n = recv(fd_, bytes, sizeof(bytes), 0)) > 0) {
      all.append(bytes, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  static sockaddr_in Address(const char* host, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
  }
  const int fd_;
};

TEST_F(PageServerTest, ManyConnectionsOfOneAddressDisplaceNoOther) {
  PageServerOptions options;
  options.max_connections = 8;
  Start(options);
  const SlowScraper scraper(server_->port());
  scraper.Say("GET /metr");
  ASSERT_TRUE(Eventually([&] { return server_->open() == 1; }));
  std::vector<RawConnection> idle;
  for (int i = 0; i < 50; ++i) idle.push_back(Connect());
  ASSERT_TRUE(Eventually([&] { return idle[40].Closed(); }));
  scraper.Say("ics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(scraper.ReadAll(), EndsWith("page 1\n"));
}

// Input that nobody reads must not cost the page.
TEST_F(PageServerTest, InputAfterTheRequestDoesNotResetTheConnection) {
  Start();
  for (int i = 0; i < 20; ++i) {
    const RawConnection connection = Connect();
    connection.Say("GET /metrics HTTP/1.1\r\n\r\n" + std::string(5000, 'x'));
    EXPECT_THAT(connection.ReadAll(), HasSubstr("\r\n\r\npage "));
  }
}

TEST_F(PageServerTest, TrickledRequestsKeepNoScraperOut) {
  Start();
  std::vector<RawConnection> trickled;
  for (int i = 0; i < 32; ++i) trickled.push_back(Connect());
  for (const char byte : std::string("GET /metrics")) {
    for (const RawConnection& connection : trickled) {
      EXPECT_TRUE(connection.Say(std::string(1, byte)));
    }
    EXPECT_THAT(Get(), StartsWith("HTTP/1.1 200 OK"));
  }
}

TEST_F(PageServerTest, ARequestThatDoesNotEndIsClosed) {
  PageServerOptions options;
  options.request_time = absl::Milliseconds(20);
  Start(options);
  const RawConnection silent = Connect();
  EXPECT_TRUE(Eventually([&] { return silent.Closed(); }));
  options.request_time = absl::Hours(1);
  Start(options);
  const RawConnection endless = Connect();
  endless.Say(std::string(9000, 'x'));
  EXPECT_TRUE(Eventually([&] { return endless.Closed(); }));
}

TEST_F(PageServerTest, APageThatIsNotTakenIsDropped) {
  PageServerOptions options;
  options.answer_time = absl::Milliseconds(20);
  constexpr size_t kPageBytes = 32 << 20;
  Start(options, [] { return std::string(kPageBytes, 'x'); });
  const RawConnection deaf = Connect();
  deaf.Say("GET /metrics HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return server_->served() == 1; }));
  ASSERT_TRUE(Eventually([&] { return server_->open() == 0; }));
  EXPECT_LT(deaf.ReadAll().size(), kPageBytes);
}

}  // namespace
}  // namespace foretoken::net
