#include "common/base/raw_member.h"

#include <cstddef>

#include "common/base/json.h"

namespace foretoken {
namespace {

constexpr char kSpace[] = " \t\r\n";

size_t SkipSpace(absl::string_view json, size_t at) {
  const size_t next = json.find_first_not_of(kSpace, at);
  return next == absl::string_view::npos ? json.size() : next;
}

// The end of the string whose opening quote is at `at`.
size_t EndOfString(absl::string_view json, size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\') ++at;
  }
  return at + 1;
}

// The end of the value that begins at `at`.
size_t EndOfValue(absl::string_view json, size_t at) {
  int depth = 0;
  while (at < json.size()) {
    const char c = json[at];
    if (c == '"') {
      at = EndOfString(json, at);
      if (depth == 0) return at;
      continue;
    }
    if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;  // of a number or a word
      if (--depth == 0) return at + 1;
    } else if (c == ',' && depth == 0) {
      return at;
    }
    ++at;
  }
  return at;
}

// Where the contents of a container begin. Space may be before it, and a mark
// of the byte order, which the parser skips.
size_t BehindFirst(absl::string_view json, char opening) {
  const size_t found = json.find(opening);
  return found == absl::string_view::npos ? json.size() : found + 1;
}

absl::string_view Trimmed(absl::string_view value) {
  return value.substr(0, value.find_last_not_of(kSpace) + 1);
}

// Keys may be spelled with escapes.
bool IsKey(absl::string_view quoted, absl::string_view key) {
  if (quoted.find('\\') == absl::string_view::npos) {
    return quoted.substr(1, quoted.size() - 2) == key;
  }
  const auto parsed = ParseJson(quoted);
  return parsed.ok() && *parsed == std::string(key);
}

}  // namespace

absl::string_view RawMember(absl::string_view json, absl::string_view key) {
  absl::string_view found;
  size_t at = BehindFirst(json, '{');
  while ((at = SkipSpace(json, at)) < json.size() && json[at] == '"') {
    const size_t key_end = EndOfString(json, at);
    const absl::string_view quoted = json.substr(at, key_end - at);
    const size_t colon = SkipSpace(json, key_end);
    const size_t begin = SkipSpace(json, colon + 1);
    const size_t end = EndOfValue(json, begin);
    if (IsKey(quoted, key)) found = json.substr(begin, end - begin);
    at = SkipSpace(json, end) + 1;  // behind the comma or the brace
  }
  return Trimmed(found);
}

std::vector<absl::string_view> RawElements(absl::string_view json) {
  std::vector<absl::string_view> elements;
  size_t at = BehindFirst(json, '[');
  while ((at = SkipSpace(json, at)) < json.size() && json[at] != ']') {
    const size_t end = EndOfValue(json, at);
    elements.push_back(Trimmed(json.substr(at, end - at)));
    at = SkipSpace(json, end);
    if (at < json.size() && json[at] == ',') ++at;
  }
  return elements;
}

}  // namespace foretoken
