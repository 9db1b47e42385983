#include "common/text/jinja/string_methods.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/unicode.h"
#include "common/text/utf8.h"

namespace foretoken::jinja {
namespace {

using Kind = Value::Kind;
constexpr size_t kNotFound = std::string::npos;

// A call of text.name(arguments). The offsets below are bytes; Python's indices
// count characters, and results are converted.
struct Call {
  Budget& budget;
  const Text& text;
  absl::string_view name;
  const Arguments& arguments;

  const std::string& bytes() const { return text.bytes(); }
  absl::StatusOr<BoundArguments> Bind(
      std::initializer_list<absl::string_view> names,
      size_t required = 0) const {
    return BoundArguments::Bind(name, arguments, names, required);
  }
};

uint32_t CodePointAt(absl::string_view text, size_t at) {
  return NextUtf8(text.substr(at)).code_point;
}

// Start of the character that ends at `end`: skips UTF-8 continuation bytes.
// `text` is valid UTF-8 (text.h).
size_t CharacterBegin(absl::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

// Pieces of a method's text, as byte ranges. Each is paid for when it is found,
// because a text of spaces has as many pieces as characters: a budget checked
// only at the end would come too late for the memory.
class Pieces {
 public:
  explicit Pieces(const Call& call) : call_(call) {}

  // False once the budget is spent.
  bool Add(size_t begin, size_t end) {
    if (!call_.budget.SpendQuietly(1, kPieceBytes)) return false;
    ranges_.emplace_back(begin, end);
    return true;
  }
  void Reverse() { std::reverse(ranges_.begin(), ranges_.end()); }

  absl::StatusOr<Value> Make() const {
    FORETOKEN_RETURN_IF_ERROR(call_.budget.status());
    Values pieces;
    for (const auto& [begin, end] : ranges_) {
      FORETOKEN_ASSIGN_OR_RETURN(
          Value piece, MakeString(call_.budget, call_.text.Slice(begin, end)));
      pieces.push_back(std::move(piece));
    }
    return MakeList(call_.budget, std::move(pieces));
  }

 private:
  using Range = std::pair<size_t, size_t>;
  // Range and the Text that Make copies it into.
  static constexpr size_t kPieceBytes = 2 * sizeof(Text) + sizeof(Range);

  const Call& call_;
  std::vector<Range> ranges_;
};

// split() without a separator: the words between runs of white space, at most
// `limit` splits from the left. A negative limit never counts down to 0 and so
// means no limit. Unlike with a separator, there are no empty pieces.
absl::StatusOr<Value> SplitWords(const Call& call, int64_t limit) {
  const absl::string_view text = call.bytes();
  Pieces words(call);
  size_t at = 0;
  while (true) {
    while (at < text.size() && IsSpace(CodePointAt(text, at))) {
      at += NextUtf8(text.substr(at)).length;
    }
    if (at == text.size()) return words.Make();
    if (limit == 0) {  // the rest, with the spaces at its end
      words.Add(at, text.size());
      return words.Make();
    }
    const size_t begin = at;
    while (at < text.size() && !IsSpace(CodePointAt(text, at))) {
      at += NextUtf8(text.substr(at)).length;
    }
    if (!words.Add(begin, at)) return words.Make();
    --limit;
  }
}

// rsplit() without a separator. Words are found last first and reversed at the
// end.
absl::StatusOr<Value> SplitWordsFromRight(const Call& call, int64_t limit) {
  const absl::string_view text = call.bytes();
  Pieces words(call);
  size_t end = text.size();
  while (true) {
    while (end > 0) {
      const size_t begin = CharacterBegin(text, end);
      if (!IsSpace(CodePointAt(text, begin))) break;
      end = begin;
    }
    if (end == 0) break;
    if (limit == 0) {  // the rest, with the spaces before it
      words.Add(0, end);
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      const size_t before = CharacterBegin(text, begin);
      if (IsSpace(CodePointAt(text, before))) break;
      begin = before;
    }
    if (!words.Add(begin, end)) break;
    end = begin;
    --limit;
  }
  words.Reverse();
  return words.Make();
}

// Pays for a search of `wanted` in the text, in the worst case the product of
// their sizes.
absl::Status SpendSearch(const Call& call, absl::string_view wanted) {
  return call.budget.Spend(SearchSteps(call.text.size(), wanted.size()));
}

absl::StatusOr<Value> Split(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"sep", "maxsplit"}));
  FORETOKEN_ASSIGN_OR_RETURN(int64_t limit, bound.Integer(1, -1));
  const bool from_right = call.name == "rsplit";
  const absl::string_view text = call.bytes();
  if (!bound.Has(0) || bound[0].Is(Kind::kNone)) {
    return from_right ? SplitWordsFromRight(call, limit)
                      : SplitWords(call, limit);
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Text* const separator, bound.String(0));
  const std::string& sep = separator->bytes();
  if (sep.empty()) return absl::InvalidArgumentError("empty separator");
  FORETOKEN_RETURN_IF_ERROR(SpendSearch(call, sep));
  Pieces pieces(call);
  // Pieces lie between two separators. Where Add fails, the budget is spent:
  // the loop ends and Make returns the error.
  if (from_right) {
    size_t end = text.size();
    while (limit != 0 && end >= sep.size()) {
      const size_t found = text.substr(0, end).rfind(sep);
      if (found == kNotFound || !pieces.Add(found + sep.size(), end)) break;
      end = found;
      --limit;
    }
    pieces.Add(0, end);
    pieces.Reverse();
    return pieces.Make();
  }
  size_t begin = 0;
  while (limit != 0) {
    const size_t found = text.find(sep, begin);
    if (found == kNotFound || !pieces.Add(begin, found)) break;
    begin = found + sep.size();
    --limit;
  }
  pieces.Add(begin, text.size());
  return pieces.Make();
}

