#include "services/draft_worker/core/tree_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/sampling/position_noise.h"
#include "tests/unit/services/draft_worker/draft_fixture.h"

namespace foretoken::draft_worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::IsEmpty;
using ::testing::Not;

// The next tokens after a path below the last committed token, with their
// probabilities; the first is the one that the model draws.
using Chances = std::vector<std::pair<TokenId, float>>;
using Model = std::function<Chances(const Tokens& path)>;

ModeLimits Limits() {
  ModeLimits limits;
  limits.vocab_limit = 1000;
  limits.max_rows = 320;
  limits.end_tokens = {2};
  return limits;
}

DraftRoom Room(double pass = 0.3, double node = 0.05, double row = 0.02) {
  DraftRoom room = {64, 1000, {}};
  room.prices.pass = pass;
  room.prices.row = row;
  room.prices.nodes = {node};
  return room;
}

struct Draft {
  DraftTree tree;
  std::vector<PassRows> passes;
};

// Runs the passes of a draft after `mode` has begun it, without any KV kept.
Draft Run(TreeMode& mode, TokenId last, const Model& model) {
  Draft draft;
  while (!mode.done() && draft.passes.size() < 100) {
    PassRows rows;
    rows.Add(last, kRootParent);
    mode.LayOut(0, /*kept=*/0, rows);
    std::vector<SampledToken> outputs(rows.size());
    for (const int32_t row : rows.outputs) {
      Tokens path;
      for (int32_t at = row; at != 0; at = rows.parents[at]) {
        path.insert(path.begin(), rows.tokens[at]);
      }
      const Chances chances = model(path);
      outputs[row].token = chances[0].first;
      outputs[row].logprob = std::log(chances[0].second);
      for (const auto& [token, chance] : chances) {
        outputs[row].top_logprobs.push_back({token, std::log(chance)});
      }
    }
    mode.Take(outputs);
    draft.passes.push_back(std::move(rows));
  }
  mode.Finish(draft.tree);
  return draft;
}

Draft DraftOf(TreeMode& mode, const DraftRoom& room, const Model& model,
              const DraftTree* hints = nullptr) {
  mode.Begin(Tokens{10}, room);
  if (hints != nullptr) mode.TakeHints(*hints);
  return Run(mode, 10, model);
}

// Counts up from 11, with the given chance of every token.
Model Counting(float chance) {
  return [chance](const Tokens& path) {
    const TokenId next = path.empty() ? 11 : path.back() + 1;
    return Chances{{next, chance}};
  };
}

// After every token `first` and `second`, whatever came before.
Model Forking(float first, float second) {
  return [first, second](const Tokens& path) {
    const TokenId base = static_cast<TokenId>(20 + 10 * path.size());
    return Chances{{base, first}, {base + 1, second}};
  };
}

void Observe(TreeMode& mode, const Tokens& committed) {
  Observation observation;
  observation.committed = committed;
  observation.follows_draft = true;
  mode.Observe(observation);
}

int Depth(const DraftTree& tree) {
  int deepest = 0;
  std::vector<int> depths;
  for (int i = 0; i < tree.size(); ++i) {
    depths.push_back(tree.parents[i] < 0 ? 1 : depths[tree.parents[i]] + 1);
    deepest = std::max(deepest, depths.back());
  }
  return deepest;
}

TEST(TreeModeTest, AModelThatIsSureGrowsAChainOfOneRowAPass) {
  TreeMode mode(Limits());
  const Draft draft = DraftOf(mode, Room(), Counting(0.95f));
  EXPECT_GE(draft.tree.size(), 8);
  for (int i = 0; i < draft.tree.size(); ++i) {
    EXPECT_EQ(draft.tree.tokens[i], 11 + i);
    EXPECT_EQ(draft.tree.parents[i], i - 1);
    EXPECT_THAT(draft.tree.probs[i], FloatNear(std::pow(0.95f, i + 1), 1e-4f));
  }
  EXPECT_EQ(static_cast<int>(draft.passes.size()), draft.tree.size());
  for (const PassRows& rows : draft.passes) EXPECT_EQ(rows.outputs.size(), 1u);
}

