#include "common/text/jinja/filters.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/python_text.h"
#include "common/text/jinja/string_methods.h"
#include "common/text/jinja/tests.h"
#include "common/text/jinja/unicode.h"
#include "common/text/utf8.h"

namespace foretoken::jinja {
namespace {

using Kind = Value::Kind;
using ValueOr = absl::StatusOr<Value>;

// One application of a filter. `name` matters to functions that serve several
// filters: min and max, select and reject, upper and lower.
struct Call {
  Budget& budget;
  absl::string_view name;
  const Value& value;
  const Arguments& arguments;

  absl::StatusOr<BoundArguments> Bind(
      std::initializer_list<absl::string_view> names,
      size_t required = 0) const {
    return BoundArguments::Bind(name, arguments, names, required);
  }
  absl::StatusOr<Text> AsText() const { return ToText(budget, value); }
  absl::StatusOr<Values> Items() const { return Iterate(budget, value); }
};

// --- attributes by path -----------------------------------------------------

// Follows "a.b.0", a path of attributes; a part of digits is an index, as in
// jinja2's make_attrgetter. `otherwise` replaces an undefined value at any
// step.
ValueOr FollowPath(Budget& budget, Value item, absl::string_view path,
                   const Value* otherwise) {
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    FORETOKEN_RETURN_IF_ERROR(budget.Spend(1 + ByteSteps(part.size())));
    int64_t index = 0;
    const Value key = absl::SimpleAtoi(part, &index) ? Value::Integer(index)
                                                     : Value::String(part);
    FORETOKEN_ASSIGN_OR_RETURN(item, GetItem(budget, item, key));
    if (otherwise != nullptr && item.Is(Kind::kUndefined)) item = *otherwise;
  }
  return item;
}

// The same for a filter's `attribute` argument, which may also be an index.
// Without one, the value is the item itself.
ValueOr FollowAttribute(Budget& budget, const Value& item,
                        const Value& attribute,
                        const Value* otherwise = nullptr) {
  if (attribute.IsString()) {
    return FollowPath(budget, item, attribute.text().bytes(), otherwise);
  }
  if (!attribute.IsInt()) return item;
  return GetItem(budget, item, attribute);
}

// Key of a case-insensitive comparison, the default of jinja2's sort, unique,
// min and max. Values other than strings compare as they are.
ValueOr IgnoreCase(Budget& budget, const Value& value) {
  if (!value.IsString()) return value;
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(CharacterSteps(value.text().size())));
  return MakeString(budget, ChangeCase(value.text(), Case::kLower));
}

// --- scalars and strings ----------------------------------------------------

ValueOr Abs(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  const Value& v = call.value;
  if (v.IsNumber() && v.number() < 0) return Unary(Op::kNegate, v);
  return Unary(Op::kPlus, v);  // also refuses what is no number
}

ValueOr Default(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"default_value", "boolean"}));
  if (call.value.Is(Kind::kUndefined) ||
      // default(x, true) also replaces false values such as "", 0 and none.
      (bound.Flag(1, false) && !call.value.Truthy())) {
    return bound.Has(0) ? bound[0] : Value::String("");
  }
  return call.value;
}

ValueOr ToInteger(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"default", "base"}));
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t base, bound.Integer(1, 10));
  // Three attempts, as in jinja2's do_int: the whole text as an integer, then
  // as a float ("42.9" gives 42), then the default. None of them is an error.
  const Value& v = call.value;
  if (v.Is(Kind::kUndefined)) return v.UndefinedError();
  if (v.IsInt()) return Value::Integer(v.integer(), v.origin());
  std::optional<double> number;
  Origin origin = v.origin();
  if (v.IsString()) {
    // The text is copied and read twice, by character.
    FORETOKEN_RETURN_IF_ERROR(
        call.budget.Spend(2 * CharacterSteps(v.text().size())));
    if (v.text().FromRequest()) origin = Origin::kRequest;
    const auto integer = ParseInteger(
        v.text().bytes(), static_cast<int>(std::clamp<int64_t>(base, 0, 37)));
    if (integer.has_value()) return Value::Integer(*integer, origin);
    number = ParseFloat(v.text().bytes());
  } else if (v.Is(Kind::kFloat)) {
    number = v.number();
  }
  // Below 2^63 with some margin, so that the cast is defined; written so that
  // NaN fails, too. Python's integers have no such limit.
  if (!number.has_value() || !(std::abs(*number) < 9.2e18)) {
    return bound.Has(0) ? bound[0] : Value::Integer(0);
  }
  return Value::Integer(static_cast<int64_t>(*number), origin);
}

