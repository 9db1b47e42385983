#include "services/draft_worker/core/draft_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/unit/services/draft_worker/draft_fixture.h"

namespace foretoken::draft_worker {
namespace {

using ::foretoken::testing::FakeBackendOptions;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void ExpectIsChain(const DraftTree& tree) {
  for (int i = 0; i < tree.size(); ++i) EXPECT_EQ(tree.parents[i], i - 1);
}

void ExpectEstimatesFall(const DraftTree& tree) {
  ASSERT_EQ(tree.probs.size(), tree.tokens.size());
  for (int i = 0; i < tree.size(); ++i) {
    const float parent =
        tree.parents[i] < 0 ? 1.0f : tree.probs[tree.parents[i]];
    EXPECT_GT(tree.probs[i], 0.0f);
    EXPECT_LE(tree.probs[i], parent);
  }
}

TEST(DraftEngineTest, AChainIsPlainGreedyDecodingOfTheDraftModel) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=5", kPrompt));

  const DraftAnswer answer = f.Ask(key, MakeRound(6, {20}));

  EXPECT_EQ(answer.length, 6);
  EXPECT_THAT(answer.tree.tokens,
              ElementsAreArray(Decode(Joined(kPrompt, {20}), 5, 5, {})));
  ExpectIsChain(answer.tree);
  ExpectEstimatesFall(answer.tree);
}

TEST(DraftEngineTest, ASampledChainDrawsTheNoiseOfItsPositions) {
  for (const uint64_t seed : {1u, 2u, 3u}) {
    SamplingParams params = Seeded(seed);
    params.repetition_penalty = 1.3f;
    params.frequency_penalty = 0.5f;
    EngineFixture f;
    const SessionId key =
        f.Open(MakeOpen("draft_model:gamma=9", kPrompt, params));
    EXPECT_THAT(f.Ask(key, MakeRound(6, {20})).tree.tokens,
                ElementsAreArray(Decode(Joined(kPrompt, {20}), 5, 9, params)))
        << "seed " << seed;
  }
}

// However much of a draft is accepted, the next one is that of the whole text.
TEST(DraftEngineTest, DraftsFollowWhateverWasCommitted) {
  std::mt19937 random(11);
  const SamplingParams params = Seeded(5);
  EngineFixture f;
  const SessionId key =
      f.Open(MakeOpen("draft_model:gamma=5", kPrompt, params));
  Tokens text = Joined(kPrompt, {20});
  DraftAnswer answer = f.Ask(key, MakeRound(6, {20}));
  for (int round = 0; round < 40; ++round) {
    Tokens committed(answer.tree.tokens.begin(),
                     answer.tree.tokens.begin() +
                         random() % (answer.tree.tokens.size() + 1));
    committed.push_back(static_cast<TokenId>(random() % 50));
    text = Joined(text, committed);

    answer =
        f.Ask(key, MakeRound(static_cast<int64_t>(text.size()), committed));

    EXPECT_THAT(answer.tree.tokens,
                ElementsAreArray(Decode(text, 5, 5, params)));
  }
  EXPECT_GT(f.engine.snapshot().totals.kept_rows, 0);
}

TEST(DraftEngineTest, CatchingUpCostsNoPassOfItsOwn) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=5", kPrompt));
  f.Ask(key, MakeRound(6, {20}));
  const int64_t before = f.engine.snapshot().totals.passes;

  // None of it was drafted.
  f.Ask(key, MakeRound(10, {41, 42, 43, 44}));

  EXPECT_EQ(f.engine.snapshot().totals.passes - before, 5);  // gamma
}

TEST(DraftEngineTest, KvOfAcceptedDraftsIsKeptWhereNoPassCameBetween) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=5", kPrompt));
  const DraftAnswer first = f.Ask(key, MakeRound(6, {20}));
  Tokens committed = first.tree.tokens;  // all accepted
  committed.push_back(33);
  const int64_t before = f.engine.snapshot().totals.text_rows;

  f.Ask(key, MakeRound(12, committed));

  // The last draft token never had a row; the bonus token is new.
  EXPECT_EQ(f.engine.snapshot().totals.kept_rows, 4);
  EXPECT_EQ(f.engine.snapshot().totals.text_rows - before, 2);
}

