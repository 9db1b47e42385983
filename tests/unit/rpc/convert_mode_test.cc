#include <google/protobuf/descriptor.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/rpc/convert.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

namespace pb = ::google::protobuf;

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// DRAFTER_PROMPT_LOOKUP -> prompt_lookup
std::string LowerName(const pb::EnumValueDescriptor& value) {
  const std::string prefix = absl::AsciiStrToUpper(value.type()->name()) + "_";
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix));
}

std::string TypeName(const ModeParameter& parameter) {
  switch (parameter.type) {
    case ModeParameter::Type::kInt:
      return "int32";
    case ModeParameter::Type::kDouble:
      return "double";
    case ModeParameter::Type::kBool:
      return "bool";
    case ModeParameter::Type::kText:
      return "string";
    case ModeParameter::Type::kChoice:
      return "enum";
  }
  return "";
}

TEST(ConvertModeTest, ModesTravelWithTheirParameters) {
  for (const char* text :
       {"off", "prompt_lookup", "prompt_lookup:match=latest,max_n=2,tokens=7",
        "draft_model", "draft_model:gamma=auto", "draft_model:gamma=7",
        "ouroboros", "ouroboros:preset=paper"}) {
    const auto mode = Mode::Parse(text);
    FORETOKEN_ASSERT_OK(mode);
    v1::SpeculationConfig proto;
    FORETOKEN_ASSERT_OK(ToProto(*mode, &proto));
    const auto got = FromProto(proto);
    FORETOKEN_ASSERT_OK(got);
    ASSERT_TRUE(got->has_value());
    EXPECT_EQ((*got)->name(), mode->name());
    EXPECT_THAT(
        (*got)->spec().parameters(),
        ::testing::UnorderedElementsAreArray(mode->spec().parameters()));
  }
  EXPECT_EQ(FromProto(v1::SpeculationConfig())->has_value(), false);
  v1::SpeculationConfig proto;
  EXPECT_THAT(ToProto(*Mode::Parse("phrase_pool", ModeUse::kReplay), &proto),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("'phrase_pool': no request can name it")));
  proto.mutable_prompt_lookup()->set_max_n(17);
  EXPECT_THAT(FromProto(proto),
              StatusIs(kInvalid, HasSubstr("'max_n' is '17', want")));
}

// Every mode of requests has its field in the oneof and every parameter its
// field in the mode's message, of the same type, and the other way round.
TEST(ConvertModeTest, TheMessagesHaveTheModesOfTheTable) {
  std::vector<std::string> table, messages;
  for (const ModeInfo& mode : ModeTable()) {
    if (!mode.in_requests) continue;
    table.push_back(absl::StrCat(mode.name));
    for (const ModeParameter& parameter :
         ParametersOf(mode, ModeUse::kRequest)) {
      table.push_back(absl::StrCat(mode.name, ".", parameter.key, " ",
                                   TypeName(parameter), " ",
                                   absl::StrJoin(parameter.choices, " ")));
    }
  }
  const pb::OneofDescriptor& oneof =
      *v1::SpeculationConfig::descriptor()->FindOneofByName("mode");
  for (int i = 0; i < oneof.field_count(); ++i) {
    const pb::FieldDescriptor& mode = *oneof.field(i);
    messages.push_back(mode.name());
    for (int j = 0; j < mode.message_type()->field_count(); ++j) {
      const pb::FieldDescriptor& field = *mode.message_type()->field(j);
      EXPECT_TRUE(field.has_optional_keyword()) << field.full_name();
      std::vector<std::string> choices;
      for (int k = 1;
           field.enum_type() != nullptr && k < field.enum_type()->value_count();
           ++k) {
        choices.push_back(LowerName(*field.enum_type()->value(k)));
      }
      messages.push_back(absl::StrCat(mode.name(), ".", field.name(), " ",
                                      field.type_name(), " ",
                                      absl::StrJoin(choices, " ")));
    }
  }
  EXPECT_THAT(messages, ::testing::UnorderedElementsAreArray(table));
}

TEST(ConvertModeTest, EveryDrafterHasItsNumberAndName) {
  const pb::EnumDescriptor& drafters = *v1::Drafter_descriptor();
  ASSERT_EQ(drafters.value_count(), kDrafterNames.size() + 1);
  for (size_t i = 0; i < kDrafterNames.size(); ++i) {
    const auto id = static_cast<DrafterId>(i);
    const pb::EnumValueDescriptor* value =
        drafters.FindValueByNumber(ToProto(id));
    ASSERT_NE(value, nullptr);
    EXPECT_EQ(LowerName(*value), DrafterName(id));
    EXPECT_EQ(FromProto(ToProto(id)), id);
  }
  EXPECT_EQ(ToProto(DrafterId::kTarget), v1::DRAFTER_UNSPECIFIED);
  EXPECT_EQ(FromProto(static_cast<v1::Drafter>(31)), DrafterId::kTarget);
}

TEST(ConvertModeTest, UnknownChoicesAreRefused) {
  v1::SpeculationConfig config;
  for (const int number : {0, 7, -1, 1 << 30}) {
    config.mutable_prompt_lookup()->set_match(
        static_cast<v1::PromptLookupMode::Match>(number));
    EXPECT_THAT(FromProto(config), StatusIs(kInvalid, HasSubstr("match")))
        << number;
  }
}

}  // namespace
}  // namespace foretoken::rpc
