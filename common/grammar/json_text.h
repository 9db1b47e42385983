// The scalars of JSON as regular expressions: strings, numbers within bounds,
// formats.
#ifndef FORETOKEN_COMMON_GRAMMAR_JSON_TEXT_H_
#define FORETOKEN_COMMON_GRAMMAR_JSON_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {

// The text between the quotes of a JSON string of min..max code points (max
// Regexes::kUnbounded: any number), with every escape that JSON knows
// (surrogates in pairs only).
Expr JsonStringContent(int32_t min, int32_t max, Regexes& regexes);

// A bound as decimal text, such as "-12.5" or "3": no exponent, no leading
// zeros, no "-0".
struct NumberBound {
  std::string value;
  bool exclusive = false;
};
// The plain decimal text of a JSON number; nullopt if it would have more than
// 64 digits.
std::optional<std::string> DecimalText(double value);
std::optional<std::string> DecimalText(int64_t value);

struct NumberRange {
  std::optional<NumberBound> min, max;
};
// Integers; "3.0" too if `with_point`.
Expr JsonInteger(const NumberRange& range, bool with_point, Regexes& regexes);
// Numbers. Without bounds every JSON number; with bounds those without an
// exponent, and 0 without a minus.
Expr JsonNumber(const NumberRange& range, Regexes& regexes);
// Numbers without an exponent that are multiples of `divisor` (decimal text,
// > 0): to be intersected with one of the above. nullopt if the divisor has
// more than 15 significant digits before and after the point together.
std::optional<Expr> JsonMultipleOf(absl::string_view divisor, Regexes& regexes);

// The text between the quotes of a string of this JSON Schema format;
// NotFound for a format that is not known.
absl::StatusOr<Expr> JsonFormat(absl::string_view format, Regexes& regexes);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_JSON_TEXT_H_