TEST(DraftEngineTest, AReplayedSessionDraftsAsTheOneThatGrew) {
  const SamplingParams params = Seeded(9);
  const Tokens text = Joined(kPrompt, {20, 21, 22});
  EngineFixture f;
  DraftOpen replay = MakeOpen("draft_model:gamma=5", text, params);
  replay.prompt_length = 5;
  const SessionId key = f.Open(std::move(replay));
  EXPECT_THAT(f.Ask(key, MakeRound(8, {})).tree.tokens,
              ElementsAreArray(Decode(text, 5, 5, params)));
}

TEST(DraftEngineTest, TheSameLengthAskedAgainGivesTheSameDraft) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=5", kPrompt));
  const DraftAnswer first = f.Ask(key, MakeRound(6, {20}));
  const DraftAnswer shorter = f.Ask(key, MakeRound(6, {}, 2));
  const DraftAnswer again = f.Ask(key, MakeRound(6, {}));
  EXPECT_THAT(shorter.tree.tokens,
              ElementsAre(first.tree.tokens[0], first.tree.tokens[1]));
  EXPECT_EQ(again.tree.tokens, first.tree.tokens);
}

TEST(DraftEngineTest, ARoundThatDoesNotFollowIsRefused) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=5", kPrompt));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(f.engine.Submit(key, MakeRound(7, {20}))));
  ASSERT_TRUE(f.engine.Submit(key, MakeRound(6, {20})).ok());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(f.engine.Submit(key, MakeRound(6, {}))));
  EXPECT_TRUE(absl::IsNotFound(f.engine.Submit(99, MakeRound(6, {20}))));
  f.RunAll();
  EXPECT_TRUE(
      absl::IsInvalidArgument(f.engine.Submit(key, MakeRound(7, {-1}))));
  DraftRound torn = MakeRound(7, {20});
  torn.verified.row_tokens = {1, 2};
  EXPECT_TRUE(absl::IsInvalidArgument(f.engine.Submit(key, torn)));
}

TEST(DraftEngineTest, ACommitAloneIsAnsweredWithoutAPass) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=5", {1}));
  ASSERT_TRUE(f.engine.Submit(key, MakeRound(2, {20}, 0)).ok());
  const DraftReport report = f.engine.RunPass();
  ASSERT_THAT(report.answers, SizeIs(1));
  EXPECT_EQ(report.answers[0].answer.length, 2);
  EXPECT_EQ(report.answers[0].answer.tree.size(), 0);
  EXPECT_EQ(f.engine.snapshot().totals.passes, 0);
}

TEST(DraftEngineTest, MaxNodesBoundsTheTree) {
  for (const std::string mode :
       {"draft_model:gamma=5", "ouroboros:preset=paper"}) {
    EngineFixture f;
    const SessionId key = f.Open(MakeOpen(mode, kPrompt));
    DraftAnswer answer = f.Ask(key, MakeRound(6, {20}, 3));
    EXPECT_EQ(answer.tree.size(), 3) << mode;
    for (int64_t length = 7; length < 30; ++length) {
      answer = f.Ask(key, MakeRound(length, {answer.tree.tokens[0]},
                                    1 + static_cast<int32_t>(length % 17)));
      EXPECT_GT(answer.tree.size(), 0) << mode;
      EXPECT_LE(answer.tree.size(), 1 + length % 17) << mode;
      ExpectEstimatesFall(answer.tree);
    }
  }
}

TEST(DraftEngineTest, LongPromptsAreReadInChunks) {
  Tokens prompt;
  for (int i = 0; i < 700; ++i) prompt.push_back(1 + i * 7 % 49);
  EngineFixture f{FakeBackendOptions()};  // 256 rows a pass
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=5", prompt));
  f.RunAll();  // the prompt is read before the first request for a draft
  EXPECT_EQ(f.engine.snapshot().totals.text_rows, 699);
  EXPECT_THAT(f.Ask(key, MakeRound(701, {20})).tree.tokens,
              ElementsAreArray(Decode(Joined(prompt, {20}), 700, 5, {})));
}

TEST(DraftEngineTest, TheContextsEndEndsTheDraft) {
  for (const std::string mode :
       {"draft_model:gamma=5", "draft_model", "ouroboros:window=4,beta=3",
        "ouroboros", "auto"}) {
    FakeBackendOptions small;
    small.max_positions = 12;
    EngineFixture f(small);
    const SessionId key = f.Open(MakeOpen(mode, kPrompt));
    Tokens text = kPrompt;
    while (text.size() < 16) {
      text.push_back(20);
      const DraftAnswer answer =
          f.Ask(key, MakeRound(static_cast<int64_t>(text.size()), {20}));
      // Rows lie at positions 0..11, so 13 tokens can be known.
      EXPECT_LE(answer.tree.size() == 0 ? 0 : text.size() + 1, 13u);
      EXPECT_EQ(answer.tree.size() > 0, text.size() <= 12) << mode;
    }
    EXPECT_THAT(f.failures, IsEmpty());
    EXPECT_EQ(f.engine.snapshot().kv.sessions, 0);  // nothing left to do for it
  }
}

