#include "common/grammar/json_text.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/grammar/regex.h"
#include "common/grammar/regex_syntax.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/grammar/match.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

TEST(JsonStringContentTest, AllowsEveryEscapeThatJsonKnows) {
  Regexes regexes;
  const Expr any = JsonStringContent(0, Regexes::kUnbounded, regexes);
  for (const char* text :
       {"", "abc", "\u00E9\xF0\x9F\x98\x80\x7F", "\\\"\\\\\\/\\b\\f\\n\\r\\t",
        "\\u0041\\uFFFF\\ud7ff\\uE000", "\\uD83D\\uDE00", "\\udBff\\uDfFF"}) {
    EXPECT_TRUE(Matches(regexes, any, text)) << text;
  }
  for (const char* text : {"\"", "\\", "\\a", "\n", "\x1F", "\\u12", "\\u12g4",
                           "\\uD83D", "\\uDE00", "\\uD83D\\u0041", "\\uD83Dx",
                           "\\uDE00\\uD83D", "\xFF", "\xED\xA0\x80"}) {
    EXPECT_FALSE(Matches(regexes, any, text)) << text;
  }
}

TEST(JsonStringContentTest, CountsCodePoints) {
  Regexes regexes;
  const Expr two_or_three = JsonStringContent(2, 3, regexes);
  EXPECT_FALSE(Matches(regexes, two_or_three, "a"));
  EXPECT_TRUE(Matches(regexes, two_or_three, "\\n\xF0\x9F\x98\x80"));
  EXPECT_TRUE(Matches(regexes, two_or_three, "\\uD83D\\uDE00ab"));
  EXPECT_FALSE(Matches(regexes, two_or_three, "abcd"));
}

TEST(DecimalTextTest, IsPlainAndShort) {
  EXPECT_EQ(DecimalText(0.0), "0");
  EXPECT_EQ(DecimalText(-0.0), "0");
  EXPECT_EQ(DecimalText(0.1), "0.1");
  EXPECT_EQ(DecimalText(-12.5), "-12.5");
  EXPECT_EQ(DecimalText(2e16), "20000000000000000");
  EXPECT_EQ(DecimalText(1e-9), "0.000000001");
  EXPECT_EQ(DecimalText(100.0), "100");
  EXPECT_EQ(DecimalText(99999999999999.98), "99999999999999.98");
  EXPECT_EQ(DecimalText(1e63), absl::StrCat("1", std::string(63, '0')));
  EXPECT_EQ(DecimalText(1e64), std::nullopt);
  EXPECT_EQ(DecimalText(1e-70), std::nullopt);
  EXPECT_EQ(DecimalText(std::numeric_limits<double>::infinity()), std::nullopt);
  EXPECT_EQ(DecimalText(std::numeric_limits<int64_t>::min()),
            "-9223372036854775808");
}

TEST(JsonNumberTest, WithoutBoundsIsEveryJsonNumber) {
  Regexes regexes;
  const Expr number = JsonNumber({}, regexes);
  for (const char* text : {"0", "-0", "10", "-1.50", "1e5", "1.5E-07", "0.0"}) {
    EXPECT_TRUE(Matches(regexes, number, text)) << text;
  }
  for (const char* text :
       {"", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "--1"}) {
    EXPECT_FALSE(Matches(regexes, number, text)) << text;
  }
}

TEST(JsonIntegerTest, WithoutBoundsIsEveryInteger) {
  Regexes regexes;
  const Expr integer = JsonInteger({}, /*with_point=*/false, regexes);
  const Expr with_point = JsonInteger({}, /*with_point=*/true, regexes);
  EXPECT_TRUE(Matches(regexes, integer, "-120"));
  EXPECT_TRUE(Matches(regexes, integer, "-0"));
  EXPECT_FALSE(Matches(regexes, integer, "1.0"));
  EXPECT_TRUE(Matches(regexes, with_point, "1.00"));
  EXPECT_FALSE(Matches(regexes, with_point, "1.01"));
  EXPECT_FALSE(Matches(regexes, with_point, "1."));
}

