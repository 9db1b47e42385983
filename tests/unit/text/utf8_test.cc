#include "common/text/utf8.h"

#include "gmock/gmock.h"

namespace foretoken {
namespace {

TEST(Utf8Test, MalformedStepsAreMaximalSubparts) {
  // Unicode 15.0, table 3-8: 61 F1 80 80 E1 80 C2 62 80 63.
  const std::string text =
      "a\xF1\x80\x80\xE1\x80\xC2"
      "b\x80"
      "c";
  std::vector<int> lengths;
  for (absl::string_view rest = text; !rest.empty();) {
    const Utf8Step step = NextUtf8(rest);
    lengths.push_back(step.kind == Utf8Step::kCharacter ? step.length
                                                        : -step.length);
    rest.remove_prefix(step.length);
  }
  EXPECT_THAT(lengths, ::testing::ElementsAre(1, -3, -2, -1, 1, -1, 1));
}

TEST(Utf8Test, SurrogatesOverlongFormsAndHugeValuesAreMalformed) {
  for (const char* text : {"\xED\xA0\x80", "\xC0\x80", "\xE0\x80\x80",
                           "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xFF"}) {
    EXPECT_EQ(NextUtf8(text).kind, Utf8Step::kMalformed);
    EXPECT_EQ(NextUtf8(text).length, 1);
  }
}

TEST(Utf8Test, EveryCodePointComesBack) {
  for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, text);
    const Utf8Step step = NextUtf8(text);
    ASSERT_EQ(step.kind, Utf8Step::kCharacter);
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, text.size());
    ASSERT_TRUE(IsValidUtf8(text));
    if (text.size() > 1) {
      ASSERT_EQ(NextUtf8(text.substr(0, text.size() - 1)).kind,
                Utf8Step::kIncomplete);
    }
  }
}

TEST(Utf8Test, TheValidPrefixEndsBeforeTheFirstBrokenByte) {
  EXPECT_EQ(ValidUtf8Prefix("sixteen letters \xC3"), 16u);
  EXPECT_EQ(ValidUtf8Prefix("\xC3\xA9t\xC3\xA9 \x80 more text here"), 6u);
}

TEST(ValidUtf8PrefixTest, KnowsTheBordersOfTheEncoding) {
  for (const char* good : {"", "plain ascii text", "\xc2\x80", "\xdf\xbf",
                           "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsValidUtf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80", "\xc2", "\xe2\x82", "\xc2y"}) {
    EXPECT_EQ(ValidUtf8Prefix(std::string("12345678") + bad), 8u);
  }
}

}  // namespace
}  // namespace foretoken