TEST(DraftEngineTest, UnknownTokensMakeDraftsEmptyAndFreeTheMemory) {
  EngineFixture f;
  const SessionId prompt = f.Open(MakeOpen("draft_model:gamma=5", {1, 50}));
  EXPECT_EQ(f.Ask(prompt, MakeRound(3, {2})).tree.size(), 0);
  const SessionId later = f.Open(MakeOpen("ouroboros", kPrompt));
  EXPECT_GT(f.Ask(later, MakeRound(6, {20})).tree.size(), 0);
  const DraftAnswer answer = f.Ask(later, MakeRound(7, {777}));
  EXPECT_EQ(answer.length, 7);
  EXPECT_EQ(answer.tree.size(), 0);
  EXPECT_EQ(f.Ask(later, MakeRound(8, {3})).tree.size(), 0);
  EXPECT_EQ(f.engine.snapshot().kv.sessions, 0);
  EXPECT_EQ(f.engine.snapshot().totals.muted, 2);
}

TEST(DraftEngineTest, IdsBeyondTheLimitAreNeverProposed) {
  for (const std::string mode :
       {"draft_model:gamma=5", "draft_model", "ouroboros:preset=paper",
        "ouroboros", "auto"}) {
    DraftEngineOptions options;
    options.vocab_limit = 30;
    EngineFixture f(RoomyBackend(), options);
    int nodes = 0;
    for (TokenId first = 0; first < 50; ++first) {
      const SessionId key = f.Open(MakeOpen(mode, {1, first}, Seeded(4)));
      for (int64_t length = 3; length < 8; ++length) {
        const DraftAnswer answer = f.Ask(key, MakeRound(length, {5}));
        nodes += answer.tree.size();
        for (const TokenId token : answer.tree.tokens) EXPECT_LT(token, 30);
      }
      ASSERT_TRUE(f.engine.Close(key).ok());
    }
    EXPECT_GT(nodes, 0);
  }
}

// The draft goes on with the likeliest id that is left; only what the text
// brings in is counted.
TEST(DraftEngineTest, IdsOutsideTheHeadAreNeverDraftedAndCountedAsMisses) {
  testing::FakeBackendOptions backend = RoomyBackend();
  backend.head_size = 30;
  for (const float temperature : {0.0f, 0.8f}) {
    EngineFixture f(backend);
    for (TokenId first = 0; first < 50; ++first) {
      const SessionId key = f.Open(
          MakeOpen("draft_model:gamma=5", {1, first}, Seeded(4, temperature)));
      const DraftAnswer answer = f.Ask(key, MakeRound(3, {29}));
      EXPECT_EQ(answer.tree.size(), 5);
      for (const TokenId token : answer.tree.tokens) EXPECT_LT(token, 30);
      f.Ask(key, MakeRound(6, {30, 2, 49}));
      ASSERT_TRUE(f.engine.Close(key).ok());
    }
    EXPECT_EQ(f.engine.snapshot().totals.vocabulary_misses, 100);
  }
}

TEST(DraftEngineTest, ForeignTokensInTheParametersAreLeftOut) {
  SamplingParams params = Seeded(3);
  params.logit_bias = {{4, 2.0f}, {60, 5.0f}};
  params.end_tokens = {70, 2};
  EngineFixture f;
  const SessionId key =
      f.Open(MakeOpen("draft_model:gamma=5", kPrompt, params));
  params.logit_bias = {{4, 2.0f}};
  params.end_tokens = {2};
  EXPECT_THAT(f.Ask(key, MakeRound(6, {20})).tree.tokens,
              ElementsAreArray(Decode(Joined(kPrompt, {20}), 5, 5, params)));
}

