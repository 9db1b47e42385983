// A stream outlives its verifier.
#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kTokens = 2000;

std::vector<TokenId> Reference(const v1::GenerateRequest& request) {
  const auto verifier = StartVerifier({});
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  const auto orchestrator = StartOrchestrator(config);
  const Generated got = Generate(*orchestrator->client, request);
  FORETOKEN_EXPECT_OK(got.status);
  return got.tokens;
}

v1::GenerateRequest SampledRequest() {
  v1::GenerateRequest request =
      MakeRequest(MakePrompt(7, 40, 50), "prompt_lookup", kTokens);
  request.mutable_sampling()->set_temperature(0.8f);
  request.mutable_sampling()->set_seed(42);
  request.mutable_sampling()->set_frequency_penalty(0.1f);
  return request;
}

// Same shape and limits as the fake, other weights: another fingerprint.
TestVerifierOptions OtherModel() {
  TestVerifierOptions options;
  options.random_model =
      "d_model=32,layers=1,heads=2,kv_heads=2,d_ff=64,vocab=50,"
      "max_positions=4096";
  return options;
}

// Generates and calls `at_tenth` once, when the tenth delta arrives.
Generated GenerateWithEvent(const WireClient& client,
                            const v1::GenerateRequest& request,
                            const std::function<void()>& at_tenth) {
  Generated got;
  auto result = client.Generate(request, absl::Now() + absl::Minutes(2),
                                [&](const v1::GenerateDelta& delta) {
                                  got.tokens.insert(got.tokens.end(),
                                                    delta.token_ids().begin(),
                                                    delta.token_ids().end());
                                  if (++got.deltas == 10) at_tenth();
                                  return true;
                                });
  got.status = result.status();
  return got;
}

TEST(FailoverTest, AnotherVerifierContinuesWithTheSameTokens) {
  const v1::GenerateRequest request = SampledRequest();
  const std::vector<TokenId> expected = Reference(request);
  auto a = StartVerifier({});
  auto b = StartVerifier({});
  orchestrator::OrchestratorService config;
  config.verifiers = {a->address(), b->address()};
  const auto orchestrator = StartOrchestrator(config);
  const Generated got = GenerateWithEvent(*orchestrator->client, request, [&] {
    // Whichever has the session is torn down under it.
    auto& victim = a->Sample("foretoken_sessions") > 0 ? a : b;
    victim->server.reset();
  });
  FORETOKEN_EXPECT_OK(got.status);
  EXPECT_EQ(got.tokens, expected);
  EXPECT_EQ(orchestrator->Sample("foretoken_verifier_failovers_total"), 1);
}

TEST(FailoverTest, AVerifierThatDrainsHandsItsStreamsOver) {
  const v1::GenerateRequest request = SampledRequest();
  const std::vector<TokenId> expected = Reference(request);
  auto a = StartVerifier({});
  auto b = StartVerifier({});
  orchestrator::OrchestratorService config;
  config.verifiers = {a->address(), b->address()};
  const auto orchestrator = StartOrchestrator(config);
  const Generated got = GenerateWithEvent(*orchestrator->client, request, [&] {
    auto& victim = a->Sample("foretoken_sessions") > 0 ? a : b;
    victim->server->Drain(absl::ZeroDuration());
  });
  FORETOKEN_EXPECT_OK(got.status);
  EXPECT_EQ(got.tokens, expected);
  EXPECT_EQ(orchestrator->Sample("foretoken_verifier_failovers_total"), 1);
}

TEST(FailoverTest, OtherNumericsEndTheStreamWithAborted) {
  auto a = StartVerifier({});
  auto b = StartVerifier(OtherModel());
  orchestrator::OrchestratorService config;
  config.verifiers = {a->address(), b->address()};
  config.server.verifier.failover_timeout = absl::Seconds(1);
  const auto orchestrator = StartOrchestrator(config);
  const Generated got = GenerateWithEvent(
      *orchestrator->client, MakeRequest({1, 2, 3}, "off", kTokens), [&] {
        auto& victim = a->Sample("foretoken_sessions") > 0 ? a : b;
        victim->server.reset();
      });
  EXPECT_THAT(got.status, StatusIs(absl::StatusCode::kAborted,
                                   HasSubstr("numerics_fingerprint")));
  EXPECT_LT(got.tokens.size(), static_cast<size_t>(kTokens));
}

