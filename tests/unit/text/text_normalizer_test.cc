#include "common/text/text_normalizer.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "common/base/json.h"
#include "common/text/utf8.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

Json Replace(const std::string& from, const std::string& to) {
  return {
      {"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

Json Form(const std::string& name) { return {{"type", name}}; }

absl::StatusOr<TextNormalizer> Make(const Json& steps) {
  return TextNormalizer::Create({{"type", "Sequence"}, {"normalizers", steps}});
}

TEST(TextNormalizerTest, StepsThatDoubleATextAgainAndAgainAreRefused) {
  Json steps = Json::array();
  for (int i = 0; i < 40; ++i) steps.push_back(Replace("a", "aa"));
  EXPECT_THAT(Make(steps),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("times as long, want at most 33")));
  // Forms grow a text too: what one makes of U+FDFA may become U+FDFA again.
  const std::string longest = "\xEF\xB7\xBA";
  EXPECT_THAT(
      Make(Json::array({Form("NFKC"), Replace(" ", longest), Form("NFKC")})),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("363 times as long")));
}

TEST(TextNormalizerTest, TheStepsOfRealFilesAreTaken) {
  const std::string space = "\xE2\x96\x81";
  const Json prepend = {{"type", "Prepend"}, {"prepend", space}};
  for (const Json& steps :
       {Json::array({prepend, Replace(" ", space)}), Json::array({Form("NFC")}),
        Json::array(), Json::array({Form("NFKC"), Replace(" ", space)}),
        Json::array({Form("NFC"), Replace(" ", space)})}) {
    FORETOKEN_EXPECT_OK(Make(steps)) << steps;
  }
  // Shorter texts pay for nothing.
  Json shrinking = Json::array();
  for (int i = 0; i < 60; ++i) shrinking.push_back(Replace("aa", "a"));
  const auto normalizer = Make(shrinking);
  FORETOKEN_ASSERT_OK(normalizer);
  EXPECT_EQ(normalizer->Normalize("aaaaaab"), "ab");
}

TEST(TextNormalizerTest, NoCharacterGrowsBeyondTheCountedFactor) {
  for (const auto& [form, growth] :
       {std::pair("NFC", 3), std::pair("NFD", 3), std::pair("NFKC", 11),
        std::pair("NFKD", 11)}) {
    const auto normalizer = TextNormalizer::Create(Form(form));
    FORETOKEN_ASSERT_OK(normalizer);
    size_t most = 0;
    for (uint32_t c = 0x80; c < 0x110000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;  // surrogates
      std::string text;
      AppendUtf8(c, text);
      const size_t size = normalizer->Normalize(text).size();
      ASSERT_LE(size, growth * text.size()) << form << " of " << c;
      most = std::max(most, size / text.size());
    }
    EXPECT_EQ(most, static_cast<size_t>(growth)) << form;
  }
}

}  // namespace
}  // namespace foretoken
