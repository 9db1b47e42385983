#include "common/grammar/regex.h"

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/grammar/match.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr Expr kNothing = Regexes::kNothing;
constexpr Expr kEmpty = Regexes::kEmpty;
constexpr Expr kAnything = Regexes::kAnything;
constexpr int32_t kUnbounded = Regexes::kUnbounded;

Expr Byte(Regexes& regexes, char byte) {
  return regexes.Bytes(ByteSet::Range(byte, byte));
}

bool MatchesNothing(Regexes& regexes, Expr expr) {
  const auto nothing = regexes.MatchesNothing(expr);
  EXPECT_TRUE(nothing.ok()) << nothing.status();
  return nothing.ok() && *nothing;
}

TEST(RegexTest, ConcatenationsWithTheSameTextAreOneExpression) {
  Regexes r;
  const Expr a = Byte(r, 'a'), b = Byte(r, 'b'), c = Byte(r, 'c');
  const Expr abc = r.Literal("abc");
  EXPECT_EQ(r.Concat({a, b, c}), abc);
  EXPECT_EQ(r.Concat(r.Concat(a, b), c), abc);
  EXPECT_EQ(r.Concat(a, r.Concat(b, c)), abc);
  EXPECT_EQ(r.Concat({kEmpty, a, kEmpty, b, c, kEmpty}), abc);
  EXPECT_EQ(r.Concat({a, kNothing, c}), kNothing);
  EXPECT_EQ(r.Literal(""), kEmpty);
  EXPECT_NE(r.Literal("acb"), abc);
}

TEST(RegexTest, AlternativesAreASet) {
  Regexes r;
  const Expr x = r.Star(Byte(r, 'x')), y = r.Repeat(Byte(r, 'y'), 2, 5),
             z = r.Repeat(Byte(r, 'z'), 3, 3);
  EXPECT_EQ(r.Or(x, y), r.Or(y, x));
  EXPECT_EQ(r.Or(x, x), x);
  EXPECT_EQ(r.Or({x, r.Or(y, z)}), r.Or({r.Or(z, x), y, y}));
  EXPECT_EQ(r.Or(y, kNothing), y);
  EXPECT_EQ(r.Or(y, kAnything), kAnything);
  EXPECT_EQ(r.Or({}), kNothing);
  EXPECT_EQ(r.Or(x, kEmpty), x);  // it is among them already
  EXPECT_NE(r.Or(y, kEmpty), y);
  EXPECT_EQ(r.Or(y, r.Not(y)), kAnything);
  EXPECT_EQ(r.Or(Byte(r, 'a'), Byte(r, 'b')),
            r.Bytes(ByteSet::Range('a', 'b')));
}

TEST(RegexTest, IntersectionsAreASet) {
  Regexes r;
  const Expr x = r.Star(Byte(r, 'x')), y = r.Repeat(Byte(r, 'y'), 2, 5),
             z = r.Repeat(Byte(r, 'z'), 3, 3);
  EXPECT_EQ(r.And(x, y), r.And(y, x));
  EXPECT_EQ(r.And(x, x), x);
  EXPECT_EQ(r.And({x, r.And(y, z)}), r.And({r.And(z, x), y, y}));
  EXPECT_EQ(r.And(y, kAnything), y);
  EXPECT_EQ(r.And(y, kNothing), kNothing);
  EXPECT_EQ(r.And({}), kAnything);
  EXPECT_EQ(r.And(x, kEmpty), kEmpty);
  EXPECT_EQ(r.And(y, kEmpty), kNothing);
  EXPECT_EQ(r.And(y, r.Not(y)), kNothing);
  EXPECT_EQ(r.And(r.Bytes(ByteSet::Range('a', 'm')),
                  r.Bytes(ByteSet::Range('k', 'z'))),
            r.Bytes(ByteSet::Range('k', 'm')));
  EXPECT_EQ(r.And(Byte(r, 'a'), Byte(r, 'b')), kNothing);
}

