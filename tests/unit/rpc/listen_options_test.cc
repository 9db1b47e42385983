#include "common/rpc/listen_options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ListenOptionsTest, AnAddressBeyondThisMachineWantsTlsOrInsecure) {
  ListenOptions options;
  options.flag_prefix = "http-";
  options.listen = {"unix:/run/socket", "127.0.0.1:0", "0.0.0.0:80"};
  EXPECT_THAT(options.ValidateListen(),
              StatusIs(kInvalid, AllOf(HasSubstr("0.0.0.0:80"),
                                       HasSubstr("--http-insecure"),
                                       HasSubstr("--http-tls-cert"))));
  options.insecure = true;
  FORETOKEN_EXPECT_OK(options.ValidateListen());
  options.insecure = false;
  options.tls_cert = options.tls_key = "file";
  FORETOKEN_EXPECT_OK(options.ValidateListen());
}

TEST(ListenOptionsTest, ACertificateAndItsKeyComeTogether) {
  ListenOptions options;
  options.tls_cert = "file";
  EXPECT_THAT(options.ValidateListen(),
              StatusIs(kInvalid, HasSubstr("together")));
  options.tls_cert = "";
  options.tls_client_ca = "file";
  EXPECT_THAT(options.ValidateListen(),
              StatusIs(kInvalid, HasSubstr("--tls-client-ca")));
}

TEST(ListenOptionsTest, AMalformedAddressIsNamed) {
  ListenOptions options;
  options.listen = {"nowhere"};
  EXPECT_THAT(options.ValidateListen(),
              StatusIs(kInvalid, HasSubstr("nowhere")));
}

}  // namespace
}  // namespace foretoken::rpc
