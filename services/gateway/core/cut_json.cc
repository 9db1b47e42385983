#include "services/gateway/core/cut_json.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"

namespace foretoken::gateway {
namespace {

constexpr absl::string_view kSpace = " \t\r\n";
constexpr absl::string_view kBehindValue = ",]} \t\r\n";

bool IsObject(absl::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  return first != absl::string_view::npos && text[first] == '{' &&
         Json::accept(text.begin(), text.end());
}

// Behind the closing quote of the string that begins at `at`; npos: it is cut.
size_t EndOfString(absl::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '"') return at + 1;
    if (text[at] == '\\') ++at;
  }
  return absl::string_view::npos;
}

// The longest beginning of `text` that brackets alone complete, with these
// brackets. The result of text that is not JSON may not be JSON either.
std::string Closed(absl::string_view text) {
  std::string closers;  // of the open containers, the outermost first
  size_t whole = 0;     // end of the last bracket or value
  bool is_key = false;  // the next string
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    size_t end = at + 1;
    if (c == '{' || c == '[') {
      closers.push_back(c == '{' ? '}' : ']');
      is_key = c == '{';
      whole = end;
    } else if (c == '}' || c == ']') {
      if (closers.empty()) break;
      closers.pop_back();
      whole = end;
    } else if (c == ',') {
      is_key = !closers.empty() && closers.back() == '}';
    } else if (c == ':') {
      is_key = false;
    } else if (c == '"') {
      end = EndOfString(text, at);
      if (end == absl::string_view::npos) break;
      if (!is_key) whole = end;
    } else if (kSpace.find(c) == absl::string_view::npos) {
      // A number may go on; a word, too, until its end is seen.
      end = text.find_first_of(kBehindValue, at);
      if (end == absl::string_view::npos) break;
      whole = end;
    }
    at = end;
  }
  // Every bracket moved `whole`, so that the containers open there are those
  // open at the end.
  return absl::StrCat(text.substr(0, whole),
                      std::string(closers.rbegin(), closers.rend()));
}

}  // namespace

std::string WholeJsonObject(absl::string_view text) {
  if (IsObject(text)) return std::string(text);
  std::string closed = Closed(text);
  return IsObject(closed) ? closed : "{}";
}

}  // namespace foretoken::gateway
