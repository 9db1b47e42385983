#include "common/drafting/phrase_pool.h"

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Phrase = std::vector<TokenId>;

std::vector<Phrase> Newest(const PhrasePool& pool, TokenId key, int k = 1000) {
  std::vector<absl::Span<const TokenId>> found;
  pool.Newest(key, k, found);
  std::vector<Phrase> phrases;
  for (const auto& phrase : found) {
    phrases.emplace_back(phrase.begin(), phrase.end());
  }
  return phrases;
}

TEST(PhrasePoolTest, GivesTheNewestPhrasesOfAKeyFirst) {
  PhrasePool pool({20, 3, 100});
  pool.Insert({1, 2, 3});
  pool.Insert({1, 4, 5});
  pool.Insert({2, 9, 9});
  pool.Insert({1, 6, 7});
  EXPECT_THAT(Newest(pool, 1, 2),
              ElementsAre(Phrase{1, 6, 7}, Phrase{1, 4, 5}));
  EXPECT_THAT(Newest(pool, 2), ElementsAre(Phrase{2, 9, 9}));
  EXPECT_THAT(Newest(pool, 3), IsEmpty());
}

TEST(PhrasePoolTest, ARepeatMovesToTheFrontAndALookUpDoesNot) {
  PhrasePool pool({20, 2, 100});
  pool.Insert({1, 2});
  pool.Insert({1, 3});
  pool.Insert({1, 2});
  EXPECT_EQ(pool.size(), 2);
  EXPECT_THAT(Newest(pool, 1), ElementsAre(Phrase{1, 2}, Phrase{1, 3}));
  EXPECT_THAT(Newest(pool, 1), ElementsAre(Phrase{1, 2}, Phrase{1, 3}));
}

TEST(PhrasePoolTest, TheLeastRecentlyInsertedOfAFullKeyGoes) {
  PhrasePool pool({/*width=*/2, 2, 100});
  pool.Insert({1, 2});
  pool.Insert({1, 3});
  pool.Insert({1, 2});  // newer than {1, 3} now
  pool.Insert({1, 4});
  EXPECT_THAT(Newest(pool, 1), ElementsAre(Phrase{1, 4}, Phrase{1, 2}));
}

TEST(PhrasePoolTest, TheLeastRecentlyInsertedOfAllGoesWhenThePoolIsFull) {
  PhrasePool pool({20, 2, /*max_phrases=*/3});
  pool.Insert({1, 2});
  pool.Insert({2, 2});
  pool.Insert({3, 2});
  pool.Insert({1, 2});
  pool.Insert({4, 2});
  EXPECT_THAT(Newest(pool, 2), IsEmpty());
  EXPECT_EQ(pool.size(), 3);
  EXPECT_THAT(pool.Snapshot(), ElementsAre(3, 2, 1, 2, 4, 2));
}

TEST(PhrasePoolTest, InsertsEveryWindow) {
  PhrasePool pool({20, 3, 100});
  pool.InsertWindows({1, 2, 3, 4, 5});
  EXPECT_THAT(pool.Snapshot(), ElementsAre(1, 2, 3, 2, 3, 4, 3, 4, 5));
  pool.InsertWindows({7, 8});
  EXPECT_EQ(pool.size(), 3);
}

TEST(PhrasePoolTest, RefinementKeepsThePlaceOfThePhrase) {
  PhrasePool pool({20, 3, 100});
  pool.Insert({1, 2, 3});
  pool.Insert({1, 4, 5});
  pool.Insert({1, 6, 7});
  EXPECT_TRUE(pool.Refine({1, 4, 5}, {1, 4, 9}));
  EXPECT_THAT(Newest(pool, 1),
              ElementsAre(Phrase{1, 6, 7}, Phrase{1, 4, 9}, Phrase{1, 2, 3}));
}

TEST(PhrasePoolTest, RefinementIntoAPhraseOfThePoolKeepsTheNewerPlace) {
  PhrasePool pool({20, 2, 100});
  for (const TokenId second : {2, 3, 4, 5}) pool.Insert({1, second});
  EXPECT_TRUE(pool.Refine({1, 4}, {1, 2}));  // the place of 4 is newer
  EXPECT_THAT(Newest(pool, 1),
              ElementsAre(Phrase{1, 5}, Phrase{1, 2}, Phrase{1, 3}));
  EXPECT_TRUE(pool.Refine({1, 3}, {1, 5}));  // the place of 5 is newer
  EXPECT_THAT(Newest(pool, 1), ElementsAre(Phrase{1, 5}, Phrase{1, 2}));
  EXPECT_TRUE(pool.Refine({1, 2}, {1, 2}));
  EXPECT_EQ(pool.size(), 2);
}

TEST(PhrasePoolTest, RefinementOfAPhraseThatIsGoneChangesNothing) {
  PhrasePool pool({20, 2, 100});
  pool.Insert({1, 2});
  EXPECT_FALSE(pool.Refine({1, 3}, {1, 4}));
  EXPECT_FALSE(pool.Refine({5, 3}, {5, 4}));
  EXPECT_THAT(pool.Snapshot(), ElementsAre(1, 2));
}

