#include "common/text/jinja/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/unicode.h"
#include "common/text/utf8.h"

namespace foretoken::jinja {
namespace {

using Kind = Value::Kind;

// int() and float() ignore Unicode white space around a number.
absl::string_view StripSpaces(absl::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (!IsSpace(step.code_point)) break;
    text.remove_prefix(step.length);
  }
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    if (!IsSpace(NextUtf8(text.substr(begin)).code_point)) break;
    text = text.substr(0, begin);
  }
  return text;
}

// Removes the underscores between digits (PEP 515); nullopt if one stands
// elsewhere. Digits of every base count here; the parsers check the base.
std::optional<std::string> WithoutUnderscores(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || i + 1 == text.size() ||
               !absl::ascii_isalnum(text[i - 1]) ||
               !absl::ascii_isalnum(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

// Text of a scalar, as str() writes it; empty for other kinds.
std::string ScalarText(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.integer() != 0 ? "True" : "False";
    case Kind::kInteger:
      return absl::StrCat(value.integer());
    case Kind::kFloat:
      return FloatText(value.number());
    case Kind::kUndefined:
      return "Undefined";
    default:
      return "";
  }
}

// Python's repr(). Brackets and quotes that it adds itself count as given by
// the request: texts of the request stand among it, and a control token must
// not be spelled by parts of both.
class ReprWriter {
 public:
  ReprWriter(Budget& budget, TextBuilder& out) : budget_(budget), out_(out) {}

  absl::Status Write(const Value& value) {
    FORETOKEN_RETURN_IF_ERROR(budget_.Spend(1));
    switch (value.kind()) {
      case Kind::kString:
        WriteString(value.text());
        return budget_.status();
      case Kind::kList:
        return WriteItems(value.list().items(), "[", "]");
      case Kind::kTuple:
        return WriteItems(value.list().items(), "(",
                          value.list().items().size() == 1 ? ",)" : ")");
      case Kind::kDict:
        return WriteDict(value.dict());
      case Kind::kNamespace:
      case Kind::kGenerator:
      case Kind::kLoop:
      case Kind::kCallable:
        return absl::InvalidArgumentError(
            absl::StrCat("a ", value.TypeName(), " cannot be printed"));
      default:
        out_.Append(ScalarText(value), value.origin());
        return budget_.status();
    }
  }

 private:
  absl::Status WriteItems(const Values& items, absl::string_view open,
                          absl::string_view close) {
    out_.Append(open, Origin::kRequest);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(", ", Origin::kRequest);
      FORETOKEN_RETURN_IF_ERROR(Write(items[i]));
    }
    out_.Append(close, Origin::kRequest);
    return budget_.status();
  }

  absl::Status WriteDict(const Dict& dict) {
    out_.Append("{", Origin::kRequest);
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out_.Append(", ", Origin::kRequest);
      first = false;
      FORETOKEN_RETURN_IF_ERROR(Write(key));
      out_.Append(": ", Origin::kRequest);
      FORETOKEN_RETURN_IF_ERROR(Write(value));
    }
    out_.Append("}", Origin::kRequest);
    return budget_.status();
  }

  void WriteString(const Text& text) {
    if (!budget_.SpendQuietly(CharacterSteps(text.size()))) return;
    const bool double_quotes = text.bytes().find('\'') != std::string::npos &&
                               text.bytes().find('"') == std::string::npos;
    // Python prefers single quotes, and takes double ones to escape less.
    const char quote = double_quotes ? '"' : '\'';
    out_.Append(absl::string_view(&quote, 1), Origin::kRequest);
    size_t begin = 0;
    for (const Text::Run& run : text.runs()) {
      out_.Append(
          Escape(absl::string_view(text.bytes()).substr(begin, run.end - begin),
                 quote),
          run.origin);
      begin = run.end;
    }
    out_.Append(absl::string_view(&quote, 1), Origin::kRequest);
  }

  // Escapes in the shortest of \x, \u and \U that holds the code point.
  static std::string Escape(absl::string_view text, char quote) {
    std::string out;
    while (!text.empty()) {
      const Utf8Step step = NextUtf8(text);
      const uint32_t c = step.code_point;
      if (c == static_cast<uint8_t>(quote) || c == '\\') {
        out.push_back('\\');
        out.push_back(static_cast<char>(c));
      } else if (c == '\n') {
        out += "\\n";
      } else if (c == '\r') {
        out += "\\r";
      } else if (c == '\t') {
        out += "\\t";
      } else if (IsPrintable(c)) {
        out.append(text.data(), step.length);
      } else if (c < 0x100) {
        absl::StrAppendFormat(&out, "\\x%02x", c);
      } else if (c < 0x10000) {
        absl::StrAppendFormat(&out, "\\u%04x", c);
      } else {
        absl::StrAppendFormat(&out, "\\U%08x", c);
      }
      text.remove_prefix(step.length);
    }
    return out;
  }

  Budget& budget_;
  TextBuilder& out_;
};

