#include "common/rpc/address.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

TEST(AddressTest, AcceptsHostPortAndUnixPaths) {
  for (const char* good : {"127.0.0.1:0", "localhost:65535", "[::1]:50051",
                           "verifier.ns.svc:50051", "unix:/tmp/x.sock"}) {
    FORETOKEN_EXPECT_OK(ValidateAddress(good)) << good;
  }
}

TEST(AddressTest, RefusesTheRestByName) {
  for (const std::string& bad : std::vector<std::string>{
           "localhost", ":50051", "a:-1", "a:65536", "a:b", "",
           "unix:", "unix:/" + std::string(200, 'x')}) {
    EXPECT_THAT(ValidateAddress(bad),
                testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                  ::testing::HasSubstr(bad)))
        << bad;
  }
}

TEST(AddressTest, OnlyThisMachineIsLocal) {
  for (const char* local :
       {"127.0.0.1:1", "127.8.9.1:1", "localhost:1", "[::1]:1", "unix:/x"}) {
    EXPECT_TRUE(IsLocalAddress(local)) << local;
  }
  for (const char* remote : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1",
                             "localhost.evil.org:1", "128.0.0.1:1"}) {
    EXPECT_FALSE(IsLocalAddress(remote)) << remote;
  }
}

}  // namespace
}  // namespace foretoken::rpc
