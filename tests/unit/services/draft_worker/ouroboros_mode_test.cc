// OuroborosMode alone, with answers made by hand.
#include "services/draft_worker/core/ouroboros_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "tests/unit/services/draft_worker/draft_fixture.h"

namespace foretoken::draft_worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

ModeLimits Limits() {
  ModeLimits limits;
  limits.vocab_limit = 1000;
  limits.max_rows = 320;
  limits.end_tokens = {2};
  return limits;
}

OuroborosOptions Small() {
  OuroborosOptions options;
  options.gamma = 4;
  options.window = 3;
  options.beta = 3;
  options.suffixes = 2;
  return options;
}

std::vector<Phrase> PhrasesOf(const OuroborosMode& mode, TokenId key) {
  std::vector<absl::Span<const TokenId>> newest;
  mode.pool().Newest(key, 100, newest);
  std::vector<Phrase> phrases;
  for (const auto& phrase : newest) {
    phrases.emplace_back(phrase.begin(), phrase.end());
  }
  return phrases;
}

// Lays out a pass below one row of the last committed token.
PassRows LayOut(OuroborosMode& mode, TokenId last) {
  PassRows rows;
  rows.Add(last, kRootParent);
  mode.LayOut(0, /*kept=*/0, rows);
  return rows;
}

// Answers 500, 501, ... except where `given` says otherwise.
std::vector<SampledToken> Answers(const PassRows& rows,
                                  std::map<int32_t, TokenId> given) {
  std::vector<SampledToken> outputs(rows.size());
  for (int32_t row = 0; row < rows.size(); ++row) {
    outputs[row].token = given.count(row) ? given[row] : 500 + row;
  }
  return outputs;
}

DraftRoom Roomy() { return {64, 1000}; }

VerifiedTree Verified(const DraftTree& tree, Tokens row_tokens,
                      std::vector<int32_t> path) {
  VerifiedTree verified;
  verified.tree = *TokenTree::Create(tree.tokens, tree.parents);
  verified.row_tokens = std::move(row_tokens);
  verified.path = std::move(path);
  return verified;
}

TEST(OuroborosModeTest, TheLongestAgreedPhraseJoinsWithTheModelsOwnToken) {
  OuroborosOptions options = Small();
  options.beta = 4;
  OuroborosMode mode(
      options, Limits(),
      std::vector<Phrase>{
          {7, 1, 5, 6}, {7, 1, 3, 4}, {7, 8, 9, 10}, {9, 1, 1, 1}});
  mode.Begin(Tokens{7}, Roomy());
  const PassRows rows = LayOut(mode, 7);
  // Newest first, equal beginnings in one row.
  EXPECT_THAT(
      std::vector<TokenId>(rows.tokens.begin(), rows.tokens.begin() + 9),
      ElementsAre(7, 8, 9, 10, 1, 3, 4, 5, 6));
  EXPECT_THAT(
      std::vector<int32_t>(rows.parents.begin(), rows.parents.begin() + 9),
      ElementsAre(-1, 0, 1, 2, 0, 4, 5, 4, 7));

  // 7 -> 1 -> 5, and then not 6 but 42.
  mode.Take(Answers(rows, {{0, 1}, {4, 5}, {7, 42}}));

  EXPECT_THAT(mode.chain(), ElementsAre(1, 5, 42));
  EXPECT_THAT(mode.chain_rows(), ElementsAre(4, 7));
  EXPECT_FALSE(mode.done());
  EXPECT_EQ(mode.totals().phrases_tried, 3);
  EXPECT_EQ(mode.totals().phrase_tokens, 2);
}

