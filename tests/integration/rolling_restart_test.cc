// Every service restarted in turn, twice, under load.
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/address.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

constexpr int kTokens = 60;
constexpr absl::Duration kDrain = absl::Seconds(20);

// What README and chart give: new calls go to all addresses that report
// SERVING.
constexpr char kServiceConfig[] = R"({
  "loadBalancingConfig": [{"round_robin": {}}],
  "healthCheckConfig": {"serviceName": "foretoken.v1.Generation"}
})";

std::unique_ptr<WireClient> BalancedClient(
    const std::vector<std::string>& addresses) {
  std::string target = "ipv4:";
  for (const std::string& address : addresses) {
    absl::StrAppend(&target, target.back() == ':' ? "" : ",", address);
  }
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(kServiceConfig);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  return std::make_unique<WireClient>(grpc::CreateCustomChannel(
      target, grpc::InsecureChannelCredentials(), arguments));
}

// The default mode of orchestrator `i`, by which a client knows who served it.
std::string ModeOf(size_t i) {
  return absl::StrCat("prompt_lookup:max_n=", 1 + i, ",tokens=6");
}

// Sends requests one after another until told to stop, and counts.
class Load {
 public:
  Load(std::unique_ptr<WireClient> client, const v1::GenerateRequest& request,
       const std::vector<TokenId>& expected)
      : client_(std::move(client)),
        thread_([this, request, expected] { Run(request, expected); }) {}
  ~Load() { Stop(); }

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int calls() const { return calls_; }
  int wrong() const { return wrong_; }
  // Calls served by orchestrator `i` (ModeOf).
  int served_by(size_t i) const { return served_by_[i]; }
  // By code; only read after Stop.
  const std::vector<absl::Status>& failures() const { return failures_; }

 private:
  void Run(const v1::GenerateRequest& request,
           const std::vector<TokenId>& expected) {
    while (!stop_) {
      const Generated got = Generate(*client_, request);
      ++calls_;
      for (size_t i = 0; i < served_by_.size(); ++i) {
        served_by_[i] += got.result.speculation().mode() == ModeOf(i);
      }
      if (!got.status.ok()) {
        failures_.push_back(got.status);
      } else if (got.tokens != expected) {
        ++wrong_;
      }
    }
  }

  const std::unique_ptr<WireClient> client_;
  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0};
  std::atomic<int> wrong_{0};
  std::array<std::atomic<int>, 2> served_by_{};
  std::vector<absl::Status> failures_;
  std::thread thread_;
};

TEST(RollingRestartTest, NoCallIsLostAndNoTokenChanges) {
  v1::GenerateRequest request =
      MakeRequest(MakePrompt(7, 40, 50), "prompt_lookup", kTokens);
  request.clear_speculation();
  std::vector<std::string> verifier_addresses(2, "127.0.0.1:0");
  std::vector<std::unique_ptr<TestVerifier>> verifiers(2);
  const auto start_verifier = [&](size_t i) {
    TestVerifierOptions options;
    options.rpc.listen = {verifier_addresses[i]};
    verifiers[i] = StartVerifier(std::move(options));
    verifier_addresses[i] = verifiers[i]->address();
  };
  std::vector<std::string> addresses(2, "127.0.0.1:0");
  std::vector<std::unique_ptr<TestOrchestrator>> orchestrators(2);
  const auto start_orchestrator = [&](size_t i) {
    orchestrator::OrchestratorService config;
    config.verifiers = verifier_addresses;
    config.server.default_mode = ModeOf(i);
    rpc::ServerOptions listener;
    listener.listen = {addresses[i]};
    orchestrators[i] = StartOrchestrator(config, listener);
    addresses[i] = orchestrators[i]->address();
  };
  for (size_t i = 0; i < 2; ++i) start_verifier(i);
  for (size_t i = 0; i < 2; ++i) start_orchestrator(i);
  const std::vector<TokenId> expected =
      Generate(*orchestrators[0]->client, request).tokens;
  ASSERT_EQ(expected.size(), static_cast<size_t>(kTokens));

  std::vector<std::unique_ptr<Load>> balanced;
  std::vector<std::unique_ptr<Load>> plain;
  for (int i = 0; i < 3; ++i) {
    balanced.push_back(
        std::make_unique<Load>(BalancedClient(addresses), request, expected));
  }
  for (const std::string& address : addresses) {
    auto client = WireClient::Connect(address, {});
    ASSERT_THAT(client, IsOk());
    plain.push_back(
        std::make_unique<Load>(*std::move(client), request, expected));
  }
  // Every client has had some calls served since `since`.
  const auto served = [&] {
    std::vector<int> since;
    for (const auto& load : balanced) since.push_back(load->calls());
    return Eventually([&] {
      for (size_t i = 0; i < balanced.size(); ++i) {
        if (balanced[i]->calls() < since[i] + 5) return false;
      }
      return true;
    });
  };
  // Every client has had a call served by orchestrator `i` since now: a client
  // whose channel has not found the new one yet has nowhere to go when the
  // other one drains.
  const auto reached = [&](size_t i) {
    std::vector<int> since;
    for (const auto& load : balanced) since.push_back(load->served_by(i));
    return Eventually([&] {
      for (size_t c = 0; c < balanced.size(); ++c) {
        if (balanced[c]->served_by(i) == since[c]) return false;
      }
      return true;
    });
  };
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(served());
      EXPECT_TRUE(orchestrators[i]->server->Drain(kDrain));
      orchestrators[i].reset();
      ASSERT_TRUE(served());
      start_orchestrator(i);
      // A rollout goes on once the new one gets traffic.
      ASSERT_TRUE(reached(i));
    }
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(served());
      verifiers[i]->server->Drain(kDrain);
      verifiers[i].reset();
      ASSERT_TRUE(served());
      start_verifier(i);
      ASSERT_TRUE(Eventually(
          [&] { return verifiers[i]->Sample("foretoken_sessions") > 0; }));
    }
  }
  for (const auto& load : balanced) {
    load->Stop();
    EXPECT_TRUE(load->failures().empty())
        << load->failures().size() << ", first " << load->failures()[0];
    EXPECT_EQ(load->wrong(), 0);
  }
  // Clients of one address see it gone, and nothing worse.
  for (const auto& load : plain) {
    load->Stop();
    EXPECT_EQ(load->wrong(), 0);
    EXPECT_THAT(load->failures(),
                ::testing::Each(
                    StatusIs(absl::StatusCode::kUnavailable, ::testing::_)));
  }
}

}  // namespace
}  // namespace foretoken::testing
