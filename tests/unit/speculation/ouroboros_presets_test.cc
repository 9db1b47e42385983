#include "common/speculation/ouroboros_presets.h"

#include <set>
#include <string>

#include "common/speculation/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(OuroborosPresetsTest, EachIsAModeThatFitsTheDefaultLimits) {
  std::set<absl::string_view> names;
  for (const OuroborosPreset& preset : OuroborosPresets()) {
    SCOPED_TRACE(preset.name);
    EXPECT_TRUE(names.insert(preset.name).second);
    const auto mode =
        Mode::Parse("ouroboros:preset=" + std::string(preset.name));
    FORETOKEN_ASSERT_OK(mode);
    FORETOKEN_EXPECT_OK(mode->CheckFits(TreeLimits()));
    const auto* options = mode->As<OuroborosOptions>();
    ASSERT_NE(options, nullptr);
    EXPECT_EQ(options->gamma, preset.gamma);
    EXPECT_EQ(options->window, preset.window);
    EXPECT_EQ(options->beta, preset.beta);
    EXPECT_EQ(options->suffixes, preset.suffixes);
    EXPECT_TRUE(options->warm_start);
  }
  EXPECT_EQ(names.count("gsm8k_yi"), 1u);
}

// What a request carries has no preset in it.
TEST(OuroborosPresetsTest, AModeHasTheParametersInThePresetsPlace) {
  const auto mode = Mode::Parse("ouroboros:preset=gsm8k_llama2");
  FORETOKEN_ASSERT_OK(mode);
  EXPECT_EQ(mode->ToString(), "ouroboros:gamma=6,window=17,beta=6,suffixes=3");
}

TEST(OuroborosPresetsTest, GivenParametersComeBeforeThePresets) {
  const auto mode =
      Mode::Parse("ouroboros:suffixes=1,preset=cnndm_yi,passes=2,gamma=7");
  FORETOKEN_ASSERT_OK(mode);
  EXPECT_EQ(mode->ToString(),
            "ouroboros:suffixes=1,passes=2,gamma=7,window=15,beta=5");
}

TEST(OuroborosPresetsTest, AnUnknownOneIsRefusedWithTheList) {
  EXPECT_THAT(
      Mode::Parse("ouroboros:preset=gsm9k"),
      StatusIs(kInvalid, HasSubstr("unknown preset 'gsm9k', want one of "
                                   "paper humaneval_yi")));
  EXPECT_THAT(Mode::Parse("draft_model:preset=gsm8k_yi"),
              StatusIs(kInvalid, HasSubstr("preset")));
}

TEST(OuroborosPresetsTest, HelpListsThem) {
  EXPECT_THAT(ModeHelp(ModeUse::kRequest),
              HasSubstr(",context=0,preset=paper/humaneval_yi/"));
}

}  // namespace
}  // namespace foretoken