absl::StatusOr<Value> StripMethod(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"chars"}));
  const Text* characters = nullptr;
  if (bound.Has(0) && !bound[0].Is(Kind::kNone)) {
    FORETOKEN_ASSIGN_OR_RETURN(characters, bound.String(0));
  }
  return Strip(call.budget, call.text, characters, call.name != "rstrip",
               call.name != "lstrip");
}

// Converts the optional character indices of Python's search methods, arguments
// `first` and `first` + 1, to a byte range. kNotFound if the start lies past
// the end, where even an empty string is not found: 'abc'.find('', 4) is -1.
absl::StatusOr<std::pair<size_t, size_t>> SearchRange(
    const Call& call, const BoundArguments& bound, size_t first) {
  const size_t size = call.text.size();
  if (!bound.Has(first) && !bound.Has(first + 1))
    return std::pair(size_t{0}, size);
  // Three scans: one counts the characters, two find the offsets.
  FORETOKEN_RETURN_IF_ERROR(call.budget.Spend(3 * ByteSteps(size)));
  const auto count = static_cast<int64_t>(CountCharacters(call.bytes()));
  FORETOKEN_ASSIGN_OR_RETURN(int64_t start, bound.Integer(first, 0));
  FORETOKEN_ASSIGN_OR_RETURN(int64_t stop, bound.Integer(first + 1, count));
  if (start < 0) start = std::max<int64_t>(start + count, 0);
  if (stop < 0) stop = std::max<int64_t>(stop + count, 0);
  stop = std::min(stop, count);
  if (start > stop) return std::pair(kNotFound, kNotFound);
  return std::pair(CharacterOffset(call.bytes(), start),
                   CharacterOffset(call.bytes(), stop));
}