// json.dumps(), in the style of the filter. Text that it adds itself counts as
// the request's, as in ReprWriter. Recursion is bounded by kMaxNesting.
class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style, TextBuilder& out)
      : budget_(budget), style_(style), out_(out) {}

  absl::Status Write(const Value& value, int level) {
    FORETOKEN_RETURN_IF_ERROR(budget_.Spend(1));
    switch (value.kind()) {
      case Kind::kNone:
        return Plain("null");
      case Kind::kBool:
        return Plain(value.integer() != 0 ? "true" : "false");
      case Kind::kInteger:
        return Plain(absl::StrCat(value.integer()));
      case Kind::kFloat:
        return Plain(JsonFloat(value.number()));
      case Kind::kString:
        WriteString(value.text());
        return budget_.status();
      case Kind::kList:
      case Kind::kTuple:
        return WriteList(value.list().items(), level);
      case Kind::kDict:
        return WriteDict(value.dict(), level);
      default:
        return absl::InvalidArgumentError(absl::StrCat(
            "Object of type ", value.TypeName(), " is not JSON serializable"));
    }
  }

 private:
  absl::Status Plain(absl::string_view text) {
    out_.Append(text, Origin::kRequest);
    return budget_.status();
  }

  static std::string JsonFloat(double number) {
    // Not JSON, but what Python's json writes.
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return FloatText(number);
  }

  void NewLine(int level) {
    if (!style_.indent.has_value()) return;
    out_.Append("\n", Origin::kRequest);
    for (int i = 0; i < level; ++i) {
      if (!out_.Append(*style_.indent, Origin::kRequest)) return;
    }
  }

  absl::Status WriteList(const Values& items, int level) {
    // Empty containers stay on one line, also with an indent.
    if (items.empty()) return Plain("[]");
    out_.Append("[", Origin::kRequest);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator, Origin::kRequest);
      NewLine(level + 1);
      FORETOKEN_RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    NewLine(level);
    return Plain("]");
  }

  absl::Status WriteDict(const Dict& dict, int level) {
    if (dict.entries().empty()) return Plain("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      // A comparison that fails calls its keys equal, which keeps the order
      // valid for the sort; the error is reported after it.
      absl::Status failed;
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) {
                         const auto less = Less(budget_, a->first, b->first);
                         if (!less.ok()) failed = less.status();
                         return less.ok() && *less;
                       });
      FORETOKEN_RETURN_IF_ERROR(failed);
    }
    out_.Append("{", Origin::kRequest);
    bool first = true;
    for (const auto* entry : entries) {
      if (!first) out_.Append(style_.item_separator, Origin::kRequest);
      first = false;
      NewLine(level + 1);
      const Value& key = entry->first;
      if (key.IsString()) {
        WriteString(key.text());
      } else {
        out_.Append("\"", Origin::kRequest);
        FORETOKEN_RETURN_IF_ERROR(Write(key, level + 1));
        out_.Append("\"", Origin::kRequest);
      }
      out_.Append(style_.key_separator, Origin::kRequest);
      FORETOKEN_RETURN_IF_ERROR(Write(entry->second, level + 1));
    }
    NewLine(level);
    return Plain("}");
  }

  void WriteString(const Text& text) {
    if (!budget_.SpendQuietly(CharacterSteps(text.size()))) return;
    out_.Append("\"", Origin::kRequest);
    size_t begin = 0;
    for (const Text::Run& run : text.runs()) {
      out_.Append(
          Escape(
              absl::string_view(text.bytes()).substr(begin, run.end - begin)),
          run.origin);
      begin = run.end;
    }
    out_.Append("\"", Origin::kRequest);
  }

  std::string Escape(absl::string_view text) const {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
      const Utf8Step step = NextUtf8(text);
      const uint32_t c = step.code_point;
      switch (c) {
        case '"':
          out += "\\\"";
          break;
        case '\\':
          out += "\\\\";
          break;
        case '\n':
          out += "\\n";
          break;
        case '\r':
          out += "\\r";
          break;
        case '\t':
          out += "\\t";
          break;
        case '\f':
          out += "\\f";
          break;
        case '\b':
          out += "\\b";
          break;
        default:
          if (c < 0x20 || (c > 0x7E && style_.ensure_ascii)) {
            if (c < 0x10000) {
              absl::StrAppendFormat(&out, "\\u%04x", c);
            } else {
              // A surrogate pair; 0xD7C0 is 0xD800 less 0x10000 >> 10.
              absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10),
                                    0xDC00 + (c & 0x3FF));
            }
          } else {
            out.append(text.data(), step.length);
          }
      }
      text.remove_prefix(step.length);
    }
    return out;
  }

  Budget& budget_;
  const JsonStyle& style_;
  TextBuilder& out_;
};

