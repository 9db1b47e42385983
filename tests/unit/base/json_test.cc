#include "common/base/json.h"

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ParseJsonTest, GivesTheOffsetOfAnError) {
  EXPECT_THAT(
      ParseJson("{\"a\": }"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("column")));
}

TEST(ParseJsonTest, DoesNotRepeatALongBrokenText) {
  const absl::Status status =
      ParseJson("\"" + std::string(1'000'000, 'a')).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("column")));
  EXPECT_LT(status.message().size(), 300u);
}

TEST(ParseJsonTest, RefusesDeepNestingWithoutFillingTheStack) {
  const std::string deep(1'000'000, '[');
  EXPECT_FALSE(ParseJson(deep).ok());
  EXPECT_THAT(
      ParseJson(std::string(70, '[') + std::string(70, ']')),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deeper")));
  FORETOKEN_EXPECT_OK(ParseJson(std::string(60, '[') + std::string(60, ']')));
}

std::string Repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(ParseJsonTest, AMillionObjectsTakeTheTimeOfAMillionObjects) {
  // A parser that looks at all earlier members whenever an object ends makes
  // half a trillion steps of each of these and runs into the test's timeout.
  JsonLimits limits;
  limits.max_values = 3'000'000;
  const auto list =
      ParseJson(absl::StrCat("[", Repeated("{},", 999'999), "{}]"), limits);
  FORETOKEN_ASSERT_OK(list);
  EXPECT_EQ(list->size(), 1'000'000u);
  std::string object = "{";
  for (int i = 0; i < 1'000'000; ++i) {
    absl::StrAppend(&object, i == 0 ? "" : ",", "\"", i, "\":{}");
  }
  const auto members = ParseJson(object + "}", limits);
  FORETOKEN_ASSERT_OK(members);
  EXPECT_EQ(members->size(), 1'000'000u);
}

TEST(ParseJsonTest, RefusesMoreValuesThanTheLimit) {
  JsonLimits limits;
  limits.max_values = 5;
  for (const char* fits :
       {R"([1,2,3,4,5,6,7,8])", R"([{},[],"",null])",
        R"({"a":1,"b":2,"c":3,"d":true})", R"([[[[[]]]]])"}) {
    FORETOKEN_EXPECT_OK(ParseJson(fits, limits)) << fits;
  }
  for (const char* over : {R"([{},[],"",null,false])", R"([[[[[[]]]]]])",
                           R"({"a":1,"b":2,"c":3,"d":4,"e":5})",
                           R"({"a":1,"a":1,"a":1,"a":1,"a":1})"}) {
    EXPECT_THAT(ParseJson(over, limits),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "JSON of more than 5 values"))
        << over;
  }
  EXPECT_THAT(
      ParseJson(absl::StrCat("[", Repeated("{},", 150'000), "{}]"),
                kRequestJsonLimits),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("100000 values")));
}

TEST(ParseJsonTest, TheLastOfEqualKeysCountsUnlessTheyAreRefused) {
  constexpr char kText[] = R"({"a":{"x":1},"b":2,"a":{"y":[3]},"":4})";
  const auto last = ParseJson(kText);
  FORETOKEN_ASSERT_OK(last);
  EXPECT_EQ(*last, Json({{"a", {{"y", {3}}}}, {"b", 2}, {"", 4}}));
  EXPECT_THAT(ParseJson(kText, {.unique_keys = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, "names a twice"));
  // The same key in two objects is two keys.
  FORETOKEN_EXPECT_OK(
      ParseJson(R"({"a":{"a":1},"b":[{"a":1}]})", {.unique_keys = true}));
}

// Random JSON, with everything that its grammar has.
class RandomJson {
 public:
  explicit RandomJson(uint32_t seed) : random_(seed) {}

  std::string Value(int depth) {
    Space();
    switch (Below(depth > 0 ? 9 : 7)) {
      case 0:
        return Any({"null", "true", "false"});
      case 1:
        return absl::StrCat(Below(1'000'000));
      case 2:
        return Any({"-0", "0", "-17", "18446744073709551615",
                    "9223372036854775808", "-9223372036854775809", "1e400"});
      case 3:
        return Any({"0.1", "1e5", "-2.5E-3", "1.0", "123456789.123456789",
                    "5e-324", "1E+2"});
      case 4:
      case 5:
      case 6:
        return String();
      case 7:
        return Container("[", "]", [&] { return Value(depth - 1); });
      default:
        return Container("{", "}", [&] {
          return absl::StrCat(String(), Space(), ":", Value(depth - 1));
        });
    }
  }
  // With some bytes changed, left out or added.
  std::string Damage(std::string text) {
    for (int i = Below(3); i >= 0 && !text.empty(); --i) {
      const size_t at = Below(static_cast<int>(text.size()));
      constexpr char kBytes[] = "{}[]\",:\\0e-.tn \xff\xc3\x01";
      const char byte = kBytes[Below(sizeof(kBytes))];
      switch (Below(4)) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.erase(at, 1);
          break;
        case 2:
          text.insert(at, 1, byte);
          break;
        default:
          text.resize(at);
      }
    }
    return text;
  }
  int Below(int limit) {
    return static_cast<int>(random_() % static_cast<uint32_t>(limit));
  }

 private:
  std::string Any(std::initializer_list<const char*> texts) {
    return texts.begin()[Below(static_cast<int>(texts.size()))];
  }
  std::string Space() { return Any({"", "", "", " ", "\n", "\t\r "}); }
  std::string String() {
    std::string out = "\"";
    for (int i = Below(4); i > 0; --i) {
      out += Any({"a", "b", "\xc3\xa9", "\xf0\x9f\x98\x80", "\\n", "\\\"",
                  "\\u0041", "\\ud83d\\ude00", "\\u0000", "\\ud83d", "/"});
    }
    return out + "\"";
  }
  template <typename Item>
  std::string Container(const char* open, const char* close, const Item& item) {
    std::string out = open;
    for (int i = Below(4), n = 0; n < i; ++n) {
      absl::StrAppend(&out, n == 0 ? "" : ",", item(), Space());
    }
    return out + close;
  }

  std::mt19937 random_;
};

TEST(ParseJsonTest, TakesAndRefusesWhatTheLibrarysOwnParserDoes) {
  constexpr uint32_t kSeed = 20261126;
  RandomJson random(kSeed);
  int taken = 0;
  int refused = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string text = random.Value(4);
    if (i % 2 == 1) text = random.Damage(std::move(text));
    const Json want = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto got = ParseJson(text);
    ASSERT_EQ(got.ok(), !want.is_discarded())
        << "seed " << kSeed << ", text " << i << ": " << text;
    if (!got.ok()) {
      ++refused;
      continue;
    }
    ++taken;
    ASSERT_EQ(*got, want) << "seed " << kSeed << ", text " << i << ": " << text;
    // Equal values may be of different types: 1 and 1.0.
    ASSERT_EQ(got->dump(), want.dump()) << text;
  }
  // Neither side is a rarity.
  EXPECT_GT(taken, 20'000);
  EXPECT_GT(refused, 20'000);
}

TEST(DumpJsonTest, ReplacesInvalidUtf8) {
  EXPECT_EQ(DumpJson(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace foretoken