TEST(FailoverTest, AnUpgradeMovesEveryOrchestratorWhenTheLastOldVerifierGoes) {
  auto old_model = StartVerifier({});
  auto first = StartVerifier(OtherModel());
  auto second = StartVerifier(OtherModel());
  orchestrator::OrchestratorService config;
  config.pool.probe_interval = absl::Milliseconds(20);
  // A stream that the upgrade cuts waits this long for a verifier of its model.
  config.server.verifier.failover_timeout = absl::Seconds(1);
  config.verifiers = {old_model->address()};
  const auto reference_of = [](const std::string& address) {
    orchestrator::OrchestratorService alone;
    alone.verifiers = {address};
    const auto orchestrator = StartOrchestrator(alone);
    return Generate(*orchestrator->client, MakeRequest({1, 2, 3}, "off", 50))
        .tokens;
  };
  const std::vector<TokenId> before = reference_of(old_model->address());
  const std::vector<TokenId> after = reference_of(first->address());
  ASSERT_NE(before, after);

  // Of two models with as many verifiers, the one that is named first.
  config.verifiers = {old_model->address(), first->address()};
  const auto one = StartOrchestrator(config);
  config.verifiers = {old_model->address(), second->address()};
  const auto two = StartOrchestrator(config);
  std::atomic<bool> stop{false};
  std::atomic<int> served_before{0}, served_after{0}, refused{0};
  const auto run = [&](const WireClient& client) {
    while (!stop) {
      const Generated got = Generate(client, MakeRequest({1, 2, 3}, "off", 50));
      if (!got.status.ok()) {
        EXPECT_TRUE(absl::IsUnavailable(got.status) ||
                    absl::IsAborted(got.status))
            << got.status;
        ++refused;
      } else if (got.tokens == before) {
        ++served_before;
      } else {
        EXPECT_EQ(got.tokens, after);
        ++served_after;
      }
    }
  };
  std::thread one_client([&] { run(*one->client); });
  std::thread two_client([&] { run(*two->client); });
  EXPECT_TRUE(Eventually([&] { return served_before >= 20; }));
  EXPECT_EQ(served_after, 0);
  EXPECT_EQ(refused, 0);
  old_model->server.reset();
  EXPECT_TRUE(Eventually([&] { return served_after >= 20; }));
  EXPECT_TRUE(Eventually(
      [&] { return one->service->Ready() && two->service->Ready(); }));
  stop = true;
  one_client.join();
  two_client.join();
}

TEST(FailoverTest, ARequestWithoutOutputGoesOnWithTheModelThatIsElected) {
  auto old_model = StartVerifier({});
  auto next = StartVerifier(OtherModel());
  const v1::GenerateRequest request = MakeRequest({1, 2, 3}, "off", 50);
  orchestrator::OrchestratorService config;
  config.verifiers = {next->address()};
  const Generated after = Generate(*StartOrchestrator(config)->client, request);
  FORETOKEN_ASSERT_OK(after.status);
  config.verifiers = {old_model->address(), next->address()};
  const auto orchestrator = StartOrchestrator(config);
  ASSERT_EQ(orchestrator->service->pool().Info()->numerics_fingerprint, "fake");
  old_model->server.reset();
  // It begins with the old model, which takes some probes to be replaced.
  const Generated got = Generate(*orchestrator->client, request);
  FORETOKEN_EXPECT_OK(got.status);
  EXPECT_EQ(got.tokens, after.tokens);
}

TEST(FailoverTest, ARequestCanPinTheModelThatTheFirstMessageNames) {
  const auto verifier = StartVerifier({});
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  const auto orchestrator = StartOrchestrator(config);
  v1::GenerateRequest request = MakeRequest({1, 2, 3}, "off", 5);
  request.mutable_sampling()->set_seed(11);
  v1::GenerateStart start;
  int starts = 0;
  const auto note = [&](const v1::GenerateDelta& delta) {
    if (delta.has_start()) {
      start = delta.start();
      ++starts;
    }
    return true;
  };
  FORETOKEN_EXPECT_OK(
      orchestrator->client
          ->Generate(request, absl::Now() + absl::Minutes(2), note)
          .status());
  EXPECT_EQ(starts, 1);
  EXPECT_EQ(start.numerics_fingerprint(), "fake");
  EXPECT_EQ(start.seed(), 11u);
  EXPECT_FALSE(start.request_id().empty());
  request.set_numerics_fingerprint(start.numerics_fingerprint());
  FORETOKEN_EXPECT_OK(Generate(*orchestrator->client, request).status);
  request.set_numerics_fingerprint("another");
  EXPECT_THAT(Generate(*orchestrator->client, request).status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("numerics_fingerprint")));
}

TEST(FailoverTest, RequestsGoToTheLeastLoadedVerifier) {
  auto a = StartVerifier({});
  auto b = StartVerifier({});
  orchestrator::OrchestratorService config;
  config.verifiers = {a->address(), b->address()};
  const auto orchestrator = StartOrchestrator(config);
  orchestrator::VerifierPool& pool = orchestrator->service->pool();
  auto first = pool.Acquire({});
  auto second = pool.Acquire({});
  auto third = pool.Acquire({});
  ASSERT_TRUE(first && second && third);
  EXPECT_NE(first->id(), second->id());
  third.reset();
  second.reset();
  // One lease left, on the first one's verifier.
  EXPECT_EQ(pool.Acquire({})->id(), 1 - first->id());
  EXPECT_FALSE(pool.Acquire({0, 1}).has_value());
}

TEST(FailoverTest, WithoutAnyVerifierRequestsEndAsUnavailable) {
  orchestrator::OrchestratorService config;
  config.verifiers = {"unix:/nonexistent/foretoken.sock"};
  const auto orchestrator = StartOrchestrator(config);
  EXPECT_THAT(
      Generate(*orchestrator->client, MakeRequest({1}, "off", 2)).status,
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("verifier")));
}

}  // namespace
}  // namespace foretoken::testing
