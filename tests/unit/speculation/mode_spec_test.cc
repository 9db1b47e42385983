#include "common/speculation/mode_spec.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(ModeSpecTest, ANameAloneHasNoParameters) {
  const auto spec = ModeSpec::Parse("ngram_trie");
  FORETOKEN_ASSERT_OK(spec);
  EXPECT_EQ(spec->name(), "ngram_trie");
  EXPECT_THAT(spec->parameters(), IsEmpty());
}

TEST(ModeSpecTest, ParametersKeepTheirOrderAndPrintBack) {
  const std::string text = "prompt_lookup:tokens=10,max_n=3,match=latest";
  const auto spec = ModeSpec::Parse(text);
  FORETOKEN_ASSERT_OK(spec);
  EXPECT_THAT(spec->parameters(),
              ElementsAre(Pair("tokens", "10"), Pair("max_n", "3"),
                          Pair("match", "latest")));
  EXPECT_EQ(spec->ToString(), text);
}

TEST(ModeSpecTest, BadTextIsRefusedByItsPart) {
  const auto refused = [](const std::string& text, const std::string& why) {
    EXPECT_THAT(ModeSpec::Parse(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)))
        << text;
  };
  refused("", "mode ''");
  refused("Off", "mode 'Off'");
  refused(":a=1", "mode ''");
  refused("off:", "parameter '', want key=value");
  refused("off:a", "parameter 'a', want key=value");
  refused("off:a=", "parameter 'a' is ''");
  refused("off:A=1", "parameter 'A'");
  refused("off:a=1,a=2", "parameter 'a' is given twice");
  refused("off:a=1,", "parameter ''");
  refused(std::string(ModeSpec::kMaxLength + 1, 'a'), "1025 bytes");
  refused(std::string(100, 'a'), "...'");
  std::string many = "off:p0=1";
  for (size_t i = 1; i <= ModeSpec::kMaxParameters; ++i) {
    many += ",p" + std::to_string(i) + "=1";
  }
  refused(many, "33 parameters");
}

TEST(ModeReaderTest, ReadsTypedValuesAndDefaults) {
  const auto spec = ModeSpec::Parse("m:i=7,d=0.5,b=true,s=x/y,c=second");
  FORETOKEN_ASSERT_OK(spec);
  ModeReader read(*spec);
  EXPECT_EQ(read.Int("i", 1, 0, 10), 7);
  EXPECT_EQ(read.Double("d", 1, 0, 1), 0.5);
  EXPECT_TRUE(read.Bool("b", false));
  EXPECT_EQ(read.Text("s"), "x/y");
  EXPECT_EQ(read.Choice("c", {"first", "second"}), 1);
  EXPECT_EQ(read.Int("absent", 3, 0, 10), 3);
  EXPECT_EQ(read.IntOrAuto("i", 1, 10), 7);
  EXPECT_EQ(read.IntOrAuto("absent_or_auto", 1, 10), std::nullopt);
  EXPECT_EQ(read.Choice("absent_choice", {"first", "second"}), 0);
  FORETOKEN_EXPECT_OK(read.Finish());
}

TEST(ModeReaderTest, BadValuesAreReportedWithTheirRange) {
  const auto refused = [](const std::string& text, const std::string& why) {
    const auto spec = ModeSpec::Parse(text);
    FORETOKEN_ASSERT_OK(spec);
    ModeReader read(*spec);
    EXPECT_EQ(read.Int("i", 1, 1, 10), 1);
    EXPECT_EQ(read.Double("d", 0.25, 0, 1), 0.25);
    EXPECT_EQ(read.IntOrAuto("n", 1, 10), std::nullopt);
    EXPECT_EQ(read.Bool("b", true), true);
    EXPECT_EQ(read.Choice("c", {"first", "second"}), 0);
    EXPECT_THAT(read.Finish(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)))
        << text;
  };
  refused("m:i=0", "mode 'm': parameter 'i' is '0', want a whole number 1..10");
  refused("m:i=11", "'11'");
  refused("m:i=2.5", "'2.5'");
  refused("m:n=0", "'n' is '0', want auto or a whole number 1..10");
  refused("m:i=99999999999999999999", "whole number");
  refused("m:d=nan", "want a number 0..1");
  refused("m:d=inf", "want a number 0..1");
  refused("m:d=-0.1", "want a number 0..1");
  refused("m:b=yes", "want 0, 1, false or true");
  refused("m:c=third", "want first or second");
  refused("m:other=1", "has no parameter 'other', want one of i d n b c");
}

TEST(ModeReaderTest, AModeWithoutParametersRefusesAny) {
  const auto spec = ModeSpec::Parse("off:gamma=5");
  FORETOKEN_ASSERT_OK(spec);
  EXPECT_THAT(ModeReader(*spec).Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no parameter 'gamma': it takes none")));
}

}  // namespace
}  // namespace foretoken
