#include "common/text/stop_matcher.h"

#include <random>

#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

TEST(StopMatcherTest, HoldsBackWhatMayBeginAStopString) {
  StopMatcher matcher = StopMatcher::Create({"\n\nUser:"}).value();
  std::string out;
  EXPECT_FALSE(matcher.Push("hello\n", out));
  EXPECT_EQ(out, "hello");
  EXPECT_FALSE(matcher.Push("\nUs", out));
  EXPECT_EQ(out, "hello");
  EXPECT_FALSE(matcher.Push("ual\n", out));
  EXPECT_EQ(out, "hello\n\nUsual");
  matcher.Flush(out);
  EXPECT_EQ(out, "hello\n\nUsual\n");
}

TEST(StopMatcherTest, ReleasesTheTextBeforeTheMatchAndNothingAfter) {
  StopMatcher matcher = StopMatcher::Create({"END"}).value();
  std::string out;
  EXPECT_TRUE(matcher.Push("abcENDdef", out));
  EXPECT_EQ(out, "abc");
  EXPECT_EQ(matcher.match_begin(), 3u);
  EXPECT_TRUE(matcher.Push("more", out));
  matcher.Flush(out);
  EXPECT_EQ(out, "abc");
}

TEST(StopMatcherTest, CutsDoNotMatterAndTheFirstToBeCompleteWins) {
  std::mt19937 random(3);
  const auto word = [&](size_t max_length) {
    std::string text(1 + random() % max_length, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 3; i < 3; ++i) stops.push_back(word(5));
    const std::string text = word(30);
    // By definition: the smallest end, then the smallest begin.
    size_t want_end = text.size() + 1;
    size_t want_begin = text.size();
    for (const std::string& stop : stops) {
      const size_t begin = text.find(stop);
      if (begin == std::string::npos) continue;
      const size_t end = begin + stop.size();
      if (end < want_end || (end == want_end && begin < want_begin)) {
        want_end = end;
        want_begin = begin;
      }
    }
    StopMatcher matcher = StopMatcher::Create(stops).value();
    std::string out;
    bool stopped = false;
    for (size_t at = 0; at < text.size() && !stopped;) {
      const size_t length = random() % 4;
      stopped = matcher.Push(absl::string_view(text).substr(at, length), out);
      at += std::min(length, text.size() - at);
    }
    matcher.Flush(out);
    ASSERT_EQ(stopped, want_end <= text.size()) << text;
    ASSERT_EQ(out, text.substr(0, want_begin)) << text;
  }
}

TEST(StopMatcherTest, RefusesEmptyLongBrokenAndTooManyStrings) {
  using absl::StatusCode;
  EXPECT_THAT(StopMatcher::Create({"a", ""}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("stop[1]")));
  EXPECT_THAT(StopMatcher::Create({std::string(1025, 'a')}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1025")));
  EXPECT_THAT(StopMatcher::Create({"\xFF"}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
  EXPECT_THAT(StopMatcher::Create(std::vector<std::string>(65, "a")),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("65")));
}

class GeneratedTextTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GeneratedTextTest, KeepsTheTokensWhoseBytesEndBeforeTheMatch) {
  const auto tokenizer =
      Tokenizer::Load(testing::SourcePath(std::string("tests/golden/"
                                                      "tokenizers/") +
                                          GetParam()))
          .value();
  const std::string text =
      "The tree \u4eca\u5929 of \U0001F999 tokens. STOP it";
  const std::vector<TokenId> ids = tokenizer->Encode(text);
  for (const std::string stop :
       {"STOP", "TOP", "\U0001F999", "\u5929 of", "tree", "ens.", "nowhere"}) {
    GeneratedText generated(*tokenizer, StopMatcher::Create({stop}).value());
    std::string out;
    bool stopped = false;
    for (size_t i = 0; i < ids.size() && !stopped; ++i) {
      stopped = generated.Push(ids[i], out).value();
    }
    if (!stopped) stopped = generated.Flush(out);
    EXPECT_EQ(out, text.substr(0, text.find(stop)));
    EXPECT_EQ(stopped, stop != "nowhere");
    // The kept tokens write no more than the text, and one more would.
    const size_t kept = generated.tokens_before_stop();
    EXPECT_LE(tokenizer->Decode({ids.data(), kept})->size(), out.size());
    if (kept < ids.size()) {
      EXPECT_GT(tokenizer->Decode({ids.data(), kept + 1})->size(), out.size())
          << stop;
    } else {
      EXPECT_FALSE(stopped);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GeneratedTextTest,
                         ::testing::Values("llama3.json.gz", "sp_bytes.model",
                                           "llama2_json.json.gz"));

}  // namespace
}  // namespace foretoken