TEST(OuroborosModeTest, TheDraftMayOvershootGammaAndEndsInTheNewestSuffixes) {
  OuroborosMode mode(
      Small(), Limits(),
      std::vector<Phrase>{
          {20, 21, 22}, {13, 30, 31}, {13, 30, 32}, {13, 40, 41}});
  mode.Begin(Tokens{10}, Roomy());
  PassRows rows = LayOut(mode, 10);
  mode.Take(Answers(rows, {{0, 11}}));
  rows = LayOut(mode, 10);
  EXPECT_THAT(mode.chain_rows(), ElementsAre(1));
  mode.Take(Answers(rows, {{1, 12}}));
  rows = LayOut(mode, 10);
  mode.Take(Answers(rows, {{2, 20}}));
  EXPECT_FALSE(mode.done());  // 11 12 20
  rows = LayOut(mode, 10);
  // The phrase of 20 agrees: rows 4 and 5 hold 21 and 22.
  mode.Take(Answers(rows, {{3, 21}, {4, 22}, {5, 13}}));
  EXPECT_TRUE(mode.done());

  DraftTree tree;
  mode.Finish(tree);

  EXPECT_THAT(tree.tokens, ElementsAre(11, 12, 20, 21, 22, 13, 40, 41, 30, 32));
  EXPECT_THAT(tree.parents, ElementsAre(-1, 0, 1, 2, 3, 4, 5, 6, 5, 8));
}

TEST(OuroborosModeTest, AnEndTokenEndsTheDraft) {
  OuroborosMode mode(Small(), Limits(), std::vector<Phrase>{{2, 5, 6}});
  mode.Begin(Tokens{10}, Roomy());
  const PassRows rows = LayOut(mode, 10);
  mode.Take(Answers(rows, {{0, 2}}));
  EXPECT_TRUE(mode.done());
  DraftTree tree;
  mode.Finish(tree);
  EXPECT_THAT(tree.tokens, ElementsAre(2));
}

TEST(OuroborosModeTest, ADraftTakesNoMorePassesThanAllowed) {
  OuroborosOptions options = Small();
  options.passes = 2;
  OuroborosMode mode(options, Limits(), std::vector<Phrase>{{12, 20, 21}});
  for (int draft = 0; draft < 2; ++draft) {
    mode.Begin(Tokens{10}, Roomy());
    mode.Take(Answers(LayOut(mode, 10), {{0, 11}}));
    EXPECT_FALSE(mode.done());
    mode.Take(Answers(LayOut(mode, 10), {{1, 12}}));
    EXPECT_TRUE(mode.done());
    DraftTree tree;
    mode.Finish(tree);
    // Short as it is, it ends in its suffixes.
    EXPECT_THAT(tree.tokens, ElementsAre(11, 12, 20, 21));
  }
}

TEST(OuroborosModeTest, TheLookaheadMayBeNarrowerThanThePoolOrAbsent) {
  OuroborosOptions options = Small();
  const std::vector<Phrase> phrases = {{10, 20, 21}};
  options.lookahead = 0;
  EXPECT_EQ(options.MaxRows(), 3 + 3 * 2);
  OuroborosMode none(options, Limits(), phrases);
  none.Begin(Tokens{10}, Roomy());
  PassRows rows = LayOut(none, 10);
  EXPECT_THAT(rows.tokens, ElementsAre(10, 20, 21));
  EXPECT_THAT(rows.outputs, ElementsAre(0, 1, 2));
  none.Take(Answers(rows, {{0, 20}}));
  EXPECT_THAT(none.TakeGained(), IsEmpty());

  options.lookahead = 1;  // while it fills: the last token, and one guess
  OuroborosMode narrow(options, Limits(), phrases);
  narrow.Begin(Tokens{10}, Roomy());
  EXPECT_THAT(LayOut(narrow, 10).tokens, ElementsAre(10, 20, 21, 10));
}

TEST(OuroborosModeTest, OfAFullWindowOnlyTheDeepestRowsAreAskedFor) {
  OuroborosMode mode(Small(), Limits(), std::vector<Phrase>{{10, 20, 21}});
  mode.Begin(Tokens{10}, Roomy());
  mode.Take(Answers(LayOut(mode, 10), {{0, 10}}));
  // Row 1 is the draft's 10, 2 and 3 its phrase, 4 and 5 the window's level 0,
  // 6 to 8 the level below.
  const PassRows rows = LayOut(mode, 10);
  ASSERT_EQ(rows.size(), 9);
  EXPECT_THAT(rows.outputs, ElementsAre(1, 2, 3, 6, 7, 8));
}

