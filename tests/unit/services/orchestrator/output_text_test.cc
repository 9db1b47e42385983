#include "services/orchestrator/core/output_text.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::orchestrator {
namespace {

class OutputTextTest : public ::testing::Test {
 protected:
  OutputTextTest() {
    const std::string path =
        dir_.Write("tokenizer.json", testing::TinyTokenizerJson());
    auto tokenizer = Tokenizer::Load(path);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
  }

  OutputText Make(const std::vector<std::string>& stops,
                  int64_t unchecked_tokens = 0) {
    return OutputText(tokenizer_.get(), StopMatcher::Create(stops).value(),
                      unchecked_tokens);
  }
  TokenId Letter(char c) { return 2 + (c - 'a'); }

  testing::TempDir dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(OutputTextTest, WithoutStopStringsTokensShowTheirTextAtOnce) {
  OutputText output = Make({});
  EXPECT_FALSE(output.Push(Letter('a')));
  EXPECT_EQ(output.TakeText(), "a");
  EXPECT_EQ(output.TakeTokens(), 1);
  EXPECT_EQ(output.TakeText(), "");
}

TEST_F(OutputTextTest, HalfACharacterIsHeldBackWithItsToken) {
  OutputText output = Make({});
  output.Push(29);
  EXPECT_EQ(output.TakeText(), "");
  EXPECT_EQ(output.TakeTokens(), 0);
  output.Push(30);
  EXPECT_EQ(output.TakeText(), "\u00e9");
  EXPECT_EQ(output.TakeTokens(), 2);
  output.Push(29);
  output.Finish();
  EXPECT_EQ(output.TakeText(), "\ufffd");
  EXPECT_EQ(output.TakeTokens(), 1);
}

TEST_F(OutputTextTest, WhatMayBeginAStopStringWaits) {
  OutputText output = Make({"abc"});
  output.Push(Letter('z'));
  output.Push(Letter('a'));
  output.Push(Letter('b'));
  EXPECT_EQ(output.TakeText(), "z");
  EXPECT_EQ(output.TakeTokens(), 1);
  EXPECT_FALSE(output.Push(Letter('d')));
  EXPECT_EQ(output.TakeText(), "abd");
  EXPECT_EQ(output.TakeTokens(), 3);
}

TEST_F(OutputTextTest, AStopStringEndsTextAndTokensBeforeIt) {
  OutputText output = Make({"hea"});
  output.Push(Letter('z'));
  EXPECT_FALSE(output.Push(31));  // "th": its h begins the match
  EXPECT_FALSE(output.Push(Letter('e')));
  EXPECT_TRUE(output.Push(Letter('a')));
  EXPECT_EQ(output.TakeText(), "zt");
  EXPECT_EQ(output.TakeTokens(), 1);  // "th" does not end before the match
}

TEST_F(OutputTextTest, TextOfTheFirstTokensTakesNoPart) {
  OutputText output = Make({"aa"}, /*unchecked_tokens=*/2);
  EXPECT_FALSE(output.Push(Letter('a')));
  EXPECT_FALSE(output.Push(Letter('a')));
  EXPECT_EQ(output.TakeText(), "aa");
  EXPECT_FALSE(output.Push(Letter('a')));
  EXPECT_TRUE(output.Push(Letter('a')));
  EXPECT_EQ(output.TakeText(), "");
  EXPECT_EQ(output.TakeTokens(), 2);
}

TEST_F(OutputTextTest, FinishShowsWhatWasHeldBack) {
  OutputText output = Make({"abc"});
  output.Push(Letter('a'));
  output.PushSilent();
  EXPECT_EQ(output.TakeTokens(), 0);
  EXPECT_FALSE(output.Finish());
  EXPECT_EQ(output.TakeText(), "a");
  EXPECT_EQ(output.TakeTokens(), 2);
}

TEST_F(OutputTextTest, IdsBeyondTheTokenizerWriteNothing) {
  OutputText output = Make({});
  EXPECT_FALSE(output.Push(testing::kTinyVocabulary + 5));
  EXPECT_EQ(output.TakeText(), "");
  EXPECT_EQ(output.TakeTokens(), 1);
}

}  // namespace
}  // namespace foretoken::orchestrator