ValueOr ToFloat(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"default"}));
  const Value& v = call.value;
  if (v.Is(Kind::kUndefined)) return v.UndefinedError();
  if (v.IsNumber()) return Value::Float(v.number(), v.origin());
  if (v.IsString()) {
    FORETOKEN_RETURN_IF_ERROR(
        call.budget.Spend(CharacterSteps(v.text().size())));
    const auto number = ParseFloat(v.text().bytes());
    if (number.has_value()) {
      return Value::Float(*number, v.text().FromRequest() ? Origin::kRequest
                                                          : Origin::kTemplate);
    }
  }
  return bound.Has(0) ? bound[0] : Value::Float(0);
}

// The result is a float, also for ceil and floor; only "common" keeps an int an
// int, as Python's round() does.
ValueOr Round(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"precision", "method"}));
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t precision, bound.Integer(0, 0));
  const std::string method =
      bound.Has(1) && bound[1].IsString() ? bound[1].text().bytes() : "common";
  const Value& v = call.value;
  if (!v.IsNumber()) return Unary(Op::kPlus, v);
  // Within the range of a double, so that 10^precision is neither 0 nor
  // infinite.
  if (precision < -300 || precision > 300) {
    return absl::InvalidArgumentError("round() to more than 300 digits");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") {
    return Value::Float(std::ceil(v.number() * scale) / scale, v.origin());
  }
  if (method == "floor") {
    return Value::Float(std::floor(v.number() * scale) / scale, v.origin());
  }
  if (method != "common") {
    return absl::InvalidArgumentError("method must be common, ceil or floor");
  }
  if (v.IsInt() && precision >= 0) {
    return Value::Integer(v.integer(), v.origin());
  }
  double rounded = v.number();
  if (precision < 0) {
    rounded = std::nearbyint(rounded * scale) / scale;
  } else if (std::isfinite(rounded)) {
    // Rounds the exact value, half to even, as Python does.
    // A double has at most 309 digits before the point, and the precision adds
    // at most 300.
    char digits[700];
    std::snprintf(digits, sizeof(digits), "%.*f", static_cast<int>(precision),
                  rounded);
    rounded = std::strtod(digits, nullptr);
  }
  if (v.IsInt()) {
    return Value::Integer(static_cast<int64_t>(rounded), v.origin());
  }
  return Value::Float(rounded, v.origin());
}

ValueOr ToString(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  if (call.value.IsString()) return call.value;
  FORETOKEN_ASSIGN_OR_RETURN(Text text, call.AsText());
  return Value::String(std::move(text));
}

// upper, lower, capitalize.
ValueOr CaseFilter(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const Text text, call.AsText());
  return CallStringMethod(call.budget, text, call.name, call.arguments);
}

