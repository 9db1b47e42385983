// The byte-level alphabet: every byte as one printable character, so that a
// vocabulary of byte strings can be written as text.
//
// Source: openai/gpt-2, encoder.py, bytes_to_unicode.
#ifndef FORETOKEN_COMMON_TEXT_BYTE_LEVEL_H_
#define FORETOKEN_COMMON_TEXT_BYTE_LEVEL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace foretoken {

// The code point that stands for a byte.
uint32_t ByteLevelCodePoint(uint8_t byte);

// The bytes that `text` (valid UTF-8) stands for; nullopt if any of its
// characters is outside the alphabet.
std::optional<std::string> DecodeByteLevel(absl::string_view text);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_BYTE_LEVEL_H_
