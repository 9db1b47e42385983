// UTF-8 at the level of one character: what the tokenizers and the
// detokenizer need, and nothing of Unicode's properties.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_COMMON_TEXT_UTF8_H_
#define FORETOKEN_COMMON_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken {

// U+FFFD, what decoders write for bytes that are no UTF-8.
inline constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";
// U+2581, what SentencePiece writes for a space.
inline constexpr char kSpaceSymbol[] = "\xE2\x96\x81";

// One step through bytes that may or may not be UTF-8.
struct Utf8Step {
  enum Kind : uint8_t {
    kCharacter,   // `length` bytes are one character, `code_point`
    kMalformed,   // `length` bytes are a maximal subpart of no character
    kIncomplete,  // the text ends inside what may become a character
  };
  Kind kind = kCharacter;
  uint8_t length = 0;
  uint32_t code_point = 0;
};

// Looks at the beginning of `text`, which must not be empty. Surrogates,
// overlong forms and values over U+10FFFF are malformed. `length` of a
// malformed step follows Unicode 15.0, section 3.9, "U+FFFD Substitution of
// Maximal Subparts"; it is at least 1.
Utf8Step NextUtf8(absl::string_view text);

// The bytes of `text` before the first that is not part of a character.
size_t ValidUtf8Prefix(absl::string_view text);

inline bool IsValidUtf8(absl::string_view text) {
  return ValidUtf8Prefix(text) == text.size();
}

void AppendUtf8(uint32_t code_point, std::string& out);

// Every kSpaceSymbol becomes a space.
std::string SpaceSymbolsToSpaces(absl::string_view text);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_UTF8_H_
