// The orchestrator's rounds over remote drafters: whatever they do, the output
// is that of plain decoding.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/integration/fake_drafters.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

using ::testing::IsSupersetOf;

constexpr int kMaxTokens = 60;
constexpr int kPrompts = 6;

struct Outputs {
  std::vector<std::vector<TokenId>> tokens;
  int64_t accepted = 0;
  int64_t degraded = 0;
  int64_t shortened = 0;
  int64_t answered = 0;
};

// Always drafts: on a busy machine the guard may find that drafting does not
// pay, and mode auto would not show what the services gave.
TestVerifierOptions Unguarded() {
  TestVerifierOptions options;
  options.engine.guard = verifier::GuardMode::kWide;
  return options;
}

class DraftersTest : public ::testing::Test {
 protected:
  DraftersTest() : verifier_(StartVerifier(Unguarded())) {}

  void Start(const std::string& drafters) {
    orchestrator::OrchestratorService config;
    config.verifiers = {verifier_->address()};
    for (const char* service : {"trie_drafter", "draft_worker", "crest"}) {
      if (!drafters.empty()) config.drafters[service] = {drafters};
    }
    config.server.drafters.crest_datastore = "text";
    config.server.drafters.breaker.silence = silence_;
    config.server.drafters.breaker.first_backoff = first_backoff_;
    config.server.drafters.breaker.max_backoff = longest_backoff_;
    config.server.draft_wait = {100.0, wait_,       wait_,
                                10.0,  whole_wait_, whole_wait_};
    orchestrator_ = StartOrchestrator(config);
  }

  Outputs Run(const std::string& mode) {
    Outputs outputs;
    for (int i = 0; i < kPrompts; ++i) {
      v1::GenerateRequest request =
          MakeRequest(MakePrompt(i, 30, 50), mode, tokens_);
      request.set_ignore_eos(true);
      request.set_cache_scope("scope");
      request.mutable_sampling()->set_seed(i);
      if (i % 2 == 1) request.mutable_sampling()->set_temperature(0.8f);
      const Generated got = Generate(*orchestrator_->client, request);
      FORETOKEN_EXPECT_OK(got.status);
      outputs.tokens.push_back(got.tokens);
      const v1::SpeculationStats& stats = got.result.speculation();
      outputs.accepted += stats.accepted_tokens();
      EXPECT_EQ(stats.rounds() + stats.accepted_tokens() + 1, tokens_);
      for (const v1::DrafterStats& drafter : stats.by_drafter()) {
        outputs.degraded += drafter.degraded_rounds();
        outputs.shortened += drafter.shortened_drafts();
        outputs.answered += drafter.rounds();
      }
    }
    return outputs;
  }

  double Breaker(const std::string& service) const {
    return orchestrator_->Sample(
        absl::StrCat("foretoken_breaker_state{service=\"", service, "\"}"));
  }
  double Degraded(const std::string& drafter, const std::string& reason) const {
    return orchestrator_->Sample(
        absl::StrCat("foretoken_degraded_rounds_total{drafter=\"", drafter,
                     "\",reason=\"", reason, "\"}"));
  }

  double Shortened(const std::string& drafter) const {
    return orchestrator_->Sample(absl::StrCat(
        "foretoken_shortened_drafts_total{drafter=\"", drafter, "\"}"));
  }

  absl::Duration wait_ = absl::Seconds(30);        // of mode auto
  absl::Duration whole_wait_ = absl::Seconds(30);  // of all other modes
  absl::Duration silence_ = absl::Milliseconds(5);
  absl::Duration first_backoff_ = absl::Milliseconds(5);
  absl::Duration longest_backoff_ = absl::Milliseconds(500);
  int tokens_ = kMaxTokens;
  std::unique_ptr<TestVerifier> verifier_;
  FakeDrafters fakes_;
  std::unique_ptr<TestOrchestrator> orchestrator_;
};

TEST_F(DraftersTest, EveryModeWritesWhatOffWrites) {
  Start(fakes_.address());
  const Outputs off = Run("off");
  EXPECT_EQ(off.accepted, 0);
  for (const char* mode : {"draft_model", "lookahead", "ouroboros",
                           "ngram_trie", "crest", "prompt_lookup", "auto"}) {
    const Outputs got = Run(mode);
    EXPECT_EQ(got.tokens, off.tokens) << mode;
    EXPECT_GT(got.accepted, 0) << mode;
    EXPECT_GT(got.answered, 0) << mode;
    EXPECT_EQ(got.degraded, 0) << mode;
    EXPECT_EQ(got.shortened, 0) << mode;
  }
  EXPECT_GT(fakes_.phrases(), 0) << "the pool's gains went to nobody";
  EXPECT_TRUE(Eventually([&] { return fakes_.open() == 0; }));
  v1::GetModelInfoResponse info =
      orchestrator_->client->GetModelInfo(absl::Now() + absl::Minutes(1))
          .value();
  EXPECT_THAT(
      std::vector<std::string>(info.modes().begin(), info.modes().end()),
      IsSupersetOf({"draft_model", "ouroboros", "crest"}));
}