TEST(TreeModeTest, AModelThatIsNotSureGrowsBranchesInOnePass) {
  TreeMode mode(Limits());
  const Draft draft =
      DraftOf(mode, Room(0.3, 0.02, 0.005), Forking(0.5f, 0.45f));
  // Both first tokens, and in the next pass those after both.
  ASSERT_GE(draft.passes.size(), 2u);
  EXPECT_THAT(draft.passes[1].tokens, ElementsAre(10, 20, 21));
  EXPECT_THAT(draft.passes[1].outputs, ElementsAre(1, 2));
  ASSERT_GE(draft.tree.size(), 6);
  EXPECT_THAT(Tokens(draft.tree.tokens.begin(), draft.tree.tokens.begin() + 2),
              ElementsAre(20, 21));
  EXPECT_EQ(std::count(draft.tree.parents.begin(), draft.tree.parents.end(), 0),
            2);
  EXPECT_EQ(std::count(draft.tree.parents.begin(), draft.tree.parents.end(), 1),
            2);
}

TEST(TreeModeTest, ItEndsWhereAPassCostsMoreThanItAdds) {
  const auto passes = [](double price) {
    TreeMode mode(Limits());
    return DraftOf(mode, Room(price), Counting(0.8f)).passes.size();
  };
  EXPECT_EQ(passes(0.9), 1u);
  EXPECT_GT(passes(0.3), 1u);
  EXPECT_GT(passes(0.1), passes(0.3));
  // Until nodes themselves cost more than they add.
  EXPECT_GT(passes(0.0), passes(0.1));
  EXPECT_LT(passes(0.0), 20u);
}

TEST(TreeModeTest, WithUnknownPricesItIsAShortChain) {
  TreeMode mode(Limits());
  const Draft draft = DraftOf(mode, {64, 1000, {}}, Counting(0.85f));
  EXPECT_GE(draft.tree.size(), 3);
  EXPECT_LE(draft.tree.size(), 8);
}

TEST(TreeModeTest, NodesThatDoNotPayForTheirRowsAreLeftOut) {
  const auto tokens = [](double node) {
    TreeMode mode(Limits());
    return DraftOf(mode, Room(0.9, node), Forking(0.6f, 0.2f)).tree.tokens;
  };
  EXPECT_THAT(tokens(0.1), ElementsAre(20, 21));
  EXPECT_THAT(tokens(0.3), ElementsAre(20));
  EXPECT_THAT(tokens(0.7), ElementsAre(20)) << "one is always tried";
  // The first node is dear, such as one that fills a further block of rows, and
  // those after it are cheap: together they pay.
  TreeMode mode(Limits());
  DraftRoom room = Room(0.9);
  room.prices.nodes = {0.65, 0.01};
  EXPECT_THAT(DraftOf(mode, room, Forking(0.6f, 0.2f)).tree.tokens,
              ElementsAre(20, 21));
}

TEST(TreeModeTest, TheTreeHasAtMostTheNodesThatWereAsked) {
  for (const int most : {1, 3, 7}) {
    TreeMode mode(Limits());
    DraftRoom room = Room(0.001, 0.0, 0.0);
    room.max_nodes = most;
    const Draft draft = DraftOf(mode, room, Forking(0.6f, 0.3f));
    EXPECT_EQ(draft.tree.size(), most);
    EXPECT_LT(draft.passes.size(), 20u);
    for (size_t i = 1; i < draft.tree.probs.size(); ++i) {
      EXPECT_LE(draft.tree.probs[i], draft.tree.probs[i - 1]);
    }
  }
}

TEST(TreeModeTest, APassFitsItsRowsThoughNoKvIsKept) {
  ModeLimits limits = Limits();
  limits.max_rows = 6;
  TreeMode mode(limits);
  const Draft draft =
      DraftOf(mode, Room(/*pass=*/0.01, /*node=*/0.0), Counting(0.999f));
  EXPECT_GE(draft.passes.size(), 6u);
  for (const PassRows& rows : draft.passes) {
    EXPECT_LE(rows.size(), 1 + limits.max_rows);
  }
}

TEST(TreeModeTest, NothingFollowsAnEndTokenNorTheLastPosition) {
  TreeMode ending(Limits());
  const Draft ended = DraftOf(ending, Room(0.01), [](const Tokens& path) {
    return Chances{{path.size() == 2 ? 2 : 30, 0.9f}};
  });
  EXPECT_THAT(ended.tree.tokens, ElementsAre(30, 30, 2));
  TreeMode full(Limits());
  DraftRoom room = Room(0.01);
  room.max_depth = 2;
  EXPECT_EQ(Depth(DraftOf(full, room, Counting(0.9f)).tree), 3);
  TreeMode none(Limits());
  room.max_depth = -1;
  EXPECT_THAT(DraftOf(none, room, Counting(0.9f)).passes, IsEmpty());
}

