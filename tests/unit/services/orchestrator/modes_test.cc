#include "services/orchestrator/core/modes.h"

#include <string>

#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"

namespace foretoken::orchestrator {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

absl::StatusOr<std::vector<NamedDrafter>> Make(const std::string& mode) {
  return MakeDrafters(ModeSpec::Parse(mode).value());
}

TEST(ModesTest, OffHasNoDraftersAndPromptLookupOne) {
  EXPECT_THAT(*Make("off"), IsEmpty());
  const auto drafters = Make("prompt_lookup:max_n=4,tokens=7,match=latest");
  FORETOKEN_ASSERT_OK(drafters);
  ASSERT_THAT(*drafters, SizeIs(1));
  EXPECT_EQ((*drafters)[0].name, "prompt_lookup");
}

TEST(ModesTest, UnknownModesAndParametersAreInvalid) {
  EXPECT_THAT(Make("magic"), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("unknown mode 'magic'")));
  EXPECT_THAT(Make("off:gamma=5"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gamma")));
  EXPECT_THAT(Make("prompt_lookup:max_n=0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_n")));
}

TEST(ModesTest, ModesOfTheTableThatAreNotServedSayTheirName) {
  for (const char* mode : {"draft_model", "lookahead", "ouroboros",
                           "ngram_trie", "crest", "auto"}) {
    EXPECT_THAT(Make(mode),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(mode)));
  }
}

}  // namespace
}  // namespace foretoken::orchestrator
