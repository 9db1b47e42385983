// Any bytes as a regular expression, in all forms: refused with a short
// message, or turned into an expression that matches only texts of its form.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/grammar/regex.h"
#include "common/grammar/regex_syntax.h"
#include "common/text/utf8.h"

namespace {

using foretoken::grammar::Expr;
using foretoken::grammar::ParseRegex;
using foretoken::grammar::Regexes;
using foretoken::grammar::RegexSyntaxOptions;
using foretoken::grammar::TextForm;

constexpr int64_t kMaxBytes = 1 << 20;

bool Matches(Regexes& regexes, Expr expr, absl::string_view text) {
  for (const char byte : text) {
    expr = regexes.Derivative(expr, static_cast<uint8_t>(byte));
  }
  return regexes.nullable(expr);
}

void Check(absl::string_view pattern, absl::string_view text,
           const RegexSyntaxOptions& options) {
  Regexes regexes(kMaxBytes);
  const auto expr = ParseRegex(pattern, options, regexes);
  if (!expr.ok()) {
    FORETOKEN_CHECK(expr.status().message().size() < 200);
    return;
  }
  const bool matches = Matches(regexes, *expr, text);
  if (!regexes.status().ok()) return;
  FORETOKEN_CHECK(!matches || foretoken::IsValidUtf8(text));
  if (options.whole) {
    // What matches as a whole matches anywhere, whatever stands around it
    // unless the pattern looks at that.
    Regexes other(kMaxBytes);
    const auto anywhere =
        ParseRegex(pattern, {.form = options.form, .whole = false}, other);
    if (!anywhere.ok()) return;
    const bool found = Matches(other, *anywhere, text);
    FORETOKEN_CHECK(!matches || found || !other.status().ok());
  }
}

}  // namespace

// The pattern, a newline, the text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\n');
  const absl::string_view pattern = input.substr(0, end);
  const absl::string_view text =
      end == absl::string_view::npos ? "" : input.substr(end + 1);
  for (const TextForm form : {TextForm::kUtf8, TextForm::kJsonString}) {
    for (const bool whole : {true, false}) {
      Check(pattern, text.substr(0, 64), {.form = form, .whole = whole});
    }
  }
  // As a text that stands for itself.
  if (foretoken::IsValidUtf8(input)) {
    Regexes regexes;
    const Expr literal =
        foretoken::grammar::TextLiteral(input, TextForm::kUtf8, regexes);
    FORETOKEN_CHECK(Matches(regexes, literal, input) || !regexes.status().ok());
  }
  return 0;
}
