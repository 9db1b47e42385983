#include "services/verifier/core/verify_engine.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/flapping_arm.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/verifier/engine_fixture.h"
#include "tests/unit/services/verifier/engine_script.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::FakeBackendOptions;
using ::foretoken::testing::FakeLogits;
using ::foretoken::testing::RunSessions;
using ::foretoken::testing::ScriptResult;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Random requests of every kind of sampling.
std::vector<SessionRequest> RandomRequests(std::mt19937& random, int count,
                                           int longest_prompt, int max_tokens,
                                           int32_t vocab_size) {
  std::vector<SessionRequest> requests;
  for (int i = 0; i < count; ++i) {
    std::vector<TokenId> prompt(1 + random() % longest_prompt);
    for (TokenId& token : prompt) token = random() % vocab_size;
    SessionRequest request = Request(prompt, 1 + random() % max_tokens);
    request.cache_scope = i % 3 == 0 ? "" : "shared";
    SamplingParams& sampling = request.sampling;
    sampling.seed = random();
    if (random() % 2 == 0) sampling.temperature = 0.8f;
    if (random() % 2 == 0) sampling.top_p = 0.9f;
    if (random() % 2 == 0) sampling.repetition_penalty = 1.2f;
    if (random() % 2 == 0) sampling.frequency_penalty = 0.3f;
    if (random() % 2 == 0) request.stop_tokens = {TokenId(random() % 50)};
    sampling.end_tokens = request.stop_tokens;
    sampling.min_tokens = random() % 4;
    requests.push_back(std::move(request));
  }
  return requests;
}

void ExpectPlainOutput(Fixture& fixture,
                       const std::vector<SessionRequest>& requests,
                       int max_nodes, uint32_t seed) {
  const int32_t vocab_size = fixture.engine->model().vocab_size;
  std::vector<std::vector<TokenId>> truths;
  for (const SessionRequest& request : requests) {
    truths.push_back(Decode(request, vocab_size));
  }
  const auto results =
      RunSessions(*fixture.engine, requests, truths, max_nodes, seed);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(results[i].output, truths[i])
        << "request " << i << " seed " << seed;
    EXPECT_EQ(static_cast<int64_t>(results[i].output.size()),
              1 + results[i].rounds + results[i].accepted);
    const bool stopped =
        std::count(requests[i].stop_tokens.begin(),
                   requests[i].stop_tokens.end(), truths[i].back()) > 0;
    EXPECT_EQ(results[i].finish,
              stopped ? FinishReason::kStop : FinishReason::kLength);
  }
  EXPECT_EQ(fixture.engine->snapshot().sessions, 0);
  const KvUsage usage = fixture.engine->snapshot().kv;
  EXPECT_EQ(usage.pages_free, usage.pages_total);
  EXPECT_EQ(usage.sessions, 0);
}

TEST(VerifyEngineTest, DraftsBatchMatesAndChunksChangeNoToken) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    VerifyEngineOptions options;
    options.max_rows_per_pass = 20 + random() % 200;
    options.max_rows_per_session = 1 + random() % 40;
    options.prefill_chunk = 1 + random() % 30;
    Fixture fixture({}, options);
    ExpectPlainOutput(fixture,
                      RandomRequests(random, 1 + random() % 16, 80, 40, 50),
                      /*max_nodes=*/random() % 45, seed);
    EXPECT_EQ(fixture.engine->snapshot().totals.preemptions, 0);
  }
}

TEST(VerifyEngineTest, PreemptionAndReplayChangeNoToken) {
  int64_t preemptions = 0;
  int64_t replays = 0;
  for (uint32_t seed = 100; seed < 130; ++seed) {
    std::mt19937 random(seed);
    FakeBackendOptions backend;
    backend.pages = 8;  // 256 tokens; a request may take 150
    VerifyEngineOptions options;
    options.admission_reserve = 1 + random() % 40;
    Fixture fixture(backend, options);
    std::vector<SessionRequest> requests =
        RandomRequests(random, 12, 60, 90, 50);
    for (SessionRequest& request : requests) {
      request.caller = absl::StrCat(random() % (1 + seed % 3));
    }
    ExpectPlainOutput(fixture, requests, /*max_nodes=*/30, seed);
    preemptions += fixture.engine->snapshot().totals.preemptions;
    replays += fixture.engine->snapshot().totals.replays;
  }
  EXPECT_GT(preemptions, 50);
  EXPECT_GT(replays, 50);
}