TEST(OuroborosModeTest, TheRequestsOwnTextIsPhrasesWhereAskedFor) {
  OuroborosOptions options = Small();
  options.suffixes = 0;
  options.context = true;
  OuroborosMode mode(options, Limits(), {});
  mode.Begin(Tokens{5, 6, 1001, 7, 8, 9, 7}, Roomy());
  EXPECT_EQ(mode.pool_phrases(), 2);  // 7 8 9, 8 9 7: 1001 is not proposable
  EXPECT_THAT(PhrasesOf(mode, 7), ElementsAre(ElementsAre(7, 8, 9)));
  mode.Begin(Tokens{5, 6, 1001, 7, 8, 9, 7, 6, 4}, Roomy());
  EXPECT_THAT(PhrasesOf(mode, 7),
              ElementsAre(ElementsAre(7, 6, 4), ElementsAre(7, 8, 9)));
  // They are the request's: nothing of them goes into the shared pool.
  EXPECT_THAT(mode.TakeGained(), IsEmpty());
}

// A mode with gamma 4 and beta 3 whose draft is 11 12 13 14 and that knows the
// suffixes (14, 20, 21) and (14, 30, 31), the latter newer.
class DraftedMode {
 public:
  explicit DraftedMode(OuroborosOptions options = Small())
      : mode(options, Limits(),
             std::vector<Phrase>{{14, 20, 21}, {14, 30, 31}}) {
    mode.Begin(Tokens{10}, Roomy());
    for (TokenId next = 11; next <= 14; ++next) {
      const PassRows rows = LayOut(mode, 10);
      mode.Take(Answers(rows, {{next - 11, next}}));
    }
    mode.Finish(tree);
    mode.TakeGained();
  }

  void Observe(const Tokens& row_tokens, const std::vector<int32_t>& path,
               const Tokens& committed) {
    const VerifiedTree verified = Verified(tree, row_tokens, path);
    Observation observation;
    observation.committed = committed;
    observation.follows_draft = true;
    observation.verified = &verified;
    mode.Observe(observation);
  }

  OuroborosMode mode;
  DraftTree tree;  // 11 12 13 14 | 30 31 | 20 21
};

TEST(OuroborosModeTest, InspirationTakesWhatBothAgreeOnAfterTheDifference) {
  DraftedMode f;
  ASSERT_THAT(f.tree.tokens, ElementsAre(11, 12, 13, 14, 30, 31, 20, 21));
  // l_d = 0: the target says 99 for d_1, then 12 13 14 as the draft, then 70.
  // i from l_d+2 = 2 to gamma-beta+2 = 3, agreement on i..i+1.
  f.Observe({99, 12, 13, 14, 70, 71, 72, 73, 74}, {}, {99});
  EXPECT_THAT(PhrasesOf(f.mode, 12), Contains(Phrase{12, 13, 14}));
  EXPECT_THAT(PhrasesOf(f.mode, 13), Contains(Phrase{13, 14, 70}));
  EXPECT_EQ(f.mode.totals().inspired, 2);
  EXPECT_THAT(f.mode.TakeGained(),
              ElementsAre(Phrase{12, 13, 14}, Phrase{13, 14, 70},
                          Phrase{14, 70, 71}, Phrase{14, 70, 73}));
}

TEST(OuroborosModeTest, InspirationLeavesOutWhatWasAccepted) {
  DraftedMode f;
  // l_d = 2 (11 12), the target says 99 for d_3: i from 4 to 3, none.
  f.Observe({11, 12, 99, 14, 70, 71, 72, 73, 74}, {0, 1}, {11, 12, 99});
  EXPECT_EQ(f.mode.totals().inspired, 0);
}