// Capitals after white space and opening brackets, as Jinja's own rule has it.
ValueOr Title(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  FORETOKEN_ASSIGN_OR_RETURN(const Text text, call.AsText());
  FORETOKEN_RETURN_IF_ERROR(call.budget.Spend(CharacterSteps(text.size()),
                                              sizeof(size_t) * text.size()));
  const std::vector<size_t> offsets = CharacterOffsets(text.bytes());
  TextBuilder out(call.budget);
  const auto is_border = [&](size_t i) {
    const absl::string_view c =
        absl::string_view(text.bytes())
            .substr(offsets[i], offsets[i + 1] - offsets[i]);
    return IsSpace(NextUtf8(c).code_point) || absl::StrContains("-({[<", c);
  };
  for (size_t i = 0; i + 1 < offsets.size();) {
    FORETOKEN_RETURN_IF_ERROR(call.budget.Spend(1));
    // Each turn copies one run of borders, raises the character after it and
    // lowers the word up to the next border. `offsets` ends with the size of
    // the text, so i + 1 < offsets.size() means that a character is left.
    size_t end = i;
    while (end + 1 < offsets.size() && is_border(end)) ++end;
    out.Append(text, offsets[i], offsets[end]);
    if (end + 1 == offsets.size()) break;
    out.Append(
        ChangeCase(text.Slice(offsets[end], offsets[end + 1]), Case::kUpper));
    i = end + 1;
    while (end + 1 < offsets.size() && !is_border(end)) ++end;
    out.Append(ChangeCase(text.Slice(offsets[i], offsets[end]), Case::kLower));
    i = end;
  }
  return out.FinishValue();
}

ValueOr Trim(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"chars"}));
  FORETOKEN_ASSIGN_OR_RETURN(const Text text, call.AsText());
  const Text* characters = nullptr;
  if (bound.Has(0) && !bound[0].Is(Kind::kNone)) {
    FORETOKEN_ASSIGN_OR_RETURN(characters, bound.String(0));
  }
  return Strip(call.budget, text, characters, true, true);
}

ValueOr ReplaceFilter(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"old", "new", "count"}, 2));
  FORETOKEN_ASSIGN_OR_RETURN(const Text text, call.AsText());
  FORETOKEN_ASSIGN_OR_RETURN(const Text from, ToText(call.budget, bound[0]));
  FORETOKEN_ASSIGN_OR_RETURN(const Text to, ToText(call.budget, bound[1]));
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t count, bound.Integer(2, -1));
  return Replace(call.budget, text, from, to, count);
}

ValueOr Indent(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"width", "first", "blank"}));
  Text indent;
  if (bound.Has(0) && bound[0].IsString()) {
    indent = bound[0].text();
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 4));
    // The template chooses the width: pay for it before it is allocated.
    FORETOKEN_RETURN_IF_ERROR(
        call.budget.Spend(0, static_cast<size_t>(std::max<int64_t>(width, 0))));
    indent = Text(std::string(std::max<int64_t>(width, 0), ' '));
  }
  if (call.value.Is(Kind::kUndefined)) return call.value.UndefinedError();
  if (!call.value.IsString()) {
    return absl::InvalidArgumentError("indent wants a string");
  }
  // jinja2 appends a line end before it splits, so that a final one survives
  // splitlines().
  FORETOKEN_RETURN_IF_ERROR(
      call.budget.Spend(ByteSteps(call.value.text().size())));
  Text text = call.value.text();
  text.Append("\n", Origin::kTemplate);
  FORETOKEN_RETURN_IF_ERROR(call.budget.Spend(0, text.size()));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Text> lines,
                             SplitLines(call.budget, text));
  TextBuilder out(call.budget);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n", Origin::kTemplate);
    // The first line is indented only if `first` is set, and an empty line only
    // if `blank` is, by jinja2's defaults.
    const bool wanted = i == 0 ? bound.Flag(1, false)
                               : bound.Flag(2, false) || !lines[i].empty();
    if (wanted) out.Append(indent);
    if (!out.Append(lines[i])) break;
  }
  return out.FinishValue();
}

// The five replacements of markupsafe.escape. Every one takes the origin of the
// character that it replaces, so that escaping a request's text does not turn
// it into the template's.
ValueOr Escape(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  FORETOKEN_ASSIGN_OR_RETURN(const Text text, call.AsText());
  FORETOKEN_RETURN_IF_ERROR(call.budget.Spend(CharacterSteps(text.size())));
  TextBuilder out(call.budget);
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    for (; begin < run.end; ++begin) {
      const char c = text.bytes()[begin];
      const absl::string_view escaped = c == '&'    ? "&amp;"
                                        : c == '<'  ? "&lt;"
                                        : c == '>'  ? "&gt;"
                                        : c == '\'' ? "&#39;"
                                        : c == '"'  ? "&#34;"
                                                    : absl::string_view(&c, 1);
      out.Append(escaped, run.origin);
    }
  }
  return out.FinishValue();
}