// The request says what ends it: an end token is the last of a draft, none is
// drawn before min_tokens, and where there is none nothing ends.
TEST(DraftEngineTest, EndTokensAreTheRequests) {
  const Tokens text = Joined(kPrompt, {20});
  const Tokens endless = Decode(text, 5, 9, {});
  const TokenId end = endless[3];
  ASSERT_EQ(std::count(endless.begin(), endless.begin() + 3, end), 0);
  for (const std::string mode :
       {"draft_model:gamma=9",
        "ouroboros:gamma=9,window=3,beta=4,suffixes=2"}) {
    SamplingParams params;
    const auto chain = [&] {
      EngineFixture f;
      const SessionId key = f.Open(MakeOpen(mode, kPrompt, params));
      Tokens tokens = f.Ask(key, MakeRound(6, {20})).tree.tokens;
      if (tokens.size() > 9) tokens.resize(9);
      return tokens;
    };
    EXPECT_THAT(chain(), ElementsAreArray(endless)) << mode;
    params.end_tokens = {end};
    EXPECT_THAT(chain(),
                ElementsAreArray(Tokens(endless.begin(), endless.begin() + 4)))
        << mode;
    params.min_tokens = 100;
    EXPECT_THAT(chain(), ElementsAreArray(Decode(text, 5, 9, params))) << mode;
    EXPECT_THAT(chain(), ::testing::Not(::testing::Contains(end))) << mode;
  }
}

TEST(DraftEngineTest, ABadOpenIsRefusedByField) {
  EngineFixture f;
  const auto message = [&](DraftOpen open) {
    return std::string(f.engine.Open(std::move(open)).status().message());
  };
  EXPECT_THAT(message(MakeOpen("draft_model:gamma=5", {})),
              HasSubstr("prompt"));
  EXPECT_THAT(message(MakeOpen("draft_model:gamma=5", {1, -2})),
              HasSubstr("tokens[1]"));
  EXPECT_THAT(message(MakeOpen("ouroboros:window=200", {1})),
              HasSubstr("window=200"));
  DraftEngineOptions narrow;
  narrow.max_rows_per_session = 4;
  EngineFixture small(RoomyBackend(), narrow);
  EXPECT_THAT(
      std::string(small.engine.Open(MakeOpen("draft_model:gamma=5", {1}))
                      .status()
                      .message()),
      HasSubstr("gamma"));
  // These fit themselves to the room that there is.
  for (const std::string mode : {"draft_model", "ouroboros", "auto"}) {
    const auto key = small.engine.Open(MakeOpen(mode, kPrompt));
    ASSERT_TRUE(key.ok()) << mode << key.status();
    EXPECT_GT(small.Ask(*key, MakeRound(6, {20})).tree.size(), 0) << mode;
  }
  EXPECT_TRUE(absl::IsUnimplemented(
      f.engine.Open(MakeOpen("ngram_trie", {1})).status()));
  DraftOpen open = MakeOpen("draft_model:gamma=5", {1});
  open.prompt_length = 2;
  EXPECT_THAT(message(std::move(open)), HasSubstr("prompt_length"));
  open = MakeOpen("draft_model:gamma=5", {1});
  open.sampling.temperature = -1;
  EXPECT_THAT(message(std::move(open)), HasSubstr("temperature"));
  EXPECT_EQ(f.engine.snapshot().sessions, 0);
  EXPECT_EQ(f.engine.snapshot().kv.sessions, 0);
}

TEST(DraftEngineTest, SessionsAndPagesAreBounded) {
  DraftEngineOptions options;
  options.max_sessions = 2;
  options.admission_reserve = 0;
  FakeBackendOptions few;
  few.pages = 3;  // of 32 tokens
  EngineFixture f(few, options);
  const SessionId first =
      f.Open(MakeOpen("draft_model:gamma=5", Tokens(60, 1)));
  EXPECT_TRUE(absl::IsResourceExhausted(
      f.engine.Open(MakeOpen("draft_model:gamma=5", Tokens(60, 2))).status()));
  EXPECT_EQ(f.engine.snapshot().kv.sessions, 1);
  f.Open(MakeOpen("draft_model:gamma=5", {2}));
  const absl::Status full =
      f.engine.Open(MakeOpen("draft_model:gamma=5", {3})).status();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(std::string(full.message()), HasSubstr("2 sessions"));
  // Growing over the pages ends the session that grew.
  f.Ask(first, MakeRound(61, {3}));
  ASSERT_TRUE(f.engine.Submit(first, MakeRound(66, {3, 4, 5, 6, 7})).ok());
  f.RunAll();
  EXPECT_TRUE(absl::IsResourceExhausted(f.failures[first]))
      << f.failures[first];
  EXPECT_EQ(f.engine.snapshot().sessions, 1);
}