TEST(OuroborosModeTest, RefinementCorrectsSuffixesInPlaceInEveryRound) {
  DraftedMode f;
  // After the leaf 70; after 30: 72, after 20: 74.
  f.Observe({99, 0, 0, 0, 70, 72, 0, 74, 0}, {}, {99});
  EXPECT_THAT(PhrasesOf(f.mode, 14),
              ElementsAre(Phrase{14, 70, 72}, Phrase{14, 70, 74}));
  EXPECT_EQ(f.mode.totals().refined, 2);

  DraftedMode accepted;  // whole chain and one suffix token accepted
  accepted.Observe({11, 12, 13, 14, 30, 33, 0, 74, 0}, {0, 1, 2, 3, 4},
                   {11, 12, 13, 14, 30, 33});
  EXPECT_THAT(PhrasesOf(accepted.mode, 14),
              ElementsAre(Phrase{14, 30, 33}, Phrase{14, 30, 74}));
}

TEST(OuroborosModeTest, AblationsSwitchOff) {
  OuroborosOptions options = Small();
  options.inspiration = false;
  options.refinement = false;
  DraftedMode off(options);
  off.Observe({99, 12, 13, 14, 70, 71, 72, 73, 74}, {}, {99});
  EXPECT_EQ(off.mode.totals().inspired, 0);
  EXPECT_THAT(PhrasesOf(off.mode, 14),
              ElementsAre(Phrase{14, 30, 31}, Phrase{14, 20, 21}));
  EXPECT_THAT(off.mode.TakeGained(), IsEmpty());

  options = Small();
  options.warm_start = false;
  const OuroborosMode cold(options, Limits(), std::vector<Phrase>{{1, 2, 3}});
  EXPECT_EQ(cold.pool_phrases(), 0);

  options = Small();
  options.suffixes = 0;
  DraftedMode none(options);
  EXPECT_THAT(none.tree.tokens, ElementsAre(11, 12, 13, 14));
}

// The verifier may have dropped nodes or never seen them; other drafters' nodes
// lie between.
TEST(OuroborosModeTest, LearnsFromWhatTheVerifiedTreeHolds) {
  DraftedMode f;
  DraftTree merged;
  merged.Add(77, -1, 1);  // another's
  merged.Add(11, -1, 1);
  merged.Add(12, 1, 1);
  merged.Add(13, 2, 1);
  merged.Add(78, 3, 1);
  VerifiedTree verified = Verified(merged, {99, 5, 12, 13, 55, 5}, {});
  Observation observation;
  const Tokens committed = {99};
  observation.committed = committed;
  observation.follows_draft = true;
  observation.verified = &verified;
  f.mode.Observe(observation);
  // d_1..d_3 were verified: i from 2 to 2, (12, 13, 55).
  EXPECT_THAT(f.mode.TakeGained(), ElementsAre(Phrase{12, 13, 55}));
  EXPECT_THAT(PhrasesOf(f.mode, 14),
              ElementsAre(Phrase{14, 30, 31}, Phrase{14, 20, 21}));

  // Row 3 (node 12) was dropped: nothing is known after 11.
  verified.row_tokens = {99, 5, 12, -1, -1, -1};
  f.mode.Observe(observation);
  // A draft that was not built on this text says nothing.
  observation.follows_draft = false;
  verified.row_tokens = {99, 5, 12, 13, 56, 5};
  f.mode.Observe(observation);
  EXPECT_THAT(f.mode.TakeGained(), IsEmpty());
}

TEST(OuroborosModeTest, TokensThatTheDraftDoesNotKnowStayOutOfThePool) {
  const OuroborosMode warm(
      Small(), Limits(),
      std::vector<Phrase>{{1, 2, 1000}, {1, 2}, {1, 2, 3, 4}, {1, -2, 3}, {}});
  EXPECT_EQ(warm.pool_phrases(), 0);
  DraftedMode f;
  f.Observe({99, 12, 13, 14, 1000, 71, 72, 73, 74}, {}, {99});
  EXPECT_THAT(f.mode.TakeGained(), IsEmpty());
}

OuroborosOptions ByPrice() {
  OuroborosOptions options = Small();
  options.by_price = true;
  return options;
}

