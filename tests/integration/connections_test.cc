// Clients that misbehave as connections: a server goes on serving others.
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/raw_connection.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

// The verifier answers a client that has no connection yet.
bool Answers(const TestVerifier& verifier) {
  auto channel = rpc::CreateChannel(verifier.address(), {});
  if (!channel.ok()) return false;
  const auto stub = v1::Verifier::NewStub(*channel);
  grpc::ClientContext context;
  rpc::PrepareCall(context, absl::Now() + absl::Seconds(10), "");
  v1::GetVerifierInfoResponse response;
  return stub->GetVerifierInfo(&context, {}, &response).ok();
}

TEST(ConnectionsTest, AFloodOfIdleConnectionsKeepsNobodyOut) {
  TestVerifierOptions options;
  options.rpc.listen = {"127.0.0.1:0"};
  options.rpc.max_connections = 64;
  const auto verifier = StartVerifier(std::move(options));
  std::vector<RawConnection> flood;
  for (int i = 0; i < 200; ++i) flood.emplace_back(verifier->address());
  // Its own connections make room once they have been silent for a while.
  EXPECT_TRUE(Eventually([&] { return Answers(*verifier); }));
  flood.clear();
  EXPECT_TRUE(Eventually([&] { return Answers(*verifier); }));
}

TEST(ConnectionsTest, AConnectionThatNeverSpeaksIsClosed) {
  TestVerifierOptions options;
  options.rpc.listen = {"127.0.0.1:0"};
  options.rpc.handshake_timeout = absl::Milliseconds(50);
  const auto verifier = StartVerifier(std::move(options));
  const RawConnection silent(verifier->address());
  ASSERT_TRUE(silent.connected());
  EXPECT_TRUE(Eventually([&] { return silent.Closed(); }));
  EXPECT_TRUE(Answers(*verifier));
}

TEST(ConnectionsTest, AnIdleConnectionIsClosedAndMadeAgain) {
  TestVerifierOptions options;
  options.rpc.listen = {"127.0.0.1:0"};
  options.rpc.connection_idle = absl::Milliseconds(50);
  const auto verifier = StartVerifier(std::move(options));
  auto channel = rpc::CreateChannel(verifier->address(), {});
  ASSERT_THAT(channel, IsOk());
  const auto stub = v1::Verifier::NewStub(*channel);
  const auto call = [&] {
    grpc::ClientContext context;
    rpc::PrepareCall(context, absl::Now() + absl::Seconds(10), "");
    v1::GetVerifierInfoResponse response;
    return stub->GetVerifierInfo(&context, {}, &response).ok();
  };
  EXPECT_TRUE(call());
  EXPECT_TRUE(Eventually(
      [&] { return (*channel)->GetState(false) == GRPC_CHANNEL_IDLE; }));
  EXPECT_TRUE(call());
}

// Unix sockets, TCP over IPv6 and a name: each is bound and serves.
TEST(ConnectionsTest, EveryKindOfAddressServes) {
  for (const std::string address : {"localhost:0", "127.0.0.1:0", "[::1]:0"}) {
    TestVerifierOptions options;
    options.rpc.listen = {address};
    const auto verifier = StartVerifier(std::move(options));
    EXPECT_TRUE(Answers(*verifier)) << verifier->address();
  }
}

}  // namespace
}  // namespace foretoken::testing