absl::StatusOr<Value> AffixMethod(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"affix", "start", "end"}, 1));
  FORETOKEN_ASSIGN_OR_RETURN(const auto range, SearchRange(call, bound, 1));
  if (range.first == kNotFound) return Value::Bool(false);
  const absl::string_view text =
      absl::string_view(call.bytes())
          .substr(range.first, range.second - range.first);
  // startswith and endswith also take a tuple of alternatives.
  const Values one = {bound[0]};
  const Values& alternatives =
      bound[0].Is(Kind::kTuple) ? bound[0].list().items() : one;
  for (const Value& affix : alternatives) {
    if (!affix.IsString()) {
      return absl::InvalidArgumentError(absl::StrCat(
          call.name, " first arg must be str or a tuple of str, not ",
          affix.TypeName()));
    }
    const std::string& bytes = affix.text().bytes();
    FORETOKEN_RETURN_IF_ERROR(
        call.budget.Spend(1 + ByteSteps(std::min(bytes.size(), text.size()))));
    if (call.name == "startswith" ? absl::StartsWith(text, bytes)
                                  : absl::EndsWith(text, bytes)) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

absl::StatusOr<Value> FindSubstring(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"sub", "start", "end"}, 1));
  FORETOKEN_ASSIGN_OR_RETURN(const Text* const wanted, bound.String(0));
  FORETOKEN_ASSIGN_OR_RETURN(const auto range, SearchRange(call, bound, 1));
  const std::string& sub = wanted->bytes();
  FORETOKEN_RETURN_IF_ERROR(SpendSearch(call, sub));
  const bool from_right = call.name[0] == 'r';
  size_t found = kNotFound;
  int64_t count = 0;
  if (range.first != kNotFound) {
    const absl::string_view text =
        absl::string_view(call.bytes())
            .substr(range.first, range.second - range.first);
    // An empty string occurs before every character and at the end. Other
    // occurrences do not overlap, as in Python.
    if (call.name == "count") {
      if (sub.empty()) {
        count = static_cast<int64_t>(CountCharacters(text)) + 1;
      } else {
        for (size_t at = 0; (at = text.find(sub, at)) != kNotFound;
             at += sub.size()) {
          ++count;
        }
      }
    } else {
      found = from_right ? text.rfind(sub) : text.find(sub);
    }
  }
  if (call.name == "count") return Value::Integer(count);
  // find returns -1, index raises ValueError.
  if (found == kNotFound) {
    if (call.name == "find" || call.name == "rfind") return Value::Integer(-1);
    return absl::InvalidArgumentError("substring not found");
  }
  return Value::Integer(static_cast<int64_t>(CountCharacters(
      absl::string_view(call.bytes()).substr(0, range.first + found))));
}

absl::StatusOr<Value> ReplaceMethod(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound,
                             call.Bind({"old", "new", "count"}, 2));
  FORETOKEN_ASSIGN_OR_RETURN(const Text* const from, bound.String(0));
  FORETOKEN_ASSIGN_OR_RETURN(const Text* const to, bound.String(1));
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t count, bound.Integer(2, -1));
  return Replace(call.budget, call.text, *from, *to, count);
}

absl::StatusOr<Value> Join(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"iterable"}, 1));
  FORETOKEN_ASSIGN_OR_RETURN(const Values items,
                             Iterate(call.budget, bound[0]));
  TextBuilder out(call.budget);
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].IsString()) {
      return absl::InvalidArgumentError(
          absl::StrCat("sequence item ", i, ": expected str instance, ",
                       items[i].TypeName(), " found"));
    }
    if (i > 0) out.Append(call.text);
    if (!out.Append(items[i].text())) break;
  }
  return out.FinishValue();
}

absl::StatusOr<Value> Partition(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"sep"}, 1));
  FORETOKEN_ASSIGN_OR_RETURN(const Text* const separator, bound.String(0));
  const std::string& sep = separator->bytes();
  if (sep.empty()) return absl::InvalidArgumentError("empty separator");
  FORETOKEN_RETURN_IF_ERROR(SpendSearch(call, sep));
  const bool from_right = call.name == "rpartition";
  const size_t found =
      from_right ? call.bytes().rfind(sep) : call.bytes().find(sep);
  const size_t size = call.text.size();
  // Without a separator in it, the whole text is the head of partition and the
  // tail of rpartition.
  Text head, middle, tail;
  if (found == kNotFound) {
    (from_right ? tail : head) = call.text;
  } else {
    head = call.text.Slice(0, found);
    middle = call.text.Slice(found, found + sep.size());
    tail = call.text.Slice(found + sep.size(), size);
  }
  FORETOKEN_RETURN_IF_ERROR(call.budget.Spend(0, size));
  return MakeTuple(call.budget, {Value::String(std::move(head)),
                                 Value::String(std::move(middle)),
                                 Value::String(std::move(tail))});
}

absl::StatusOr<Value> RemoveAffix(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"affix"}, 1));
  FORETOKEN_ASSIGN_OR_RETURN(const Text* const affix, bound.String(0));
  const std::string& bytes = affix->bytes();
  FORETOKEN_RETURN_IF_ERROR(
      call.budget.Spend(ByteSteps(std::min(bytes.size(), call.text.size()))));
  size_t begin = 0;
  size_t end = call.text.size();
  if (call.name == "removeprefix" && absl::StartsWith(call.bytes(), bytes)) {
    begin = bytes.size();
  } else if (call.name == "removesuffix" &&
             absl::EndsWith(call.bytes(), bytes)) {
    end -= bytes.size();
  }
  return MakeString(call.budget, call.text.Slice(begin, end));
}