TEST_F(DraftersTest, EveryModeReturnsTheTreesOfItsRoundsIfAsked) {
  Start(fakes_.address());
  for (const char* mode : {"off", "draft_model", "lookahead", "ouroboros",
                           "ngram_trie", "crest", "prompt_lookup", "auto"}) {
    v1::GenerateRequest request = MakeRequest(MakePrompt(1, 30, 50), mode, 60);
    request.set_ignore_eos(true);
    const Generated unasked = Generate(*orchestrator_->client, request);
    EXPECT_TRUE(unasked.trees.empty()) << mode;
    request.set_want_round_trees(true);
    const Generated got = Generate(*orchestrator_->client, request);
    FORETOKEN_ASSERT_OK(got.status);
    EXPECT_EQ(got.tokens, unasked.tokens) << mode;
    const v1::SpeculationStats& stats = got.result.speculation();
    EXPECT_EQ(static_cast<int64_t>(got.trees.size()), stats.rounds()) << mode;
    std::vector<TokenId> output = {got.tokens.at(0)};
    int64_t drafted = 0, accepted = 0;
    for (const v1::RoundTree& tree : got.trees) {
      ASSERT_EQ(tree.path_size() + 1, tree.committed_size()) << mode;
      int32_t last = -1;
      for (int i = 0; i < tree.path_size(); ++i) {
        ASSERT_LT(tree.path(i), tree.tokens_size());
        EXPECT_EQ(tree.parents(tree.path(i)), last);
        last = tree.path(i);
        EXPECT_EQ(tree.tokens(last), tree.committed(i));
      }
      output.insert(output.end(), tree.committed().begin(),
                    tree.committed().end());
      drafted += tree.tokens_size();
      accepted += tree.path_size();
    }
    EXPECT_EQ(output, got.tokens) << mode;
    EXPECT_EQ(drafted, stats.drafted_tokens()) << mode;
    EXPECT_EQ(accepted, stats.accepted_tokens()) << mode;
    EXPECT_EQ(accepted > 0, std::string(mode) != "off") << mode;
  }
}

struct FailureCase {
  Behaviour behaviour;
  const char* reason;
  bool opens;  // the breaker
};

class FailingDraftersTest : public DraftersTest,
                            public ::testing::WithParamInterface<FailureCase> {
};