// Answers with a probability for every token.
std::vector<SampledToken> With(std::vector<SampledToken> outputs,
                               std::map<int32_t, float> probs) {
  for (const auto& [row, prob] : probs) outputs[row].logprob = std::log(prob);
  return outputs;
}

TEST(OuroborosModeTest, TheDraftModelsProbabilitiesEstimateTheChain) {
  OuroborosMode mode(ByPrice(), Limits(),
                     std::vector<Phrase>{{10, 11, 12}, {14, 20, 21}});
  ASSERT_EQ(mode.logprobs(), 0);
  DraftRoom room = Roomy();
  room.prices.nodes = {0.0};
  mode.Begin(Tokens{10}, room);
  PassRows rows = LayOut(mode, 10);
  // 11 and 12 are the phrase's, in rows 1 and 2, and 13 follows them.
  mode.Take(With(Answers(rows, {{0, 11}, {1, 12}, {2, 13}}),
                 {{0, 0.5f}, {1, 0.25f}, {2, NAN}}));
  rows = LayOut(mode, 10);
  mode.Take(With(Answers(rows, {{3, 14}}), {{3, 1.0f}}));

  DraftTree tree;
  mode.Finish(tree);

  ASSERT_THAT(tree.tokens, ElementsAre(11, 12, 13, 14, 20, 21));
  EXPECT_FLOAT_EQ(tree.probs[0], 0.5f);
  EXPECT_FLOAT_EQ(tree.probs[1], 0.125f);
  // What is no number counts as little.
  EXPECT_FLOAT_EQ(tree.probs[2], 0.125e-3f);
  EXPECT_FLOAT_EQ(tree.probs[3], tree.probs[2]);
  EXPECT_GT(tree.probs[4], 0.0f);
  EXPECT_LT(tree.probs[4], tree.probs[3]);
}

TEST(OuroborosModeTest, ANewDraftHasItsOwnEstimates) {
  OuroborosOptions options = ByPrice();
  options.passes = 1;
  OuroborosMode mode(options, Limits(), {});
  DraftTree tree;
  for (const float prob : {0.25f, 0.75f}) {
    mode.Begin(Tokens{10}, Roomy());
    mode.Take(With(Answers(LayOut(mode, 10), {{0, 11}}), {{0, prob}}));
    mode.Finish(tree);
    EXPECT_THAT(tree.tokens, ElementsAre(11));
    EXPECT_FLOAT_EQ(tree.probs[0], prob);
  }
}

TEST(OuroborosModeTest, AFurtherPassIsWeighedByTheChainAndByEarlierPasses) {
  OuroborosOptions options = Small();
  options.gamma = 8;
  options.lookahead = 0;
  OuroborosMode any(options, Limits(), {});
  options.by_price = true;
  OuroborosMode weighing(options, Limits(), {});
  const auto draft = [](OuroborosMode& mode) {
    mode.Begin(Tokens{10}, Roomy());
    const double before = mode.FurtherGain();
    EXPECT_TRUE(std::isinf(before)) << "a draft has a first pass";
    mode.Take(With(Answers(LayOut(mode, 10), {{0, 11}}), {{0, 0.5f}}));
    const double one = mode.FurtherGain();
    mode.Take(With(Answers(LayOut(mode, 10), {{1, 12}}), {{1, 0.5f}}));
    EXPECT_LE(mode.FurtherGain(), one);
    return one;
  };
  EXPECT_TRUE(std::isinf(draft(any)));
  const double at_first = draft(weighing);
  EXPECT_GT(at_first, 0.0);
  EXPECT_LE(at_first, 0.5);  // of one token a pass at most

  const auto observe = [&](const Tokens& committed) {
    Observation observation;
    observation.committed = committed;
    observation.follows_draft = true;
    weighing.Observe(observation);
    return draft(weighing);
  };
  double before = at_first;
  for (int i = 0; i < 10; ++i) {
    // Both passes were right.
    const double now = observe({11, 12, 13});
    EXPECT_GT(now, before);
    before = now;
  }
  EXPECT_LT(before, 0.5);
  for (int i = 0; i < 50; ++i) {
    const double now = observe({99});
    EXPECT_LT(now, before);
    before = now;
  }
  EXPECT_LT(before, at_first);
  // What did not build on this text says nothing.
  Observation other;
  const Tokens committed = {11, 12, 13};
  other.committed = committed;
  weighing.Observe(other);
  EXPECT_EQ(draft(weighing), before);
}