ValueOr Center(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"width"}));
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 80));
  FORETOKEN_ASSIGN_OR_RETURN(const Text text, call.AsText());
  FORETOKEN_RETURN_IF_ERROR(call.budget.Spend(ByteSteps(text.size())));
  const int64_t missing = std::max<int64_t>(
      width - static_cast<int64_t>(CountCharacters(text.bytes())), 0);
  // Bytes first: too wide a text is refused for its memory, not its steps.
  FORETOKEN_RETURN_IF_ERROR(call.budget.Spend(0, static_cast<size_t>(missing)));
  FORETOKEN_RETURN_IF_ERROR(
      call.budget.Spend(CharacterSteps(static_cast<size_t>(missing))));
  // CPython's rounding of an odd margin: the extra character goes to the left
  // only where the width is odd, too.
  const int64_t left = missing / 2 + (missing & width & 1);
  TextBuilder out(call.budget);
  const Text space(" ");
  for (int64_t i = 0; i < left && out.Append(space);) ++i;
  out.Append(text, 0, text.size());
  for (int64_t i = left; i < missing && out.Append(space);) ++i;
  return out.FinishValue();
}

// Element i of the pair (item separator, key separator) that json.dumps takes.
absl::StatusOr<std::string> Separator(Budget& budget, const Value& pair,
                                      size_t i) {
  if (!pair.IsSequence() || pair.list().items().size() != 2 ||
      !pair.list().items()[i].IsString()) {
    return absl::InvalidArgumentError("separators wants two strings");
  }
  const Text& text = pair.list().items()[i].text();
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(ByteSteps(text.size())));
  return text.bytes();
}

// transformers replaces Jinja's tojson with json.dumps and these parameters:
// HTML characters are not escaped and keys keep their order.
ValueOr ToJsonFilter(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto bound,
      call.Bind({"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.Flag(0, false);
  style.sort_keys = bound.Flag(3, false);
  if (bound.Has(1) && bound[1].IsString()) {
    FORETOKEN_RETURN_IF_ERROR(
        call.budget.Spend(ByteSteps(bound[1].text().size())));
    style.indent = bound[1].text().bytes();
  } else if (bound.Has(1) && !bound[1].Is(Kind::kNone)) {
    FORETOKEN_ASSIGN_OR_RETURN(const int64_t width, bound.Integer(1, 0));
    if (width > 1000) return absl::InvalidArgumentError("indent above 1000");
    style.indent = std::string(std::max<int64_t>(width, 0), ' ');
  }
  // json.dumps leaves out the blank after a comma where it breaks lines.
  style.item_separator = style.indent.has_value() ? "," : ", ";
  style.key_separator = ": ";
  if (bound.Has(2) && !bound[2].Is(Kind::kNone)) {
    FORETOKEN_ASSIGN_OR_RETURN(style.item_separator,
                               Separator(call.budget, bound[2], 0));
    FORETOKEN_ASSIGN_OR_RETURN(style.key_separator,
                               Separator(call.budget, bound[2], 1));
  }
  FORETOKEN_ASSIGN_OR_RETURN(Text text, ToJson(call.budget, call.value, style));
  return Value::String(std::move(text));
}

// --- sequences --------------------------------------------------------------

ValueOr LengthFilter(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t length,
                             Length(call.budget, call.value));
  return Value::Integer(length);
}

ValueOr First(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
  if (!items.empty()) return items.front();
  return Value::Undefined("No first item, sequence was empty.");
}

ValueOr Last(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  // jinja2 calls reversed(), which wants a sequence.
  if (call.value.Is(Kind::kGenerator)) {
    return absl::InvalidArgumentError("'generator' object is not reversible");
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
  if (!items.empty()) return items.back();
  return Value::Undefined("No last item, sequence was empty.");
}

ValueOr Join(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"d", "attribute"}));
  FORETOKEN_ASSIGN_OR_RETURN(const Text separator,
                             ToText(call.budget, bound[0]));
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
  TextBuilder out(call.budget);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(separator);
    FORETOKEN_ASSIGN_OR_RETURN(
        const Value item, FollowAttribute(call.budget, items[i], bound[1]));
    FORETOKEN_ASSIGN_OR_RETURN(const Text text, ToText(call.budget, item));
    if (!out.Append(text)) break;
  }
  return out.FinishValue();
}

