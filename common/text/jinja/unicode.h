// Unicode as Python's str methods use it, by code point; every result keeps the
// origin of the character that it came from.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_UNICODE_H_
#define FORETOKEN_COMMON_TEXT_JINJA_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/text/jinja/text.h"

namespace foretoken::jinja {

// str.isspace() of one character.
bool IsSpace(uint32_t code_point);
// str.isprintable() of one character.
bool IsPrintable(uint32_t code_point);

// Number of characters of valid UTF-8.
size_t CountCharacters(absl::string_view text);
// Offset in bytes of the character `index`; the size of the text for the one
// after the last.
size_t CharacterOffset(absl::string_view text, int64_t index);
// Offsets in bytes of every character, and the size of the text at the end.
std::vector<size_t> CharacterOffsets(absl::string_view text);

enum class Case : uint8_t { kUpper, kLower, kTitle };
// Full case mapping of all characters, as str.upper() and str.lower() do; a
// capital sigma at the end of a word becomes a final one. kTitle maps every
// character as the first of a word.
Text ChangeCase(const Text& text, Case to);
// str.title(): the first letter after a character without case is a capital.
Text TitleWords(const Text& text);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_UNICODE_H_