absl::StatusOr<Value> SplitLinesMethod(const Call& call) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto bound, call.Bind({"keepends"}));
  if (bound.Flag(0, false)) {
    return absl::InvalidArgumentError("splitlines(True) is not supported");
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<Text> split,
                             SplitLines(call.budget, call.text));
  Values lines;
  for (Text& line : split) lines.push_back(Value::String(std::move(line)));
  return MakeList(call.budget, std::move(lines));
}

bool IsDigit(uint32_t c) {
  const int type =
      u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}

// True for a text of digits that is not empty, superscripts included.
absl::StatusOr<Value> IsDigits(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  FORETOKEN_RETURN_IF_ERROR(
      call.budget.Spend(CharacterSteps(call.text.size())));
  for (size_t at = 0; at < call.text.size();) {
    const Utf8Step step = NextUtf8(absl::string_view(call.bytes()).substr(at));
    if (!IsDigit(step.code_point)) return Value::Bool(false);
    at += step.length;
  }
  return Value::Bool(!call.text.empty());
}

// isupper() and islower(), which are the tests `upper` and `lower`, too:
// uncased characters do not matter, but there must be a cased one, and
// title-case letters are neither.
absl::StatusOr<Value> IsOfCase(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  FORETOKEN_RETURN_IF_ERROR(
      call.budget.Spend(CharacterSteps(call.text.size())));
  const bool upper = call.name == "isupper";
  bool cased = false;
  for (size_t at = 0; at < call.text.size();) {
    const Utf8Step step = NextUtf8(absl::string_view(call.bytes()).substr(at));
    const UChar32 c = static_cast<UChar32>(step.code_point);
    at += step.length;
    if (u_hasBinaryProperty(c, upper ? UCHAR_LOWERCASE : UCHAR_UPPERCASE) ||
        u_charType(c) == U_TITLECASE_LETTER) {
      return Value::Bool(false);
    }
    cased = cased ||
            u_hasBinaryProperty(c, upper ? UCHAR_UPPERCASE : UCHAR_LOWERCASE);
  }
  return Value::Bool(cased);
}

absl::StatusOr<Value> CaseMethod(const Call& call) {
  FORETOKEN_RETURN_IF_ERROR(call.Bind({}).status());
  FORETOKEN_RETURN_IF_ERROR(
      call.budget.Spend(CharacterSteps(call.text.size())));
  if (call.name == "capitalize") {
    return MakeString(call.budget, Capitalize(call.text));
  }
  if (call.name == "title") {
    FORETOKEN_RETURN_IF_ERROR(
        call.budget.Spend(0, sizeof(size_t) * call.text.size()));
    return MakeString(call.budget, TitleWords(call.text));
  }
  return MakeString(call.budget,
                    ChangeCase(call.text, call.name == "upper" ? Case::kUpper
                                                               : Case::kLower));
}

using Method = absl::StatusOr<Value> (*)(const Call&);

// Python's methods that jinja2's documentation or a published chat template
// calls. The others are refused by name.
const absl::flat_hash_map<absl::string_view, Method>& Methods() {
  static const auto* const methods =
      new absl::flat_hash_map<absl::string_view, Method>{
          {"capitalize", CaseMethod},
          {"count", FindSubstring},
          {"endswith", AffixMethod},
          {"find", FindSubstring},
          {"index", FindSubstring},
          {"isdigit", IsDigits},
          {"islower", IsOfCase},
          {"isupper", IsOfCase},
          {"join", Join},
          {"lower", CaseMethod},
          {"lstrip", StripMethod},
          {"partition", Partition},
          {"removeprefix", RemoveAffix},
          {"replace", ReplaceMethod},
          {"removesuffix", RemoveAffix},
          {"rfind", FindSubstring},
          {"rindex", FindSubstring},
          {"rpartition", Partition},
          {"rsplit", Split},
          {"rstrip", StripMethod},
          {"split", Split},
          {"splitlines", SplitLinesMethod},
          {"startswith", AffixMethod},
          {"strip", StripMethod},
          {"title", CaseMethod},
          {"upper", CaseMethod}};
  return *methods;
}

}  // namespace