TEST(RegexTest, TheComplementOfAComplementIsTheExpression) {
  Regexes r;
  const Expr x = r.Literal("xyz");
  EXPECT_EQ(r.Not(r.Not(x)), x);
  EXPECT_EQ(r.Not(kNothing), kAnything);
  EXPECT_EQ(r.Not(kAnything), kNothing);
  EXPECT_TRUE(r.nullable(r.Not(x)));
  EXPECT_FALSE(r.nullable(r.Not(kEmpty)));
}

TEST(RegexTest, RepetitionsSimplify) {
  Regexes r;
  const Expr x = r.Literal("xy");
  const Expr optional = r.Optional(x);
  EXPECT_EQ(r.Repeat(x, 0, 0), kEmpty);
  EXPECT_EQ(r.Repeat(x, 1, 1), x);
  EXPECT_EQ(r.Repeat(x, 0, 1), optional);
  EXPECT_EQ(r.Repeat(kEmpty, 3, 9), kEmpty);
  EXPECT_EQ(r.Repeat(kNothing, 0, 9), kEmpty);
  EXPECT_EQ(r.Repeat(kNothing, 1, 9), kNothing);
  EXPECT_EQ(r.Star(r.Star(x)), r.Star(x));
  EXPECT_EQ(r.Repeat(r.Star(x), 2, 5), r.Star(x));
  EXPECT_EQ(r.Repeat(optional, 2, 5), r.Repeat(optional, 0, 5));
  EXPECT_EQ(r.Star(r.Bytes(ByteSet::All())), kAnything);
}

TEST(RegexTest, RepeatMatchesExactlyTheTimesWithinItsBounds) {
  Regexes r;
  const Expr x = r.Literal("ab");
  for (const auto& [min, max] : std::vector<std::pair<int, int>>{
           {0, 3}, {2, 2}, {2, 5}, {0, kUnbounded}, {3, kUnbounded}}) {
    const Expr expr = r.Repeat(x, min, max);
    std::string text;
    for (int times = 0; times <= 8; ++times) {
      EXPECT_EQ(Matches(r, expr, text),
                times >= min && (max == kUnbounded || times <= max))
          << times << " of " << min << ".." << max;
      EXPECT_FALSE(Matches(r, expr, text + "a"));
      text += "ab";
    }
  }
}

TEST(RegexTest, ADerivativeMatchesWhatMayFollowTheByte) {
  Regexes r;
  const Expr words =
      r.Or({r.Literal("cart"), r.Literal("cat"), r.Literal("dog")});
  EXPECT_EQ(r.Derivative(words, 'c'), r.Or(r.Literal("art"), r.Literal("at")));
  EXPECT_EQ(r.Derivative(words, 'd'), r.Literal("og"));
  EXPECT_EQ(r.Derivative(words, 'x'), kNothing);
  EXPECT_EQ(r.Derivative(kAnything, 'x'), kAnything);
  EXPECT_EQ(r.Derivative(kEmpty, 'x'), kNothing);
  EXPECT_EQ(r.Derivative(r.Not(words), 'd'), r.Not(r.Literal("og")));
}

TEST(RegexTest, AThousandWordsHaveNoMoreStatesThanTheirTrie) {
  Regexes r;
  std::vector<Expr> words;
  std::set<std::string> prefixes;
  for (int i = 0; i < 1000; ++i) {
    const std::string word = absl::StrCat("word", i * 7919 % 10007);
    words.push_back(r.Literal(word));
    for (size_t n = 0; n <= word.size(); ++n)
      prefixes.insert(word.substr(0, n));
  }
  std::set<Expr> seen = {r.Or(words)};
  std::vector<Expr> open(seen.begin(), seen.end());
  while (!open.empty()) {
    const Expr from = open.back();
    open.pop_back();
    for (int byte = 0; byte < 256; ++byte) {
      const Expr to = r.Derivative(from, static_cast<uint8_t>(byte));
      if (to != kNothing && seen.insert(to).second) open.push_back(to);
    }
  }
  EXPECT_LE(seen.size(), prefixes.size());
}