ValueOr ToList(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  FORETOKEN_ASSIGN_OR_RETURN(Values items, call.Items());
  return MakeList(call.budget, std::move(items));
}

ValueOr Reverse(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  FORETOKEN_ASSIGN_OR_RETURN(Values items, call.Items());
  std::reverse(items.begin(), items.end());
  // jinja2 returns a lazy iterator, except for a string, which it reverses at
  // once.
  if (!call.value.IsString()) {
    return MakeGenerator(call.budget, std::move(items));
  }
  TextBuilder out(call.budget);
  for (const Value& character : items) out.Append(character.text());
  return out.FinishValue();
}

ValueOr ItemsFilter(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  Values items;
  // An undefined value has no items; any other value that is not a mapping is
  // an error. A template may iterate over an optional argument this way.
  if (!call.value.Is(Kind::kUndefined)) {
    if (!call.value.Is(Kind::kDict)) {
      return absl::InvalidArgumentError(
          "Can only get item pairs from a mapping.");
    }
    for (const auto& [key, value] : call.value.dict().entries()) {
      FORETOKEN_ASSIGN_OR_RETURN(Value pair,
                                 MakeTuple(call.budget, {key, value}));
      items.push_back(std::move(pair));
    }
  }
  return MakeGenerator(call.budget, std::move(items));
}

// Sorts `items` by `keys`, of the same number. Stable in both directions:
// `reverse` swaps the operands instead of reversing the result, so that equal
// items keep their order, as in Python's sorted(reverse=True).
absl::StatusOr<Values> SortBy(Budget& budget, const Values& items,
                              const Values& keys, bool reverse) {
  // The order, the buffer that a stable sort takes, and the result.
  FORETOKEN_RETURN_IF_ERROR(
      budget.Spend(0, (2 * sizeof(size_t) + sizeof(Value)) * items.size()));
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // A comparison may fail (values that have no order, a spent budget), but a
  // comparator cannot return an error. After the first one, every pair compares
  // as equal, which ends the sort without further work.
  absl::Status failed;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!failed.ok()) return false;
    const auto less = reverse ? Less(budget, keys[b], keys[a])
                              : Less(budget, keys[a], keys[b]);
    if (!less.ok()) failed = less.status();
    return less.ok() && *less;
  });
  FORETOKEN_RETURN_IF_ERROR(failed);
  Values sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

ValueOr Sort(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto bound, call.Bind({"reverse", "case_sensitive", "attribute"}));
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
  // A key is always a list, of one element or more, so that Less compares
  // attribute by attribute.
  Values keys;
  for (const Value& item : items) {
    Values parts;  // "a,b" sorts by a, then by b
    if (bound[2].IsString()) {
      for (const absl::string_view path :
           absl::StrSplit(bound[2].text().bytes(), ',')) {
        FORETOKEN_ASSIGN_OR_RETURN(
            Value part, FollowPath(call.budget, item, path, nullptr));
        parts.push_back(std::move(part));
      }
    } else {
      FORETOKEN_ASSIGN_OR_RETURN(Value part,
                                 FollowAttribute(call.budget, item, bound[2]));
      parts.push_back(std::move(part));
    }
    if (!bound.Flag(1, false)) {
      for (Value& part : parts) {
        FORETOKEN_ASSIGN_OR_RETURN(part, IgnoreCase(call.budget, part));
      }
    }
    FORETOKEN_ASSIGN_OR_RETURN(Value key,
                               MakeList(call.budget, std::move(parts)));
    keys.push_back(std::move(key));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      Values sorted, SortBy(call.budget, items, keys, bound.Flag(0, false)));
  return MakeList(call.budget, std::move(sorted));
}

