#include "common/grammar/json_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/grammar/byte_set.h"
#include "common/grammar/code_points.h"
#include "common/grammar/regex.h"
#include "common/grammar/regex_syntax.h"

namespace foretoken::grammar {
namespace {

// Digits of a bound, and of a divisor.
constexpr size_t kMaxDigits = 64;
constexpr size_t kMaxDivisorDigits = 15;

ByteSet AnyOf(absl::string_view bytes) {
  ByteSet set;
  for (const char byte : bytes) set.Add(static_cast<uint8_t>(byte));
  return set;
}

// \uXXXX of a code point that needs no second one, or of a surrogate pair.
Expr UnicodeEscape(Regexes& regexes) {
  constexpr absl::string_view kHex = "0123456789abcdefABCDEF";
  const Expr hex = regexes.Bytes(AnyOf(kHex));
  const Expr high_digit = regexes.Bytes(AnyOf("89abAB"));
  const Expr low_digit = regexes.Bytes(AnyOf("cdefCDEF"));
  const Expr d = regexes.Bytes(AnyOf("dD"));
  const Expr two = regexes.Concat(hex, hex);
  const Expr u = regexes.Literal("\\u");
  return regexes.Or({
      regexes.Concat(
          {u, regexes.Bytes(AnyOf("0123456789abcefABCEF")), hex, two}),
      regexes.Concat({u, d, regexes.Bytes(AnyOf("01234567")), two}),
      regexes.Concat({u, d, high_digit, two, u, d, low_digit, two}),
  });
}

}  // namespace

Expr JsonStringContent(int32_t min, int32_t max, Regexes& regexes) {
  CodePointSet as_is = CodePointSet();
  as_is.Add(0x20, 0x21);
  as_is.Add(0x23, 0x5B);
  as_is.Add(0x5D, kMaxCodePoint);
  const Expr character =
      regexes.Or({CodePointClass(as_is, TextForm::kUtf8, regexes),
                  regexes.Concat(regexes.Literal("\\"),
                                 regexes.Bytes(AnyOf("\"\\/bfnrt"))),
                  UnicodeEscape(regexes)});
  return regexes.Repeat(character, min, max);
}

std::optional<std::string> DecimalText(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (value == 0) return "0";
  // The fewest digits that read back as `value`: d.ddde+XX.
  std::array<char, 64> buffer;
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                    std::fabs(value), std::chars_format::scientific);
  if (error != std::errc()) return std::nullopt;
  const absl::string_view text(buffer.data(),
                               static_cast<size_t>(end - buffer.data()));
  const size_t e = text.find('e');
  int exponent = 0;
  absl::string_view exponent_text = text.substr(e + 1);
  absl::ConsumePrefix(&exponent_text, "+");
  if (!absl::SimpleAtoi(exponent_text, &exponent)) return std::nullopt;
  std::string digits(text.substr(0, 1));
  if (e > 1) absl::StrAppend(&digits, text.substr(2, e - 2));

  const int count = static_cast<int>(digits.size());
  std::string plain;
  if (exponent < 0) {
    if (-exponent + count > static_cast<int>(kMaxDigits)) return std::nullopt;
    plain = absl::StrCat("0.", std::string(-exponent - 1, '0'), digits);
  } else if (exponent + 1 >= count) {
    if (exponent >= static_cast<int>(kMaxDigits)) return std::nullopt;
    plain = absl::StrCat(digits, std::string(exponent + 1 - count, '0'));
  } else {
    plain = absl::StrCat(digits.substr(0, exponent + 1), ".",
                         digits.substr(exponent + 1));
  }
  return value < 0 ? absl::StrCat("-", plain) : plain;
}

std::optional<std::string> DecimalText(int64_t value) {
  return absl::StrCat(value);
}

std::optional<Expr> JsonMultipleOf(absl::string_view divisor,
                                   Regexes& regexes) {
  const size_t point = divisor.find('.');
  std::string digits(divisor.substr(0, point));
  int32_t scale = 0;
  if (point != absl::string_view::npos) {
    absl::string_view fraction = divisor.substr(point + 1);
    while (absl::ConsumeSuffix(&fraction, "0")) {
    }
    absl::StrAppend(&digits, fraction);
    scale = static_cast<int32_t>(fraction.size());
  }
  digits.erase(0, digits.find_first_not_of('0'));
  int64_t value = 0;
  if (digits.size() > kMaxDivisorDigits || scale > 15 ||
      !absl::SimpleAtoi(digits, &value) || value <= 0) {
    return std::nullopt;
  }
  const Expr digit = regexes.Bytes(ByteSet::Range('0', '9'));
  const Expr some_digits = regexes.Repeat(digit, 1, Regexes::kUnbounded);
  const Expr decimal = regexes.Concat(
      {regexes.Optional(regexes.Literal("-")),
       regexes.Or(regexes.Literal("0"),
                  regexes.Concat(regexes.Bytes(ByteSet::Range('1', '9')),
                                 regexes.Star(digit))),
       regexes.Optional(regexes.Concat(regexes.Literal("."), some_digits))});
  return regexes.And(decimal, regexes.MultipleOf(value, scale));
}

}  // namespace foretoken::grammar
