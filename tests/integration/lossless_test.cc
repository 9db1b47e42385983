// Speculation over real gRPC writes exactly what plain decoding writes.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/flapping_arm.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

constexpr char kTinyModel[] =
    "d_model=32,layers=2,heads=4,kv_heads=2,d_ff=64,vocab=96,"
    "max_positions=512";
constexpr int kVocab = 96;
constexpr int kPrompts = 200;
constexpr int kMaxTokens = 100;  // 200 x 100 = 20,000 tokens

// Sampling that the four quarters of the prompts use: greedy, plain sampling,
// nucleus, everything with penalties.
void SetSampling(int index, v1::GenerateRequest& request) {
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_seed(1000 + index);
  request.set_ignore_eos(true);
  const int kind = index % 4;
  if (kind == 0) return;
  sampling.set_temperature(0.8f);
  if (kind >= 2) sampling.set_top_p(0.9f);
  if (kind == 3) {
    sampling.set_repetition_penalty(1.1f);
    sampling.set_presence_penalty(0.3f);
    sampling.set_frequency_penalty(0.2f);
  }
}

struct Outputs {
  std::vector<std::vector<TokenId>> tokens;
  int64_t accepted = 0;
  int64_t rounds = 0;
};

Outputs RunAll(const WireClient& client, const std::string& mode,
               int concurrency) {
  Outputs outputs;
  outputs.tokens.resize(kPrompts);
  std::atomic<int> next{0};
  std::atomic<int64_t> accepted{0}, rounds{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < concurrency; ++t) {
    threads.emplace_back([&] {
      for (int i = next++; i < kPrompts; i = next++) {
        v1::GenerateRequest request =
            MakeRequest(MakePrompt(i, 4 + i % 60, kVocab), mode, kMaxTokens);
        SetSampling(i, request);
        const Generated got = Generate(client, request);
        FORETOKEN_EXPECT_OK(got.status) << "prompt " << i;
        outputs.tokens[i] = got.tokens;
        accepted += got.result.speculation().accepted_tokens();
        rounds += got.result.speculation().rounds();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  outputs.accepted = accepted;
  outputs.rounds = rounds;
  return outputs;
}

struct System {
  std::unique_ptr<TestVerifier> verifier;
  std::unique_ptr<TestOrchestrator> orchestrator;
};

std::unique_ptr<TestOrchestrator> StartOrchestratorOf(
    const TestVerifier& verifier) {
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier.address()};
  return StartOrchestrator(config);
}

System StartSystem(int threads, int64_t kv_cache_bytes,
                   verifier::ArmHook arm_hook = nullptr) {
  TestVerifierOptions options;
  options.engine.arm_hook = std::move(arm_hook);
  options.random_model = kTinyModel;
  options.threads = threads;
  options.kv_cache_bytes = kv_cache_bytes;
  System system;
  system.verifier = StartVerifier(options);
  system.orchestrator = StartOrchestratorOf(*system.verifier);
  return system;
}

TEST(LosslessTest, PromptLookupEqualsOffUnderEveryCondition) {
  // Plain decoding, one request at a time: the reference.
  const System plain = StartSystem(1, 0);
  const Outputs reference = RunAll(*plain.orchestrator->client, "off", 1);
  int64_t total = 0;
  for (const auto& tokens : reference.tokens) {
    total += static_cast<int64_t>(tokens.size());
  }
  EXPECT_EQ(total, kPrompts * kMaxTokens);
  EXPECT_EQ(reference.accepted, 0);

  const auto expect_equal = [&](const Outputs& got, const char* what) {
    int different = 0;
    for (int i = 0; i < kPrompts; ++i) {
      different += got.tokens[i] != reference.tokens[i];
    }
    EXPECT_EQ(different, 0) << what;
  };
  const auto lookup = [&](const System& system, int concurrency) {
    return RunAll(*system.orchestrator->client, "prompt_lookup", concurrency);
  };
  const Outputs alone = lookup(plain, 1);
  expect_equal(alone, "concurrency 1");
  EXPECT_GT(alone.accepted, 0) << "no draft was ever right: nothing was tested";
  expect_equal(lookup(plain, 16), "concurrency 16");
  expect_equal(RunAll(*plain.orchestrator->client, "off", 16),
               "off, concurrency 16");

  // Room for a few requests of up to 164 tokens, six pages of 32 each, where 16
  // want to run.
  const System small = StartSystem(1, 200 << 10);
  expect_equal(lookup(small, 16), "small cache");
  EXPECT_GT(small.verifier->Sample("foretoken_preemptions_total"), 0);
  EXPECT_GT(small.verifier->Sample("foretoken_replays_total"), 0);
  EXPECT_LT(small.verifier->Sample("foretoken_kv_pages"), 16 * 6 / 2);

  expect_equal(lookup(StartSystem(3, 0), 16), "three threads");
}

// Two orchestrators on one verifier, whose guard announces another arm after
// every pass: most trees were drafted under the arm before.
TEST(LosslessTest, AutoEqualsOffWhileTheGuardFlaps) {
  const Outputs reference =
      RunAll(*StartSystem(1, 0).orchestrator->client, "off", 4);
  const System system = StartSystem(2, 0, NextArm);
  const auto second = StartOrchestratorOf(*system.verifier);
  Outputs got[2];
  std::thread other([&] { got[1] = RunAll(*second->client, "auto", 8); });
  got[0] = RunAll(*system.orchestrator->client, "auto", 8);
  other.join();
  for (const Outputs& outputs : got) {
    EXPECT_EQ(outputs.tokens, reference.tokens);
    EXPECT_GT(outputs.accepted, 0) << "no draft was ever right";
  }
  for (const char* arm : {"off", "narrow", "wide"}) {
    EXPECT_GT(system.verifier->Sample(absl::StrCat(
                  "foretoken_draft_arm_seconds_total{arm=\"", arm, "\"}")),
              0)
        << arm;
  }
}

// Pearson's statistic of counts against expected shares.
double ChiSquare(const std::map<TokenId, int>& counts,
                 const std::vector<double>& shares, int total) {
  double sum = 0;
  for (size_t token = 0; token < shares.size(); ++token) {
    const auto found = counts.find(static_cast<TokenId>(token));
    const double seen = found == counts.end() ? 0 : found->second;
    const double expected = shares[token] * total;
    sum += (seen - expected) * (seen - expected) / expected;
  }
  return sum;
}

// The second token after a fixed first one, over many seeds, against the
// softmax of its logits: a drafted token must not be drawn more often.
TEST(LosslessTest, SamplingHasTheTargetsDistributionWithAndWithoutDrafts) {
  constexpr int kToyVocab = 8;
  constexpr int kDraws = 4000;
  constexpr float kTemperature = 2.0f;
  TestVerifierOptions options;
  options.fake.vocab_size = kToyVocab;
  const auto verifier = StartVerifier(options);
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  const auto orchestrator = StartOrchestrator(config);
  const std::vector<TokenId> prompt = {1, 2, 3, 1, 2, 3, 1, 2};

  for (const char* mode : {"off", "prompt_lookup"}) {
    // Counts of the second token given the first; the second comes from a
    // verified tree.
    std::map<TokenId, std::map<TokenId, int>> counts;
    std::map<TokenId, int> first;
    int64_t drafted = 0;
    for (int seed = 0; seed < kDraws; ++seed) {
      v1::GenerateRequest request = MakeRequest(prompt, mode, 4);
      // The end token of the fake model must not cut the pair.
      request.set_ignore_eos(true);
      request.mutable_sampling()->set_temperature(kTemperature);
      request.mutable_sampling()->set_seed(seed);
      const Generated got = Generate(*orchestrator->client, request);
      FORETOKEN_ASSERT_OK(got.status);
      ASSERT_EQ(got.tokens.size(), 4u);
      drafted += got.result.speculation().drafted_tokens();
      ++first[got.tokens[0]];
      ++counts[got.tokens[0]][got.tokens[1]];
    }
    const auto shares_after = [&](const std::vector<TokenId>& path) {
      const std::vector<float> logits = FakeLogits(path, kToyVocab);
      std::vector<double> shares;
      double sum = 0;
      for (const float logit : logits) {
        shares.push_back(std::exp(static_cast<double>(logit) / kTemperature));
        sum += shares.back();
      }
      for (double& share : shares) share /= sum;
      return shares;
    };
    EXPECT_EQ(drafted > 0, std::string(mode) != "off");
    // 7 degrees of freedom: 29.9 is the 0.0001 quantile from above. Seeds are
    // fixed, so the test either always passes or never.
    EXPECT_LT(ChiSquare(first, shares_after(prompt), kDraws), 29.9) << mode;
    for (const auto& [token, after] : counts) {
      if (first[token] < 400) continue;  // too few for every cell
      std::vector<TokenId> path = prompt;
      path.push_back(token);
      EXPECT_LT(ChiSquare(after, shares_after(path), first[token]), 29.9)
          << mode << " after " << token;
    }
  }
}

}  // namespace
}  // namespace foretoken::testing
