#include "tools/cli/chat/drafter_painter.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/text/hf_tokenizer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::cli {
namespace {

constexpr auto kTarget = DrafterId::kTarget;
constexpr auto kTrie = DrafterId::kNgramTrie;
constexpr auto kCrest = DrafterId::kCrest;
const char kGreen[] = "\x1b[38;5;35m";
const char kRed[] = "\x1b[38;5;161m";
const char kPlain[] = "\x1b[39m";

class DrafterPainterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = MakeHfTokenizer(testing::TinyTokenizerJson(), {});
    FORETOKEN_ASSERT_OK(made);
    tokenizer_ = *std::move(made);
  }

  static GenerationDelta Delta(std::string text, std::vector<TokenId> ids,
                               std::vector<DrafterId> drafters) {
    GenerationDelta delta;
    delta.text = std::move(text);
    delta.token_ids = std::move(ids);
    delta.drafters = std::move(drafters);
    return delta;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(DrafterPainterTest, GivesEachTokenTheColourOfItsDrafter) {
  DrafterPainter painter(*tokenizer_, /*colours=*/true);
  EXPECT_EQ(painter.Paint(Delta("abc", {2, 3, 4}, {kTarget, kTrie, kTrie})),
            std::string("a") + kGreen + "bc");
  EXPECT_EQ(painter.Paint(Delta("the", {31, 6}, {kCrest, kTarget})),
            std::string(kRed) + "th" + kPlain + "e");
  EXPECT_EQ(painter.Paint(Delta("f", {7}, {kTrie})), std::string(kGreen) + "f");
  EXPECT_EQ(painter.Finish(), kPlain);
  EXPECT_EQ(painter.Legend(false), "target 2, ngram_trie 3, crest 1");
  EXPECT_EQ(painter.Legend(true), std::string("target 2, ") + kGreen +
                                      "ngram_trie 3" + kPlain + ", " + kRed +
                                      "crest 1" + kPlain);
}

TEST_F(DrafterPainterTest, LeavesTheTextAloneWithoutColours) {
  DrafterPainter painter(*tokenizer_, /*colours=*/false);
  EXPECT_EQ(painter.Paint(Delta("abc", {2, 3, 4}, {kTarget, kTrie, kCrest})),
            "abc");
  EXPECT_EQ(painter.Finish(), "");
}

TEST_F(DrafterPainterTest, TextAndItsTokensMayComeApart) {
  DrafterPainter painter(*tokenizer_, /*colours=*/true);
  // The text of a token before the token.
  EXPECT_EQ(painter.Paint(Delta("t", {}, {})), "");
  EXPECT_EQ(painter.Paint(Delta("h", {31}, {kTrie})),
            std::string(kGreen) + "th");
  // A token before its text.
  EXPECT_EQ(painter.Paint(Delta("", {2, 3}, {kCrest, kTarget})), "");
  EXPECT_EQ(painter.Paint(Delta("a", {}, {})), std::string(kRed) + "a");
  EXPECT_EQ(painter.Paint(Delta("b", {}, {})), std::string(kPlain) + "b");
  // A character of two tokens is of the one that completes it.
  EXPECT_EQ(painter.Paint(Delta("\u00e9", {29, 30}, {kCrest, kTrie})),
            std::string(kGreen) + "\u00e9");
  // Text that no token accounts for is not lost.
  EXPECT_EQ(painter.Paint(Delta("x", {}, {})), "");
  EXPECT_EQ(painter.Finish(), std::string(kPlain) + "x");
}

TEST_F(DrafterPainterTest, TokensWithoutTextOrOutsideTheVocabularyCount) {
  DrafterPainter painter(*tokenizer_, /*colours=*/true);
  EXPECT_EQ(painter.Paint(Delta("a", {1, 60, 2}, {kTrie, kTrie, kTarget})),
            "a");
  EXPECT_EQ(painter.Legend(false), "target 1, ngram_trie 2");
}

}  // namespace
}  // namespace foretoken::cli
