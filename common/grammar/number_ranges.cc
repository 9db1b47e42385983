// JsonInteger and JsonNumber of json_text.h: numbers within bounds, digit by
// digit.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/grammar/byte_set.h"
#include "common/grammar/json_text.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {
namespace {

// A bound without its sign.
struct Magnitude {
  std::string whole = "0";
  std::string fraction;  // without zeros at its end
  bool exclusive = false;

  bool zero() const { return whole == "0" && fraction.empty(); }
};

struct MagnitudeRange {
  Magnitude min;
  std::optional<Magnitude> max;
};

Magnitude ParseMagnitude(absl::string_view unsigned_text, bool exclusive) {
  const size_t point = unsigned_text.find('.');
  Magnitude magnitude;
  magnitude.whole = std::string(unsigned_text.substr(0, point));
  magnitude.exclusive = exclusive;
  if (point != absl::string_view::npos) {
    absl::string_view fraction = unsigned_text.substr(point + 1);
    while (absl::ConsumeSuffix(&fraction, "0")) {
    }
    magnitude.fraction = std::string(fraction);
  }
  return magnitude;
}

// Compares numbers written as digits without leading zeros.
bool Less(absl::string_view a, absl::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

// The numbers of a range that are not negative, and the magnitudes of those
// that are (never zero: "-0" is not written where there are bounds).
struct SignedRanges {
  std::optional<MagnitudeRange> positive, negative;
};

SignedRanges Split(const NumberRange& range) {
  struct Bound {
    bool negative = false;
    Magnitude magnitude;
  };
  const auto parse =
      [](const std::optional<NumberBound>& bound) -> std::optional<Bound> {
    if (!bound.has_value()) return std::nullopt;
    absl::string_view text = bound->value;
    const bool minus = absl::ConsumePrefix(&text, "-");
    Bound parsed = {minus, ParseMagnitude(text, bound->exclusive)};
    if (parsed.magnitude.zero()) parsed.negative = false;
    return parsed;
  };
  const std::optional<Bound> min = parse(range.min);
  const std::optional<Bound> max = parse(range.max);
  SignedRanges split;
  if (!max.has_value() || !max->negative) {
    MagnitudeRange positive;
    if (min.has_value() && !min->negative) positive.min = min->magnitude;
    if (max.has_value()) positive.max = max->magnitude;
    split.positive = std::move(positive);
  }
  if (!min.has_value() || min->negative) {
    MagnitudeRange negative;
    negative.min.exclusive = true;
    if (max.has_value() && max->negative) negative.min = max->magnitude;
    if (min.has_value()) negative.max = min->magnitude;
    split.negative = std::move(negative);
  }
  return split;
}

class NumberRegexes {
 public:
  explicit NumberRegexes(Regexes& regexes)
      : regexes_(regexes), digit_(Digits('0', '9')) {}

  Expr Whole() { return WholeOfLength(1, Regexes::kUnbounded); }

  Expr Zeros(int32_t min) {
    return regexes_.Repeat(regexes_.Literal("0"), min, Regexes::kUnbounded);
  }

  // ".", then `digits`, which must not be empty.
  Expr Point(Expr digits) {
    return regexes_.Concat(regexes_.Literal("."), digits);
  }
  // Both or the point and digits left out.
  Expr AnyFraction() { return regexes_.Optional(Point(SomeDigits(1))); }

  // Whole numbers of the range, their lower bound above 0 or included.
  Expr Integers(const MagnitudeRange& range) {
    // The bounds as whole numbers that are included.
    std::string min = range.min.whole;
    if (!range.min.fraction.empty() || range.min.exclusive) {
      min = Incremented(min);
    }
    if (!range.max.has_value()) {
      return regexes_.Or(regexes_.Literal(min),
                         WholeBetween(min, std::nullopt));
    }
    const Magnitude& max = *range.max;
    if (max.fraction.empty() && max.exclusive) {
      return min == max.whole ? Regexes::kNothing
                              : regexes_.Or(Included(min, max.whole),
                                            WholeBetween(min, max.whole));
    }
    return regexes_.Or({Included(min, max.whole), WholeBetween(min, max.whole),
                        Less(max.whole, min) ? Regexes::kNothing
                                             : regexes_.Literal(max.whole)});
  }

  // Decimal numbers of the range.
  Expr Decimals(const MagnitudeRange& range) {
    const Magnitude& min = range.min;
    if (!range.max.has_value()) {
      return regexes_.Or(
          regexes_.Concat(regexes_.Literal(min.whole), FractionAbove(min)),
          regexes_.Concat(WholeBetween(min.whole, std::nullopt),
                          AnyFraction()));
    }
    const Magnitude& max = *range.max;
    if (Less(max.whole, min.whole)) return Regexes::kNothing;
    if (min.whole == max.whole) {
      return regexes_.Concat(regexes_.Literal(min.whole),
                             FractionBetween(min, max));
    }
    return regexes_.Or({
        regexes_.Concat(regexes_.Literal(min.whole), FractionAbove(min)),
        regexes_.Concat(WholeBetween(min.whole, max.whole), AnyFraction()),
        regexes_.Concat(regexes_.Literal(max.whole), FractionBelow(max)),
    });
  }

 private:
  Expr Digits(char first, char last) {
    return first > last
               ? Regexes::kNothing
               : regexes_.Bytes(ByteSet::Range(static_cast<uint8_t>(first),
                                               static_cast<uint8_t>(last)));
  }
  Expr Digit(char digit) { return Digits(digit, digit); }
  Expr SomeDigits(int32_t min) {
    return regexes_.Repeat(digit_, min, Regexes::kUnbounded);
  }
  Expr DigitsOfLength(size_t length) {
    const auto count = static_cast<int32_t>(length);
    return regexes_.Repeat(digit_, count, count);
  }

  static std::string Incremented(std::string digits) {
    for (size_t i = digits.size(); i-- > 0;) {
      if (digits[i] != '9') {
        ++digits[i];
        return digits;
      }
      digits[i] = '0';
    }
    return absl::StrCat("1", digits);
  }

  // `text` if it is below `max`.
  Expr Included(absl::string_view text, absl::string_view max) {
    return Less(text, max) ? regexes_.Literal(text) : Regexes::kNothing;
  }

  // Whole numbers of min..max digits without leading zeros.
  Expr WholeOfLength(int32_t min, int32_t max) {
    if (max != Regexes::kUnbounded && max < min) return Regexes::kNothing;
    const int32_t more = max == Regexes::kUnbounded ? max : max - 1;
    const Expr nonzero = regexes_.Concat(
        Digits('1', '9'), regexes_.Repeat(digit_, min - 1, more));
    return min == 1 ? regexes_.Or(nonzero, Digit('0')) : nonzero;
  }

  // Whole numbers strictly between two of them.
  Expr WholeBetween(absl::string_view min,
                    const std::optional<std::string>& max) {
    const auto length = static_cast<int32_t>(min.size());
    if (!max.has_value()) {
      return regexes_.Or(Above(min),
                         WholeOfLength(length + 1, Regexes::kUnbounded));
    }
    if (!Less(min, *max)) return Regexes::kNothing;
    if (min.size() == max->size()) return Between(min, *max);
    return regexes_.Or(
        {Above(min),
         WholeOfLength(length + 1, static_cast<int32_t>(max->size()) - 1),
         Below(*max, /*first=*/true)});
  }

  // As many digits as `digits` has, of a greater (lesser) number. `first`: at
  // the beginning of a whole number, where no zero may lead.
  Expr Above(absl::string_view digits) {
    if (digits.empty()) return Regexes::kNothing;
    const absl::string_view rest = digits.substr(1);
    return regexes_.Or(
        regexes_.Concat(Digits(static_cast<char>(digits[0] + 1), '9'),
                        DigitsOfLength(rest.size())),
        regexes_.Concat(Digit(digits[0]), Above(rest)));
  }
  Expr Below(absl::string_view digits, bool first) {
    if (digits.empty()) return Regexes::kNothing;
    const absl::string_view rest = digits.substr(1);
    const char least = first && !rest.empty() ? '1' : '0';
    return regexes_.Or(
        regexes_.Concat(Digits(least, static_cast<char>(digits[0] - 1)),
                        DigitsOfLength(rest.size())),
        regexes_.Concat(Digit(digits[0]), Below(rest, false)));
  }
  Expr Between(absl::string_view min, absl::string_view max) {
    if (min.empty()) return Regexes::kNothing;
    const absl::string_view min_rest = min.substr(1);
    const absl::string_view max_rest = max.substr(1);
    if (min[0] == max[0]) {
      return regexes_.Concat(Digit(min[0]), Between(min_rest, max_rest));
    }
    return regexes_.Or(
        {regexes_.Concat(Digit(min[0]), Above(min_rest)),
         regexes_.Concat(Digits(static_cast<char>(min[0] + 1),
                                static_cast<char>(max[0] - 1)),
                         DigitsOfLength(min_rest.size())),
         regexes_.Concat(Digit(max[0]), Below(max_rest, false))});
  }

  // Fractions, with their point, at the bounds' whole numbers. The digits of a
  // fraction may be of any length; those that are not there are zeros. Below,
  // `least` is the least number of digits: 1 after the point.
  Expr FractionAbove(const Magnitude& min) {
    const Expr digits = DigitsAbove(min.fraction, min.exclusive, 1);
    return WithPoint(digits, min.fraction.empty() && !min.exclusive);
  }
  Expr FractionBelow(const Magnitude& max) {
    const Expr digits = DigitsBelow(max.fraction, max.exclusive, 1);
    return WithPoint(digits, !max.fraction.empty() || !max.exclusive);
  }
  Expr FractionBetween(const Magnitude& min, const Magnitude& max) {
    const Expr digits = DigitsBetween(min.fraction, min.exclusive, max.fraction,
                                      max.exclusive, 1);
    return WithPoint(digits, min.fraction.empty() && !min.exclusive &&
                                 (!max.fraction.empty() || !max.exclusive));
  }
  Expr WithPoint(Expr digits, bool optional) {
    const Expr point = Point(digits);
    return optional ? regexes_.Optional(point) : point;
  }

  Expr DigitsAbove(absl::string_view min, bool exclusive, int32_t least) {
    if (min.empty()) {
      if (!exclusive) return SomeDigits(least);
      return regexes_.Concat({Zeros(0), Digits('1', '9'), SomeDigits(0)});
    }
    return regexes_.Or(
        regexes_.Concat(Digits(static_cast<char>(min[0] + 1), '9'),
                        SomeDigits(0)),
        regexes_.Concat(Digit(min[0]),
                        DigitsAbove(min.substr(1), exclusive, 0)));
  }
  Expr DigitsBelow(absl::string_view max, bool exclusive, int32_t least) {
    if (max.empty()) return exclusive ? Regexes::kNothing : Zeros(least);
    const Expr longer =
        regexes_.Or(regexes_.Concat(Digits('0', static_cast<char>(max[0] - 1)),
                                    SomeDigits(0)),
                    regexes_.Concat(Digit(max[0]),
                                    DigitsBelow(max.substr(1), exclusive, 0)));
    return least > 0 ? longer : regexes_.Optional(longer);
  }
  Expr DigitsBetween(absl::string_view min, bool min_exclusive,
                     absl::string_view max, bool max_exclusive, int32_t least) {
    if (min.empty() && !min_exclusive) {
      return DigitsBelow(max, max_exclusive, least);
    }
    // Zeros alone are above no lower bound from here on.
    if (max.empty()) return Regexes::kNothing;
    const char low = min.empty() ? '0' : min[0];
    const absl::string_view min_rest = min.empty() ? min : min.substr(1);
    if (low > max[0]) return Regexes::kNothing;
    if (low == max[0]) {
      return regexes_.Concat(
          Digit(low), DigitsBetween(min_rest, min_exclusive, max.substr(1),
                                    max_exclusive, 0));
    }
    return regexes_.Or(
        {regexes_.Concat(Digit(low), DigitsAbove(min_rest, min_exclusive, 0)),
         regexes_.Concat(
             Digits(static_cast<char>(low + 1), static_cast<char>(max[0] - 1)),
             SomeDigits(0)),
         regexes_.Concat(Digit(max[0]),
                         DigitsBelow(max.substr(1), max_exclusive, 0))});
  }

  Regexes& regexes_;
  const Expr digit_;
};

}  // namespace

Expr JsonInteger(const NumberRange& range, bool with_point, Regexes& regexes) {
  NumberRegexes numbers(regexes);
  const Expr minus = regexes.Literal("-");
  Expr integers = Regexes::kNothing;
  if (!range.min.has_value() && !range.max.has_value()) {
    integers = regexes.Concat(regexes.Optional(minus), numbers.Whole());
  } else {
    const SignedRanges split = Split(range);
    if (split.positive.has_value())
      integers = numbers.Integers(*split.positive);
    if (split.negative.has_value()) {
      integers = regexes.Or(
          integers, regexes.Concat(minus, numbers.Integers(*split.negative)));
    }
  }
  if (!with_point) return integers;
  return regexes.Concat(integers,
                        regexes.Optional(numbers.Point(numbers.Zeros(1))));
}

Expr JsonNumber(const NumberRange& range, Regexes& regexes) {
  NumberRegexes numbers(regexes);
  const Expr minus = regexes.Literal("-");
  if (!range.min.has_value() && !range.max.has_value()) {
    const Expr digits = regexes.Repeat(regexes.Bytes(ByteSet::Range('0', '9')),
                                       1, Regexes::kUnbounded);
    ByteSet e, sign;
    e.Add('e');
    e.Add('E');
    sign.Add('+');
    sign.Add('-');
    return regexes.Concat(
        {regexes.Optional(minus), numbers.Whole(), numbers.AnyFraction(),
         regexes.Optional(
             regexes.Concat({regexes.Bytes(e),
                             regexes.Optional(regexes.Bytes(sign)), digits}))});
  }
  const SignedRanges split = Split(range);
  Expr decimals = Regexes::kNothing;
  if (split.positive.has_value()) decimals = numbers.Decimals(*split.positive);
  if (split.negative.has_value()) {
    decimals = regexes.Or(
        decimals, regexes.Concat(minus, numbers.Decimals(*split.negative)));
  }
  return decimals;
}

}  // namespace foretoken::grammar
