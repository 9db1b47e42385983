#include "common/text/utf8.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace foretoken {
namespace {

// Properties of a lead byte: the length of the character, and the range of its
// second byte, which is narrower than 80..BF where that excludes overlong
// forms, surrogates and values above U+10FFFF.
struct Lead {
  uint8_t length = 0;  // 0: not a lead byte
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

// Unicode 15.0, table 3-7, "Well-Formed UTF-8 Byte Sequences".
Lead ClassifyLead(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Step NextMultibyteUtf8(absl::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const Lead lead = ClassifyLead(bytes[0]);
  if (lead.length == 0) return {Utf8Step::kMalformed, 1, 0};
  // A lead byte of a character of n bytes has n ones, a zero, and 7 - n bits.
  uint32_t code_point = bytes[0] & (0x7F >> lead.length);
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Step::kIncomplete, i, 0};
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (bytes[i] < min || bytes[i] > max) return {Utf8Step::kMalformed, i, 0};
    code_point = (code_point << 6) | (bytes[i] & 0x3F);
  }
  return {Utf8Step::kCharacter, lead.length, code_point};
}

size_t ValidUtf8Prefix(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Eight ASCII bytes at a time: most text is ASCII.
    uint64_t word;
    if (text.size() - at >= sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const Utf8Step step = NextUtf8(text.substr(at));
    if (step.kind != Utf8Step::kCharacter) return at;
    at += step.length;
  }
  return at;
}

void AppendUtf8(uint32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
    return;
  }
  const int trailing = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  constexpr uint8_t kLeads[] = {0, 0xC0, 0xE0, 0xF0};
  out.push_back(
      static_cast<char>(kLeads[trailing] | (code_point >> (6 * trailing))));
  for (int i = trailing - 1; i >= 0; --i) {
    out.push_back(static_cast<char>(0x80 | ((code_point >> (6 * i)) & 0x3F)));
  }
}

std::string SpaceSymbolsToSpaces(absl::string_view text) {
  return absl::StrReplaceAll(text, {{kSpaceSymbol, " "}});
}

// Never empty for a text that is not: a run of spaces at the beginning belongs
// to the word after it.
absl::string_view UpToSpace(absl::string_view text) {
  constexpr size_t kSymbolBytes = sizeof(kSpaceSymbol) - 1;
  size_t end = 0;
  while (absl::StartsWith(text.substr(end), kSpaceSymbol)) end += kSymbolBytes;
  return text.substr(0, text.find(kSpaceSymbol, end));
}

}  // namespace foretoken
