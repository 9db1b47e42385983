// The orchestrator's core as the Generator of its own process.
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/clock.h"
#include "common/generation/generator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::testing {
namespace {

using ::testing::_;
using ::testing::Not;

TEST(InProcessGenerationTest, TextsUnderWayHoldUpTheEnd) {
  const TempDir dir;
  TestVerifierOptions options;
  options.fake.vocab_size = kTinyVocabulary;
  const auto verifier = StartVerifier(options);
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  config.tokenizer = dir.Write("tokenizer.json", TinyTokenizerJson());
  const auto orchestrator = StartOrchestrator(config);
  ASSERT_TRUE(Eventually([&] { return orchestrator->service->Ready(); }));
  Generator& generator = orchestrator->service->generation();
  // Leave nothing but the service's destructor to wait for the texts.
  orchestrator->client.reset();
  orchestrator->server.reset();
  absl::Notification ending;
  constexpr int kTexts = 8;
  std::atomic<int> written{0};
  for (int i = 0; i < kTexts; ++i) {
    generator.Tokenize({}, "the hen", true, MonotonicNow() + absl::Minutes(5),
                       [&](const absl::StatusOr<std::vector<TokenId>>& tokens) {
                         if (!tokens.ok()) return;
                         ending.WaitForNotification();
                         ++written;
                       });
  }
  ending.Notify();
  orchestrator->service.reset();
  EXPECT_EQ(written, kTexts);
}

class EndListener final : public GenerationListener {
 public:
  bool OnDelta(const GenerationDelta& delta) override {
    tokens += static_cast<int>(delta.token_ids.size());
    return true;
  }
  void OnResult(const GenerationSummary&) override {}
  void OnEnd(const absl::Status& status) override {
    end = status;
    ended.Notify();
  }

  int tokens = 0;
  absl::Status end;
  absl::Notification ended;
};

TEST(InProcessGenerationTest, RequestsCountInTheAccountOfTheirCaller) {
  TestVerifierOptions options;
  options.fake.vocab_size = kTinyVocabulary;
  const auto verifier = StartVerifier(options);
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier->address()};
  const auto orchestrator = StartOrchestrator(config);
  ASSERT_TRUE(Eventually([&] { return orchestrator->service->Ready(); }));
  Generator& generator = orchestrator->service->generation();
  const auto run = [&](const Caller& caller, int max_tokens) {
    GenerationRequest request;
    request.caller = caller;
    request.prompt = {3, 4, 5};
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.deadline = MonotonicNow() + absl::Minutes(2);
    auto listener = std::make_shared<EndListener>();
    const auto call = generator.Start(std::move(request), listener);
    listener->ended.WaitForNotification();
    return listener;
  };
  Caller alice;
  alice.name = "alice";
  alice.named = true;
  Caller nobody;
  nobody.name = "127.0.0.1";
  FORETOKEN_EXPECT_OK(run(alice, 7)->end);
  FORETOKEN_EXPECT_OK(run(nobody, 4)->end);
  EXPECT_THAT(run(alice, 0)->end, Not(IsOk()));
  alice.requests_per_minute = 1;
  FORETOKEN_EXPECT_OK(run(alice, 2)->end);
  EXPECT_THAT(run(alice, 2)->end,
              StatusIs(absl::StatusCode::kResourceExhausted, _));
  const auto requests = [&](const char* name, const char* outcome) {
    return orchestrator->Sample(
        absl::StrCat("foretoken_principal_requests_total{outcome=\"", outcome,
                     "\",principal=\"", name, "\"}"));
  };
  const auto tokens = [&](const char* name, const char* kind) {
    return orchestrator->Sample(
        absl::StrCat("foretoken_principal_tokens_total{kind=\"", kind,
                     "\",principal=\"", name, "\"}"));
  };
  EXPECT_EQ(requests("alice", "served"), 2);
  EXPECT_EQ(requests("alice", "failed"), 1);
  EXPECT_EQ(requests("alice", "refused"), 1);
  EXPECT_EQ(tokens("alice", "prompt"), 6);
  EXPECT_EQ(tokens("alice", "generated"), 9);
  EXPECT_EQ(requests("other", "served"), 1);
  EXPECT_EQ(tokens("other", "generated"), 4);
}

}  // namespace
}  // namespace foretoken::testing
