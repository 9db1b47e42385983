// Regular expressions as JSON Schema and users write them: a subset of
// ECMA-262, read as code points and turned into expressions over bytes.
//
// Supported: alternatives, groups (capturing, non-capturing, named), ^ and $,
// quantifiers (lazy ones too: what they match is the same), classes with ranges
// and escapes,
// \d \w \s \D \W \S . \uXXXX \u{X} \xXX \cX \p{...} \P{...} (general
// categories and the scripts that ICU knows), and look-ahead where the rest of
// the text is known. Look-behind, word borders and backreferences are refused
// by name: linear time is kept.
#ifndef FORETOKEN_COMMON_GRAMMAR_REGEX_SYNTAX_H_
#define FORETOKEN_COMMON_GRAMMAR_REGEX_SYNTAX_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {

// How a character stands in the text.
enum class TextForm : uint8_t {
  kUtf8,
  // Between the quotes of a JSON string, written as json.dumps with
  // ensure_ascii=False writes it: " and \ and control characters as escapes
  // (\n, \u001f), everything else as itself.
  kJsonString,
};

struct RegexSyntaxOptions {
  TextForm form = TextForm::kUtf8;
  // The whole text must match; otherwise a match anywhere in it is enough, as
  // with JSON Schema's `pattern`.
  bool whole = true;
};

// InvalidArgument says what is wrong or not supported, and at which byte.
// Bounded: patterns of at most 64 KiB, 250 levels, repetitions of at most
// 100,000.
absl::StatusOr<Expr> ParseRegex(absl::string_view pattern,
                                const RegexSyntaxOptions& options,
                                Regexes& regexes);

// One code point (no surrogates) of first..last.
Expr CodePoints(uint32_t first, uint32_t last, TextForm form, Regexes& regexes);
// Any one code point.
Expr AnyCodePoint(TextForm form, Regexes& regexes);
// A text as it stands; `utf8` must be valid UTF-8.
Expr TextLiteral(absl::string_view utf8, TextForm form, Regexes& regexes);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_REGEX_SYNTAX_H_
