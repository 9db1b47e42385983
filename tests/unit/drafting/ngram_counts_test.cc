#include "common/drafting/ngram_counts.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;
using Tokens = std::vector<TokenId>;

// The tokens of n-gram i of level n, read up through its parents.
Tokens NgramAt(const NgramCounts& counts, int n, uint32_t i) {
  Tokens tokens(n);
  for (int level = n; level >= 1; --level) {
    tokens[level - 1] = counts.level(level).tokens[i];
    i = counts.level(level).parents[i];
  }
  return tokens;
}

TEST(NgramCountsTest, EqualsANaiveCount) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Tokens corpus;
    for (int i = 0; i < 600; ++i) {
      corpus.push_back(random() % 30 == 0 ? kDocumentBorder
                                          : static_cast<TokenId>(random() % 6));
    }
    constexpr int kOrder = 4;
    std::map<Tokens, uint32_t> occurrences;
    std::map<Tokens, std::set<TokenId>> left;
    std::map<Tokens, uint32_t> openings;
    for (size_t i = 0; i < corpus.size(); ++i) {
      Tokens ngram;
      for (size_t j = i; j < corpus.size() && ngram.size() < kOrder; ++j) {
        if (corpus[j] == kDocumentBorder) break;
        ngram.push_back(corpus[j]);
        ++occurrences[ngram];
        if (i == 0 || corpus[i - 1] == kDocumentBorder) {
          ++openings[ngram];
        } else {
          left[ngram].insert(corpus[i - 1]);
        }
      }
    }
    const auto counts = NgramCounts::Create(corpus, kOrder, 6);
    FORETOKEN_ASSERT_OK(counts);
    size_t seen = 0;
    for (int n = 1; n <= kOrder; ++n) {
      const NgramLevel& level = counts->level(n);
      for (uint32_t i = 0; i < level.size(); ++i, ++seen) {
        const Tokens ngram = NgramAt(*counts, n, i);
        ASSERT_EQ(level.counts[i], occurrences.at(ngram));
        if (n < kOrder) {
          ASSERT_EQ(level.left_kinds[i], left[ngram].size() + openings[ngram]);
        }
        if (n > 1) {
          ASSERT_EQ(NgramAt(*counts, n - 1, level.suffixes[i]),
                    Tokens(ngram.begin() + 1, ngram.end()));
        }
      }
    }
    EXPECT_EQ(seen, occurrences.size());
  }
}

TEST(NgramCountsTest, RefusesWhatItCannotCount) {
  EXPECT_THAT(NgramCounts::Create({1, 2, 7}, 3, 7),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("token 7 at 2, want 0..6")));
  EXPECT_THAT(
      NgramCounts::Create({1, -2}, 3, 7),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token -2 at 1")));
  EXPECT_THAT(NgramCounts::Create({1}, 1, 7),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("order 1, want 2..6")));
}

TEST(NgramCountsTest, AnEmptyCorpusHasNoNgrams) {
  const auto counts = NgramCounts::Create({kDocumentBorder}, 3, 7);
  FORETOKEN_ASSERT_OK(counts);
  EXPECT_EQ(counts->corpus_tokens(), 0u);
  EXPECT_EQ(counts->level(1).size(), 0u);
}

}  // namespace
}  // namespace foretoken