// --- Ouroboros, Algorithm 1, on scripted rounds -----------------------------

// gamma = 6, beta = 3. Positions 1 and 2 are accepted, 3 is not: the target
// says 33. The draft's guess after its own wrong token agrees with the target's
// reading of those rows at positions 4, 5 and 6.
TEST(OuroborosRoundTest, InspirationTakesTheTargetsTokensWhereBothAgree) {
  PhrasePool pool({20, 3, 100});
  const Phrase draft = {1, 2, 3, 4, 5, 6};
  const Phrase target = {1, 2, 33, 4, 5, 6, 77};  // d^_1..d^_7
  // l_d = 2: i runs from 4 to gamma - beta + 2 = 5.
  // i = 4: positions 4..5 agree, so 4 5 6 enters.
  // i = 5: positions 5..6 agree, so 5 6 77 enters.
  EXPECT_EQ(pool.Inspire(draft, target, /*accepted=*/2), 2);
  EXPECT_THAT(pool.Snapshot(), ElementsAre(4, 5, 6, 5, 6, 77));
}

TEST(OuroborosRoundTest, InspirationEndsWhereTheyDisagree) {
  PhrasePool pool({20, 3, 100});
  // Position 5 disagrees: no pair of agreeing positions holds it.
  EXPECT_EQ(pool.Inspire({1, 2, 3, 4, 5, 6}, {1, 2, 33, 4, 55, 6, 77}, 2), 0);
  // beta = 3 wants two agreeing positions, 3 and 4, then takes d^_5 = 55.
  EXPECT_EQ(pool.Inspire({1, 2, 3, 4, 5, 6}, {11, 2, 3, 4, 55, 6, 77}, 0), 2);
  EXPECT_THAT(pool.Snapshot(), ElementsAre(2, 3, 4, 3, 4, 55));
}

TEST(OuroborosRoundTest, TheTokensTheRoundCommittedInspireNothing) {
  PhrasePool pool({20, 3, 100});
  // All accepted: i would start at l_d + 2 = 8, after gamma - beta + 2 = 5.
  EXPECT_EQ(pool.Inspire({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6, 7}, 6), 0);
  // The first rejected position itself is not read: i starts one after it.
  EXPECT_EQ(pool.Inspire({1, 2, 3}, {9, 2, 3, 4}, 0), 1);
  EXPECT_THAT(pool.Snapshot(), ElementsAre(2, 3, 4));
}

TEST(OuroborosRoundTest, ADraftShorterThanAPhraseInspiresNothing) {
  PhrasePool pool({20, 8, 100});
  EXPECT_EQ(pool.Inspire({1, 2}, {9, 2, 3}, 0), 0);
  EXPECT_EQ(pool.Inspire({}, {9}, 0), 0);
}

// K = 2 suffixes of beta = 4 hang on the leaf d_gamma = 6. The target's token
// after the leaf is 70, after s_1 and s_2 of each suffix what stands below.
TEST(OuroborosRoundTest, RefinementRewritesSuffixesInPlace) {
  PhrasePool pool({20, 4, 100});
  pool.Insert({6, 7, 8, 9});
  pool.Insert({6, 7, 1, 1});
  EXPECT_TRUE(pool.RefineSuffix({6, 7, 1, 1}, /*after_leaf=*/70, {81, 91}));
  EXPECT_TRUE(pool.RefineSuffix({6, 7, 8, 9}, /*after_leaf=*/70, {82, 92}));
  EXPECT_THAT(Newest(pool, 6),
              ElementsAre(Phrase{6, 70, 81, 91}, Phrase{6, 70, 82, 92}));
}

TEST(OuroborosRoundTest, SuffixesThatBecomeEqualAreOnePhrase) {
  PhrasePool pool({20, 3, 100});
  pool.Insert({6, 7, 8});
  pool.Insert({6, 9, 8});
  EXPECT_TRUE(pool.RefineSuffix({6, 9, 8}, 5, {4}));
  EXPECT_TRUE(pool.RefineSuffix({6, 7, 8}, 5, {4}));
  EXPECT_THAT(Newest(pool, 6), ElementsAre(Phrase{6, 5, 4}));
}

// Inspiration against the index rule written out, on random rounds.
TEST(OuroborosRoundTest, InspirationFollowsTheIndexRule) {
  std::mt19937 random(23);
  for (int round = 0; round < 2000; ++round) {
    const int gamma = static_cast<int>(random() % 16);
    const int beta = 2 + static_cast<int>(random() % 6);
    Phrase draft(gamma), target(gamma + 1);
    for (TokenId& token : draft) token = static_cast<TokenId>(random() % 3);
    for (TokenId& token : target) token = static_cast<TokenId>(random() % 3);
    int accepted = 0;
    while (accepted < gamma && draft[accepted] == target[accepted]) ++accepted;

    PhrasePool want({64, beta, 1000}), got({64, beta, 1000});
    for (int i = accepted + 2; i <= gamma - beta + 2; ++i) {  // from 1
      bool agree = true;
      for (int at = i; at <= i + beta - 2; ++at) {
        agree = agree && draft[at - 1] == target[at - 1];
      }
      if (agree) want.Insert(absl::MakeSpan(target).subspan(i - 1, beta));
    }
    got.Inspire(draft, target, accepted);
    ASSERT_THAT(got.Snapshot(), ElementsAreArray(want.Snapshot()))
        << "round " << round << ", gamma " << gamma << ", beta " << beta
        << ", accepted " << accepted;
  }
}