// Takes the sign off a number. True: it is negative.
bool TakeSign(absl::string_view& digits) {
  if (absl::ConsumePrefix(&digits, "-")) return true;
  absl::ConsumePrefix(&digits, "+");
  return false;
}

}  // namespace

std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  // The shortest digits that read back as the same number, as Python's repr
  // gives; only the layout differs from to_chars.
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number,
                                 std::chars_format::scientific);
  const absl::string_view shortest(buffer, end.ptr - buffer);
  const size_t e = shortest.find('e');
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (absl::ascii_isdigit(c)) digits.push_back(c);
  }
  int exponent = 0;
  absl::string_view power = shortest.substr(e + 1);
  if (power[0] == '+') power.remove_prefix(1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string out = std::signbit(number) ? "-" : "";
  // Python writes an exponent below -4 and from 16 on.
  if (exponent < -4 || exponent >= 16) {
    out.push_back(digits[0]);
    if (digits.size() > 1) absl::StrAppend(&out, ".", digits.substr(1));
    absl::StrAppendFormat(&out, "e%c%02d", exponent < 0 ? '-' : '+',
                          std::abs(exponent));
    return out;
  }
  if (exponent < 0) {
    absl::StrAppend(&out, "0.", std::string(-exponent - 1, '0'), digits);
    return out;
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) {
    absl::StrAppend(&out, digits, std::string(whole - digits.size(), '0'),
                    ".0");
  } else {
    absl::StrAppend(&out, digits.substr(0, whole), ".", digits.substr(whole));
  }
  return out;
}

std::optional<int64_t> ParseInteger(absl::string_view text, int base) {
  std::optional<std::string> clean = WithoutUnderscores(StripSpaces(text));
  if (!clean.has_value()) return std::nullopt;
  absl::string_view digits = *clean;
  const bool negative = TakeSign(digits);
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = absl::ascii_tolower(digits[1]);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      digits.remove_prefix(2);
      base = marked;
    }
  }
  // Base 0, that of template literals, means the prefix's base, or 10 without
  // one.
  if (base == 0) base = 10;
  if (base < 2 || base > 36) return std::nullopt;
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  const std::string number = absl::StrCat(negative ? "-" : "", digits);
  int64_t value = 0;
  const char* const end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, value, base);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

std::optional<double> ParseFloat(absl::string_view text) {
  std::optional<std::string> clean = WithoutUnderscores(StripSpaces(text));
  if (!clean.has_value()) return std::nullopt;
  absl::string_view digits = *clean;
  const bool negative = TakeSign(digits);
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  // from_chars also reads nan(...), which Python does not.
  if (digits.find('(') != absl::string_view::npos) return std::nullopt;
  double value = 0;
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    // Python gives infinity for a number that is too large and 0 for one that
    // is too small; the sign of the exponent tells which.
    const size_t e = digits.find_first_of("eE");
    const bool small =
        e != absl::string_view::npos && digits.find('-', e) == e + 1;
    value = small ? 0 : std::numeric_limits<double>::infinity();
  } else if (parsed.ec != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

absl::StatusOr<Text> ToText(Budget& budget, const Value& value) {
  if (value.IsString()) {
    FORETOKEN_RETURN_IF_ERROR(budget.Spend(ByteSteps(value.text().size())));
    return value.text();
  }
  if (value.Is(Kind::kUndefined)) return Text();
  TextBuilder out(budget);
  FORETOKEN_RETURN_IF_ERROR(ReprWriter(budget, out).Write(value));
  return out.Finish();
}

absl::StatusOr<Text> ToJson(Budget& budget, const Value& value,
                            const JsonStyle& style) {
  TextBuilder out(budget);
  FORETOKEN_RETURN_IF_ERROR(JsonWriter(budget, style, out).Write(value, 0));
  return out.Finish();
}

}  // namespace foretoken::jinja
