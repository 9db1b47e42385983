// The gateway's command line.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/gateway/config.h"
#include "tests/support/status_matchers.h"

namespace foretoken::gateway {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status Parse(const std::vector<std::string>& flags) {
  std::vector<const char*> arguments = {"foretoken-gateway"};
  for (const std::string& flag : flags) arguments.push_back(flag.c_str());
  return GatewayConfig::Parse("version", static_cast<int>(arguments.size()),
                              arguments.data())
      .status();
}

TEST(GatewayFlagsTest, ASingleUserCallsALoopbackAddress) {
  FORETOKEN_EXPECT_OK(Parse({"--single-user"}));
  for (const char* good :
       {"127.0.0.1:8080", "[::1]:0", "localhost:8080,127.0.0.2:0"}) {
    FORETOKEN_EXPECT_OK(
        Parse({"--single-user", absl::StrCat("--listen=", good)}))
        << good;
  }
  for (const char* bad : {"unix:/run/gateway", "192.0.2.1:8080", "0.0.0.0:80",
                          "127.0.0.1:8080,unix:/run/gateway"}) {
    const std::string listen = absl::StrCat("--listen=", bad);
    EXPECT_THAT(
        Parse({"--single-user", listen, "--insecure"}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("--single-user"), HasSubstr("loopback"))))
        << bad;
    FORETOKEN_EXPECT_OK(Parse({listen, "--insecure"})) << bad;
  }
}

}  // namespace
}  // namespace foretoken::gateway
