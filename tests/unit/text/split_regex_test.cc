#include "common/text/split_regex.h"

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

std::string FirstMatch(const std::string& pattern, const std::string& text) {
  auto regex = SplitRegex::Compile(pattern);
  if (!regex.ok()) return std::string(regex.status().message());
  SplitRegex::Scratch scratch;
  const SplitRegex::Range range = regex->Find(text, 0, scratch);
  return text.substr(range.begin, range.end - range.begin);
}

TEST(SplitRegexTest, WhiteSpaceIsUnicodesAndNotPcres) {
  EXPECT_EQ(FirstMatch("\\s", "a\u0085b"), "\u0085");
  EXPECT_EQ(FirstMatch("\\s", "a\u3000b"), "\u3000");
  EXPECT_EQ(FirstMatch("\\s", "a\u180eb"), "");
  EXPECT_EQ(FirstMatch("[^\\s]", "\u2003x"), "x");
  EXPECT_EQ(FirstMatch("\\S+", " \u180e "), "\u180e");
}

TEST(SplitRegexTest, CaseFoldingReachesBeyondAscii) {
  EXPECT_EQ(FirstMatch("(?i:'s|'t)", "it\u2019s 'S"), "'S");
  EXPECT_EQ(FirstMatch("(?i:'s|'t)", "x'\u017f"), "'\u017f");
}

TEST(SplitRegexTest, RubyEscapesAreTranslated) {
  EXPECT_EQ(FirstMatch("[\\u4e00-\\u9fa5]+", "a\u4e00\u4e8cb"), "\u4e00\u4e8c");
  EXPECT_EQ(FirstMatch("\\d+", "a\u0663\u0664"), "\u0663\u0664");
}

TEST(SplitRegexTest, RefusesWhatMeansSomethingElseOrHasNoBound) {
  for (const char* pattern : {"^a", "a$", "\\w+", "\\bx", "[a[b]]", "[a&&b]",
                              "(a|b)+", "(?:a+)*b", "\\p{N}{1,3}+", "(a)\\1",
                              "(?i)a", "[\\S]", "a\\", "[a", "\\u12", "("}) {
    EXPECT_THAT(
        SplitRegex::Compile(pattern),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(pattern)))
        << pattern;
  }
  EXPECT_THAT(
      SplitRegex::Compile("a*"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("match nothing")));
}

TEST(SplitRegexTest, LiteralsMeanThemselves) {
  auto regex = SplitRegex::CompileLiteral("a.(b");
  FORETOKEN_ASSERT_OK(regex);
  SplitRegex::Scratch scratch;
  EXPECT_EQ(regex->Find("axb a.(b", 0, scratch).begin, 4u);
}

}  // namespace
}  // namespace foretoken
