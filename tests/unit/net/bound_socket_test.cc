#include "common/net/bound_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"

namespace foretoken::net {
namespace {

using ::foretoken::testing::RawConnection;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;

TEST(BoundSocketTest, ConnectionsAreRefusedUntilItListens) {
  auto bound = BoundSocket::Bind("127.0.0.1:0");
  FORETOKEN_ASSERT_OK(bound);
  const std::string address = absl::StrCat("127.0.0.1:", bound->port());
  EXPECT_FALSE(RawConnection(address).connected());
  const auto fd = (*std::move(bound)).Listen(8);
  FORETOKEN_ASSERT_OK(fd);
  EXPECT_TRUE(RawConnection(address).connected());
  close(*fd);
}

TEST(BoundSocketTest, APortThatIsListenedOnIsNamed) {
  auto first = BoundSocket::Bind("127.0.0.1:0");
  FORETOKEN_ASSERT_OK(first);
  const std::string address = absl::StrCat("127.0.0.1:", first->port());
  const auto fd = (*std::move(first)).Listen(8);
  FORETOKEN_ASSERT_OK(fd);
  EXPECT_THAT(
      BoundSocket::Bind(address),
      StatusIs(kUnavailable, StartsWith("cannot listen on " + address + ": ")));
  close(*fd);
  // Nothing is left of it.
  FORETOKEN_EXPECT_OK(BoundSocket::Bind(address));
}

TEST(BoundSocketTest, AnAddressIsTakenBeforeAnybodyListens) {
  const auto first = BoundSocket::Bind("127.0.0.1:0");
  FORETOKEN_ASSERT_OK(first);
  const std::string address = absl::StrCat("127.0.0.1:", first->port());
  EXPECT_THAT(BoundSocket::Bind(address),
              StatusIs(kUnavailable, HasSubstr(address)));
}

TEST(BoundSocketTest, ConnectionsInTimeWaitDoNotHinderARestart) {
  std::string address = "127.0.0.1:0";
  for (int start = 0; start < 3; ++start) {
    auto bound = BoundSocket::Bind(address);
    FORETOKEN_ASSERT_OK(bound);
    address = absl::StrCat("127.0.0.1:", bound->port());
    const auto fd = (*std::move(bound)).Listen(8);
    FORETOKEN_ASSERT_OK(fd);
    RawConnection client(address);
    ASSERT_TRUE(client.connected());
    int connection = -1;
    while (connection < 0) connection = accept(*fd, nullptr, nullptr);
    // The side that closes first keeps the connection in TIME_WAIT.
    close(connection);
    EXPECT_EQ(client.ReadAll(), "");
    close(*fd);
  }
}

TEST(BoundSocketTest, OtherFormsOfAddresses) {
  // The second must not bind every address for want of a host.
  for (const char* bad : {"nowhere", "[::1:0", "localhost:"}) {
    EXPECT_THAT(BoundSocket::Bind(bad),
                StatusIs(kUnavailable, HasSubstr("want HOST:PORT")))
        << bad;
  }
  EXPECT_THAT(
      BoundSocket::Bind("127.0.0.1:http"),
      StatusIs(kUnavailable, StartsWith("cannot listen on 127.0.0.1:http: ")));
  const auto any = BoundSocket::Bind(":0");
  FORETOKEN_ASSERT_OK(any);
  EXPECT_GT(any->port(), 0);
}

}  // namespace
}  // namespace foretoken::net