// A caller between two requests has no session: others must not fill the pass
// that its next request has to wait for.
TEST(VerifyEngineTest, PassesStayShortForACallerBetweenTwoRequests) {
  constexpr int kMany = 40;
  VerifyEngineOptions options;
  for (int32_t rows = 1; rows <= 512; rows *= 2) {
    options.pass_timing.Observe(rows, rows * absl::Milliseconds(1));
  }
  Fixture fixture({}, options);
  VerifyEngine& engine = *fixture.engine;
  std::vector<SessionId> many;
  for (int i = 0; i < kMany; ++i) {
    SessionRequest request = Request({1}, 100);
    request.caller = "many";
    many.push_back(*engine.Open(request));
  }
  while (engine.HasWork()) engine.RunPass();
  int64_t length = 2;
  const auto run = [&] {
    for (const SessionId id : many) {
      RoundRequest round;
      round.length = length;
      FORETOKEN_ASSERT_OK(engine.Submit(id, round));
    }
    ++length;
  };
  SessionRequest request = Request({1}, 100);
  request.caller = "one";
  const SessionId one = *engine.Open(request);
  while (engine.HasWork()) engine.RunPass();
  RoundRequest its_round;
  its_round.length = 2;
  FORETOKEN_ASSERT_OK(engine.Submit(one, its_round));
  engine.RunPass();
  FORETOKEN_ASSERT_OK(engine.Close(one));

  run();
  EXPECT_LE(engine.RunPass().stats.rows, 4);
  fixture.now += absl::Milliseconds(60);
  EXPECT_GE(engine.RunPass().stats.rows, kMany - 4);
}

// Runs a round without drafts of every session that is free to send one.
void RunRounds(VerifyEngine& engine, std::map<SessionId, int64_t>& lengths) {
  for (const auto& [id, length] : lengths) {
    RoundRequest round;
    round.length = length;
    // (One that is preempted has not answered its last round.)
    engine.Submit(id, round).IgnoreError();
  }
  const PassReport report = engine.RunPass();
  EXPECT_THAT(report.failures, IsEmpty());
  for (const auto& [id, result] : report.rounds) lengths[id] = result.length;
  for (const auto& [id, result] : report.prefilled) {
    lengths[id] = result.length;
  }
}

TEST(VerifyEngineTest, ACallerWithManySessionsGivesPagesToOneWithFew) {
  FakeBackendOptions backend;
  backend.pages = 32;
  VerifyEngineOptions options;
  options.admission_reserve = 1;
  Fixture fixture(backend, options);
  VerifyEngine& engine = *fixture.engine;
  std::map<SessionId, int64_t> sessions;
  for (int i = 0; i < 24; ++i) {
    SessionRequest request = Request(std::vector<TokenId>(30, i), 400);
    request.caller = "many";
    sessions[engine.Open(request).value()] = 0;
  }
  for (int i = 0; i < 200; ++i) RunRounds(engine, sessions);
  ASSERT_GT(engine.snapshot().totals.preemptions, 0);

  SessionRequest request = Request(std::vector<TokenId>(30, 40), 100);
  request.caller = "one";
  const SessionId one = engine.Open(request).value();
  sessions[one] = 0;
  RunRounds(engine, sessions);
  EXPECT_EQ(sessions[one], 31) << "is not admitted at once";
  for (int64_t length = 32; length < 100; ++length) {
    RunRounds(engine, sessions);
    ASSERT_EQ(sessions[one], length) << "has lost its pages";
  }
}

TEST(VerifyEngineTest, TheLargestPassIsPredictedFromSmallerOnes) {
  FakeBackendOptions backend;
  backend.max_rows = 2048;
  VerifyEngineOptions options;
  options.max_rows_per_pass = 2048;
  options.pass_timing.Observe(16, absl::Milliseconds(500));
  const Fixture fixture(backend, options);
  const VerifySnapshot snapshot = fixture.engine->snapshot();
  EXPECT_EQ(snapshot.largest_pass, absl::Seconds(64));
  EXPECT_EQ(snapshot.idle_time, options.idle_time);
}

