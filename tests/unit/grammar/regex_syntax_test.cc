#include "common/grammar/regex_syntax.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/grammar/code_points.h"
#include "common/grammar/regex.h"
#include "common/text/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/grammar/match.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr RegexSyntaxOptions kWhole = {};
constexpr RegexSyntaxOptions kAnywhere = {.whole = false};
constexpr RegexSyntaxOptions kJson = {.form = TextForm::kJsonString};

bool MatchesWith(absl::string_view pattern, absl::string_view text,
                 const RegexSyntaxOptions& options) {
  Regexes regexes;
  const auto expr = ParseRegex(pattern, options, regexes);
  EXPECT_THAT(expr, IsOk()) << pattern;
  return expr.ok() && Matches(regexes, *expr, text);
}
bool Whole(absl::string_view pattern, absl::string_view text) {
  return MatchesWith(pattern, text, kWhole);
}
bool Anywhere(absl::string_view pattern, absl::string_view text) {
  return MatchesWith(pattern, text, kAnywhere);
}
bool InJson(absl::string_view pattern, absl::string_view text) {
  return MatchesWith(pattern, text, kJson);
}

absl::Status Refused(absl::string_view pattern,
                     const RegexSyntaxOptions& options = kAnywhere) {
  Regexes regexes;
  return ParseRegex(pattern, options, regexes).status();
}

TEST(RegexSyntaxTest, QuantifiersRepeatWhatStandsBeforeThem) {
  EXPECT_TRUE(Whole("ab{2,3}c?", "abbb"));
  EXPECT_TRUE(Whole("ab{2,3}c?", "abbc"));
  EXPECT_FALSE(Whole("ab{2,3}c?", "abc"));
  EXPECT_FALSE(Whole("ab{2,3}c?", "abbbb"));
  EXPECT_TRUE(Whole("(ab)*?", "abab"));
  EXPECT_TRUE(Whole("(?:a|bc)+", "abca"));
  EXPECT_TRUE(Whole("(?<year>[0-9]{4})-(?P<month>\\d\\d)", "2024-12"));
  EXPECT_TRUE(Whole("a{2,}", "aaaa"));
  EXPECT_FALSE(Whole("a{2,}", "a"));
}

TEST(RegexSyntaxTest, BracesThatAreNoQuantifierAreCharacters) {
  EXPECT_TRUE(Whole("{a}", "{a}"));
  EXPECT_TRUE(Whole("a{x}", "a{x}"));
  EXPECT_TRUE(Whole("a{1", "a{1"));
  EXPECT_TRUE(Whole("]}", "]}"));
}

TEST(RegexSyntaxTest, DotLeavesOutLineTerminators) {
  EXPECT_TRUE(Whole(".", "\xF0\x9F\x98\x80"));
  for (const char* terminator : {"\n", "\r", "\u2028", "\u2029"}) {
    EXPECT_FALSE(Whole(".", terminator));
    EXPECT_TRUE(Whole("(?s).", terminator));
    EXPECT_TRUE(Whole("[^]", terminator));
  }
  EXPECT_FALSE(Whole(".", "\xC3"));
  EXPECT_FALSE(Whole("[]", "a"));
}