absl::StatusOr<Value> CallStringMethod(Budget& budget, const Text& text,
                                       absl::string_view name,
                                       const Arguments& arguments) {
  const auto method = Methods().find(name);
  if (method == Methods().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the method str.", name, " is not supported"));
  }
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(1 + ByteSteps(text.size())));
  return method->second({budget, text, name, arguments});
}

absl::StatusOr<Value> Strip(Budget& budget, const Text& text,
                            const Text* characters, bool left, bool right) {
  // Every character of the text may be looked for among `characters`.
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(SearchSteps(
      text.size(), characters == nullptr ? 0 : characters->size())));
  const absl::string_view bytes = text.bytes();
  // Both texts are valid UTF-8, in which a character can only match at the
  // beginning of another: a search by bytes finds no false match.
  const auto is_stripped = [&](absl::string_view character) {
    return characters == nullptr
               ? IsSpace(NextUtf8(character).code_point)
               : absl::StrContains(characters->bytes(), character);
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (left && begin < end) {
    const size_t length = NextUtf8(bytes.substr(begin)).length;
    if (!is_stripped(bytes.substr(begin, length))) break;
    begin += length;
  }
  while (right && end > begin) {
    const size_t last = CharacterBegin(bytes, end);
    if (!is_stripped(bytes.substr(last, end - last))) break;
    end = last;
  }
  return MakeString(budget, text.Slice(begin, end));
}

absl::StatusOr<Value> Replace(Budget& budget, const Text& text,
                              const Text& from, const Text& to, int64_t count) {
  FORETOKEN_RETURN_IF_ERROR(
      budget.Spend(SearchSteps(text.size(), from.size())));
  TextBuilder out(budget);
  const std::string& bytes = text.bytes();
  // SearchSteps pays for the scan alone. Every replacement also copies two
  // pieces, which costs more than scanning a few bytes.
  constexpr int64_t kReplacementsPerStep = 8;
  int64_t replaced = 0;
  size_t done = 0;
  if (from.empty()) {  // `to` goes before every character and to the end
    FORETOKEN_RETURN_IF_ERROR(budget.Spend(CharacterSteps(bytes.size()),
                                           sizeof(size_t) * bytes.size()));
    for (const size_t at : CharacterOffsets(bytes)) {
      out.Append(text, done, at);
      done = at;
      if (count == 0 || !out.Append(to)) break;
      --count;
    }
  } else {
    while (count != 0) {
      const size_t found = bytes.find(from.bytes(), done);
      if (found == kNotFound) break;
      out.Append(text, done, found);
      if (!out.Append(to)) break;
      done = found + from.size();
      --count;
      if (++replaced % kReplacementsPerStep == 0) budget.SpendQuietly(1);
    }
  }
  out.Append(text, done, text.size());
  return out.FinishValue();
}

Text Capitalize(const Text& text) {
  if (text.empty()) return text;
  const size_t first = NextUtf8(text.bytes()).length;
  Text out = ChangeCase(text.Slice(0, first), Case::kTitle);
  // Lower-case the whole text and drop its first character, rather than the
  // rest by itself: the final form of a Greek sigma depends on what precedes
  // it.
  const Text lower = ChangeCase(text, Case::kLower);
  const size_t skip = ChangeCase(text.Slice(0, first), Case::kLower).size();
  out.Append(lower, skip, lower.size());
  return out;
}

absl::StatusOr<std::vector<Text>> SplitLines(Budget& budget, const Text& text) {
  FORETOKEN_RETURN_IF_ERROR(
      budget.Spend(CharacterSteps(text.size()), text.size()));
  std::vector<Text> lines;
  const absl::string_view bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = NextUtf8(bytes.substr(at));
    const uint32_t c = step.code_point;
    // The line boundaries of Python's str.splitlines(). A carriage return and
    // the line feed after it are one.
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) ||
                      c == 0x85 || c == 0x2028 || c == 0x2029;
    size_t next = at + step.length;
    if (ends) {
      FORETOKEN_RETURN_IF_ERROR(budget.Spend(1, 2 * sizeof(Text)));
      lines.push_back(text.Slice(begin, at));
      if (c == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

}  // namespace foretoken::jinja
