#include "common/speculation/modes.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ModesTest, OptionsHaveTheirDefaultsAndWhatWasGiven) {
  const auto mode = Mode::Parse("ouroboros:gamma=9,warm_start=0");
  FORETOKEN_ASSERT_OK(mode);
  const auto* options = mode->As<OuroborosOptions>();
  ASSERT_NE(options, nullptr);
  EXPECT_EQ(options->gamma, 9);
  EXPECT_EQ(options->beta, 8);
  EXPECT_EQ(options->LookaheadColumns(), options->window);
  EXPECT_FALSE(options->warm_start);
  EXPECT_TRUE(options->refinement);
  EXPECT_EQ(mode->As<AutoOptions>(), nullptr);
  EXPECT_EQ(mode->ToString(), "ouroboros:gamma=9,warm_start=0");
  EXPECT_EQ(mode->info().drafter, DrafterId::kOuroboros);
}

TEST(ModesTest, ADraftModelWithoutGammaChoosesItsTree) {
  for (const char* text : {"draft_model", "draft_model:gamma=auto"}) {
    const auto mode = Mode::Parse(text);
    FORETOKEN_ASSERT_OK(mode);
    EXPECT_EQ(mode->As<DraftModelOptions>()->gamma, std::nullopt);
    EXPECT_EQ(mode->ToString(), "draft_model");
  }
  EXPECT_EQ(Mode::Parse("draft_model:gamma=5")->As<DraftModelOptions>()->gamma,
            5);
  EXPECT_THAT(Mode::Parse("draft_model:gamma=0"),
              StatusIs(kInvalid, HasSubstr("want auto or a whole number 1..")));
  EXPECT_THAT(Mode::Parse("ngram_trie:n=auto"),
              StatusIs(kInvalid, HasSubstr("'n' is 'auto'")));
}

TEST(ModesTest, OuroborosIsSettledByPricesWhereNothingIsSaid) {
  EXPECT_TRUE(Mode::Parse("ouroboros")->As<OuroborosOptions>()->by_price);
  for (const char* text :
       {"ouroboros:suffixes=3", "ouroboros:preset=paper",
        "ouroboros:gamma=12,window=20,beta=8,suffixes=3,lookahead=20"}) {
    const auto mode = Mode::Parse(text);
    FORETOKEN_ASSERT_OK(mode);
    const auto* options = mode->As<OuroborosOptions>();
    EXPECT_FALSE(options->by_price) << text;
    EXPECT_EQ(options->gamma, OuroborosOptions().gamma) << text;
    EXPECT_EQ(options->window, OuroborosOptions().window) << text;
    EXPECT_EQ(options->beta, OuroborosOptions().beta) << text;
    EXPECT_EQ(options->suffixes, OuroborosOptions().suffixes) << text;
    EXPECT_EQ(options->LookaheadColumns(), options->window) << text;
    EXPECT_TRUE(options->inspiration && options->refinement) << text;
  }
}

TEST(ModesTest, BadParametersAreRefusedByName) {
  EXPECT_THAT(Mode::Parse("ngram_trie:n=99"),
              StatusIs(kInvalid, HasSubstr("'n'")));
  EXPECT_THAT(Mode::Parse("auto:nonsense=1"),
              StatusIs(kInvalid, HasSubstr("nonsense")));
  EXPECT_THAT(Mode::Parse("no_such_mode"),
              StatusIs(kInvalid, HasSubstr("no_such_mode")));
}

TEST(ModesTest, AModeWithoutATextIsOff) {
  EXPECT_EQ(Mode().name(), "off");
  EXPECT_NE(Mode().As<OffOptions>(), nullptr);
}

