#include "common/text/byte_level.h"

#include <array>

#include "common/text/utf8.h"

namespace foretoken {
namespace {

// GPT-2's bytes_to_unicode (openai/gpt-2, encoder.py): printable Latin-1
// characters represent themselves; the other 68 bytes are assigned U+0100
// onwards, in order.
bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         byte >= 0xAE;
}

constexpr uint32_t kFirstMoved = 0x100;
constexpr size_t kAlphabetEnd = kFirstMoved + 68;

struct Alphabet {
  std::array<uint32_t, 256> code_points{};
  std::array<int16_t, kAlphabetEnd> bytes{};

  Alphabet() {
    bytes.fill(-1);
    uint32_t moved = kFirstMoved;
    for (int byte = 0; byte < 256; ++byte) {
      code_points[byte] = StandsForItself(byte) ? byte : moved++;
      bytes[code_points[byte]] = static_cast<int16_t>(byte);
    }
  }
};

// Built once; function-local statics are initialised thread-safely.
const Alphabet& GetAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

uint32_t ByteLevelCodePoint(uint8_t byte) {
  return GetAlphabet().code_points[byte];
}

std::optional<std::string> DecodeByteLevel(absl::string_view text) {
  const Alphabet& alphabet = GetAlphabet();
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (step.kind != Utf8Step::kCharacter ||
        step.code_point >= alphabet.bytes.size() ||
        alphabet.bytes[step.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(alphabet.bytes[step.code_point]));
    text.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace foretoken
