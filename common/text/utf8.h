// UTF-8 one character at a time, for the tokenizers and the detokenizer.
// Unicode properties are out of scope.
//
// Pure functions, thread-safe.
#ifndef FORETOKEN_COMMON_TEXT_UTF8_H_
#define FORETOKEN_COMMON_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken {

// U+FFFD, which decoders write for bytes that are not UTF-8.
inline constexpr char kReplacementCharacter[] = "\xEF\xBF\xBD";
// U+2581, which SentencePiece writes for a space.
inline constexpr char kSpaceSymbol[] = "\xE2\x96\x81";

// One decoding step over bytes that may not be UTF-8.
struct Utf8Step {
  enum Kind : uint8_t {
    kCharacter,   // `length` bytes form one character, `code_point`
    kMalformed,   // `length` bytes are a maximal subpart, not a character
    kIncomplete,  // the text ends inside a possible character
  };
  Kind kind = kCharacter;
  uint8_t length = 0;
  uint32_t code_point = 0;
};

// As NextUtf8, for a text that does not begin with ASCII.
Utf8Step NextMultibyteUtf8(absl::string_view text);

// Decodes the beginning of `text`, which must not be empty. Surrogates,
// overlong forms and values above U+10FFFF are malformed. `length` of a
// malformed step follows Unicode 15.0, section 3.9, "U+FFFD Substitution of
// Maximal Subparts", and is at least 1.
inline Utf8Step NextUtf8(absl::string_view text) {
  const uint8_t byte = static_cast<uint8_t>(text[0]);
  if (byte < 0x80) return {Utf8Step::kCharacter, 1, byte};
  return NextMultibyteUtf8(text);
}

// Length in bytes of the longest valid UTF-8 prefix of `text`.
size_t ValidUtf8Prefix(absl::string_view text);

inline bool IsValidUtf8(absl::string_view text) {
  return ValidUtf8Prefix(text) == text.size();
}

void AppendUtf8(uint32_t code_point, std::string& out);

// Replaces every kSpaceSymbol with a space.
std::string SpaceSymbolsToSpaces(absl::string_view text);

// The beginning of `text` up to the first space symbol that follows another
// character; the whole text if there is none. Where no token crosses such a
// border, cutting there does not change how a text is encoded.
absl::string_view UpToSpace(absl::string_view text);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_UTF8_H_