TEST(RegexSyntaxTest, ClassesAndEscapesAreThoseOfEcmaScript) {
  EXPECT_TRUE(Whole("[a\\-z]+", "a-z"));
  EXPECT_FALSE(Whole("[a\\-z]", "b"));
  EXPECT_TRUE(Whole("[\\w-.]+", "a-.9_"));
  EXPECT_TRUE(Whole("[-a]", "-"));
  EXPECT_TRUE(Whole("[a-]", "-"));
  EXPECT_TRUE(Whole("[^\\d]", "\u00E9"));
  EXPECT_FALSE(Whole("\\d", "\u0663"));
  EXPECT_FALSE(Whole("\\w", "\u00E9"));
  EXPECT_TRUE(Whole("\\s\\s\\s", "\u00A0\uFEFF\n"));
  EXPECT_TRUE(Whole("\\S\\D\\W", "aa-"));
  EXPECT_TRUE(Whole("[\\b]\\cJ\\x41\\u0042\\u{1F600}\\0",
                    absl::string_view("\b\nAB\xF0\x9F\x98\x80\0", 9)));
  EXPECT_TRUE(Whole("\\uD83D\\uDE00", "\xF0\x9F\x98\x80"));
  EXPECT_TRUE(Whole("[\\uD83D\\uDE00-\\uD83D\\uDE02]", "\xF0\x9F\x98\x81"));
  EXPECT_TRUE(Whole("\\-\\/\\@\\_\\\"\\'\\:\\\xC3\xA9", "-/@_\"':\u00E9"));
}