// --- warm start -------------------------------------------------------------

TEST(PhrasePoolTest, ASnapshotMakesAnEqualPool) {
  PhrasePool pool({3, 2, 100});
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    pool.Insert({TokenId(random() % 5), TokenId(random() % 9)});
  }
  PhrasePool copy({3, 2, 100});
  FORETOKEN_ASSERT_OK(copy.MergeOlder(pool.Snapshot()));
  EXPECT_THAT(copy.Snapshot(), ElementsAreArray(pool.Snapshot()));
  for (TokenId key = 0; key < 5; ++key) {
    EXPECT_EQ(Newest(copy, key), Newest(pool, key));
  }
}

TEST(PhrasePoolTest, WhatIsMergedIsOlderThanWhatIsThere) {
  PhrasePool pool({2, 2, 100});
  pool.Insert({1, 2});
  FORETOKEN_ASSERT_OK(pool.MergeOlder({1, 7, 1, 2, 1, 8, 3, 3}));
  // Width 2: the own phrase, then the newest of the merged.
  EXPECT_THAT(Newest(pool, 1), ElementsAre(Phrase{1, 2}, Phrase{1, 8}));
  EXPECT_THAT(Newest(pool, 3), ElementsAre(Phrase{3, 3}));
}

TEST(PhrasePoolTest, ABadSnapshotIsRefusedAndChangesNothing) {
  PhrasePool pool({2, 2, 100});
  pool.Insert({1, 2});
  EXPECT_THAT(pool.MergeOlder({1, 2, 3}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("3 tokens, want a multiple of 2")));
  EXPECT_THAT(
      pool.MergeOlder({1, 2, 3, -4}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token 3 is -4")));
  EXPECT_THAT(pool.Snapshot(), ElementsAre(1, 2));
}

// --- against a plain model --------------------------------------------------

class PlainPool {
 public:
  explicit PlainPool(const PhrasePoolOptions& options) : options_(options) {}
  void Insert(const Phrase& phrase) {
    all_.remove(phrase);
    all_.push_front(phrase);
    if (Of(phrase[0]).size() > size_t(options_.width)) {
      all_.remove(Of(phrase[0]).back());
    }
    if (all_.size() > size_t(options_.max_phrases)) all_.pop_back();
  }
  bool Refine(const Phrase& phrase, const Phrase& refined) {
    const auto at = std::find(all_.begin(), all_.end(), phrase);
    if (at == all_.end()) return false;
    *at = refined;
    const auto newer = std::find(all_.begin(), all_.end(), refined);
    for (auto it = std::next(newer); it != all_.end();) {
      it = *it == refined ? all_.erase(it) : std::next(it);
    }
    return true;
  }
  std::vector<Phrase> Of(TokenId key) const {
    std::vector<Phrase> found;
    for (const Phrase& phrase : all_) {
      if (phrase[0] == key) found.push_back(phrase);
    }
    return found;
  }
  size_t size() const { return all_.size(); }

 private:
  const PhrasePoolOptions options_;
  std::list<Phrase> all_;  // newest first
};

TEST(PhrasePoolTest, EqualsAPlainListUnderRandomUse) {
  for (const uint32_t seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    const PhrasePoolOptions options{4, 3, 25};
    PhrasePool pool(options);
    PlainPool plain(options);
    const auto phrase = [&] {
      return Phrase{TokenId(random() % 10), TokenId(random() % 3),
                    TokenId(random() % 3)};
    };
    for (int step = 0; step < 5000; ++step) {
      const Phrase first = phrase();
      if (random() % 4 == 0) {
        Phrase refined = phrase();
        refined[0] = first[0];
        ASSERT_EQ(pool.Refine(first, refined), plain.Refine(first, refined));
      } else {
        pool.Insert(first);
        plain.Insert(first);
      }
      ASSERT_EQ(pool.size(), static_cast<int64_t>(plain.size()));
      const TokenId key = static_cast<TokenId>(random() % 10);
      ASSERT_EQ(Newest(pool, key), plain.Of(key))
          << "seed " << seed << ", step " << step;
    }
  }
}

TEST(PhrasePoolTest, MemoryIsBoundedHoweverManyKeysThereAre) {
  PhrasePool pool({20, 8, 1000});
  Phrase window(8);
  for (TokenId token = 0; token < 50000; ++token) {
    std::rotate(window.begin(), window.begin() + 1, window.end());
    window.back() = token;
    pool.Insert(window);
    ASSERT_LE(pool.MemoryBytes(), pool.MaxBytes());
  }
  EXPECT_EQ(pool.size(), 1000);
}

}  // namespace
}  // namespace foretoken