// By closing the session, or by a deadline.
class GivenUpPromptTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(ByDeadline, GivenUpPromptTest, ::testing::Bool());

TEST_P(GivenUpPromptTest, CostsOthersTheirPagesButOnce) {
  FakeBackendOptions backend;
  backend.pages = 32;
  VerifyEngineOptions options;
  options.admission_reserve = 1;
  Fixture fixture(backend, options);
  VerifyEngine& engine = *fixture.engine;
  std::map<SessionId, int64_t> sessions;
  for (int i = 0; i < 10; ++i) {
    SessionRequest request = Request(std::vector<TokenId>(65, i), 31);
    request.caller = "many";
    sessions[engine.Open(request).value()] = 0;
  }
  for (int i = 0; i < 8; ++i) RunRounds(engine, sessions);
  ASSERT_EQ(engine.snapshot().totals.preemptions, 0);

  const auto attack = [&] {
    SessionRequest request = Request(std::vector<TokenId>(400, 11), 10);
    request.caller = "hostile";
    request.deadline = fixture.now + absl::Milliseconds(1);
    const SessionId id = engine.Open(request).value();
    engine.RunPass();
    if (GetParam()) {
      fixture.now += absl::Milliseconds(1);
      EXPECT_EQ(engine.RunPass().failures.size(), 1u);
    } else {
      FORETOKEN_EXPECT_OK(engine.Close(id));
    }
    for (int i = 0; i < 3; ++i) RunRounds(engine, sessions);
    return engine.snapshot().totals.preemptions;
  };
  const int64_t once = attack();
  EXPECT_GT(once, 0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(attack(), once);
  EXPECT_EQ(engine.snapshot().totals.replays, once);
  // A caller who did so long ago is like any other.
  fixture.now += absl::Seconds(11);
  RunRounds(engine, sessions);
  EXPECT_GT(attack(), once);
}

TEST(VerifyEngineTest, NobodyIsPreemptedForASessionThatWouldNotFitEvenSo) {
  FakeBackendOptions backend;
  backend.pages = 10;  // 320 tokens
  VerifyEngineOptions options;
  options.admission_reserve = 1;
  Fixture fixture(backend, options);
  VerifyEngine& engine = *fixture.engine;
  std::map<SessionId, int64_t> sessions;
  const auto open = [&](const char* caller, int64_t tokens) {
    SessionRequest request = Request(std::vector<TokenId>(tokens, 1), 3);
    request.caller = caller;
    sessions[engine.Open(request).value()] = 0;
    engine.RunPass();
  };
  open("oldest", 120);
  for (int i = 0; i < 6; ++i) open("others", 30);
  // The others hold more, but giving up the difference would not suffice.
  open("large", 150);
  EXPECT_EQ(engine.snapshot().totals.preemptions, 0);
  open("small", 1);
  EXPECT_EQ(engine.snapshot().totals.preemptions, 0) << "before its turn";
  FORETOKEN_ASSERT_OK(engine.Close(sessions.begin()->first));
  engine.RunPass();
  EXPECT_GT(engine.snapshot().totals.preemptions, 0);
}

TEST(VerifyEngineTest, TheOldestSessionEndsWhateverOthersAsk) {
  FakeBackendOptions backend;
  backend.pages = 8;
  VerifyEngineOptions options;
  options.admission_reserve = 1;
  Fixture fixture(backend, options);
  VerifyEngine& engine = *fixture.engine;
  SessionRequest large = Request(std::vector<TokenId>(150, 1), 80);
  large.caller = "large";
  std::map<SessionId, int64_t> sessions = {{engine.Open(large).value(), 0}};
  const SessionId id = sessions.begin()->first;
  RunRounds(engine, sessions);
  for (int i = 0; sessions[id] < 230; ++i) {
    ASSERT_LT(i, 1000);
    if (i % 4 == 0) {
      SessionRequest small = Request({1, 2, 3}, 60);
      small.caller = absl::StrCat("small ", i % 3);
      sessions[engine.Open(small).value()] = 0;
    }
    RunRounds(engine, sessions);
  }
}

TEST(VerifyEngineTest, ASessionThatFillsTheCacheRunsWithoutDraftsToItsEnd) {
  FakeBackendOptions backend;
  backend.pages = 2;  // 64 tokens
  Fixture fixture(backend);
  const SessionRequest request = Request(std::vector<TokenId>(20, 7), 45);
  ExpectPlainOutput(fixture, {request}, /*max_nodes=*/40, 5);
}

TEST(VerifyEngineTest, ASessionLargerThanTheCacheIsRefusedAloneAndByStatus) {
  FakeBackendOptions backend;
  backend.pages = 1;
  Fixture fixture(backend);
  // What can never run is refused at once,
  EXPECT_THAT(
      fixture.engine->Open(Request(std::vector<TokenId>(33, 1), 5)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("33 tokens are more than the whole KV cache")));
  // and what has no room to write a token when it is admitted.
  const SessionId key =
      fixture.engine->Open(Request(std::vector<TokenId>(32, 1), 5)).value();
  const PassReport report = fixture.engine->RunPass();
  ASSERT_THAT(report.failures, SizeIs(1));
  EXPECT_EQ(report.failures[0].session, key);
  EXPECT_THAT(report.failures[0].status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("more than the whole KV cache")));
  EXPECT_EQ(fixture.engine->snapshot().sessions, 0);
}

