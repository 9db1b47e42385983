#include "common/drafting/next_token_model.h"

#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/drafting/prior_testing.h"

namespace foretoken {
namespace {

using Tokens = std::vector<TokenId>;

// A model over what the tests put into its sources.
struct Fixture {
  explicit Fixture(std::shared_ptr<const StaticPrior> with = nullptr)
      : prior(std::move(with)),
        model({prior.get(), &request, &history, &recycled, &recycled_history},
              &trust) {}

  // The request reads `tokens`.
  void Read(const Tokens& tokens) {
    for (TokenId token : tokens) {
      Cursor next;
      model.Advance(cursor, token, next);
      model.Settle(next);
      cursor = next;
      request.Append(token);
    }
  }
  std::map<TokenId, float> Predict(float cutoff = 0.0f) {
    Candidates out;
    model.Predict(cursor, cutoff, out);
    std::map<TokenId, float> result;
    for (const auto& candidate : out.all()) {
      EXPECT_TRUE(
          result.emplace(candidate.token, candidate.probability).second);
    }
    return result;
  }

  std::shared_ptr<const StaticPrior> prior;
  WindowTrie request{1024};
  WindowTrie history{1024};
  RecycledCandidates recycled{256};
  RecycledCandidates recycled_history{256};
  SharedTrust shared;
  Trust trust{shared};
  NextTokenModel model;
  Cursor cursor;
};

TEST(CandidatesTest, SumsWhatATokenGets) {
  Candidates candidates;
  for (int round = 0; round < 3; ++round) {
    candidates.Clear();
    for (TokenId token = 0; token < 150; ++token) {
      candidates.Add(token * 512, 0.25f, DrafterId::kFusedRequest);
      candidates.Add(token * 512, 0.375f, DrafterId::kFusedPrior);
      candidates.Add(token * 512, 0.125f, DrafterId::kFusedHistory);
    }
    ASSERT_EQ(candidates.all().size(), 150u);
    for (const auto& candidate : candidates.all()) {
      EXPECT_EQ(candidate.probability, 0.75f);
      EXPECT_EQ(candidate.part, DrafterId::kFusedPrior);
    }
  }
  for (TokenId token = 0; token < 10000; ++token) {
    candidates.Add(token, 0.1f, DrafterId::kFusedRequest);
  }
  EXPECT_EQ(candidates.all().size(), Candidates::kMaxCandidates);
}

TEST(NextTokenModelTest, WithoutEvidenceNothingIsPredicted) {
  Fixture f;
  EXPECT_TRUE(f.Predict().empty());
  f.Read({4, 5});
  EXPECT_TRUE(f.Predict().empty());
}

TEST(NextTokenModelTest, TheLongerMatchOutweighsTheShorter) {
  Fixture f;
  f.Read({1, 2, 3, 9, 2, 4, 8, 2, 4, 7, 1, 2});
  const auto next = f.Predict();
  // After 2 alone mostly 4; after 1 2 only 3. Both are candidates.
  ASSERT_TRUE(next.count(3) == 1 && next.count(4) == 1);
  EXPECT_LE(next.at(3) + next.at(4), 1.0f + 1e-5f);
  Fixture g;
  g.Read({5, 2, 3, 9, 2, 4, 8, 2, 4, 7, 1, 2});
  EXPECT_GT(next.at(3), g.Predict().at(3));
}

TEST(NextTokenModelTest, FollowsACopyThroughTheText) {
  Fixture f;
  Tokens text;
  for (TokenId token = 100; token < 140; ++token) text.push_back(token);
  f.Read(text);
  f.Read(Tokens(text.begin(), text.begin() + 20));
  const auto next = f.Predict();
  ASSERT_EQ(next.count(120), 1u);
  EXPECT_GT(next.at(120), 0.5f);
  // And drafted tokens carry it on, without a change to the text.
  Cursor a, b;
  f.model.Advance(f.cursor, 120, a);
  f.model.Advance(a, 121, b);
  Candidates out;
  f.model.Predict(b, 0.0f, out);
  ASSERT_FALSE(out.all().empty());
  EXPECT_EQ(out.all()[0].token, 122);
}

TEST(NextTokenModelTest, ACopySurvivesOneWrongToken) {
  Fixture f;
  Tokens text;
  for (TokenId token = 100; token < 140; ++token) text.push_back(token);
  f.Read(text);
  f.Read(Tokens(text.begin(), text.begin() + 20));
  f.Read({7});  // instead of 120
  EXPECT_EQ(f.Predict().count(121), 1u);
}

TEST(NextTokenModelTest, HistoryPredictsButItsPositionsEndWithTheWindow) {
  Fixture f;
  for (TokenId token = 100; token < 120; ++token) f.history.Append(token);
  f.history.EndSequence();
  f.Read({100, 101, 102});
  EXPECT_EQ(f.Predict().count(103), 1u);
  f.Read({103, 104, 105, 106, 107, 108, 109});
  EXPECT_GT(f.Predict().at(110), 0.1f);
  f.Read({110, 111, 112, 113, 114, 115, 116, 117, 118, 119});
  EXPECT_TRUE(f.Predict().empty());  // the sequence ended here
}

TEST(NextTokenModelTest, CandidatesNameTheSourceOfMostOfTheirProbability) {
  const auto prior = testing::ParsePrior(
      *testing::BuildTestPrior(testing::ChainCorpus(1, 100, 50), 50));
  FORETOKEN_ASSERT_OK(prior);
  Fixture f(*prior);
  for (const TokenId token : {10, 30, 10, 30}) f.history.Append(token);
  f.Read({10, 20, 10, 20, 10});
  Candidates out;
  f.model.Predict(f.cursor, 0.0f, out);
  std::map<TokenId, DrafterId> parts;
  for (const auto& candidate : out.all()) {
    parts[candidate.token] = candidate.part;
  }
  EXPECT_EQ(parts.at(20), DrafterId::kFusedRequest);
  EXPECT_EQ(parts.at(30), DrafterId::kFusedHistory);
  EXPECT_EQ(parts.at(23), DrafterId::kFusedPrior);  // 10 * 7 + 3 modulo 50
}

TEST(NextTokenModelTest, PriorSpeaksWhereTheRequestDoesNot) {
  const auto prior = testing::ParsePrior(
      *testing::BuildTestPrior(testing::ChainCorpus(1, 100, 50), 50));
  FORETOKEN_ASSERT_OK(prior);
  Fixture f(*prior);
  f.Read({10});
  const auto next = f.Predict();
  ASSERT_EQ(next.count(23), 1u);  // 10 * 7 + 3 modulo 50
  for (const auto& [token, p] : next) EXPECT_LE(p, next.at(23));
}

TEST(NextTokenModelTest, ALazyCursorPredictsWhatASettledOneDoes) {
  const auto prior = testing::ParsePrior(
      *testing::BuildTestPrior(testing::ChainCorpus(1, 100, 50), 50));
  FORETOKEN_ASSERT_OK(prior);
  Fixture f(*prior);
  f.Read({10, 23, 14});
  Cursor a, b, settled;
  f.model.Advance(f.cursor, 1, a);
  f.model.Advance(a, 10, b);
  settled = a;
  f.model.Settle(settled);
  Cursor c;
  f.model.Advance(settled, 10, c);
  f.model.Settle(c);
  Candidates lazy, eager;
  f.model.Predict(b, 0.0f, lazy);
  f.model.Predict(c, 0.0f, eager);
  ASSERT_EQ(lazy.all().size(), eager.all().size());
  ASSERT_FALSE(lazy.all().empty());
  for (size_t i = 0; i < lazy.all().size(); ++i) {
    EXPECT_EQ(lazy.all()[i].token, eager.all()[i].token);
    EXPECT_EQ(lazy.all()[i].probability, eager.all()[i].probability);
  }
}

TEST(NextTokenModelTest, LearnsToDistrustWhatKeepsFailing) {
  Fixture f;
  for (int i = 0; i < 40; ++i) {
    for (TokenId token : {TokenId{1}, TokenId{2}, TokenId{3}}) {
      f.history.Append(token);
    }
    f.history.EndSequence();
  }
  f.Read({1});
  const float before = f.Predict().at(2);
  for (int i = 0; i < 60; ++i) {
    Cursor next;
    f.model.LearnAndAdvance(f.cursor, 9, next);  // never what history says
  }
  EXPECT_LT(f.Predict().at(2), before * 0.8f);
}

// Candidates 20 and 21 of equal probability after the context.
void AddTwo(RecycledCandidates& table, TokenId previous, TokenId last) {
  table.Add(previous, last, {20, 21}, {0, 0}, false);
}

TEST(NextTokenModelTest, RecycledCandidatesFollowTheLastTwoTokensOrTheLast) {
  for (const TokenId previous : {TokenId{1}, RecycledCandidates::kAny}) {
    for (const bool of_request : {true, false}) {
      Fixture f;
      AddTwo(of_request ? f.recycled : f.recycled_history, previous, 2);
      f.Read({1, 2});
      const auto found = f.Predict();
      ASSERT_EQ(found.size(), 2u);
      EXPECT_GT(found.at(20), 0.01f);
      EXPECT_NEAR(found.at(20), found.at(21), 1e-6f);
      f.Read({3});
      EXPECT_TRUE(f.Predict().empty());
    }
  }
}

TEST(NextTokenModelTest, RecycledCandidatesAreAPartOfTheirOwn) {
  Fixture f;
  AddTwo(f.recycled, 1, 2);
  f.Read({1, 2});
  Candidates out;
  f.model.Predict(f.cursor, 0.0f, out);
  ASSERT_EQ(out.all().size(), 2u);
  EXPECT_EQ(out.all()[0].part, DrafterId::kFusedRecycled);
}

TEST(NextTokenModelTest, RecycledCandidatesEarnTheirTrust) {
  const TrustKind kind = TrustKind::Recycled(Source::kRequest, 2, 0.5f);
  for (const TokenId next : {20, 30}) {
    Fixture f;
    AddTwo(f.recycled, 1, 2);
    f.Read({1, 2});
    const float before = f.trust.Factor(kind);
    Cursor to;
    f.model.LearnAndAdvance(f.cursor, next, to);
    if (next == 20) {
      EXPECT_GT(f.trust.Factor(kind), before);
    } else {
      EXPECT_LT(f.trust.Factor(kind), before);
    }
  }
}

}  // namespace
}  // namespace foretoken
