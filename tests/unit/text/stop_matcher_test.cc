#include "common/text/stop_matcher.h"

#include <random>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

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
    ASSERT_EQ(matcher.match(),
              stopped ? text.substr(want_begin, want_end - want_begin) : "")
        << text;
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

}  // namespace
}  // namespace foretoken
