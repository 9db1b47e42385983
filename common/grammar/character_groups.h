// Groups of characters that regular expressions rarely tell apart, as bits:
// what a trie's subtree consists of, and what a state of an automaton does not
// distinguish.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_COMMON_GRAMMAR_CHARACTER_GROUPS_H_
#define FORETOKEN_COMMON_GRAMMAR_CHARACTER_GROUPS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace foretoken::grammar {

using CharacterGroups = uint64_t;

// The byte ranges of the characters of two to four bytes in UTF-8. The first
// byte tells the form.
struct Utf8Form {
  int length;
  uint8_t ranges[4][2];
};
inline constexpr Utf8Form kUtf8Forms[] = {
    {2, {{0xC2, 0xDF}, {0x80, 0xBF}}},
    {3, {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}},
    {3, {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}},
};
inline constexpr int kUtf8FormCount = 8;

// Groups 0..kUtf8FormCount-1 are the forms; those of ASCII follow.
inline constexpr int kCharacterGroupCount = 52;
// Bytes that are no UTF-8: in no group of characters.
inline constexpr CharacterGroups kNoCharacters = uint64_t{1} << 63;

// The ASCII characters of a group; empty for a form.
absl::Span<const uint8_t> AsciiOfGroup(int group);

// For every place in `bytes`, and its end: the groups of the characters from
// there to the end, the last of which may be cut off. With kNoCharacters if
// they are not UTF-8, or if the place is within a character.
std::vector<CharacterGroups> GroupsToTheEnd(absl::string_view bytes);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_CHARACTER_GROUPS_H_
