// The byte-level alphabet: one printable character per byte, so that a
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

// Returns the code point that represents `byte`.
uint32_t ByteLevelCodePoint(uint8_t byte);

// Returns the bytes that `text` (valid UTF-8) represents; nullopt if a
// character is outside the alphabet.
std::optional<std::string> DecodeByteLevel(absl::string_view text);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_BYTE_LEVEL_H_
