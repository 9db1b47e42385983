#include "common/text/jinja/unicode.h"

#include <unicode/casemap.h>
#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include <algorithm>
#include <string>

#include "common/text/utf8.h"

namespace foretoken::jinja {
namespace {

constexpr uint32_t kCapitalSigma = 0x3A3;
constexpr char kFinalSigma[] = "\u03c2";

bool IsCased(uint32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED);
}

bool IsIgnorable(uint32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASE_IGNORABLE);
}

// The character that ends at `end`, which moves to its beginning.
uint32_t Before(absl::string_view text, size_t& end) {
  do {
    --end;
  } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return NextUtf8(text.substr(end)).code_point;
}

// Condition "Final_Sigma" of Unicode 15.0, table 3-17, which CPython's lower()
// implements: a cased letter before, none after, ignorable characters skipped
// on both sides.
bool IsFinalSigma(absl::string_view text, size_t begin, size_t end) {
  uint32_t c = 0;
  bool cased_before = false;
  while (begin > 0) {
    // Backwards over the bytes of one character, which are continuation bytes
    // up to the first.
    c = Before(text, begin);
    if (IsIgnorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  while (end < text.size()) {
    const Utf8Step step = NextUtf8(text.substr(end));
    if (!IsIgnorable(step.code_point)) return !IsCased(step.code_point);
    end += step.length;
  }
  return true;
}

// Appends the mapping of the character text[begin, end).
void AppendMapped(absl::string_view text, size_t begin, size_t end, Case to,
                  std::string& out) {
  const uint32_t c = NextUtf8(text.substr(begin)).code_point;
  // ASCII without ICU: most text is, and the calls below cost far more.
  if (c < 0x80) {
    const char byte = text[begin];
    const bool upper = byte >= 'A' && byte <= 'Z';
    const bool lower = byte >= 'a' && byte <= 'z';
    const bool change = to == Case::kLower ? upper : lower;
    out.push_back(change ? static_cast<char>(byte ^ 0x20) : byte);
    return;
  }
  if (c == kCapitalSigma && to == Case::kLower &&
      IsFinalSigma(text, begin, end)) {
    out += kFinalSigma;
    return;
  }
  // One or two UTF-16 units: ICU works in UTF-16.
  UChar source[2];
  int32_t length = 0;
  U16_APPEND_UNSAFE(source, length, static_cast<UChar32>(c));
  UChar mapped[8];  // the longest mapping has three characters
  UErrorCode error = U_ZERO_ERROR;
  int32_t count = 0;
  if (to == Case::kUpper) {
    // The empty locale: Python's mappings know no languages, such as the
    // Turkish i.
    count = u_strToUpper(mapped, 8, source, length, "", &error);
  } else if (to == Case::kLower) {
    count = u_strToLower(mapped, 8, source, length, "", &error);
  } else {
    // One character is one word: no break iterator is needed.
    count = icu::CaseMap::toTitle(
        "", U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT, nullptr,
        source, length, mapped, 8, nullptr, error);
  }
  // Never for whole characters; then the character is left out rather than
  // damaged.
  if (U_FAILURE(error)) count = 0;
  for (int32_t i = 0; i < count;) {
    UChar32 code_point = 0;
    U16_NEXT(mapped, i, count, code_point);
    AppendUtf8(static_cast<uint32_t>(code_point), out);
  }
}

}  // namespace

bool IsSpace(uint32_t c) {
  // The characters of Python's str.isspace(), which include 0x1C..0x1F.
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPrintable(uint32_t c) {
  // Python's str.isprintable(): everything but the categories "other" and
  // "separator", except the blank.
  if (c == ' ') return true;
  const uint32_t hidden = U_GC_C_MASK | U_GC_Z_MASK;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & hidden) == 0;
}

size_t CountCharacters(absl::string_view text) {
  // Counts the bytes that begin a character: all but continuation bytes.
  return std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  });
}

size_t CharacterOffset(absl::string_view text, int64_t index) {
  // Characters are counted and not stored: most texts are asked for one of them
  // only.
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) != 0x80 && index-- == 0) {
      return at;
    }
  }
  return text.size();
}

std::vector<size_t> CharacterOffsets(absl::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) != 0x80) offsets.push_back(at);
  }
  offsets.push_back(text.size());
  return offsets;
}

Text ChangeCase(const Text& text, Case to) {
  Text out;
  std::string mapped;
  size_t at = 0;
  for (const Text::Run& run : text.runs()) {
    mapped.clear();
    // A run ends inside a character only if bytes of two origins were joined
    // there; the whole character then has the origin of its first byte.
    while (at < run.end) {
      const size_t end =
          at + NextUtf8(absl::string_view(text.bytes()).substr(at)).length;
      AppendMapped(text.bytes(), at, end, to, mapped);
      at = end;
    }
    out.Append(mapped, run.origin);
  }
  return out;
}

Text TitleWords(const Text& text) {
  Text out;
  const std::vector<size_t> offsets = CharacterOffsets(text.bytes());
  bool after_cased = false;
  std::string mapped;
  size_t run = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    // Characters and runs are both in order: one walk over each.
    // Every byte belongs to a run, so the walk ends.
    while (text.runs()[run].end <= offsets[i]) ++run;
    mapped.clear();
    AppendMapped(text.bytes(), offsets[i], offsets[i + 1],
                 after_cased ? Case::kLower : Case::kTitle, mapped);
    out.Append(mapped, text.runs()[run].origin);
    after_cased =
        IsCased(NextUtf8(absl::string_view(text.bytes()).substr(offsets[i]))
                    .code_point);
  }
  return out;
}

}  // namespace foretoken::jinja