TEST(ModesTest, ReplayHasItsOwnModesAndKeys) {
  FORETOKEN_EXPECT_OK(Mode::Parse("phrase_pool:k=2", ModeUse::kReplay));
  EXPECT_THAT(Mode::Parse("phrase_pool"),
              StatusIs(kInvalid, HasSubstr("unknown mode 'phrase_pool'")));
  EXPECT_THAT(Mode::Parse("lookahead", ModeUse::kReplay),
              StatusIs(kInvalid, HasSubstr("unknown mode 'lookahead'")));
  FORETOKEN_EXPECT_OK(Mode::Parse("ngram_trie:lp=2", ModeUse::kReplay));
  EXPECT_THAT(Mode::Parse("ngram_trie:lp=2"),
              StatusIs(kInvalid, HasSubstr("no parameter 'lp'")));
  EXPECT_THAT(Mode::Parse("auto:price=0.1"),
              StatusIs(kInvalid, HasSubstr("no parameter 'price'")));
}

TEST(ModesTest, ADefaultFollowsTheParameterThatBoundsIt) {
  EXPECT_EQ(
      Mode::Parse("ngram_trie:n=2")->As<NgramTrieOptions>()->longest_match, 1);
  EXPECT_THAT(Mode::Parse("ngram_trie:n=4,match_length=4"),
              StatusIs(kInvalid, HasSubstr("want a whole number 1..3")));
}

TEST(ModesTest, EveryModeFitsTheDefaultLimits) {
  for (const ModeInfo& info : ModeTable()) {
    const auto mode = Mode::Parse(
        info.name, info.in_requests ? ModeUse::kRequest : ModeUse::kReplay);
    FORETOKEN_ASSERT_OK(mode);
    FORETOKEN_EXPECT_OK(mode->CheckFits(TreeLimits()));
  }
}

TEST(ModesTest, WhatDoesNotFitIsRefusedByParameter) {
  const auto refused = [](const std::string& text, const std::string& why) {
    EXPECT_THAT(Mode::Parse(text)->CheckFits(TreeLimits()),
                StatusIs(kInvalid, HasSubstr(why)));
  };
  refused("draft_model:gamma=65",
          "mode 'draft_model': parameter 'gamma' is 65, want at most 64");
  refused("ouroboros:suffixes=65", "'suffixes' is 65");
  refused("ouroboros:passes=65", "'passes' is 65");
  refused("ouroboros:window=40",
          "window=40, lookahead=40, beta=8 and gamma=12 need 570 rows");
  refused("lookahead:window=200",
          "window=200 and ngram=5 need 799 probe rows, there is room for 256");
}

TEST(ModesTest, DraftingServicesAreNamedOnce) {
  EXPECT_THAT(DraftingServices(),
              ::testing::ElementsAre("draft_worker", "trie_drafter", "crest"));
}

TEST(ModesTest, HelpListsTheModesWithTheirDefaults) {
  const std::string help = ModeHelp(ModeUse::kRequest);
  EXPECT_THAT(help,
              HasSubstr("off | draft_model:gamma=auto | lookahead:window=15,"
                        "ngram=5,pool=15 | ouroboros[:gamma=12,"));
  EXPECT_THAT(help, HasSubstr("ngram_trie:n=13,match_length=3,num_draft=32,"
                              "learn=1 | crest:datastore= | "
                              "prompt_lookup:max_n=3,tokens=10,"
                              "match=first/latest | auto"));
  EXPECT_THAT(ModeHelp(ModeUse::kReplay),
              HasSubstr("ngram_trie:n=13,lp=3,num_draft=32,learn=0"));
}

TEST(ModesTest, AModeWithoutItsSourceNamesTheFlagThatGivesIt) {
  const auto check = [](const char* mode, bool has_model, bool has_datastore) {
    return CheckModeHasSource(*Mode::Parse(mode), has_model, has_datastore);
  };
  for (const char* mode : {"draft_model", "ouroboros"}) {
    EXPECT_THAT(check(mode, false, true),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         absl::StrCat("mode '", mode,
                                      "' needs a draft model: give "
                                      "--draft-model")));
    FORETOKEN_EXPECT_OK(check(mode, true, false));
  }
  EXPECT_THAT(check("crest", true, false),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "mode 'crest' needs a datastore: give --crest"));
  FORETOKEN_EXPECT_OK(check("crest", false, true));
  for (const char* mode : {"off", "auto", "lookahead", "ngram_trie"}) {
    FORETOKEN_EXPECT_OK(check(mode, false, false));
  }
}

}  // namespace
}  // namespace foretoken