TEST(OuroborosModeTest, WithoutProbabilitiesAChainIsEstimatedByItsDepths) {
  DraftedMode good;
  DraftedMode bad;
  EXPECT_EQ(good.mode.logprobs(), -1);
  const auto first = [](DraftedMode& f, const Tokens& committed) {
    for (int i = 0; i < 20; ++i) f.Observe(Tokens(9, 0), {}, committed);
    f.mode.Begin(Tokens{10}, Roomy());
    f.mode.Take(Answers(LayOut(f.mode, 10), {{0, 11}}));
    f.mode.Finish(f.tree);
    return f.tree.probs[0];
  };
  EXPECT_GT(first(good, {11, 12, 13, 14, 30}), 0.9f);
  EXPECT_LT(first(bad, {99}), 0.2f);
}

TEST(OuroborosModeTest, SuffixesAreEstimatedByWhatWasAccepted) {
  DraftedMode good;
  DraftedMode bad;
  for (int i = 0; i < 20; ++i) {
    good.Observe({11, 12, 13, 14, 30, 31, 0, 0, 0}, {0, 1, 2, 3, 4, 5},
                 {11, 12, 13, 14, 30, 31});
    bad.Observe({11, 12, 13, 14, 99, 0, 0, 0, 0}, {0, 1, 2, 3},
                {11, 12, 13, 14, 99});
  }
  const auto claim = [](DraftedMode& f) {
    f.mode.Finish(f.tree);
    return f.tree.probs[4] / f.tree.probs[3];
  };
  EXPECT_GT(claim(good), 2 * claim(bad));
}

// The newest phrases of the last token are likeliest: dear rows leave no room
// for the others.
TEST(OuroborosModeTest, APassHasThePhrasesThatPayForTheirRows) {
  const auto tried = [](const OuroborosOptions& options, double row) {
    OuroborosMode mode(
        options, Limits(),
        std::vector<Phrase>{{10, 11, 12}, {10, 13, 14}, {10, 15, 16}});
    DraftRoom room = Roomy();
    room.prices.row = row;
    mode.Begin(Tokens{10}, room);
    mode.Take(Answers(LayOut(mode, 10), {}));
    return mode.totals().phrases_tried;
  };
  EXPECT_EQ(tried(ByPrice(), 0.001), 3);
  EXPECT_EQ(tried(ByPrice(), 0.06), 2);
  EXPECT_EQ(tried(ByPrice(), 1.0), 1);
  EXPECT_EQ(tried(Small(), 1.0), 3) << "settings that were given hold";
}

TEST(OuroborosModeTest, ATreeByPriceHasTheNodesThatPay) {
  const auto nodes = [](double node_price) {
    OuroborosMode mode(ByPrice(), Limits(),
                       std::vector<Phrase>{{12, 20, 21}, {10, 11, 13}});
    DraftRoom room = Roomy();
    room.prices.nodes = {node_price};
    mode.Begin(Tokens{10}, room);
    mode.Take(With(Answers(LayOut(mode, 10), {{0, 11}, {1, 12}}),
                   {{0, 0.75f}, {1, 0.5f}}));
    DraftTree tree;
    mode.Finish(tree);
    return tree.tokens;
  };
  EXPECT_THAT(nodes(0.9), ElementsAre(11)) << "one is always tried";
  EXPECT_THAT(nodes(0.5), ElementsAre(11));
  EXPECT_THAT(nodes(0.3), ElementsAre(11, 12));
  EXPECT_THAT(nodes(0.01), ElementsAre(11, 12, 20, 21));
}

}  // namespace
}  // namespace foretoken::draft_worker