TEST(TreeModeTest, TokensBeyondTheVocabularyAreNotProposed) {
  TreeMode mode(Limits());
  const Draft draft = DraftOf(mode, Room(0.9), [](const Tokens&) {
    return Chances{{1000, 0.5f}, {999, 0.4f}};
  });
  EXPECT_THAT(draft.tree.tokens, ElementsAre(999));
}

// --- Hints -------------------------------------------------------------------

DraftTree HintedChain(int tokens, float each) {
  DraftTree hints;
  float path = 1.0f;
  for (int i = 0; i < tokens; ++i) hints.Add(11 + i, i - 1, path *= each);
  return hints;
}

TEST(TreeModeTest, HintedTokensAreReadInOnePass) {
  const DraftTree hints = HintedChain(6, 0.9f);
  TreeMode mode(Limits());
  const Draft draft = DraftOf(mode, Room(), Counting(0.95f), &hints);
  EXPECT_THAT(draft.passes[0].tokens, ElementsAre(10, 11, 12, 13, 14, 15, 16));
  EXPECT_THAT(draft.passes[0].outputs, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_GE(draft.tree.size(), 7) << "and what follows them";
  EXPECT_EQ(draft.tree.tokens[6], 17);
  TreeMode alone(Limits());
  EXPECT_EQ(DraftOf(alone, Room(), Counting(0.95f)).passes.size(),
            draft.passes.size() + 6);
}

TEST(TreeModeTest, HintsThatTheModelDoesNotExpectChangeNothing) {
  DraftTree hints;
  hints.Add(500, kRootParent, 0.8f);
  hints.Add(501, 0, 0.7f);
  hints.Add(5000, kRootParent, 0.9f);  // not in the draft model's vocabulary
  hints.Add(11, 2, 0.9f);
  TreeMode with(Limits());
  TreeMode without(Limits());
  const Draft got = DraftOf(with, Room(), Counting(0.9f), &hints);
  EXPECT_THAT(got.passes[0].tokens, ElementsAre(10, 500, 501));
  EXPECT_THAT(got.tree.tokens, Not(Contains(500)));
  const Draft want = DraftOf(without, Room(), Counting(0.9f));
  EXPECT_EQ(got.tree.tokens, want.tree.tokens);
  EXPECT_EQ(got.tree.probs, want.tree.probs);
}

// The other drafters' nodes need no passes to be in the tree: a further pass
// has to add something to them.
TEST(TreeModeTest, NodesThatAreThereAnywayCostNoRow) {
  DraftTree hints;
  hints.Add(20, kRootParent, 0.9f);
  DraftRoom room = Room(0.9);
  room.prices.nodes = {0.5, 0.1};
  // Its own node is the second one of the target's tree.
  TreeMode mode(Limits());
  const Draft draft = DraftOf(mode, room, Forking(0.3f, 0.2f), &hints);
  EXPECT_THAT(draft.tree.tokens, ElementsAre(20, 21));
  TreeMode alone(Limits());
  EXPECT_THAT(DraftOf(alone, room, Forking(0.3f, 0.2f)).tree.tokens,
              ElementsAre(20));
}

// A hint missing from the answer would look like one that the model leaves out.
TEST(TreeModeTest, HintsThatItAgreesWithAreInItsAnswer) {
  DraftTree hints;
  hints.Add(21, kRootParent, 0.8f);
  DraftRoom room = Room(0.9);
  room.prices.nodes = {0.45};
  TreeMode mode(Limits());
  const Draft draft = DraftOf(mode, room, Forking(0.5f, 0.4f), &hints);
  EXPECT_THAT(draft.tree.tokens, ElementsAre(20, 21));
  // Not more than there is room for, and no path without its beginning.
  room.max_nodes = 1;
  TreeMode small(Limits());
  EXPECT_THAT(DraftOf(small, room, Forking(0.5f, 0.4f), &hints).tree.tokens,
              ElementsAre(20));
}

// Such a node will hardly be verified, nor what is below it.
TEST(TreeModeTest, HintsThatItLeavesOutTakeNoRoom) {
  DraftRoom room = Room(0.9);
  room.prices.nodes = {0.1, 0.1, 0.5};
  TreeMode mode(Limits());
  const DraftTree hints = HintedChain(3, 0.95f);
  EXPECT_THAT(DraftOf(mode, room, Forking(0.4f, 0.3f), &hints).tree.tokens,
              ElementsAre(20, 21));
}

// --- Learning ----------------------------------------------------------------

TEST(TreeModeTest, ItLearnsThatItsModelIsRighterThanItSays) {
  TreeMode mode(Limits());
  const Draft first = DraftOf(mode, Room(), Counting(0.4f));
  for (int round = 0; round < 40; ++round) {
    Observe(mode, {11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
    DraftOf(mode, Room(), Counting(0.4f));
  }
  const Draft later = DraftOf(mode, Room(), Counting(0.4f));
  EXPECT_GT(later.tree.probs[0], 0.8f);
  EXPECT_GT(later.tree.size(), first.tree.size());
  for (int round = 0; round < 200; ++round) {
    Observe(mode, {99});
    DraftOf(mode, Room(), Counting(0.4f));
  }
  EXPECT_LT(DraftOf(mode, Room(), Counting(0.4f)).tree.probs[0], 0.3f);
}

TEST(TreeModeTest, TokensOfAnotherTextTeachNothing) {
  TreeMode mode(Limits());
  const Draft first = DraftOf(mode, Room(), Counting(0.4f));
  for (int round = 0; round < 40; ++round) {
    Observation observation;
    const Tokens committed = {11, 12, 13};
    observation.committed = committed;
    mode.Observe(observation);
    EXPECT_EQ(DraftOf(mode, Room(), Counting(0.4f)).tree.probs,
              first.tree.probs);
  }
}

// --- A text that repeats -----------------------------------------------------

// A text of which the tokens from 100 on come twice, the second time up to
// `seen` of them; the model goes on as the first time.
struct Repeated {
  explicit Repeated(int seen) {
    for (TokenId token = 100; token < 160; ++token) text.push_back(token);
    text.push_back(7);
    for (TokenId token = 100; token < 100 + seen; ++token) {
      text.push_back(token);
    }
  }
  Draft DraftBy(TreeMode& mode, const Model& model) const {
    mode.Begin(text, Room());
    return Run(mode, text.back(), model);
  }
  Model Copies(float chance) const {
    return [chance, last = text.back()](const Tokens& path) {
      return Chances{{(path.empty() ? last : path.back()) + 1, chance}};
    };
  }
  Tokens text;
};

TEST(TreeModeTest, ATextThatIsCopiedTakesFewPasses) {
  TreeMode copies(Limits());
  const Repeated repeated(8);
  const Draft draft = repeated.DraftBy(copies, repeated.Copies(0.98f));
  EXPECT_GE(draft.tree.size(), 20);
  EXPECT_LE(draft.passes.size(), 4u);
  for (int i = 0; i < draft.tree.size(); ++i) {
    EXPECT_EQ(draft.tree.tokens[i], 108 + i);
    EXPECT_EQ(draft.tree.parents[i], i - 1);
  }
}

// The same tree as a model of the same words without a text to copy, as far as
// both go.
TEST(TreeModeTest, AGuessIsProposedOnlyIfTheModelDrawsIt) {
  TreeMode copies(Limits());
  const Repeated repeated(8);
  const Model other = [](const Tokens& path) {
    return Chances{{path.size() < 2 ? 108 + static_cast<TokenId>(path.size())
                                    : 500 + static_cast<TokenId>(path.size()),
                    0.9f}};
  };
  const Draft draft = repeated.DraftBy(copies, other);
  TreeMode plain(Limits());
  const Draft want = DraftOf(plain, Room(), other);
  EXPECT_EQ(draft.tree.tokens, want.tree.tokens);
  EXPECT_EQ(draft.tree.parents, want.tree.parents);
  EXPECT_EQ(draft.tree.probs, want.tree.probs);
  EXPECT_LT(draft.passes.size(), want.passes.size());
}

TEST(TreeModeTest, GuessesThatFailAreNotMadeAgain) {
  TreeMode mode(Limits());
  const Repeated repeated(3);
  const Model other = [](const Tokens& path) {
    return Chances{{500 + static_cast<TokenId>(path.size()), 0.9f}};
  };
  EXPECT_GT(repeated.DraftBy(mode, other).passes[0].size(), 1);
  for (int round = 0; round < 100; ++round) repeated.DraftBy(mode, other);
  EXPECT_EQ(repeated.DraftBy(mode, other).passes[0].size(), 1);
}

// --- Sampling ----------------------------------------------------------------

// The noise of a position decides with the probabilities which token the target
// is likely to draw.
TEST(TreeModeTest, AtATemperatureTheNoiseCounts) {
  ModeLimits limits = Limits();
  limits.temperature = 0.9f;
  int wins = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    limits.seed = seed;
    TreeMode mode(limits);
    // The draw is what the noise says: the better of both by score.
    const auto score = [&](TokenId token, float chance) {
      return std::log(chance) + 0.9f * GumbelNoise(seed, 1, token);
    };
    const float gap = score(30, 0.5f) - score(31, 0.3f);
    const bool first = gap > 0;
    const Draft draft = DraftOf(mode, Room(0.95, 0.0), [&](const Tokens&) {
      return first ? Chances{{30, 0.5f}, {31, 0.3f}}
                   : Chances{{31, 0.3f}, {30, 0.5f}};
    });
    ASSERT_FALSE(draft.tree.tokens.empty());
    EXPECT_EQ(draft.tree.tokens[0], first ? 30 : 31);
    // A close race is an uncertain one.
    if (draft.tree.size() == 2) {
      EXPECT_NEAR(std::log(draft.tree.probs[0] / draft.tree.probs[1]),
                  std::fabs(gap), 1e-3f);
    }
    wins += draft.tree.probs[0] > 0.5f;
  }
  EXPECT_GT(wins, 100);
}

// --- In the engine -----------------------------------------------------------

// An engine whose passes and rows cost next to nothing beside the rounds.
struct CheapEngine {
  explicit CheapEngine(bool keep_chain = true) {
    DraftEngineOptions options;
    options.keep_chain = keep_chain;
    auto backend = std::make_unique<testing::FakeBackend>(RoomyBackend());
    fake = backend.get();
    engine = std::make_unique<DraftEngine>(options, std::move(backend),
                                           [this] { return now; });
  }

  DraftRound Round(int64_t length, Tokens committed) const {
    DraftRound round = MakeRound(length, std::move(committed), 24);
    round.token_time = absl::Seconds(1);
    round.row_ms = {2.0f};
    return round;
  }

  absl::Time now = absl::UnixEpoch();
  testing::FakeBackend* fake = nullptr;
  std::unique_ptr<DraftEngine> engine;
};

DraftAnswer Ask(DraftEngine& engine, SessionId key, const DraftRound& round) {
  const absl::Status submitted = engine.Submit(key, round);
  EXPECT_TRUE(submitted.ok()) << submitted;
  while (true) {
    DraftReport report = engine.RunPass();
    EXPECT_THAT(report.failures, IsEmpty());
    if (!report.failures.empty()) return {};
    for (auto& answer : report.answers) {
      if (answer.session == key) return std::move(answer.answer);
    }
  }
}

// The draft of the fake model by a mode that keeps no KV.
DraftTree WithoutKv(TreeMode& mode, const Tokens& text,
                    const SamplingParams& params, const DraftRound& round) {
  DraftRoom room = {round.max_nodes, 1000, {}};
  room.prices.nodes = {0.002};
  mode.Begin(text, room);
  if (round.hints.size() > 0) mode.TakeHints(round.hints);
  SamplingState state(params, 5, 50);
  state.Append(text);
  state.set_logprobs(mode.logprobs());
  SamplingState::Scratch scratch;
  DraftTree tree;
  while (!mode.done()) {
    PassRows rows;
    rows.Add(text.back(), kRootParent);
    mode.LayOut(0, /*kept=*/0, rows);
    std::vector<SampledToken> outputs(rows.size());
    for (const int32_t row : rows.outputs) {
      Tokens path;
      for (int32_t at = row; at != 0; at = rows.parents[at]) {
        path.insert(path.begin(), rows.tokens[at]);
      }
      outputs[row] = state.Sample(testing::FakeLogits(Joined(text, path), 50),
                                  path, scratch);
    }
    mode.Take(outputs);
  }
  mode.Finish(tree);
  return tree;
}

// The tokens of a random path of `tree`, and one of another kind after it.
Tokens RandomCommit(const DraftTree& tree, std::mt19937& random) {
  Tokens tokens;
  int32_t at = kRootParent;
  while (random() % 5 != 0) {
    std::vector<int32_t> children;
    for (int32_t i = 0; i < tree.size(); ++i) {
      if (tree.parents[i] == at) children.push_back(i);
    }
    if (children.empty()) break;
    at = children[random() % children.size()];
    tokens.push_back(tree.tokens[at]);
  }
  tokens.push_back(static_cast<TokenId>(random() % 50));
  return tokens;
}

DraftTree RandomHints(const Tokens& text, const SamplingParams& params,
                      std::mt19937& random) {
  DraftTree hints;
  Tokens path = text;
  for (int i = 0; i < static_cast<int>(random() % 5); ++i) {
    const TokenId token = random() % 4 == 0
                              ? static_cast<TokenId>(random() % 60)
                              : NextToken(path, 5, params);
    hints.Add(token, i - 1, std::pow(0.8f, static_cast<float>(i + 1)));
    path.push_back(token);
  }
  return hints;
}

// Passes cost the default price here, as the clock of the engine stands still.
TEST(TreeModeTest, KeptKvAndBatchMatesChangeNoTree) {
  int deep = 0;
  int branched = 0;
  for (const float temperature : {0.0f, 0.6f}) {
    const SamplingParams params =
        temperature > 0 ? Seeded(7, temperature) : SamplingParams();
    ModeLimits limits = Limits();
    limits.vocab_limit = 50;
    limits.end_tokens = {};
    limits.temperature = params.temperature;
    limits.seed = params.seed;
    TreeMode reference(limits);
    CheapEngine keeps;
    CheapEngine computes(/*keep_chain=*/false);
    const SessionId key =
        *keeps.engine->Open(MakeOpen("draft_model", kPrompt, params));
    const SessionId mate =
        *keeps.engine->Open(MakeOpen("draft_model:gamma=7", kPrompt));
    const SessionId same =
        *computes.engine->Open(MakeOpen("draft_model", kPrompt, params));
    std::mt19937 random(5);
    Tokens text = kPrompt;
    Tokens committed = {20};
    int64_t mate_length = 5;
    for (int i = 0; i < 60; ++i) {
      SCOPED_TRACE(i);
      if (i > 0) Observe(reference, committed);
      text = Joined(text, committed);
      DraftRound round =
          keeps.Round(static_cast<int64_t>(text.size()), committed);
      if (i % 2 == 1) round.hints = RandomHints(text, params, random);
      const DraftTree want = WithoutKv(reference, text, params, round);
      if (i % 3 != 0) {
        ASSERT_TRUE(
            keeps.engine->Submit(mate, MakeRound(++mate_length, {33})).ok());
      }
      const DraftTree got = Ask(*keeps.engine, key, round).tree;
      while (keeps.engine->HasWork()) keeps.engine->RunPass();
      ASSERT_EQ(got.tokens, want.tokens);
      ASSERT_EQ(got.parents, want.parents);
      ASSERT_EQ(got.probs, want.probs);
      const DraftTree again = Ask(*computes.engine, same, round).tree;
      ASSERT_EQ(again.tokens, want.tokens);
      ASSERT_EQ(again.probs, want.probs);
      deep += Depth(want) > 2;
      branched += Depth(want) < want.size();
      committed = RandomCommit(want, random);
    }
    EXPECT_GT(keeps.engine->snapshot().totals.kept_rows, 0);
    EXPECT_LT(keeps.fake->forwards(), 60 * 20);
  }
  EXPECT_GT(deep, 10);
  EXPECT_GT(branched, 10);
}

TEST(TreeModeTest, ALargerRoomContinuesTheSameDraft) {
  CheapEngine f;
  const SessionId key = *f.engine->Open(MakeOpen("draft_model", kPrompt));
  DraftRound round = f.Round(6, {20});
  round.max_nodes = 2;
  const DraftTree small = Ask(*f.engine, key, round).tree;
  EXPECT_EQ(small.size(), 2);
  const DraftTree large = Ask(*f.engine, key, f.Round(6, {})).tree;
  EXPECT_GE(large.size(), 2);
  EXPECT_EQ(large.tokens[0], small.tokens[0]);
  const DraftTree again = Ask(*f.engine, key, round = f.Round(6, {})).tree;
  EXPECT_EQ(again.tokens, large.tokens);
}

}  // namespace
}  // namespace foretoken::draft_worker