TEST_P(FailingDraftersTest, TheOutputIsUnchangedAndTheBreakerTells) {
  const FailureCase& failure = GetParam();
  if (failure.behaviour == Behaviour::kHung) {
    wait_ = whole_wait_ = absl::Milliseconds(2);
  }
  Start(fakes_.address());
  const Outputs off = Run("off");
  fakes_.Behave(failure.behaviour);
  for (const char* mode : {"draft_model", "ouroboros", "crest", "auto"}) {
    const Outputs got = Run(mode);
    EXPECT_EQ(got.tokens, off.tokens) << mode;
    if (failure.reason != nullptr) {
      EXPECT_GT(got.degraded, 0) << mode;
    }
  }
  if (failure.reason != nullptr) {
    EXPECT_GT(Degraded("draft_model", failure.reason), 0);
    EXPECT_GT(Degraded("crest", failure.reason), 0);
  }
  if (failure.opens) {
    EXPECT_GT(Degraded("draft_model", "breaker_open"), 0);
    EXPECT_GT(Degraded("crest", "breaker_open"), 0);
  }

  fakes_.Behave(Behaviour::kGood);
  EXPECT_TRUE(Eventually([&] {
    const Outputs got = Run("draft_model");
    EXPECT_EQ(got.tokens, off.tokens);
    return Breaker("draft_worker") == 0 && got.answered > 0;
  }));
  EXPECT_TRUE(Eventually([&] { return fakes_.open() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(
    All, FailingDraftersTest,
    ::testing::Values(FailureCase{Behaviour::kHung, "late", true},
                      FailureCase{Behaviour::kRefuses, "refused", true},
                      FailureCase{Behaviour::kFails, "broken", true},
                      FailureCase{Behaviour::kForgets, "broken", false},
                      FailureCase{Behaviour::kBadParents, "broken", true},
                      FailureCase{Behaviour::kBadIds, nullptr, false},
                      FailureCase{Behaviour::kStale, "broken", true},
                      FailureCase{Behaviour::kHuge, "broken", true}));

TEST_F(DraftersTest, ARequestThatNamesItsModeWaitsForWholeDrafts) {
  wait_ = absl::Milliseconds(1);
  silence_ = absl::Seconds(30);
  tokens_ = 10;
  Start(fakes_.address());
  fakes_.Behave(Behaviour::kSlow);
  for (const char* mode : {"draft_model", "ouroboros", "crest"}) {
    const Outputs got = Run(mode);
    EXPECT_EQ(got.degraded, 0) << mode;
    EXPECT_EQ(got.shortened, 0) << mode;
    EXPECT_GT(got.answered, 0) << mode;
  }
  EXPECT_GT(Run("auto").shortened, 0);
}

TEST_F(DraftersTest, ASlowServiceIsAskedLessOftenAndNotLeftAlone) {
  wait_ = whole_wait_ = absl::Milliseconds(1);
  silence_ = absl::Seconds(30);
  Start(fakes_.address());
  const Outputs off = Run("off");
  fakes_.Behave(Behaviour::kSlow);
  const Outputs got = Run("draft_model");
  EXPECT_EQ(got.tokens, off.tokens);
  EXPECT_EQ(Degraded("draft_model", "late"), got.degraded);
  EXPECT_EQ(Shortened("draft_model"), got.degraded);
  EXPECT_EQ(got.shortened, got.degraded);
  EXPECT_GT(got.degraded, kPrompts * (kMaxTokens - 1) / 2);
  EXPECT_LT(fakes_.rounds(), got.degraded);
  EXPECT_EQ(Breaker("draft_worker"), 0);
}

// A breaker that opened over a long prefill does not make it begin again.
TEST_F(DraftersTest, AStreamThatOwesAnswersIsKeptThroughAnOpenBreaker) {
  wait_ = whole_wait_ = absl::Milliseconds(1);
  silence_ = absl::Milliseconds(10);
  first_backoff_ = longest_backoff_ = absl::Milliseconds(60);
  tokens_ = 20 * kMaxTokens;
  Start(fakes_.address());
  const Outputs off = Run("off");
  fakes_.Behave(Behaviour::kHeld);
  fakes_.gate().Close();
  const int before = fakes_.opened();
  Outputs got;
  std::thread run([&] { got = Run("draft_model"); });
  EXPECT_TRUE(
      Eventually([&] { return Degraded("draft_model", "breaker_open") > 0; }));
  fakes_.gate().Open();
  run.join();
  EXPECT_EQ(got.tokens, off.tokens);
  EXPECT_LE(fakes_.opened() - before, kPrompts);
}

TEST_F(DraftersTest, AServiceThatSpeaksOfOtherTokensIsGivenUpForTheRequest) {
  Start(fakes_.address());
  const Outputs off = Run("off");
  fakes_.Behave(Behaviour::kForeign);
  const int before = fakes_.opened();
  const Outputs got = Run("draft_model");
  EXPECT_EQ(got.tokens, off.tokens);
  EXPECT_GT(Degraded("draft_model", "refused"), kPrompts);
  EXPECT_EQ(fakes_.opened() - before, kPrompts);
  EXPECT_EQ(Breaker("draft_worker"), 0) << "it is well";
}

TEST_F(DraftersTest, DeadServicesDelayNothingAndComeBack) {
  std::string address;
  {
    FakeDrafters gone;
    address = gone.address();
  }
  Start(address);
  const Outputs off = Run("off");
  for (const char* mode : {"draft_model", "ngram_trie", "crest", "auto"}) {
    const Outputs got = Run(mode);
    EXPECT_EQ(got.tokens, off.tokens) << mode;
    EXPECT_GT(got.degraded, 0) << mode;
  }
}

TEST_F(DraftersTest, ModesWithoutTheirServiceAreUnimplementedByName) {
  Start("");
  for (const char* mode : {"draft_model", "ouroboros", "crest"}) {
    const Generated got =
        Generate(*orchestrator_->client, MakeRequest({1, 2, 3}, mode, 4));
    EXPECT_THAT(got.status, StatusIs(absl::StatusCode::kUnimplemented,
                                     ::testing::HasSubstr(mode)));
  }
}

}  // namespace
}  // namespace foretoken::testing
