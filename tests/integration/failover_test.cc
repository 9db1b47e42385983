// A stream outlives its verifier.
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
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

// Generates and calls `at_tenth` once, when the tenth delta arrives.
Generated GenerateWithEvent(const rpc::GenerationClient& client,
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
  // Same shape and limits, other weights: another fingerprint.
  TestVerifierOptions model;
  model.random_model =
      "d_model=32,layers=1,heads=2,kv_heads=2,d_ff=64,vocab=50,"
      "max_positions=4096";
  TestVerifierOptions fake;
  auto a = StartVerifier(fake);
  auto b = StartVerifier(model);
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
  EXPECT_NE(first->index(), second->index());
  third.reset();
  second.reset();
  // One lease left, on the first one's verifier.
  EXPECT_EQ(pool.Acquire({})->index(), 1 - first->index());
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
