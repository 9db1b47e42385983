#include "common/drafting/static_prior.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/drafting/prior_estimate.h"
#include "common/drafting/prior_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/drafting/prior_testing.h"

namespace foretoken {
namespace {

using ::foretoken::testing::BuildTestPrior;
using ::foretoken::testing::ChainCorpus;
using ::foretoken::testing::ParsePrior;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::foretoken::testing::TestFingerprint;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST(StaticPriorTest, ProbabilitiesSurviveTheirByteToHalfAStep) {
  for (double p : {1.0, 0.5, 0.3, 0.01, 1e-4}) {
    EXPECT_NEAR(std::log2(StaticPrior::Decode(StaticPrior::Encode(p)) / p), 0.0,
                1.0 / 32 + 1e-6);
  }
  EXPECT_LT(StaticPrior::Decode(StaticPrior::Encode(0.0)), 2e-5);
}

// Every n-gram of the corpus must be found with its share, at both token
// widths and with lists on both sides of StaticPrior::kHead.
void ExpectHoldsTheCorpus(int32_t vocab_size, TokenId scale) {
  std::vector<TokenId> corpus = ChainCorpus(3, 400, 90);
  for (TokenId& token : corpus) {
    if (token != kDocumentBorder) token *= scale;
  }
  const auto bytes = BuildTestPrior(corpus, vocab_size, 1 << 22);
  FORETOKEN_ASSERT_OK(bytes);
  const auto prior = ParsePrior(*bytes);
  FORETOKEN_ASSERT_OK(prior);
  const auto counts = NgramCounts::Create(corpus, 4, vocab_size);
  const std::vector<NgramEstimates> estimates = EstimateNgrams(*counts);
  size_t longest_list = 0, found = 0;
  for (uint32_t a = 0; a < counts->level(2).size(); ++a) {
    const NgramLevel& pairs = counts->level(2);
    const TokenId first = counts->level(1).tokens[pairs.parents[a]];
    const StaticPrior::List list = (*prior)->AfterToken(first);
    longest_list = std::max<size_t>(longest_list, list.size);
    const int64_t entry = (*prior)->Find(list, pairs.tokens[a]);
    if (estimates[1].worth[a] <= 1e-6f) continue;  // may have been pruned
    ++found;
    ASSERT_GE(entry, 0);
    ASSERT_EQ((*prior)->TokenOf(entry), pairs.tokens[a]);
    ASSERT_NEAR(
        std::log2((*prior)->ProbabilityOf(entry) / estimates[1].share[a]), 0.0,
        1.0 / 32 + 1e-4);
    const StaticPrior::List longer =
        (*prior)->AfterEntry(static_cast<uint32_t>(entry));
    for (uint32_t c = pairs.children[a]; c < pairs.children[a + 1]; ++c) {
      if (estimates[2].worth[c] <= 1e-6f) continue;
      ASSERT_GE((*prior)->Find(longer, counts->level(3).tokens[c]), 0);
    }
    ASSERT_EQ((*prior)->Find(longer, vocab_size - 1), -1);
  }
  EXPECT_GT(longest_list, StaticPrior::kHead);
  EXPECT_GT(found, 100u);
}

TEST(StaticPriorTest, HoldsTheCorpusInNarrowTokens) {
  ExpectHoldsTheCorpus(1000, 1);
}
TEST(StaticPriorTest, HoldsTheCorpusInWideTokens) {
  ExpectHoldsTheCorpus(100000, 1000);
}

TEST(StaticPriorTest, TheMostProbableContinuationsComeFirst) {
  const auto bytes = BuildTestPrior(ChainCorpus(3, 60, 90), 90);
  FORETOKEN_ASSERT_OK(bytes);
  const auto prior = ParsePrior(*bytes);
  FORETOKEN_ASSERT_OK(prior);
  for (TokenId token = 0; token < 90; ++token) {
    const StaticPrior::List list = (*prior)->AfterToken(token);
    for (uint32_t i = 1; i < std::min(list.size, StaticPrior::kHead); ++i) {
      ASSERT_LE((*prior)->ProbabilityOf(list.first + i),
                (*prior)->ProbabilityOf(list.first + i - 1));
    }
  }
}

TEST(StaticPriorTest, IdsOutsideTheVocabularyKnowNothing) {
  const auto bytes = BuildTestPrior(ChainCorpus(3, 5, 90), 90);
  const auto prior = ParsePrior(*bytes);
  FORETOKEN_ASSERT_OK(prior);
  for (TokenId token : {-1, 90, 1 << 30}) {
    EXPECT_EQ((*prior)->AfterToken(token).size, 0u);
    EXPECT_EQ((*prior)->Unigram(token), 0.0f);
  }
  // Nor does one whose low 16 bits are those of a token in the list.
  const StaticPrior::List list = (*prior)->AfterToken(3);
  ASSERT_GT(list.size, 0u);
  const TokenId known = (*prior)->TokenOf(list.first);
  EXPECT_EQ((*prior)->Find(list, known), int64_t{list.first});
  EXPECT_EQ((*prior)->Find(list, known + (1 << 16)), -1);
}

// A file of correct checksum may still say what no builder wrote.
TEST(StaticPriorTest, RefusesReservedFieldsAndDisorderUnderAGoodChecksum) {
  const auto bytes = BuildTestPrior(ChainCorpus(3, 5, 90), 90);
  FORETOKEN_ASSERT_OK(bytes);
  const auto seal = [](std::string& changed) {
    const size_t end = changed.size() - sizeof(Sha256Digest);
    const Sha256Digest digest =
        Sha256()
            .Update({reinterpret_cast<const uint8_t*>(changed.data()), end})
            .Finish();
    std::memcpy(changed.data() + end, digest.data(), digest.size());
  };
  std::string reserved = *bytes;
  reserved[offsetof(PriorHeader, reserved)] = 1;
  seal(reserved);
  EXPECT_THAT(ParsePrior(reserved), StatusIs(kInvalid, HasSubstr("reserved")));

  const auto prior = ParsePrior(*bytes);
  FORETOKEN_ASSERT_OK(prior);
  StaticPrior::List list;
  for (TokenId token = 0; token < 90 && list.size < 2; ++token) {
    list = (*prior)->AfterToken(token);
  }
  ASSERT_GE(list.size, 2u);
  std::string disorder = *bytes;
  disorder[sizeof(PriorHeader) + list.first] = static_cast<char>(255);
  disorder[sizeof(PriorHeader) + list.first + 1] = 0;
  seal(disorder);
  EXPECT_THAT(ParsePrior(disorder),
              StatusIs(kInvalid, HasSubstr("is out of order")));
}

TEST(StaticPriorTest, RefusesAnotherTokenizer) {
  const auto bytes = BuildTestPrior(ChainCorpus(3, 5, 90), 90);
  EXPECT_THAT(
      StaticPrior::FromBytes(
          {reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()},
          "prior.bin", Sha256Digest{}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("prior.bin: prior of tokenizer ab0")));
}

TEST(StaticPriorTest, RefusesAFlipOfAnyByteAndEveryCut) {
  const auto bytes = BuildTestPrior(ChainCorpus(3, 5, 40), 40, 4000);
  FORETOKEN_ASSERT_OK(bytes);
  FORETOKEN_ASSERT_OK(ParsePrior(*bytes));
  for (size_t i = 0; i < bytes->size(); ++i) {
    std::string flipped = *bytes;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x11);
    ASSERT_FALSE(ParsePrior(flipped).ok()) << "byte " << i;
    ASSERT_THAT(ParsePrior(bytes->substr(0, i)),
                StatusIs(kInvalid, HasSubstr("p: ")));
  }
  EXPECT_THAT(ParsePrior(*bytes + "x"),
              StatusIs(kInvalid, HasSubstr("the header asks for")));
  EXPECT_THAT(ParsePrior(""), StatusIs(kInvalid, HasSubstr("too short")));
}

TEST(StaticPriorTest, OpensWhatLiesOnDisk) {
  const TempDir dir;
  const auto bytes = BuildTestPrior(ChainCorpus(3, 5, 90), 90);
  const std::string path = dir.Write("prior.bin", *bytes);
  const auto prior = StaticPrior::Open(path, TestFingerprint());
  FORETOKEN_ASSERT_OK(prior);
  EXPECT_EQ((*prior)->bytes(), bytes->size());
  EXPECT_EQ((*prior)->order(), 4);
  EXPECT_THAT(StaticPrior::Open(dir.File("none"), TestFingerprint()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST(StaticPriorTest, AFileTruncatedAfterwardsChangesNothing) {
  const TempDir dir;
  const auto bytes = BuildTestPrior(ChainCorpus(3, 100, 900), 900);
  ASSERT_GT(bytes->size(), 4 * 4096u);  // whole pages go away
  const std::string path = dir.Write("prior.bin", *bytes);
  const auto prior = StaticPrior::Open(path, TestFingerprint());
  FORETOKEN_ASSERT_OK(prior);
  const auto want = ParsePrior(*bytes);
  std::filesystem::resize_file(path, 0);
  for (TokenId token = 0; token < (*prior)->vocab_size(); ++token) {
    const StaticPrior::List list = (*prior)->AfterToken(token);
    ASSERT_EQ(list.size, (*want)->AfterToken(token).size);
    for (uint32_t i = list.first; i < list.first + list.size; ++i) {
      ASSERT_EQ((*prior)->TokenOf(i), (*want)->TokenOf(i));
      ASSERT_EQ((*prior)->ProbabilityOf(i), (*want)->ProbabilityOf(i));
    }
  }
}

}  // namespace
}  // namespace foretoken
