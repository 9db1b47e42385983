#include "common/grammar/character_groups.h"

#include <algorithm>
#include <array>
#include <string>

namespace foretoken::grammar {
namespace {

struct AsciiGroups {
  std::array<uint8_t, 128> of;  // by character
  std::vector<std::vector<uint8_t>> characters =
      std::vector<std::vector<uint8_t>>(kCharacterGroupCount);
};

AsciiGroups MakeAsciiGroups() {
  AsciiGroups groups;
  int next = kUtf8FormCount;
  const auto add = [&](absl::string_view characters) {
    for (const char c : characters) {
      groups.of[static_cast<uint8_t>(c)] = static_cast<uint8_t>(next);
      groups.characters[next].push_back(static_cast<uint8_t>(c));
    }
    ++next;
  };
  // Hexadecimal digits are apart, and so is the zero that no number begins
  // with; every other punctuation mark has a group of its own.
  for (const absl::string_view letters :
       {"abcdef", "ghijklmnopqrstuvwxyz", "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ", "0",
        "123456789"}) {
    add(letters);
  }
  std::string controls;
  for (char c = 0; c < 0x20; ++c) {
    if (c != '\t' && c != '\n' && c != '\r') controls.push_back(c);
  }
  add(controls);
  for (int c = 0; c < 128; ++c) {
    const bool has_group =
        std::any_of(groups.characters.begin(), groups.characters.end(),
                    [&](const std::vector<uint8_t>& characters) {
                      return std::find(characters.begin(), characters.end(),
                                       c) != characters.end();
                    });
    const char character = static_cast<char>(c);
    if (!has_group) add(absl::string_view(&character, 1));
  }
  return groups;
}

const AsciiGroups& Ascii() {
  static const AsciiGroups* const groups = new AsciiGroups(MakeAsciiGroups());
  return *groups;
}

// The form that a first byte tells; -1: none.
int FormOf(uint8_t first) {
  for (int form = 0; form < kUtf8FormCount; ++form) {
    const auto& range = kUtf8Forms[form].ranges[0];
    if (range[0] <= first && first <= range[1]) return form;
  }
  return -1;
}

}  // namespace

absl::Span<const uint8_t> AsciiOfGroup(int group) {
  return Ascii().characters[group];
}

std::vector<CharacterGroups> GroupsToTheEnd(absl::string_view bytes) {
  const AsciiGroups& ascii = Ascii();
  std::vector<CharacterGroups> groups(bytes.size() + 1, 0);
  for (size_t at = bytes.size(); at-- > 0;) {
    // From the end: the groups of a suffix are those of its first character
    // and of the rest.
    const auto byte = static_cast<uint8_t>(bytes[at]);
    if (byte < 0x80) {
      groups[at] = groups[at + 1] | uint64_t{1} << ascii.of[byte];
      continue;
    }
    // Bytes that begin no character, or end inside one, belong to no group.
    groups[at] = kNoCharacters;
    const int form = FormOf(byte);
    if (form < 0) continue;
    const Utf8Form& bounds = kUtf8Forms[form];
    const size_t end =
        std::min(bytes.size(), at + static_cast<size_t>(bounds.length));
    bool valid = true;
    for (size_t i = at + 1; i < end; ++i) {
      const auto follower = static_cast<uint8_t>(bytes[i]);
      valid = valid && bounds.ranges[i - at][0] <= follower &&
              follower <= bounds.ranges[i - at][1];
    }
    if (valid) groups[at] = groups[end] | uint64_t{1} << form;
  }
  return groups;
}

}  // namespace foretoken::grammar
