#include "common/grammar/character_groups.h"

#include <set>
#include <string>
#include <vector>

#include "absl/numeric/bits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken::grammar {
namespace {

using ::testing::ElementsAre;

TEST(CharacterGroupsTest, EveryAsciiCharacterIsInOneGroup) {
  std::multiset<int> characters;
  for (int group = 0; group < kCharacterGroupCount; ++group) {
    const auto of_group = AsciiOfGroup(group);
    EXPECT_EQ(of_group.empty(), group < kUtf8FormCount) << group;
    characters.insert(of_group.begin(), of_group.end());
    for (const uint8_t character : of_group) {
      const std::string text(1, static_cast<char>(character));
      EXPECT_THAT(GroupsToTheEnd(text), ElementsAre(uint64_t{1} << group, 0u));
    }
  }
  EXPECT_EQ(characters.size(), 128u);
  EXPECT_EQ(std::set<int>(characters.begin(), characters.end()).size(), 128u);
}

TEST(CharacterGroupsTest, CharactersOfSeveralBytesAreInTheGroupOfTheirForm) {
  const std::vector<std::string> of_form = {
      "\xC3\xA9",         "\xE0\xA0\x80",    "\xE4\xB8\xAD",
      "\xED\x9F\xBF",     "\xEF\xBF\xBD",    "\xF0\x9F\x98\x80",
      "\xF1\x80\x80\x80", "\xF4\x8F\xBF\xBF"};
  for (size_t form = 0; form < of_form.size(); ++form) {
    const std::string& text = of_form[form];
    const auto groups = GroupsToTheEnd(text + "a");
    EXPECT_EQ(groups[text.size()], GroupsToTheEnd("a")[0]);
    EXPECT_EQ(groups[0], uint64_t{1} << form | groups[text.size()]) << form;
    for (size_t i = 1; i < text.size(); ++i) {
      EXPECT_EQ(groups[i], kNoCharacters) << form << " " << i;
      // A character that is cut off counts as it would count whole.
      EXPECT_EQ(GroupsToTheEnd(text.substr(0, i))[0], uint64_t{1} << form);
    }
  }
}

TEST(CharacterGroupsTest, WhatIsNotUtf8IsNoText) {
  for (const char* bytes : {"\x80", "\xC0\x80", "\xC3(", "\xE0\x80\x80",
                            "\xED\xA0\x80", "\xF4\x90", "\xF5\x80", "\xFF"}) {
    EXPECT_EQ(GroupsToTheEnd(bytes)[0], kNoCharacters) << bytes;
  }
  // Valid text around an invalid byte does not make it valid.
  EXPECT_NE(GroupsToTheEnd("a\xFF"
                           "b")[0] &
                kNoCharacters,
            0u);
  EXPECT_EQ(absl::popcount(GroupsToTheEnd("abc")[0]), 1);
}

}  // namespace
}  // namespace foretoken::grammar
