// PageServer through real sockets, beside connections that hold it up.
#include "common/metrics/page_server.h"

#include <sys/resource.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"

namespace foretoken::metrics {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::RawConnection;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PageServerTest : public ::testing::Test {
 protected:
  void Start(PageServerOptions options = {}) {
    options.address = "127.0.0.1:0";
    auto server = PageServer::Start(
        options, [this] { return absl::StrCat("page ", ++rendered_, "\n"); });
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
  EXPECT_THAT(Get("GET /metrics?name=x HTTP/1.0"), EndsWith("page 2\n"));
  EXPECT_THAT(Get("GET / HTTP/1.1"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("POST /metrics HTTP/1.1"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Get("nonsense"), StartsWith("HTTP/1.1 405"));
  EXPECT_EQ(rendered_, 2);
}

TEST_F(PageServerTest, IdleConnectionsKeepNoScraperOut) {
  // (Descriptors for both ends.)
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Start();
  std::vector<RawConnection> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(Connect());
    if (i % 100 != 99) continue;
    EXPECT_THAT(Get(), StartsWith("HTTP/1.1 200 OK"));
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
  options.address = "127.0.0.1:0";
  options.answer_time = absl::Milliseconds(20);
  constexpr size_t kPageBytes = 32 << 20;
  auto server =
      PageServer::Start(options, [] { return std::string(kPageBytes, 'x'); });
  FORETOKEN_ASSERT_OK(server);
  server_ = *std::move(server);
  const RawConnection deaf = Connect();
  deaf.Say("GET /metrics HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(Eventually([&] { return server_->served() == 1; }));
  ASSERT_TRUE(Eventually([&] { return server_->open() == 0; }));
  EXPECT_LT(deaf.ReadAll().size(), kPageBytes);
}

}  // namespace
}  // namespace foretoken::metrics