TEST(JsonIntegerTest, HoldsTheBoundsOfMachineIntegers) {
  Regexes regexes;
  const Expr integer = JsonInteger({.min = NumberBound{"-9223372036854775808"},
                                    .max = NumberBound{"18446744073709551615"}},
                                   /*with_point=*/false, regexes);
  EXPECT_TRUE(Matches(regexes, integer, "-9223372036854775808"));
  EXPECT_FALSE(Matches(regexes, integer, "-9223372036854775809"));
  EXPECT_TRUE(Matches(regexes, integer, "18446744073709551615"));
  EXPECT_FALSE(Matches(regexes, integer, "18446744073709551616"));
  EXPECT_TRUE(Matches(regexes, integer, "0"));
  EXPECT_FALSE(Matches(regexes, integer, "-0"));
}

// Decimal numbers by their value in thousandths.
class Decimals {
 public:
  explicit Decimals(uint32_t seed) : random_(seed) {}

  int Draw(int below) { return static_cast<int>(random_() % below); }

  int64_t Thousandths() {
    static constexpr int kBelow[] = {10, 1000, 20'000, 200'000, 1'100'000};
    int64_t value = Draw(kBelow[Draw(5)]);
    if (Draw(2)) value = value / 1000 * 1000;
    if (Draw(2)) value = value / 10 * 10;
    return Draw(2) ? -value : value;
  }

  // Without zeros at the end, as bounds are written.
  static std::string Shortest(int64_t thousandths) {
    std::string text = absl::StrFormat("%s%d.%03d", thousandths < 0 ? "-" : "",
                                       std::abs(thousandths) / 1000,
                                       std::abs(thousandths) % 1000);
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
    return text;
  }
  std::string WithZeros(std::string text) {
    if (Draw(3) > 0) return text;
    if (text.find('.') == std::string::npos) text += '.';
    return text + std::string(1 + Draw(3), '0');
  }

 private:
  std::mt19937 random_;
};