TEST(VerifyEngineTest, AReplayOpenedFromOutsideContinuesTheSameText) {
  std::mt19937 random(3);
  for (const SessionRequest& request : RandomRequests(random, 20, 30, 30, 50)) {
    const std::vector<TokenId> want = Decode(request, 50);
    if (want.size() < 3) continue;
    const size_t cut = 1 + random() % (want.size() - 1);
    SessionRequest replay = request;
    replay.tokens.insert(replay.tokens.end(), want.begin(), want.begin() + cut);
    Fixture fixture;
    const SessionId key = fixture.engine->Open(replay).value();
    PassReport report = fixture.engine->RunPass();
    ASSERT_THAT(report.prefilled, SizeIs(1));
    EXPECT_THAT(report.prefilled[0].result.tokens, IsEmpty());
    std::vector<TokenId> output(want.begin(), want.begin() + cut);
    FinishReason finish = FinishReason::kNone;
    while (finish == FinishReason::kNone) {
      RoundRequest round;
      round.length = request.prompt_length + output.size();
      FORETOKEN_ASSERT_OK(fixture.engine->Submit(key, round));
      report = fixture.engine->RunPass();
      ASSERT_THAT(report.rounds, SizeIs(1));
      output.push_back(report.rounds[0].result.tokens[0].token);
      finish = report.rounds[0].result.finish;
    }
    EXPECT_EQ(output, want);
  }
}

TEST(VerifyEngineTest, EveryRowHasTheTargetsTokenAndItsCandidates) {
  Fixture fixture;
  const SessionId key = fixture.engine->Open(Request({1, 2, 3}, 20)).value();
  const TokenId first =
      fixture.engine->RunPass().prefilled[0].result.tokens[0].token;
  RoundRequest round;
  round.length = 4;
  round.candidates = 3;
  // n1 is nonsense and drops n2 below it; n3 is a probe beside them.
  round.tree =
      TokenTree::Create({8, 99, 5, 9}, {-1, -1, 1, 0}, /*probes=*/{3}).value();
  FORETOKEN_ASSERT_OK(fixture.engine->Submit(key, round));
  const PassReport report = fixture.engine->RunPass();
  ASSERT_THAT(report.rounds, SizeIs(1));
  const RoundResult& result = report.rounds[0].result;
  const auto target = [&](std::vector<TokenId> path) {
    path.insert(path.begin(), {1, 2, 3, first});
    return ArgMax(FakeLogits(path, 50));
  };
  EXPECT_THAT(result.row_tokens,
              ElementsAre(target({}), target({8}), -1, -1, target({8, 9})));
  ASSERT_THAT(result.row_candidates, SizeIs(5));
  EXPECT_THAT(result.row_candidates[1], SizeIs(3));
  EXPECT_EQ(result.row_candidates[1][0].token, target({8}));
  EXPECT_THAT(result.row_candidates[2], IsEmpty());
  EXPECT_EQ(result.stats.draft_rows, 1);
  EXPECT_EQ(result.stats.probe_rows, 1);
  EXPECT_EQ(result.stats.dropped_nodes, 2);
  EXPECT_THAT(result.tokens.back().top_logprobs, IsEmpty());  // not asked for
}