TEST(RegexSyntaxTest, UnicodePropertiesComeFromIcu) {
  EXPECT_TRUE(Whole("\\p{L}+", "aZ\u00E9\u4E2D"));
  EXPECT_FALSE(Whole("\\p{L}", "1"));
  EXPECT_TRUE(Whole("\\p{Lu}\\p{Script=Greek}", "A\u03B1"));
  EXPECT_TRUE(Whole("[\\p{Letter}\\d]+", "a1"));
  EXPECT_TRUE(Whole("\\P{L}\\p{Alphabetic}", "1a"));
  EXPECT_THAT(Refused("a\\p{Nope}"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("an unknown property at byte 1")));
  EXPECT_THAT(Refused("\\p{L}&&[a]]}"), IsOk());
  EXPECT_THAT(Refused("\\p{L}}-[\\p{N}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("[")));
}

TEST(RegexSyntaxTest, CaseIsIgnoredWithItsFlag) {
  EXPECT_TRUE(Whole("(?i)straSSe[a-c]\u00E9", "STRAssEB\u00C9"));
  EXPECT_TRUE(Whole("(?i)[^a]", "b"));
  EXPECT_FALSE(Whole("(?i)[^a]", "A"));
  EXPECT_TRUE(Whole("(?i:a)b", "Ab"));
  EXPECT_FALSE(Whole("(?i:a)b", "AB"));
  EXPECT_FALSE(Whole("(?i)\\W", "s"));
}

// A table of code points at the borders of UTF-8's lengths.
TEST(RegexSyntaxTest, ClassesMatchExactlyTheirCodePoints) {
  const std::vector<uint32_t> borders = {
      0,       0x1F,    0x20,    0x21,    0x22,     0x5C,    0x7F,   0x80,
      0x7FF,   0x800,   0xFFF,   0x1000,  0xD7FF,   0xE000,  0xFFFD, 0xFFFF,
      0x10000, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFF};
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    uint32_t first = borders[random() % borders.size()];
    uint32_t last = random() % 2 ? borders[random() % borders.size()]
                                 : first + random() % 5000;
    if (last < first) std::swap(first, last);
    last = std::min(last, kMaxCodePoint);
    Regexes regexes;
    const Expr expr = CodePoints(first, last, TextForm::kUtf8, regexes);
    CodePointSet set;
    set.Add(first, last);
    const Expr other = CodePointClass(set.Negated(), TextForm::kUtf8, regexes);
    for (const uint32_t border : borders) {
      for (const int64_t c :
           {int64_t{border} - 1, int64_t{border}, int64_t{border} + 1,
            int64_t{first} - 1, int64_t{last} + 1}) {
        if (c < 0 || c > kMaxCodePoint || IsSurrogate(c)) continue;
        std::string text;
        AppendUtf8(static_cast<uint32_t>(c), text);
        EXPECT_EQ(Matches(regexes, expr, text), c >= first && c <= last);
        EXPECT_EQ(Matches(regexes, other, text), c < first || c > last);
      }
    }
    EXPECT_FALSE(Matches(regexes, expr, "\xED\xA0\x80"));  // a surrogate
    EXPECT_FALSE(Matches(regexes, expr, "\xC0\x80"));      // too long
    EXPECT_FALSE(Matches(regexes, expr, "\xF4\x90\x80\x80"));
  }
}

TEST(RegexSyntaxTest, JsonStringsEscapeWhatJsonDumpsEscapes) {
  EXPECT_TRUE(InJson("a\"b\\\\c", "a\\\"b\\\\c"));
  EXPECT_FALSE(InJson("a\"b", "a\"b"));
  EXPECT_FALSE(InJson("a", "\\u0061"));
  EXPECT_TRUE(InJson("[\\b\\f\\n\\r\\t]{5}", "\\b\\f\\n\\r\\t"));
  EXPECT_FALSE(InJson("\\n", "\\u000a"));
  EXPECT_TRUE(InJson("\\x01\\x1f\\x1F", "\\u0001\\u001f\\u001F"));
  EXPECT_TRUE(InJson("\\x7f/", "\x7F/"));
  EXPECT_TRUE(InJson("[^a]", "\\u0000"));
  EXPECT_TRUE(InJson("[^a]", "\\\\"));
  EXPECT_FALSE(InJson("[^\\\\]", "\\\\"));
  Regexes regexes;
  const Expr literal =
      TextLiteral("\"\u00E9\n\x01", TextForm::kJsonString, regexes);
  EXPECT_TRUE(Matches(regexes, literal, "\\\"\u00E9\\n\\u0001"));
  EXPECT_FALSE(Matches(regexes, literal, "\\\"\\u00e9\\n\\u0001"));
}

TEST(RegexSyntaxTest, AMatchAnywhereIsEnoughWithoutAnchors) {
  EXPECT_TRUE(Anywhere("b+", "abc"));
  EXPECT_TRUE(Anywhere("", "abc"));
  EXPECT_FALSE(Anywhere("b+", "ac"));
  EXPECT_FALSE(Anywhere("b", "b\xFF"));
}

TEST(RegexSyntaxTest, AnchorsHoldInEveryAlternativeOfTheirOwn) {
  EXPECT_TRUE(Anywhere("^a|b$", "ax"));
  EXPECT_TRUE(Anywhere("^a|b$", "xb"));
  EXPECT_FALSE(Anywhere("^a|b$", "xax"));
  EXPECT_TRUE(Anywhere("^(a|b)$", "b"));
  EXPECT_FALSE(Anywhere("^(a|b)$", "ab"));
  EXPECT_TRUE(Anywhere("^$", ""));
  EXPECT_FALSE(Anywhere("^$", "a"));
  EXPECT_TRUE(Anywhere("^$|^x+$", "xx"));
  EXPECT_TRUE(Anywhere("(^|x)a", "bxab"));
  EXPECT_TRUE(Anywhere("(^|x)a", "ab"));
  EXPECT_FALSE(Anywhere("(^|x)a", "ba"));
  EXPECT_TRUE(Anywhere("(^|,)a(,|$)", "b,a"));
  EXPECT_FALSE(Anywhere("(^|,)a(,|$)", "b,ab"));
  EXPECT_TRUE(Anywhere("a?^b", "b"));
  EXPECT_FALSE(Anywhere("a?^b", "ab"));
  EXPECT_TRUE(Anywhere("(a|^b|c$)*d?$", "d"));
  EXPECT_FALSE(Anywhere("^(?:a|$)+b", "cb"));
  EXPECT_TRUE(Anywhere("\\Aab\\Z", "ab"));
  EXPECT_FALSE(Anywhere("a$", "a\n"));
  EXPECT_TRUE(Whole("^a$", "a"));
  EXPECT_FALSE(Whole("^a", "ab"));
}

TEST(RegexSyntaxTest, LookaheadsIntersectTheRestOfTheText) {
  EXPECT_TRUE(Anywhere("^(?!foo$)[a-z]+$", "fool"));
  EXPECT_FALSE(Anywhere("^(?!foo$)[a-z]+$", "foo"));
  EXPECT_TRUE(Anywhere("^(?=.*\\d)(?=.*[a-z]).{4,}$", "ab1c"));
  EXPECT_FALSE(Anywhere("^(?=.*\\d)(?=.*[a-z]).{4,}$", "abcd"));
  EXPECT_TRUE(Anywhere("^(a(?!b)|ab)c?$", "ac"));
  EXPECT_TRUE(Anywhere("^@([a-z](?:(?!.*--)[a-z-]*[a-z])?)$", "@a-b"));
  EXPECT_FALSE(Anywhere("^@([a-z](?:(?!.*--)[a-z-]*[a-z])?)$", "@a--b"));
  EXPECT_TRUE(Anywhere("^((?!--)(?!__).)*$", "a-b_c"));
  EXPECT_FALSE(Anywhere("^((?!--)(?!__).)*$", "a-b__c"));
  EXPECT_FALSE(Anywhere("^(?:(?!--).){2,3}$", "abcd"));
  EXPECT_THAT(Refused("^((?!a)b*c)*$"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a look-ahead in a repetition")));
}

TEST(RegexSyntaxTest, RefusalsNameTheConstructAndItsPosition) {
  const struct {
    const char* pattern;
    const char* what;
  } kCases[] = {
      {"a\\b", "a word border is not supported at byte 1"},
      {"(a)\\1", "a backreference is not supported at byte 3"},
      {"(?P=x)", "a backreference is not supported at byte 0"},
      {"\\k<x>", "a backreference is not supported at byte 0"},
      {"a(?<=b)", "look-behind is not supported at byte 1"},
      {"(?<!b)", "look-behind is not supported at byte 0"},
      {"(?m)a", "this flag is not supported at byte 2"},
      {"a(?i)b",
       "a flag that is not at the beginning is not supported at "
       "byte 1"},
      {"(?>a)", "this kind of group is not supported at byte 0"},
      {"a++", "a possessive quantifier is not supported at byte 2"},
      {"a{,3}", "write {0,n}"},
      {"\\uD83D", "half of a surrogate pair is not supported at byte 0"},
      {"[\\uD800-\\uDBFF]", "half of a surrogate pair"},
      {"a**", "nothing to repeat at byte 2"},
      {"+", "nothing to repeat at byte 0"},
      {"^*", "nothing to repeat at byte 1"},
      {"(a", "'(' without ')' at byte 0"},
      {"a)", "')' without '(' at byte 1"},
      {"[a", "'[' without ']' at byte 0"},
      {"[b-a]", "a range that ends before it begins at byte 1"},
      {"a{3,2}", "its maximum below its minimum at byte 1"},
      {"a{100001}", "more than 100000 repetitions at byte 1"},
      {"\\", "'\\' at the end at byte 0"},
      {"\\y", "an unknown escape \\y at byte 0"},
      {"\\x4", "a bad \\x escape at byte 0"},
      {"\\u{110000}", "a bad \\u escape at byte 0"},
      {"ab\xFF", "text that is not UTF-8 at byte 2"},
  };
  for (const auto& test : kCases) {
    EXPECT_THAT(Refused(test.pattern),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("regular expression: "),
                               HasSubstr(test.what))))
        << test.pattern;
  }
}

TEST(RegexSyntaxTest, DepthLengthAndMemoryAreBounded) {
  const auto nested = [](int levels) {
    return absl::StrCat(std::string(levels, '('), "a",
                        std::string(levels, ')'));
  };
  EXPECT_THAT(Refused(nested(250)), IsOk());
  EXPECT_THAT(Refused(nested(251)), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("250 levels")));
  EXPECT_THAT(Refused(std::string(64 << 10, 'a')), IsOk());
  EXPECT_THAT(Refused(std::string((64 << 10) + 1, 'a')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("want at most 65536")));
  std::string optional_anchors = "a";
  for (int i = 0; i < 60; ++i) {
    optional_anchors = absl::StrCat("(?:", optional_anchors, "(?=b)){0,9}");
  }
  EXPECT_THAT(Refused(optional_anchors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("repeated too often")));
  Regexes small(1000);
  EXPECT_THAT(
      ParseRegex("\\p{L}{5}", kWhole, small),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1000 bytes")));
}

// Random patterns, with all that std::regex knows of the syntax.
class PatternMaker {
 public:
  explicit PatternMaker(uint32_t seed) : random_(seed) {}

  int Draw(int below) { return static_cast<int>(random_() % below); }

  std::string Alternatives(int depth) {
    std::string pattern = Concat(depth);
    while (Draw(3) == 0) absl::StrAppend(&pattern, "|", Concat(depth));
    return pattern;
  }
  std::string Text() {
    std::string text(Draw(7), 'a');
    for (char& c : text) c = "ab\"c"[Draw(4)];
    return text;
  }

 private:
  std::string Concat(int depth) {
    std::string pattern;
    for (int n = Draw(4); n > 0; --n) absl::StrAppend(&pattern, Piece(depth));
    return pattern;
  }
  std::string Piece(int depth) {
    static constexpr const char* kAtoms[] = {"a",    "b",      "\"",  ".",
                                             "[ab]", "[^a\"]", "\\w", "\\W"};
    static constexpr const char* kQuantifiers[] = {"*",   "+",     "?",
                                                   "{2}", "{0,2}", "*?"};
    const int kind = Draw(10);
    // libstdc++ takes the place of a look-ahead for the text's begin.
    if (kind == 0) return ahead_ ? "a" : "^";
    if (kind == 1) return "$";
    if (kind == 2 && depth > 0) {
      const bool ahead = std::exchange(ahead_, true);
      const std::string body = Alternatives(depth - 1);
      ahead_ = ahead;
      return absl::StrCat(Draw(2) ? "(?=" : "(?!", body, ")");
    }
    if (kind < 5 && depth > 0) {
      // No repetition of groups: std::regex takes exponential time.
      return absl::StrCat("(", Alternatives(depth - 1), ")",
                          Draw(3) == 0 ? "?" : "");
    }
    return absl::StrCat(kAtoms[Draw(8)],
                        Draw(3) == 0 ? kQuantifiers[Draw(6)] : "");
  }

  std::mt19937 random_;
  bool ahead_ = false;
};

TEST(RegexSyntaxTest, RandomPatternsMatchWhatStdRegexMatches) {
  constexpr uint32_t kSeed = 20240611;
  PatternMaker maker(kSeed);
  int matched = 0, compared = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::string pattern = maker.Alternatives(2);
    const std::regex want(pattern, std::regex::ECMAScript);
    Regexes regexes;
    const auto whole = ParseRegex(pattern, kWhole, regexes);
    const auto anywhere = ParseRegex(pattern, kAnywhere, regexes);
    ASSERT_THAT(whole, IsOk()) << pattern;
    ASSERT_THAT(anywhere, IsOk()) << pattern;
    for (int i = 0; i < 20; ++i) {
      const std::string text = maker.Text();
      const bool all = std::regex_match(text, want);
      const bool some = std::regex_search(text, want);
      EXPECT_EQ(Matches(regexes, *whole, text), all)
          << pattern << " on " << text << ", seed " << kSeed;
      EXPECT_EQ(Matches(regexes, *anywhere, text), some)
          << pattern << " on " << text << ", seed " << kSeed;
      matched += all + some;
      compared += 2;
    }
  }
  // The comparison means something: neither all nor nothing matches.
  EXPECT_GT(matched, compared / 20);
  EXPECT_LT(matched, compared * 19 / 20);
}

}  // namespace
}  // namespace foretoken::grammar