ValueOr DictSort(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"case_sensitive", "by", "reverse"}));
  if (!call.value.Is(Kind::kDict)) {
    return absl::InvalidArgumentError("dictsort wants a dict");
  }
  const bool by_value =
      bound[1].IsString() && bound[1].text().bytes() == "value";
  Values items;
  Values keys;
  for (const auto& [key, value] : call.value.dict().entries()) {
    FORETOKEN_ASSIGN_OR_RETURN(Value pair,
                               MakeTuple(call.budget, {key, value}));
    items.push_back(std::move(pair));
    const Value& by = by_value ? value : key;
    Value sorted_by = by;
    if (!bound.Flag(0, false)) {
      FORETOKEN_ASSIGN_OR_RETURN(sorted_by, IgnoreCase(call.budget, by));
    }
    keys.push_back(std::move(sorted_by));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      Values sorted, SortBy(call.budget, items, keys, bound.Flag(2, false)));
  return MakeList(call.budget, std::move(sorted));
}

ValueOr Unique(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"case_sensitive", "attribute"}));
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
  Dict seen;
  Values unique;
  for (const Value& item : items) {
    FORETOKEN_ASSIGN_OR_RETURN(Value key,
                               FollowAttribute(call.budget, item, bound[1]));
    if (!bound.Flag(0, false)) {
      FORETOKEN_ASSIGN_OR_RETURN(key, IgnoreCase(call.budget, key));
    }
    FORETOKEN_ASSIGN_OR_RETURN(const Value* const known,
                               FindKey(call.budget, seen, key));
    if (known != nullptr) continue;
    FORETOKEN_RETURN_IF_ERROR(
        SetKey(call.budget, seen, std::move(key), Value::None()));
    unique.push_back(item);
  }
  // MakeDict charges the budget for the entries; the dict itself is not needed
  // any more.
  FORETOKEN_RETURN_IF_ERROR(MakeDict(call.budget, std::move(seen)).status());
  return MakeGenerator(call.budget, std::move(unique));
}

// min and max.
ValueOr Extreme(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"case_sensitive", "attribute"}));
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
  if (items.empty()) {
    return Value::Undefined("No aggregated item, sequence was empty.");
  }
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(
        Value key, FollowAttribute(call.budget, items[i], bound[1]));
    if (!bound.Flag(0, false)) {
      FORETOKEN_ASSIGN_OR_RETURN(key, IgnoreCase(call.budget, key));
    }
    // Strictly better only: of equal items the first is returned, as by
    // Python's min() and max().
    bool better = i == 0;
    if (!better) {
      FORETOKEN_ASSIGN_OR_RETURN(
          better, call.name == "min" ? Less(call.budget, key, best_key)
                                     : Less(call.budget, best_key, key));
    }
    if (!better) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

ValueOr Sum(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"attribute", "start"}));
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
  Value total = bound.Has(1) ? bound[1] : Value::Integer(0);
  for (const Value& item : items) {
    FORETOKEN_ASSIGN_OR_RETURN(const Value value,
                               FollowAttribute(call.budget, item, bound[0]));
    FORETOKEN_ASSIGN_OR_RETURN(total,
                               Arithmetic(call.budget, Op::kAdd, total, value));
  }
  return total;
}

// The name of a filter or test among the positional arguments, with the
// arguments after it, for filters that apply others (map, select).
absl::StatusOr<std::pair<std::string, Arguments>> NamedCall(
    Budget& budget, const Arguments& arguments, size_t at) {
  const Value& name = arguments.positional[at];
  if (!name.IsString()) {
    return absl::InvalidArgumentError("the name of a filter must be a string");
  }
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(ByteSteps(name.text().size())));
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + at + 1,
                         arguments.positional.end());
  rest.named = arguments.named;
  return std::pair(name.text().bytes(), std::move(rest));
}