TEST(JsonNumberTest, BoundsHoldForEveryDecimalText) {
  constexpr uint32_t kSeed = 11;
  Decimals decimals(kSeed);
  for (int round = 0; round < 600; ++round) {
    const int64_t min = decimals.Thousandths();
    int64_t max = decimals.Thousandths();
    if (decimals.Draw(3) == 0) max = min + decimals.Draw(3) * 500;
    const bool has_min = decimals.Draw(4) > 0;
    const bool has_max = !has_min || decimals.Draw(4) > 0;
    const bool min_exclusive = decimals.Draw(2) == 0;
    const bool max_exclusive = decimals.Draw(2) == 0;
    NumberRange range;
    if (has_min) range.min = {Decimals::Shortest(min), min_exclusive};
    if (has_max) range.max = {Decimals::Shortest(max), max_exclusive};
    Regexes regexes;
    const Expr number = JsonNumber(range, regexes);
    const Expr integer = JsonInteger(range, /*with_point=*/false, regexes);
    const Expr with_point = JsonInteger(range, /*with_point=*/true, regexes);
    const auto check = [&](int64_t value) {
      const bool inside =
          (!has_min || (min_exclusive ? value > min : value >= min)) &&
          (!has_max || (max_exclusive ? value < max : value <= max));
      const std::string text = decimals.WithZeros(Decimals::Shortest(value));
      const bool point = text.find('.') != std::string::npos;
      const bool whole = value % 1000 == 0;
      SCOPED_TRACE(absl::StrCat(text, " in ", has_min ? range.min->value : "-",
                                min_exclusive ? "(" : "[", " ",
                                has_max ? range.max->value : "-",
                                max_exclusive ? ")" : "]", ", seed ", kSeed));
      EXPECT_EQ(Matches(regexes, number, text), inside);
      EXPECT_EQ(Matches(regexes, integer, text), inside && whole && !point);
      EXPECT_EQ(Matches(regexes, with_point, text), inside && whole);
    };
    for (int i = 0; i < 40; ++i) check(decimals.Thousandths());
    for (const int64_t near : {min, max}) {
      for (const int64_t step : {0, 1, 10, 100, 1000, 10'000}) {
        check(near + step);
        check(near - step);
      }
    }
    EXPECT_FALSE(Matches(regexes, number, "-0"));
    EXPECT_FALSE(Matches(regexes, number, "-0.00"));
    EXPECT_FALSE(Matches(regexes, integer, "-0"));
    EXPECT_FALSE(Matches(regexes, number, "007"));
    EXPECT_FALSE(Matches(regexes, number, "1e0"));
    EXPECT_FALSE(Matches(regexes, number, "5."));
  }
}

TEST(JsonMultipleOfTest, MatchesMultiplesAlone) {
  constexpr uint32_t kSeed = 3;
  Decimals decimals(kSeed);
  const struct {
    const char* text;
    int64_t thousandths;
  } kDivisors[] = {{"1", 1000},       {"7", 7000},   {"0.01", 10},
                   {"2.5", 2500},     {"0.25", 250}, {"3.0", 3000},
                   {"13.50", 13'500}, {"0.001", 1},  {"1000", 1'000'000}};
  for (const auto& divisor : kDivisors) {
    Regexes regexes;
    const auto multiple = JsonMultipleOf(divisor.text, regexes);
    ASSERT_TRUE(multiple.has_value());
    for (int i = 0; i < 500; ++i) {
      const int64_t value =
          i % 2 ? decimals.Thousandths()
                : divisor.thousandths * (decimals.Draw(2000) - 1000);
      const std::string text = decimals.WithZeros(Decimals::Shortest(value));
      EXPECT_EQ(Matches(regexes, *multiple, text),
                value % divisor.thousandths == 0)
          << text << " by " << divisor.text << ", seed " << kSeed;
    }
    EXPECT_FALSE(Matches(regexes, *multiple, "1e3"));
    EXPECT_FALSE(Matches(regexes, *multiple, "0."));
    EXPECT_FALSE(Matches(regexes, *multiple, ""));
  }
}

TEST(JsonMultipleOfTest, RefusesDivisorsOfTooManyDigits) {
  Regexes regexes;
  EXPECT_NE(JsonMultipleOf("123456789012345", regexes), std::nullopt);
  EXPECT_EQ(JsonMultipleOf("1234567890123456", regexes), std::nullopt);
  EXPECT_NE(JsonMultipleOf("0.000000000000001", regexes), std::nullopt);
  EXPECT_EQ(JsonMultipleOf("0.0000000000000001", regexes), std::nullopt);
  EXPECT_EQ(JsonMultipleOf("0", regexes), std::nullopt);
}

TEST(JsonFormatTest, DatesAreThoseOfTheCalendar) {
  Regexes regexes;
  const auto date = JsonFormat("date", regexes);
  ASSERT_THAT(date, IsOk());
  std::vector<int> years = {1, 4, 100, 400, 1600, 1700, 9996, 9999};
  for (int year = 1900; year <= 2104; ++year) years.push_back(year);
  for (const int year : years) {
    for (unsigned month = 0; month <= 13; ++month) {
      for (unsigned day = 0; day <= 32; ++day) {
        const bool exists = std::chrono::year_month_day{
            std::chrono::year{year}, std::chrono::month{month},
            std::chrono::day{
                day}}.ok();
        const std::string text =
            absl::StrFormat("%04d-%02d-%02d", year, month, day);
        ASSERT_EQ(Matches(regexes, *date, text), exists) << text;
      }
    }
  }
  EXPECT_FALSE(Matches(regexes, *date, "0000-01-01"));
  EXPECT_FALSE(Matches(regexes, *date, "2020-1-1"));
}

TEST(JsonFormatTest, AllowsValidTextsAlone) {
  const std::string label(63, 'a');
  const struct {
    const char* format;
    std::vector<std::string> valid, invalid;
  } kCases[] = {
      {"time",
       {"12:00:00Z", "23:59:59.123-23:59", "00:00:00z"},
       {"12:00:00", "24:00:00Z", "12:60:00Z", "12:00:60Z", "12:00:00.Z",
        "12:00:00+24:00", "12:00:00+0100"}},
      {"date-time",
       {"2020-02-29T12:00:00Z", "2020-02-29t12:00:00.5+05:30"},
       {"2021-02-29T12:00:00Z", "2020-02-29 12:00:00Z", "2020-02-29"}},
      {"duration",
       {"P1Y", "P1M", "P1D", "PT1H", "PT1M", "PT1S", "P1W", "P1DT1M",
        "P12Y2M3DT4H5M6S"},
       {"", "P", "PT", "P1YT", "P1Y1D", "PT1H1S", "P1W1D", "P1D2H", "P2D1Y"}},
      {"email",
       {"joe.bloggs@example.com", "o'neil+x=1@a-b.co.uk", "a@b",
        std::string(64, 'a') + "@x.de"},
       {".a@b.c", "a.@b.c", "a..b@c.d", "a", "@b", "a@", "a b@c.d", "a@-b",
        "a@b.", "\u00E9@x.de", std::string(65, 'a') + "@x.de"}},
      {"idn-email", {"\u00E9@x.de"}, {"a b@x.de", "\u00E9"}},
      {"hostname",
       {"www.example.com", "1host", label,
        absl::StrCat(label, ".", label, ".", label, ".", label.substr(2))},
       {"", "-a", "a-", "a_b", "a.", "a..b", label + "a",
        absl::StrCat(label, ".", label, ".", label, ".", label.substr(1))}},
      {"ipv4",
       {"0.0.0.0", "192.168.1.254", "255.255.255.255"},
       {"256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5", "1.2.3.4 "}},
      {"ipv6",
       {"::", "::1", "1::", "1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "::ffff:1.2.3.4",
        "1:2:3:4:5:6:1.2.3.4", "fe80::1:2"},
       {"", ":", ":::", "1:2:3:4:5:6:7", "1::2:3:4:5:6:7:8", "1::2::3",
        "12345::", "::1.2.3", "1.2.3.4", "fe80::1%eth0", "::1:"}},
      {"uuid",
       {"2EB8AA08-aa98-11ea-B4AA-73B441D16380"},
       {"2eb8aa08aa9811eab4aa73b441d16380",
        "2eb8aa08-aa98-11ea-b4aa-73b441d1638"}},
      {"uri",
       {"http://foo.bar/?baz=qux#quux", "mailto:a@b.c", "urn:a:b",
        "a:", "http://-.~_!$&'()*+,;=:%40:80%2f::@example.com",
        "ldap://[2001:db8::7]/c=GB?a?b", "http://[v1.a:b]/", "file:///etc/x"},
       {"/abc", "//a/b", "abc", "http:// a", ":// a", "a,b:c", "http://[::1",
        "http://a/b#c#d", "http://a:8080a", "http://x/%zz", "http://a/<>",
        "http://b\u00FC.de"}},
      {"uri-reference",
       {"http://a/b", "//a?b", "/abc", "abc", "#x", "", "?q", "./1:b"},
       {"1:b", "a\\b", "#a\\b", "\u00DF"}},
      {"iri", {"http://\u00F8.com/?\u2202=\u03C0"}, {"/abc", "http://a b"}},
      {"iri-reference", {"/\u00F8"}, {"a b"}},
      {"uri-template",
       {"http://a/{term:1}/{+b.c*}", "{?x,y}", "plain"},
       {"http://a/{term", "{}", "a b"}},
      {"json-pointer",
       {"", "/", "/a~0/b~1", "/foo//bar", "/a b"},
       {"a", "#", "/~", "/~2"}},
      {"relative-json-pointer",
       {"0", "1/a", "0#", "120/foo"},
       {"", "/a", "-1/a", "01", "0##"}},
  };
  for (const auto& test : kCases) {
    Regexes regexes;
    const auto expr = JsonFormat(test.format, regexes);
    ASSERT_THAT(expr, IsOk()) << test.format;
    for (const std::string& text : test.valid) {
      EXPECT_TRUE(Matches(regexes, *expr, text)) << test.format << ": " << text;
    }
    for (const std::string& text : test.invalid) {
      EXPECT_FALSE(Matches(regexes, *expr, text))
          << test.format << ": " << text;
    }
  }
}

TEST(JsonFormatTest, FormatsAreJsonText) {
  Regexes regexes;
  const auto pointer = JsonFormat("json-pointer", regexes);
  ASSERT_THAT(pointer, IsOk());
  EXPECT_TRUE(Matches(regexes, *pointer, "/\\\"\\\\\\n"));
  EXPECT_FALSE(Matches(regexes, *pointer, "/\""));
}

TEST(JsonFormatTest, UnknownFormatsAreNotFound) {
  Regexes regexes;
  for (const char* format : {"int32", "regex", "idn-hostname", "byte", ""}) {
    EXPECT_THAT(JsonFormat(format, regexes),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(format)));
  }
}

}  // namespace
}  // namespace foretoken::grammar