TEST(DraftEngineTest, AFailedPassEndsItsSessionsAlone) {
  EngineFixture f;
  const SessionId idle = f.Open(MakeOpen("draft_model:gamma=5", kPrompt));
  f.RunAll();
  const SessionId failing = f.Open(MakeOpen("draft_model:gamma=5", {1}));
  ASSERT_TRUE(f.engine.Submit(failing, MakeRound(2, {20})).ok());
  f.fake->FailNextForward(absl::InternalError("out of sorts"));
  f.RunAll();
  EXPECT_THAT(std::string(f.failures[failing].message()),
              HasSubstr("out of sorts"));
  EXPECT_EQ(f.engine.snapshot().sessions, 1);
  EXPECT_EQ(f.Ask(idle, MakeRound(6, {20})).tree.size(), 5);
}

TEST(DraftEngineTest, LogitsThatAreNotNumbersCostTheDraftOfTheirSessionAlone) {
  FakeBackendOptions poisoned = RoomyBackend();
  poisoned.poison = 33;
  EngineFixture f(poisoned);
  const SessionId sick = f.Open(MakeOpen("draft_model:gamma=5", {33, 1}));
  const SessionId well = f.Open(MakeOpen("draft_model:gamma=5", kPrompt));
  ASSERT_TRUE(f.engine.Submit(sick, MakeRound(3, {33})).ok());
  const Tokens want = Decode(Joined(kPrompt, {20}), 5, 5, {});
  ASSERT_EQ(std::count(want.begin(), want.end(), 33), 0);
  ASSERT_TRUE(f.engine.Submit(well, MakeRound(6, {20})).ok());
  f.RunAll();
  EXPECT_EQ(f.answers[sick].tree.size(), 0);
  EXPECT_EQ(f.answers[well].tree.tokens, want);
  // The text goes on, and so do its drafts.
  EXPECT_GT(f.Ask(sick, MakeRound(4, {21})).tree.size(), 0);
  EXPECT_THAT(f.failures, IsEmpty());
}

// Many sessions of both modes in common passes draft what each drafts alone.
TEST(DraftEngineTest, BatchMatesChangeNoDraft) {
  struct Request {
    std::string mode;
    SamplingParams params;
    Tokens prompt;
  };
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    requests.push_back({i % 2 == 0 ? "draft_model:gamma=4"
                                   : "ouroboros:gamma=6,window=5,beta=4",
                        i % 3 == 0 ? SamplingParams() : Seeded(i),
                        Tokens(1 + i * 11, 3 + i)});
  }
  constexpr int kRounds = 12;
  // What is committed depends on the draft, as it does in life.
  const auto commit = [](const DraftTree& tree, int round) {
    Tokens committed;
    if (tree.size() > 0 && round % 3 != 0) committed.push_back(tree.tokens[0]);
    committed.push_back((round * 5 + 1) % 50);
    return committed;
  };
  std::vector<std::vector<Tokens>> alone(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EngineFixture f;
    const Request& request = requests[i];
    const SessionId key =
        f.Open(MakeOpen(request.mode, request.prompt, request.params));
    int64_t length = static_cast<int64_t>(request.prompt.size());
    DraftTree tree;
    for (int round = 0; round < kRounds; ++round) {
      const Tokens committed = commit(tree, round);
      length += static_cast<int64_t>(committed.size());
      tree = f.Ask(key, MakeRound(length, committed)).tree;
      alone[i].push_back(tree.tokens);
    }
  }

  EngineFixture f;
  std::vector<SessionId> keys;
  std::vector<int64_t> lengths;
  std::vector<DraftTree> trees(requests.size());
  for (const Request& request : requests) {
    keys.push_back(
        f.Open(MakeOpen(request.mode, request.prompt, request.params)));
    lengths.push_back(static_cast<int64_t>(request.prompt.size()));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < requests.size(); ++i) {
      const Tokens committed = commit(trees[i], round);
      lengths[i] += static_cast<int64_t>(committed.size());
      ASSERT_TRUE(
          f.engine.Submit(keys[i], MakeRound(lengths[i], committed)).ok());
      // Some start while others are under way.
      if (i % 4 == 3) {
        for (auto& answer : f.engine.RunPass().answers) {
          f.answers[answer.session] = std::move(answer.answer);
        }
      }
    }
    f.RunAll();
    for (size_t i = 0; i < requests.size(); ++i) {
      trees[i] = std::move(f.answers[keys[i]].tree);
      EXPECT_EQ(trees[i].tokens, alone[i][round])
          << "session " << i << ", round " << round;
    }
  }
  EXPECT_GT(f.engine.snapshot().totals.rows,
            f.engine.snapshot().totals.passes * 9);
}

}  // namespace
}  // namespace foretoken::draft_worker