ValueOr Map(const Call& call) {
  Values mapped;
  // map(attribute='a') reads an attribute; map('name', ...) applies a filter.
  if (call.arguments.positional.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                               call.Bind({"attribute", "default"}, 1));
    const Value* const otherwise =
        bound.Has(1) && !bound[1].Is(Kind::kNone) ? &bound[1] : nullptr;
    FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
    for (const Value& item : items) {
      FORETOKEN_ASSIGN_OR_RETURN(
          Value value, FollowAttribute(call.budget, item, bound[0], otherwise));
      mapped.push_back(std::move(value));
    }
    return MakeGenerator(call.budget, std::move(mapped));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const auto filter,
                             NamedCall(call.budget, call.arguments, 0));
  // Without this, map('map', 'map', ...) would recurse once per argument.
  if (filter.first == "map") {
    return absl::InvalidArgumentError("map of map is not supported");
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
  for (const Value& item : items) {
    FORETOKEN_ASSIGN_OR_RETURN(
        Value value,
        CallFilter(call.budget, filter.first, item, filter.second));
    mapped.push_back(std::move(value));
  }
  return MakeGenerator(call.budget, std::move(mapped));
}

// select, reject, selectattr and rejectattr.
ValueOr Select(const Call& call) {
  const bool by_attribute = call.name.size() > 6;  // the longer two names
  const bool wanted = call.name[0] == 's';
  const Values& arguments = call.arguments.positional;
  if (by_attribute && arguments.empty()) {
    return absl::InvalidArgumentError("Missing parameter for attribute name");
  }
  const size_t at = by_attribute ? 1 : 0;
  std::pair<std::string, Arguments> test;
  if (arguments.size() > at) {
    FORETOKEN_ASSIGN_OR_RETURN(test,
                               NamedCall(call.budget, call.arguments, at));
  }
  Values selected;
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, call.Items());
  for (const Value& item : items) {
    Value tested = item;
    if (by_attribute) {
      FORETOKEN_ASSIGN_OR_RETURN(
          tested, FollowAttribute(call.budget, item, arguments[0]));
    }
    // Without a test, jinja2 selects by truth.
    bool passes = tested.Truthy();
    if (!test.first.empty()) {
      FORETOKEN_ASSIGN_OR_RETURN(
          passes, CallTest(call.budget, test.first, tested, test.second));
    }
    if (passes == wanted) selected.push_back(item);
  }
  return MakeGenerator(call.budget, std::move(selected));
}

using Filter = ValueOr (*)(const Call&);

const absl::flat_hash_map<absl::string_view, Filter>& Filters() {
  static const auto* const filters =
      new absl::flat_hash_map<absl::string_view, Filter>{
          {"abs", Abs},
          {"capitalize", CaseFilter},
          {"center", Center},
          {"count", LengthFilter},
          {"d", Default},
          {"default", Default},
          {"dictsort", DictSort},
          {"e", Escape},
          {"escape", Escape},
          {"first", First},
          {"float", ToFloat},
          {"indent", Indent},
          {"int", ToInteger},
          {"items", ItemsFilter},
          {"join", Join},
          {"last", Last},
          {"length", LengthFilter},
          {"list", ToList},
          {"lower", CaseFilter},
          {"map", Map},
          {"max", Extreme},
          {"min", Extreme},
          {"reject", Select},
          {"rejectattr", Select},
          {"replace", ReplaceFilter},
          {"reverse", Reverse},
          {"round", Round},
          {"safe", ToString},
          {"select", Select},
          {"selectattr", Select},
          {"sort", Sort},
          {"string", ToString},
          {"sum", Sum},
          {"title", Title},
          {"tojson", ToJsonFilter},
          {"trim", Trim},
          {"unique", Unique},
          {"upper", CaseFilter}};
  return *filters;
}

}  // namespace

bool IsFilter(absl::string_view name) { return Filters().contains(name); }

absl::StatusOr<Value> CallFilter(Budget& budget, absl::string_view name,
                                 const Value& value,
                                 const Arguments& arguments) {
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(1));
  const auto filter = Filters().find(name);
  if (filter == Filters().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no filter named '", Shown(name), "'"));
  }
  return filter->second({budget, name, value, arguments});
}

}  // namespace foretoken::jinja