TEST(VerifyEngineTest, AProbeThatIsRightIsReadAndNotAccepted) {
  Fixture fixture;
  const SessionRequest request = Request({4, 5}, 20);
  const std::vector<TokenId> truth = Decode(request, 50);
  const SessionId key = fixture.engine->Open(request).value();
  fixture.engine->RunPass();
  RoundRequest round;
  round.length = 3;
  round.tree =
      TokenTree::Create({truth[1], truth[2]}, {-1, 0}, /*probes=*/{0, 1})
          .value();
  FORETOKEN_ASSERT_OK(fixture.engine->Submit(key, round));
  const PassReport report = fixture.engine->RunPass();
  EXPECT_THAT(report.rounds[0].result.path, IsEmpty());
  EXPECT_THAT(report.rounds[0].result.row_tokens,
              ElementsAre(truth[1], truth[2], truth[3]));
}

TEST(VerifyEngineTest, AStopTokenInsideTheAcceptedPathEndsTheRoundThere) {
  Fixture fixture;
  SessionRequest request = Request({4, 5}, 20);
  const std::vector<TokenId> truth = Decode(request, 50);
  request.stop_tokens = {truth[2]};
  ASSERT_NE(truth[0], truth[2]);
  ASSERT_NE(truth[1], truth[2]);
  const SessionId key = fixture.engine->Open(request).value();
  fixture.engine->RunPass();
  RoundRequest round;
  round.length = 3;
  round.tree =
      TokenTree::Create({truth[1], truth[2], truth[3]}, {-1, 0, 1}).value();
  FORETOKEN_ASSERT_OK(fixture.engine->Submit(key, round));
  const PassReport report = fixture.engine->RunPass();
  const RoundResult& result = report.rounds[0].result;
  EXPECT_EQ(result.finish, FinishReason::kStop);
  EXPECT_THAT(result.path, ElementsAre(0));  // the end token is the bonus
  ASSERT_THAT(result.tokens, SizeIs(2));
  EXPECT_EQ(result.tokens[1].token, truth[2]);
  EXPECT_EQ(result.stats.accepted, 1);
  EXPECT_THAT(
      fixture.engine->Submit(key, round),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has ended")));
}

TEST(VerifyEngineTest, LogprobsComeOnlyWithTheNumberAskedFor) {
  Fixture fixture;
  SessionRequest request = Request({4, 5}, 20);
  request.sampling.logprobs = 2;
  const SessionId key = fixture.engine->Open(request).value();
  const PassReport prefill = fixture.engine->RunPass();
  EXPECT_THAT(prefill.prefilled[0].result.tokens[0].top_logprobs, SizeIs(2));
  RoundRequest round;
  round.length = 3;
  round.candidates = 8;
  FORETOKEN_ASSERT_OK(fixture.engine->Submit(key, round));
  const PassReport report = fixture.engine->RunPass();
  EXPECT_THAT(report.rounds[0].result.tokens[0].top_logprobs, SizeIs(2));
  EXPECT_THAT(report.rounds[0].result.row_candidates[0], SizeIs(8));
  EXPECT_LT(report.rounds[0].result.tokens[0].logprob, 0.0f);
}

TEST(VerifyEngineTest, PrefillAndRoundsShareEveryPass) {
  VerifyEngineOptions options;
  options.prefill_chunk = 10;
  Fixture fixture({}, options);
  const SessionId fast = fixture.engine->Open(Request({1}, 50)).value();
  fixture.engine->RunPass();
  const SessionId slow =
      fixture.engine->Open(Request(std::vector<TokenId>(35, 2), 5)).value();
  int passes = 0;
  int64_t length = 2;  // of `fast`
  for (bool done = false; !done; ++passes) {
    RoundRequest round;
    round.length = length;
    FORETOKEN_ASSERT_OK(fixture.engine->Submit(fast, round));
    const PassReport report = fixture.engine->RunPass();
    ASSERT_THAT(report.rounds, SizeIs(1));  // decoding never waits
    length = report.rounds[0].result.length;
    EXPECT_LE(report.stats.prefill_rows, 10);
    done = !report.prefilled.empty();
    if (done) {
      EXPECT_EQ(report.prefilled[0].session, slow);
    }
  }
  EXPECT_EQ(passes, 4);  // 10 + 10 + 10 + 5
}

TEST(VerifyEngineTest, ARoundTellsHowLongItWaitedForItsPass) {
  Fixture fixture;
  const SessionId key = fixture.engine->Open(Request({1}, 50)).value();
  fixture.engine->RunPass();
  int64_t length = 2;
  const auto waited = [&](std::optional<absl::Time> arrived) {
    RoundRequest round;
    round.length = length++;
    FORETOKEN_EXPECT_OK(fixture.engine->Submit(key, std::move(round), arrived));
    fixture.now += absl::Milliseconds(2);
    return fixture.engine->RunPass().rounds.at(0).result.stats.queue_time;
  };
  EXPECT_EQ(waited(std::nullopt), absl::Milliseconds(2));
  // A pass was under way when it came.
  EXPECT_EQ(waited(fixture.now - absl::Milliseconds(5)), absl::Milliseconds(7));
}

TEST(VerifyEngineTest, ASharedScopeReusesPages) {
  Fixture fixture;
  SessionRequest request = Request(std::vector<TokenId>(100, 3), 5);
  request.cache_scope = "tenant";
  const SessionId first = fixture.engine->Open(request).value();
  EXPECT_EQ(fixture.engine->RunPass().prefilled[0].result.reused_tokens, 0);
  FORETOKEN_ASSERT_OK(fixture.engine->Close(first));
  FORETOKEN_ASSERT_OK(fixture.engine->Open(request));
  const PassReport report = fixture.engine->RunPass();
  EXPECT_EQ(report.prefilled[0].result.reused_tokens, 96);
  EXPECT_EQ(report.stats.prefill_rows, 4);
}

TEST(VerifyEngineTest, DeadlinesAndClosesFreeWhatTheyHeld) {
  Fixture fixture;
  SessionRequest request = Request({1, 2}, 5);
  request.deadline = fixture.now + absl::Seconds(5);
  const SessionId key = fixture.engine->Open(request).value();
  const SessionId other = fixture.engine->Open(Request({1, 2}, 5)).value();
  fixture.engine->RunPass();
  EXPECT_EQ(fixture.engine->NextDeadline(), request.deadline);
  EXPECT_FALSE(fixture.engine->HasWork());
  fixture.now += absl::Seconds(5);
  EXPECT_TRUE(fixture.engine->HasWork());
  const PassReport report = fixture.engine->RunPass();
  ASSERT_THAT(report.failures, SizeIs(1));
  EXPECT_EQ(report.failures[0].session, key);
  EXPECT_THAT(
      report.failures[0].status,
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("deadline")));
  FORETOKEN_ASSERT_OK(fixture.engine->Close(other));
  EXPECT_EQ(fixture.engine->snapshot().kv.pages_free,
            fixture.engine->snapshot().kv.pages_total);
  EXPECT_THAT(fixture.engine->Close(other),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no session")));
  EXPECT_THAT(fixture.engine->Open(request),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")));
}

TEST(VerifyEngineTest, AnErrorOfTheBackendEndsTheSessionsOfThePassOnly) {
  Fixture fixture;
  const SessionId idle = fixture.engine->Open(Request({1, 2}, 5)).value();
  fixture.engine->RunPass();
  const SessionId hit = fixture.engine->Open(Request({3, 4}, 5)).value();
  fixture.backend->FailNextForward(absl::InternalError("broken"));
  const PassReport report = fixture.engine->RunPass();
  ASSERT_THAT(report.failures, SizeIs(1));
  EXPECT_EQ(report.failures[0].session, hit);
  EXPECT_THAT(report.failures[0].status,
              StatusIs(absl::StatusCode::kInternal, HasSubstr("broken")));
  RoundRequest round;
  round.length = 3;
  FORETOKEN_ASSERT_OK(fixture.engine->Submit(idle, round));
  EXPECT_THAT(fixture.engine->RunPass().rounds, SizeIs(1));
}

TEST(VerifyEngineTest, WaitingSessionsDoNotSpinAndAreAdmittedByAge) {
  FakeBackendOptions backend;
  backend.pages = 4;
  Fixture fixture(backend);
  const auto prompt = std::vector<TokenId>(60, 1);
  const SessionId first = fixture.engine->Open(Request(prompt, 60)).value();
  fixture.engine->RunPass();
  const SessionId second = fixture.engine->Open(Request(prompt, 60)).value();
  const SessionId third = fixture.engine->Open(Request({1}, 5)).value();
  EXPECT_TRUE(fixture.engine->HasWork());
  EXPECT_THAT(fixture.engine->RunPass().prefilled, IsEmpty());
  EXPECT_FALSE(fixture.engine->HasWork());  // until something is freed
  FORETOKEN_ASSERT_OK(fixture.engine->Close(first));
  EXPECT_TRUE(fixture.engine->HasWork());
  const PassReport report = fixture.engine->RunPass();
  ASSERT_THAT(report.prefilled, SizeIs(1));
  EXPECT_EQ(report.prefilled[0].session, second);
  FORETOKEN_ASSERT_OK(fixture.engine->Close(second));
  EXPECT_EQ(fixture.engine->RunPass().prefilled[0].session, third);
}

TEST(VerifyEngineTest, BadRequestsAreRefusedByField) {
  Fixture fixture;
  VerifyEngine& engine = *fixture.engine;
  const auto refused = [&](SessionRequest request, const std::string& why) {
    EXPECT_THAT(engine.Open(std::move(request)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused(Request({}, 5), "prompt is empty");
  refused(Request({1, 50}, 5), "tokens: token 1 is 50, the vocabulary is 0..49");
  refused(Request({1}, 0), "max_length is 1");
  refused(Request({1}, 4096), "the model's context is 4096");
  SessionRequest request = Request({1}, 5);
  request.prompt_length = 2;
  refused(request, "prompt_length is 2");
  request = Request({1}, 5);
  request.stop_tokens = {-1};
  refused(request, "stop_tokens: token 0 is -1");
  request = Request({1}, 5);
  request.sampling.top_p = 0.0f;
  refused(request, "top_p is 0");
  EXPECT_EQ(engine.snapshot().sessions, 0);
}

TEST(VerifyEngineTest, RoundsThatDoNotFitAreRefused) {
  Fixture fixture;
  VerifyEngine& engine = *fixture.engine;
  RoundRequest round;
  round.length = 2;
  EXPECT_THAT(engine.Submit(7, round),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no session 7")));
  const SessionId key = engine.Open(Request({1}, 5)).value();
  EXPECT_THAT(engine.Submit(key, round),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("not yet answered its prefill")));
  engine.RunPass();
  round.length = 3;
  EXPECT_THAT(engine.Submit(key, round),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("builds on 3 tokens, session 1 has 2")));
  round.length = 2;
  round.candidates = 9;
  EXPECT_THAT(engine.Submit(key, round),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("candidates is 9, want 0..8")));
  round.candidates = 0;
  FORETOKEN_ASSERT_OK(engine.Submit(key, round));
  EXPECT_THAT(engine.Submit(key, round),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("not yet answered its round")));
}

TEST(VerifyEngineTest, SessionsAreLimited) {
  VerifyEngineOptions options;
  options.max_sessions = 2;
  Fixture fixture({}, options);
  FORETOKEN_ASSERT_OK(fixture.engine->Open(Request({1}, 5)));
  FORETOKEN_ASSERT_OK(fixture.engine->Open(Request({1}, 5)));
  EXPECT_THAT(fixture.engine->Open(Request({1}, 5)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("all 2 sessions")));
}

TEST(VerifyEngineOptionsTest, NamesEveryBadField) {
  VerifyEngineOptions options;
  FORETOKEN_EXPECT_OK(options.Validate());
  options.max_sessions = 0;
  options.prefill_chunk = -1;
  EXPECT_THAT(options.Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::AllOf(HasSubstr("max_sessions is 0"),
                                        HasSubstr("prefill_chunk is -1"))));
}

// Whatever orchestrator a session belongs to.
TEST(VerifyEngineTest, AllSessionsHearOfOneArm) {
  VerifyEngineOptions options;
  options.arm_hook = testing::NextArm;
  Fixture fixture({}, options);
  std::vector<SessionId> sessions;
  for (const char* caller : {"one", "one", "two"}) {
    SessionRequest request = Request({1, 2, 3}, 30);
    request.caller = caller;
    sessions.push_back(fixture.engine->Open(request).value());
  }
  PassReport report = fixture.engine->RunPass();
  ASSERT_THAT(report.prefilled, SizeIs(3));
  DraftArm arm = report.prefilled[0].result.arm;
  EXPECT_EQ(arm, DraftArm::kWide) << "nobody followed yet";
  for (int round = 0; round < 6; ++round) {
    for (const SessionId session : sessions) {
      RoundRequest request;
      request.length = 4 + round;
      // The last one's mode is explicit.
      if (session != sessions.back()) request.arm = arm;
      FORETOKEN_ASSERT_OK(fixture.engine->Submit(session, request));
    }
    report = fixture.engine->RunPass();
    ASSERT_THAT(report.rounds, SizeIs(3));
    for (const auto& [session, result] : report.rounds) {
      EXPECT_EQ(result.arm, report.rounds[0].result.arm);
    }
    if (round > 0) {
      EXPECT_NE(report.rounds[0].result.arm, arm) << round;
    }
    arm = report.rounds[0].result.arm;
    EXPECT_EQ(arm, fixture.engine->snapshot().guard.arm);
  }
}

TEST(VerifyEngineTest, SessionsOfExplicitModesAreNoBusinessOfTheGuard) {
  VerifyEngineOptions options;
  options.arm_hook = testing::NextArm;
  Fixture fixture({}, options);
  const SessionId session = fixture.engine->Open(Request({1, 2}, 30)).value();
  fixture.engine->RunPass();
  for (int round = 0; round < 6; ++round) {
    RoundRequest request;
    request.length = 3 + round;
    FORETOKEN_ASSERT_OK(fixture.engine->Submit(session, request));
    EXPECT_EQ(fixture.engine->RunPass().rounds[0].result.arm, DraftArm::kWide);
  }
}

// A backend whose drafts cost more than they give: the engine finds out from
// its own clock.
TEST(VerifyEngineTest, DraftsThatDoNotPayAreStopped) {
  Fixture* owner = nullptr;
  FakeBackendOptions backend;
  backend.before_pass = [&owner] { owner->now += absl::Milliseconds(5); };
  Fixture fixture(backend);
  owner = &fixture;
  const SessionId session =
      fixture.engine->Open(Request({1, 2, 3}, 3000)).value();
  PassReport report = fixture.engine->RunPass();
  DraftArm arm = report.prefilled[0].result.arm;
  int off = 0;
  for (int round = 0; round < 2000; ++round) {
    RoundRequest request;
    request.length = 4 + round;
    request.arm = arm;
    if (arm != DraftArm::kOff) {
      // A draft that is never right, and takes its time.
      request.tree = TokenTree::Create({49}, {-1}, /*probes=*/{0}).value();
      fixture.now += absl::Milliseconds(5);
    }
    FORETOKEN_ASSERT_OK(fixture.engine->Submit(session, request));
    report = fixture.engine->RunPass();
    ASSERT_THAT(report.rounds, SizeIs(1));
    arm = report.rounds[0].result.arm;
    if (round >= 1000) off += arm == DraftArm::kOff;
  }
  EXPECT_GT(off, 950);
  EXPECT_GT(fixture.engine->snapshot().guard.seconds[0], 5.0);
}

}  // namespace
}  // namespace foretoken::verifier
