// Sessions that misbehave, and what the others notice of it: nothing.
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/verifier/engine_fixture.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::FakeBackendOptions;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr TokenId kPoison = 49;

FakeBackendOptions Poisoned() {
  FakeBackendOptions options;
  options.poison = kPoison;
  return options;
}

TEST(VerifyEngineFaultsTest, LogitsThatAreNoNumbersEndTheirOwnSessionAlone) {
  Fixture fixture(Poisoned());
  const SessionRequest good = Request({1, 2, 3}, 5);
  const SessionId before = fixture.engine->Open(good).value();
  const SessionId bad = fixture.engine->Open(Request({4, kPoison}, 5)).value();
  const SessionId after = fixture.engine->Open(good).value();
  const PassReport report = fixture.engine->RunPass();
  ASSERT_THAT(report.failures, SizeIs(1));
  EXPECT_EQ(report.failures[0].session, bad);
  EXPECT_THAT(report.failures[0].status,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not numbers")));
  ASSERT_THAT(report.prefilled, SizeIs(2));
  EXPECT_EQ(report.prefilled[0].session, before);
  EXPECT_EQ(report.prefilled[1].session, after);
  const TokenId expected = Decode(good, 50).front();
  for (const auto& [key, result] : report.prefilled) {
    EXPECT_EQ(result.tokens[0].token, expected);
  }
  EXPECT_EQ(fixture.engine->snapshot().sessions, 2);
}

TEST(VerifyEngineFaultsTest, ADraftWhoseLogitsAreNoNumbersEndsNobody) {
  Fixture fixture(Poisoned());
  const SessionRequest request = Request({1, 2, 3}, 5);
  const std::vector<TokenId> text = Decode(request, 50);
  ASSERT_NE(text[0], kPoison);
  ASSERT_NE(text[1], kPoison);
  const SessionId key = fixture.engine->Open(request).value();
  fixture.engine->RunPass();
  RoundRequest round;
  round.length = 4;
  round.tree = TokenTree::Create({text[1], kPoison}, {-1, -1}).value();
  FORETOKEN_ASSERT_OK(fixture.engine->Submit(key, round));
  const PassReport report = fixture.engine->RunPass();
  EXPECT_THAT(report.failures, IsEmpty());
  ASSERT_THAT(report.rounds, SizeIs(1));
  // Run without its drafts, it still writes the same text.
  const RoundResult& result = report.rounds[0].result;
  ASSERT_THAT(result.tokens, SizeIs(1));
  EXPECT_EQ(result.tokens[0].token, text[1]);
  EXPECT_EQ(result.stats.dropped_nodes, 2);
  EXPECT_THAT(result.row_tokens, ElementsAre(text[1], -1, -1));
}

TEST(VerifyEngineFaultsTest, AModelWithoutNumbersServesNobodyAndSaysWhy) {
  FakeBackendOptions options;
  options.broken_from = 2;
  Fixture fixture(options);
  VerifyEngine& engine = *fixture.engine;
  const SessionId first = engine.Open(Request({1, 2, 3}, 5)).value();
  ASSERT_THAT(engine.RunPass().prefilled, SizeIs(1));
  FORETOKEN_EXPECT_OK(engine.snapshot().model_fault);
  const SessionId second = engine.Open(Request({4}, 5)).value();
  RoundRequest round;
  round.length = 4;
  FORETOKEN_ASSERT_OK(engine.Submit(first, round));
  const PassReport report = engine.RunPass();
  ASSERT_THAT(report.failures, SizeIs(2));
  const auto unavailable =
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("not finite"));
  for (const SessionFailure& failure : report.failures) {
    EXPECT_THAT(failure.session, ::testing::AnyOf(first, second));
    EXPECT_THAT(failure.status, unavailable);
  }
  EXPECT_THAT(engine.snapshot().model_fault, unavailable);
  EXPECT_THAT(engine.Open(Request({1}, 5)), unavailable);
  EXPECT_EQ(engine.snapshot().sessions, 0);
}

TEST(VerifyEngineFaultsTest, AFaultFoundBeforeTheStartRefusesTheFirst) {
  VerifyEngineOptions options;
  options.model_fault = absl::DataLossError("bad weights");
  Fixture fixture({}, options);
  EXPECT_THAT(
      fixture.engine->Open(Request({1}, 5)),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("bad weights")));
  EXPECT_EQ(fixture.backend->forwards(), 0);
}

// Room for one of the two prompts below at a time.
struct Crowded {
  Crowded() : fixture(Backend()) {}
  static FakeBackendOptions Backend() {
    FakeBackendOptions options;
    options.pages = 4;
    return options;
  }
  Fixture fixture;
  const SessionRequest request = Request(std::vector<TokenId>(60, 1), 8);
};

TEST(VerifyEngineFaultsTest, ASessionThatItsClientLeavesIdleMakesRoom) {
  Crowded crowded;
  Fixture& fixture = crowded.fixture;
  VerifyEngine& engine = *fixture.engine;
  const std::vector<TokenId> text = Decode(crowded.request, 50);
  const SessionId idle = engine.Open(crowded.request).value();
  engine.RunPass();
  const SessionId waiting = engine.Open(crowded.request).value();
  EXPECT_THAT(engine.RunPass().prefilled, IsEmpty());
  EXPECT_FALSE(engine.HasWork());
  // The thread that drives the engine knows when to look again.
  const absl::Time due = fixture.now + VerifyEngineOptions().idle_time;
  EXPECT_EQ(engine.NextDeadline(), due);
  fixture.now = due - absl::Milliseconds(1);
  EXPECT_FALSE(engine.HasWork());
  fixture.now = due;
  EXPECT_TRUE(engine.HasWork());
  const PassReport admitted = engine.RunPass();
  ASSERT_THAT(admitted.prefilled, SizeIs(1));
  EXPECT_EQ(admitted.prefilled[0].session, waiting);
  EXPECT_EQ(engine.snapshot().totals.preemptions, 1);

  // The idle one goes on, in its turn, as if nothing had been.
  RoundRequest round;
  round.length = 61;
  FORETOKEN_ASSERT_OK(engine.Submit(idle, round));
  EXPECT_THAT(engine.RunPass().rounds, IsEmpty());
  FORETOKEN_ASSERT_OK(engine.Close(waiting));
  PassReport report;
  while (report.rounds.empty() && engine.HasWork()) report = engine.RunPass();
  ASSERT_THAT(report.rounds, SizeIs(1));
  EXPECT_EQ(report.rounds[0].session, idle);
  EXPECT_EQ(report.rounds[0].result.tokens[0].token, text[1]);
}

TEST(VerifyEngineFaultsTest, NobodyIsPreemptedForIdlenessWhileNobodyWaits) {
  Crowded crowded;
  Fixture& fixture = crowded.fixture;
  FORETOKEN_ASSERT_OK(fixture.engine->Open(crowded.request));
  fixture.engine->RunPass();
  fixture.now += absl::Hours(1);
  EXPECT_FALSE(fixture.engine->HasWork());
  EXPECT_EQ(fixture.engine->NextDeadline(), absl::InfiniteFuture());
  fixture.engine->RunPass();
  EXPECT_EQ(fixture.engine->snapshot().totals.preemptions, 0);
}

}  // namespace
}  // namespace foretoken::verifier