struct Divisor {
  int64_t divisor;
  int32_t scale;
};

// Whether text (digits with a point) is a multiple of divisor / 10^scale, by
// integers alone.
bool IsMultiple(const std::string& text, const Divisor& by) {
  __int128 value = 0, unit = by.divisor;
  bool fraction = false;
  for (const char c : text) {
    if (c == '-') continue;
    if (c == '.') {
      fraction = true;
      continue;
    }
    value = value * 10 + (c - '0');
    if (fraction) unit *= 10;
  }
  for (int i = 0; i < by.scale; ++i) value *= 10;
  return value % unit == 0;
}

TEST(RegexTest, MultiplesAreThoseOfArithmetic) {
  const uint32_t seed = 20261127;
  std::mt19937 random(seed);
  int multiples = 0, others = 0;
  for (const Divisor by : std::vector<Divisor>{{1, 0},
                                               {2, 0},
                                               {3, 0},
                                               {7, 0},
                                               {12, 0},
                                               {1000, 0},
                                               {1, 2},
                                               {25, 2},
                                               {15, 1},
                                               {125, 3},
                                               {5, 4},
                                               {10, 1},
                                               {300, 2},
                                               {1'000'000'000'000'000, 0},
                                               {999'999'999'999'989, 15}}) {
    Regexes r;
    const Expr expr = r.MultipleOf(by.divisor, by.scale);
    const auto check = [&](const std::string& text) {
      const bool want = IsMultiple(text, by);
      ++(want ? multiples : others);
      ASSERT_EQ(Matches(r, expr, text), want)
          << text << " by " << by.divisor << " / 10^" << by.scale << " seed "
          << seed;
    };
    for (int i = 0; i < 400; ++i) {
      std::string text = random() % 3 == 0 ? "-" : "";
      absl::StrAppend(&text, random() % 20000);
      const int digits = random() % 5;
      if (digits > 0) text += '.';
      for (int d = 0; d < digits; ++d) {
        text +=
            random() % 2 == 0 ? '0' : static_cast<char>('0' + random() % 10);
      }
      check(text);
      // One that is: k times the divisor.
      const std::string whole = absl::StrCat(random() % 1000 * by.divisor);
      std::string padded = std::string(by.scale + 1, '0') + whole;
      padded.insert(padded.size() - by.scale, by.scale > 0 ? "." : "");
      check("-" + padded);
      check(padded);
    }
  }
  EXPECT_GT(multiples, 10'000);
  EXPECT_GT(others, 3'000);
}

TEST(RegexTest, NoDigitsAreNoMultiple) {
  Regexes r;
  const Expr expr = r.MultipleOf(5, 1);
  for (const char* text : {"", "-", ".", "-.5", "0x5", "--5", "1-5", "5..0"}) {
    EXPECT_FALSE(Matches(r, expr, text)) << text;
  }
  EXPECT_TRUE(Matches(r, expr, "0"));
  EXPECT_TRUE(Matches(r, expr, "-0.50"));
}

TEST(RegexTest, EmptyIntersectionsMatchNothing) {
  Regexes r;
  const Expr a = Byte(r, 'a'), b = Byte(r, 'b');
  const Expr even = r.Star(r.Literal("aa"));
  const Expr odd = r.Concat(a, even);
  EXPECT_TRUE(MatchesNothing(r, kNothing));
  EXPECT_TRUE(MatchesNothing(r, r.And(r.Literal("ab"), r.Literal("cd"))));
  EXPECT_TRUE(MatchesNothing(r, r.And(even, odd)));
  EXPECT_TRUE(MatchesNothing(r, r.And({r.Star(a), r.Not(even), r.Not(odd)})));
  EXPECT_TRUE(MatchesNothing(r, r.And(r.Repeat(a, 3, 5), r.Repeat(a, 6, 9))));
  EXPECT_TRUE(MatchesNothing(r, r.Concat(b, r.And(even, odd))));
  EXPECT_TRUE(
      MatchesNothing(r, r.Or(r.And(even, odd), r.Concat(r.And(even, odd), b))));
  EXPECT_FALSE(MatchesNothing(r, r.And(r.Repeat(a, 3, 6), r.Repeat(a, 6, 9))));
  EXPECT_FALSE(MatchesNothing(r, r.Or(r.And(even, odd), b)));
  EXPECT_FALSE(MatchesNothing(r, r.Repeat(r.And(even, odd), 0, 4)));
  EXPECT_TRUE(MatchesNothing(r, r.Repeat(r.And(odd, even), 1, 4)));
}

TEST(RegexTest, WhatOnlyLongTextsMatchIsNotNothing) {
  Regexes r;
  const Expr a = Byte(r, 'a');
  EXPECT_FALSE(MatchesNothing(r, r.Repeat(a, 1'000'000, 1'000'000)));
  EXPECT_FALSE(MatchesNothing(
      r, r.And(r.Repeat(a, 2999, kUnbounded), r.Star(r.Literal("aa")))));
  EXPECT_TRUE(MatchesNothing(
      r, r.And(r.Repeat(a, 3000, kUnbounded), r.Not(r.Star(a)))));
  const Expr hundred =
      r.And(r.MultipleOf(100, 0), r.Concat(Byte(r, '9'), r.Star(Byte(r, '0'))));
  EXPECT_FALSE(MatchesNothing(r, hundred));
}

// The native stack would overflow if the search went down the concatenation.
TEST(RegexTest, ALongTextBeforeAnIntersectionTakesNoStack) {
  Regexes r;
  const Expr some = r.And(r.Literal("ab"), r.Not(r.Literal("cd")));
  const Expr none = r.And(r.Literal("ab"), r.Literal("cd"));
  const Expr text = r.Literal(std::string(100'000, 'x'));
  EXPECT_FALSE(MatchesNothing(r, r.Concat(text, some)));
  EXPECT_TRUE(MatchesNothing(r, r.Concat(text, none)));
}

TEST(RegexTest, TooLongASearchForATextIsAnError) {
  Regexes r;
  const Expr expr =
      r.And(r.Repeat(Byte(r, 'a'), 3000, kUnbounded), r.Star(r.Literal("aa")));
  EXPECT_THAT(r.MatchesNothing(expr, 100),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("too many states")));
}

TEST(RegexTest, ASearchSeesMultiplesMadeAfterAnotherSearch) {
  Regexes r;
  const Expr digit = r.Bytes(ByteSet::Range('1', '9'));
  ASSERT_FALSE(MatchesNothing(r, r.And(r.Not(kEmpty), r.Not(digit))));
  const Expr seven = r.And(r.Repeat(digit, 1, 2), r.MultipleOf(7, 0));
  ASSERT_TRUE(Matches(r, seven, "7"));
  EXPECT_FALSE(MatchesNothing(r, seven));
}

TEST(RegexTest, OverTheMemoryLimitEverythingIsNothingAndTheStatusSaysSo) {
  Regexes r(20'000);
  const Expr before = r.Literal("small");
  EXPECT_TRUE(r.status().ok());
  EXPECT_EQ(r.Literal(std::string(100'000, 'x')), kNothing);
  EXPECT_THAT(r.status(), StatusIs(absl::StatusCode::kResourceExhausted,
                                   HasSubstr("20000 bytes")));
  EXPECT_LT(r.bytes(), 30'000);
  EXPECT_EQ(r.Not(before), kNothing);
  EXPECT_EQ(r.Repeat(before, 2, 17), kNothing);
  EXPECT_EQ(r.MultipleOf(7, 0), kNothing);
  EXPECT_EQ(r.Literal("small"), before);  // what is there stays
}

TEST(RegexTest, DerivativesCountAgainstTheMemoryLimit) {
  // The texts whose 20th byte from the end is 'a': a million states.
  Regexes r(200'000);
  const Expr any = r.Bytes(ByteSet::Range('a', 'b'));
  Expr expr = r.Concat({r.Star(any), Byte(r, 'a'), r.Repeat(any, 19, 19)});
  ASSERT_TRUE(r.status().ok());
  std::mt19937 random(5);
  for (int i = 0; i < 20'000 && r.status().ok(); ++i) {
    expr = r.Derivative(expr, random() % 2 == 0 ? 'a' : 'b');
  }
  EXPECT_THAT(r.status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
  EXPECT_LT(r.bytes(), 250'000);
}

TEST(RegexTest, ARunOfAnyCharactersIsSeenInTheForm) {
  Regexes r;
  const Expr x = r.Bytes(ByteSet::Range('a', 'z'));
  const Expr y = Byte(r, '1');
  const auto any = [&](Expr expr) { return expr == x; };
  EXPECT_EQ(r.AnyRun(r.Concat(r.Repeat(x, 0, 7), y), any), 7);
  EXPECT_EQ(r.AnyRun(r.Repeat(x, 3, 7), any), 7);
  EXPECT_EQ(r.AnyRun(r.Concat(r.Star(x), y), any), Regexes::kEndless);
  EXPECT_EQ(
      r.AnyRun(r.Or(r.Concat(r.Repeat(x, 0, 7), y), r.Repeat(x, 0, 9)), any),
      9);
  EXPECT_EQ(r.AnyRun(r.Concat(y, r.Star(x)), any), 0);
  EXPECT_EQ(r.AnyRun(r.Star(y), any), 0);
  EXPECT_EQ(r.AnyRun(kAnything, any), Regexes::kEndless);
  EXPECT_EQ(r.AnyRun(kEmpty, any), 0);
}

// The texts over a, b, c of at most kLongest letters that an expression
// matches, by the definition of each operation.
constexpr size_t kLongest = 5;
using Language = std::set<std::string>;

const Language& AllTexts() {
  static const auto* const all = [] {
    auto* const texts = new Language{""};
    for (size_t n = 0; n < kLongest; ++n) {
      const Language shorter = *texts;
      for (const std::string& text : shorter) {
        for (const char c : {'a', 'b', 'c'}) texts->insert(text + c);
      }
    }
    return texts;
  }();
  return *all;
}

Language Joined(const Language& heads, const Language& tails) {
  Language joined;
  for (const std::string& head : heads) {
    for (const std::string& tail : tails) {
      if (head.size() + tail.size() <= kLongest) joined.insert(head + tail);
    }
  }
  return joined;
}

struct Both {
  Expr expr;
  Language language;
};

// A random expression, and what it matches.
Both RandomExpr(std::mt19937& random, Regexes& r, int depth) {
  if (depth == 0) {
    switch (random() % 8) {
      case 0:
        return {kEmpty, {""}};
      case 1:
        return {kAnything, AllTexts()};
      case 2:
        return {r.Literal("ab"), {"ab"}};
      default: {
        ByteSet set;
        Language language;
        for (const char c : {'a', 'b', 'c'}) {
          if (random() % 2 == 0) continue;
          set.Add(c);
          language.insert({c});
        }
        return {r.Bytes(set), language};
      }
    }
  }
  Both one = RandomExpr(
      random, r,
      depth - 1 - static_cast<int>(random() % 2) * (depth > 1 ? 1 : 0));
  switch (random() % 6) {
    case 0: {
      Language others;
      for (const std::string& text : AllTexts()) {
        if (one.language.count(text) == 0) others.insert(text);
      }
      return {r.Not(one.expr), std::move(others)};
    }
    case 1: {
      const int min = random() % 4;
      const int max = random() % 3 == 0 ? kUnbounded : min + random() % 3;
      Language language, power = {""};
      // More times than letters can matter only for the empty text.
      for (int times = 0; times <= (max < 0 ? min + 6 : max); ++times) {
        if (times >= min) language.insert(power.begin(), power.end());
        power = Joined(power, one.language);
      }
      return {r.Repeat(one.expr, min, max), std::move(language)};
    }
    default:
      break;
  }
  Both two = RandomExpr(random, r, depth - 1);
  switch (random() % 3) {
    case 0:
      return {r.Concat(one.expr, two.expr), Joined(one.language, two.language)};
    case 1: {
      Language either = one.language;
      either.insert(two.language.begin(), two.language.end());
      return {r.Or(one.expr, two.expr), std::move(either)};
    }
    default: {
      Language both;
      for (const std::string& text : one.language) {
        if (two.language.count(text) > 0) both.insert(text);
      }
      return {r.And(one.expr, two.expr), std::move(both)};
    }
  }
}

// Whether a text of the bytes of `alphabet` matches: every derivative is seen.
bool FindsText(Regexes& r, Expr expr, absl::string_view alphabet) {
  std::set<Expr> seen = {expr};
  std::vector<Expr> open = {expr};
  while (!open.empty()) {
    const Expr from = open.back();
    open.pop_back();
    if (r.nullable(from)) return true;
    for (const char c : alphabet) {
      const Expr to = r.Derivative(from, static_cast<uint8_t>(c));
      if (seen.insert(to).second) open.push_back(to);
    }
  }
  return false;
}

TEST(RegexTest, RandomExpressionsMatchWhatTheirDefinitionSays) {
  int empty = 0, some = 0;
  for (uint32_t seed = 0; seed < 700; ++seed) {
    std::mt19937 random(seed);
    Regexes r;
    const Both made = RandomExpr(random, r, 1 + seed % 4);
    for (const std::string& text : AllTexts()) {
      ASSERT_EQ(Matches(r, made.expr, text), made.language.count(text) > 0)
          << '"' << text << "\" seed " << seed;
    }
    // 'd' stands for all other bytes.
    const bool nothing = MatchesNothing(r, made.expr);
    ASSERT_EQ(nothing, !FindsText(r, made.expr, "abcd")) << "seed " << seed;
    ++(nothing ? empty : some);
  }
  EXPECT_GT(empty, 20);
  EXPECT_GT(some, 200);
}

TEST(RegexTest, BytesOfOneClassAreNeverToldApart) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    Regexes r;
    std::vector<Expr> made;
    for (int i = 0; i < 8; ++i) {
      const uint8_t first = random() % 256;
      const Expr set =
          r.Bytes(ByteSet::Range(first, first + random() % (256 - first)) |
                  ByteSet::Range(random() % 32, 40));
      const Expr other = RandomExpr(random, r, 2).expr;
      made.push_back(r.Concat(r.Star(set), r.And(other, r.Not(set))));
      made.push_back(r.Or({set, other, r.Concat(set, other)}));
    }
    if (seed % 2 == 0) made.push_back(r.MultipleOf(3, 1));
    const Regexes::ByteClasses classes = r.Classes();
    ASSERT_LE(classes.representative.size(), 256u);
    std::set<Expr> seen(made.begin(), made.end());
    for (int steps = 0; steps < 200; ++steps) {
      const Expr from = made[random() % made.size()];
      for (int byte = 0; byte < 256; ++byte) {
        const uint8_t number = classes.class_of[byte];
        ASSERT_LT(number, classes.representative.size());
        const uint8_t same = classes.representative[number];
        ASSERT_EQ(classes.class_of[same], number);
        const Expr to = r.Derivative(from, static_cast<uint8_t>(byte));
        ASSERT_EQ(to, r.Derivative(from, same))
            << "byte " << byte << " and " << int{same} << " seed " << seed;
        if (to != kNothing && seen.insert(to).second) made.push_back(to);
      }
    }
  }
}

TEST(RegexTest, WithoutSetsAllBytesAreOneClass) {
  Regexes r;
  EXPECT_EQ(r.Classes().representative.size(), 1u);
  r.Bytes(ByteSet::Range('a', 'c'));
  EXPECT_EQ(r.Classes().representative.size(), 2u);
  for (int byte = 0; byte < 256; ++byte) Byte(r, static_cast<char>(byte));
  EXPECT_EQ(r.Classes().representative.size(), 256u);
}

}  // namespace
}  // namespace foretoken::grammar
