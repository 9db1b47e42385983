// A client or orchestrator that vanishes without closing its streams leaves
// nothing behind on the services it used.
#include <signal.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/verifier_process.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {
namespace {

constexpr int kLongText = 1 << 19;  // tokens; far more than the test reads
constexpr int64_t kPages = 1 << 12;

std::unique_ptr<TestVerifier> StartLongVerifier(const std::string& address) {
  TestVerifierOptions options;
  options.fake.max_positions = 1 << 20;
  options.fake.pages = kPages;
  options.rpc.listen = {address};
  return StartVerifier(std::move(options));
}

bool EverythingIsReturned(const TestVerifier& verifier) {
  return Eventually([&] {
    return verifier.Sample("foretoken_sessions") == 0 &&
           verifier.Sample("foretoken_streams") == 0 &&
           verifier.Sample("foretoken_engine_queue_length") == 0 &&
           verifier.Sample("foretoken_kv_pages_free") == kPages;
  });
}

TEST(VanishedTest, KilledClientsFreeSessionsPagesAndStreams) {
  constexpr int kClients = 6;
  const TempDir dir;
  const auto verifier = StartLongVerifier("unix:" + dir.File("v.sock"));
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  rpc::ServerOptions rpc;
  rpc.listen = {"unix:" + dir.File("o.sock")};
  const auto orchestrator = StartOrchestrator(config, rpc);
  std::vector<std::unique_ptr<Process>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Process>(std::vector<std::string>{
        FORETOKEN_STREAM_CLIENT_BINARY, orchestrator->address()}));
  }
  ASSERT_TRUE(Eventually([&] {
    return verifier->Sample("foretoken_sessions") == kClients &&
           orchestrator->Sample(
               "foretoken_generation_tokens_total{mode=\"prompt_lookup\"}") >=
               20 * kClients;
  }));
  EXPECT_LT(verifier->Sample("foretoken_kv_pages_free"), kPages);
  for (auto& client : clients) EXPECT_EQ(client->End(SIGKILL), -SIGKILL);
  EXPECT_TRUE(EverythingIsReturned(*verifier)) << verifier->registry.Text();
  EXPECT_TRUE(Eventually([&] {
    return orchestrator->Sample("foretoken_requests_running") == 0 &&
           orchestrator->Sample(
               "foretoken_requests_total{code=\"CANCELLED\"}") == kClients;
  }));
}

TEST(VanishedTest, AKilledOrchestratorFreesWhatItHeldOnTheVerifier) {
  constexpr int kStreams = 16;
  const TempDir dir;
  const auto verifier = StartLongVerifier("unix:" + dir.File("v.sock"));
  const std::string address = "unix:" + dir.File("o.sock");
  Process orchestrator({FORETOKEN_ORCHESTRATOR_BINARY, "--listen=" + address,
                        "--verifiers=" + verifier->address(),
                        "--metrics-listen="});
  const auto client = WireClient::Connect(address, {});
  FORETOKEN_ASSERT_OK(client);
  ASSERT_TRUE(Eventually([&] {
    return (*client)->GetModelInfo(absl::Now() + absl::Seconds(5)).ok();
  }));
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(Generate(**client, MakeRequest({1, 2, 3}, "off", kLongText))
                    .status.code(),
                absl::StatusCode::kUnavailable);
    });
  }
  EXPECT_TRUE(Eventually(
      [&] { return verifier->Sample("foretoken_sessions") == kStreams; }));
  EXPECT_EQ(orchestrator.End(SIGKILL), -SIGKILL);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(EverythingIsReturned(*verifier)) << verifier->registry.Text();
}

// A stopped process keeps its connections open and answers nothing.
TEST(VanishedTest, StreamsLeaveAVerifierThatHangs) {
  const TempDir dir;
  const std::string hung_address = "unix:" + dir.File("a.sock");
  const std::string twin_address = "unix:" + dir.File("b.sock");
  const std::vector<std::string> flags = {"--metrics-listen="};
  const auto hung = StartVerifierProcess(hung_address, flags);
  orchestrator::OrchestratorService config;
  config.verifiers = {hung_address, twin_address};
  config.pool.probe_interval = absl::Milliseconds(100);
  config.pool.probe_timeout = absl::Milliseconds(500);
  const auto orchestrator = StartOrchestrator(config);
  ASSERT_TRUE(HasAnswered(*orchestrator));
  const v1::GenerateRequest request = MakeRequest({1, 2, 3}, "off", 1500);
  const Generated want = Generate(*orchestrator->client, request);
  ASSERT_THAT(want.status, IsOk());

  std::unique_ptr<Process> twin;
  int deltas = 0;
  std::vector<TokenId> tokens;
  const auto result = orchestrator->client->Generate(
      request, absl::Now() + absl::Minutes(2),
      [&](const v1::GenerateDelta& delta) {
        tokens.insert(tokens.end(), delta.token_ids().begin(),
                      delta.token_ids().end());
        if (++deltas == 5) {
          hung->Signal(SIGSTOP);
          twin = StartVerifierProcess(twin_address, flags);
        }
        return true;
      });
  EXPECT_THAT(result.status(), IsOk());
  EXPECT_EQ(tokens, want.tokens);
  EXPECT_EQ(orchestrator->Sample("foretoken_verifier_failovers_total"), 1);
  hung->Signal(SIGCONT);
}

}  // namespace
}  // namespace foretoken::testing
