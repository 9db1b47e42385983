#include "services/orchestrator/core/round/output_text.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_data.h"
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

// Over real tokenizers, one of each kind.
class OutputTextOfTokenizerTest : public ::testing::TestWithParam<const char*> {
};

TEST_P(OutputTextOfTokenizerTest, KeepsTheTokensWhoseBytesEndBeforeTheMatch) {
  const auto tokenizer =
      Tokenizer::Load(testing::SourcePath(
                          std::string("tests/golden/tokenizers/") + GetParam()))
          .value();
  const std::vector<TokenId> ids =
      tokenizer->Encode("The tree \u4eca\u5929 of \U0001F999 tokens. STOP it");
  const auto text_of = [&](size_t count) {
    OutputText output(tokenizer.get(), StopMatcher::Create({}).value(), 0);
    for (size_t i = 0; i < count; ++i) output.Push(ids[i]);
    output.Finish();
    return output.TakeText();
  };
  const std::string whole = text_of(ids.size());
  for (const std::string stop :
       {"STOP", "TOP", "\U0001F999", "\u5929 of", "tree", "ens.", "nowhere"}) {
    OutputText output(tokenizer.get(), StopMatcher::Create({stop}).value(), 0);
    bool stopped = false;
    for (size_t i = 0; i < ids.size() && !stopped; ++i) {
      stopped = output.Push(ids[i]);
    }
    if (!stopped) stopped = output.Finish();
    const std::string text = output.TakeText();
    EXPECT_EQ(text, whole.substr(0, whole.find(stop)));
    EXPECT_EQ(stopped, stop != "nowhere");
    // The kept tokens write no more than the text, and one more would.
    const size_t kept = static_cast<size_t>(output.TakeTokens());
    EXPECT_LE(text_of(kept).size(), text.size());
    if (kept < ids.size()) {
      EXPECT_GT(text_of(kept + 1).size(), text.size()) << stop;
    } else {
      EXPECT_FALSE(stopped);
    }
  }
}

TEST_P(OutputTextOfTokenizerTest, TextBehindAPromptKeepsItsLeadingSpace) {
  const auto tokenizer =
      Tokenizer::Load(testing::SourcePath(
                          std::string("tests/golden/tokenizers/") + GetParam()))
          .value();
  const std::vector<TokenId> prompt = tokenizer->Encode("The tree");
  const std::vector<TokenId> both = tokenizer->Encode("The tree of tokens");
  ASSERT_EQ(std::vector<TokenId>(both.begin(), both.begin() + prompt.size()),
            prompt);
  OutputText output(tokenizer.get(), StopMatcher::Create({}).value(), 0);
  for (size_t i = prompt.size(); i < both.size(); ++i) output.Push(both[i]);
  output.Finish();
  EXPECT_EQ(output.TakeText(), " of tokens");
}

TEST(OutputTextOfBytesTest, ABrokenByteIsAsLongAsWhatReplacesIt) {
  const auto tokenizer =
      Tokenizer::Load(
          testing::SourcePath("tests/golden/tokenizers/sp_bytes.model"))
          .value();
  // Three bytes that begin no character together, as byte tokens, then a word.
  std::vector<TokenId> ids;
  for (const char byte : {'\xff', '\xfe', '\xe4'}) {
    for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
      if (tokenizer->TokenBytes(id) == absl::string_view(&byte, 1)) {
        ids.push_back(id);
      }
    }
  }
  ASSERT_EQ(ids.size(), 3u);
  const std::vector<TokenId> word = tokenizer->Encode("x");
  ids.insert(ids.end(), word.begin(), word.end());
  const struct {
    const char* stop;
    int64_t tokens;
  } cases[] = {{"\ufffd\ufffd\ufffd", 0}, {"\ufffd x", 2}, {" x", 3}};
  for (const auto& want : cases) {
    OutputText output(tokenizer.get(), StopMatcher::Create({want.stop}).value(),
                      0);
    bool stopped = false;
    for (size_t i = 0; i < ids.size() && !stopped; ++i) {
      stopped = output.Push(ids[i]);
    }
    if (!stopped) stopped = output.Finish();
    EXPECT_TRUE(stopped) << want.stop;
    EXPECT_EQ(output.TakeTokens(), want.tokens) << want.stop;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OutputTextOfTokenizerTest,
                         ::testing::Values("llama3.json.gz", "sp_bytes.model",
                                           "llama2_json.json.gz"));

}  // namespace
}  // namespace foretoken::orchestrator
