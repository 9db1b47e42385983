#include "common/grammar/regex_pattern.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/grammar/code_points.h"
#include "common/grammar/regex_classes.h"
#include "common/grammar/text_cursor.h"
#include "common/text/utf8.h"

namespace foretoken::grammar {
namespace {

using Kind = Pattern::Kind;

// Work for classes: the bounds of their ranges, of which a property has up to a
// thousand, and the case variants of a class. A property takes ICU
// milliseconds.
constexpr size_t kMaxWork = 200'000;
constexpr size_t kCaseWork = 100;
constexpr size_t kMaxProperties = 64;

constexpr bool IsHighSurrogate(uint32_t c) { return c >> 10 == 0xD800 >> 10; }
constexpr bool IsLowSurrogate(uint32_t c) { return c >> 10 == 0xDC00 >> 10; }

std::optional<uint32_t> HexValue(absl::string_view digits) {
  if (digits.empty()) return std::nullopt;
  uint32_t value = 0;
  for (const char digit : digits) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit)) ||
        value > kMaxCodePoint) {
      return std::nullopt;
    }
    const int letter = absl::ascii_tolower(static_cast<unsigned char>(digit));
    value = value * 16 + (letter <= '9' ? letter - '0' : letter - 'a' + 10);
  }
  return value;
}

// A member of a class, or an escape: a set, or one code point, which may be
// the end of a range.
struct Atom {
  std::optional<CodePointSet> set;
  uint32_t code_point = 0;
};

class Parser : private TextCursor {
 public:
  explicit Parser(absl::string_view text) : TextCursor(text) {}

  absl::StatusOr<Pattern> Parse() {
    if (text_.size() > Pattern::kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("regular expression: %d bytes, want at most %d",
                          text_.size(), Pattern::kMaxBytes));
    }
    const size_t valid = ValidUtf8Prefix(text_);
    if (valid < text_.size()) return Error("text that is not UTF-8", valid);
    // As in Python: flags for the whole expression stand at its beginning.
    if (absl::StartsWith(text_, "(?")) {
      const size_t close = text_.find_first_not_of("ims", 2);
      if (close != absl::string_view::npos && close > 2 &&
          text_[close] == ')') {
        at_ = 2;
        FORETOKEN_RETURN_IF_ERROR(ParseFlags(')'));
      }
    }
    FORETOKEN_ASSIGN_OR_RETURN(pattern_.root, ParseAlternatives(0));
    if (at_ < text_.size()) return Error("')' without '('", at_);
    return std::move(pattern_);
  }

 private:
  static absl::Status Error(absl::string_view what, size_t at) {
    return absl::InvalidArgumentError(
        absl::StrCat("regular expression: ", what, " at byte ", at));
  }
  static absl::Status NotSupported(absl::string_view what, size_t at) {
    return Error(absl::StrCat(what, " not supported"), at);
  }

  int32_t Add(Pattern::Node node) {
    // Every node records whether an anchor is below it, which saves searches.
    for (const int32_t child : node.children) {
      node.anchored |= pattern_.nodes[child].anchored;
      node.lookahead |= pattern_.nodes[child].lookahead;
    }
    pattern_.nodes.push_back(std::move(node));
    return static_cast<int32_t>(pattern_.nodes.size()) - 1;
  }
  absl::StatusOr<int32_t> AddClass(CodePointSet set, size_t at) {
    // Equal sets are one, however they were written.
    std::vector<uint32_t> bounds;
    for (const CodePointSet::Range& range : set.Ranges()) {
      bounds.push_back(range.first);
      bounds.push_back(range.last);
    }
    const size_t size = bounds.size();
    const auto [found, fresh] = set_index_.try_emplace(
        std::move(bounds), static_cast<int32_t>(pattern_.sets.size()));
    if (fresh) {
      // Only new sets are work: the others were paid for.
      work_ += size;
      if (work_ > kMaxWork) return Error("too many character classes", at);
      pattern_.sets.push_back(std::move(set));
    }
    return AddSet(found->second, at);
  }
  int32_t AddSet(int32_t set, size_t at) {
    return Add({.kind = Kind::kClass,
                .set = set,
                .at = static_cast<int32_t>(at),
                .children = {}});
  }
  int32_t AddAnchor(Kind kind, size_t at) {
    return Add({.kind = kind,
                .anchored = true,
                .at = static_cast<int32_t>(at),
                .children = {}});
  }

  absl::StatusOr<int32_t> ParseAlternatives(int depth) {
    if (depth > Pattern::kMaxDepth) {
      return Error(
          absl::StrCat("groups more than ", Pattern::kMaxDepth, " levels deep"),
          at_);
    }
    Pattern::Node node = {.kind = Kind::kAlternatives,
                          .at = static_cast<int32_t>(at_),
                          .children = {}};
    // An alternative may be empty: it matches the empty text.
    do {
      FORETOKEN_ASSIGN_OR_RETURN(const int32_t branch, ParseConcat(depth));
      node.children.push_back(branch);
    } while (Skip("|"));
    if (node.children.size() == 1) return node.children[0];
    return Add(std::move(node));
  }

  absl::StatusOr<int32_t> ParseConcat(int depth) {
    Pattern::Node node = {
        .kind = Kind::kConcat, .at = static_cast<int32_t>(at_), .children = {}};
    while (!AtEnd() && !Next('|') && !Next(')')) {
      const size_t begin = at_;
      FORETOKEN_ASSIGN_OR_RETURN(const int32_t term, ParseTerm(depth));
      FORETOKEN_ASSIGN_OR_RETURN(const int32_t quantified,
                                 ParseQuantifier(term, begin));
      node.children.push_back(quantified);
    }
    if (node.children.size() == 1) return node.children[0];
    return Add(std::move(node));
  }

  absl::StatusOr<int32_t> ParseTerm(int depth) {
    const size_t begin = at_;
    switch (text_[at_]) {
      case '^':
        ++at_;
        return AddAnchor(Kind::kTextBegin, begin);
      case '$':
        ++at_;
        return AddAnchor(Kind::kTextEnd, begin);
      case '(':
        return ParseGroup(depth);
      case '[':
        return ParseClass();
      case '.':
        ++at_;
        return AddClass(
            dot_all_ ? CodePointSet::Any() : LineTerminators().Negated(),
            begin);
      case '*':
      case '+':
      case '?':
        return Error("nothing to repeat", begin);
      case '{':
        // Otherwise the brace is a character.
        if (ReadBraces().has_value()) return Error("nothing to repeat", begin);
        break;
      case '\\':
        if (Skip("\\A")) return AddAnchor(Kind::kTextBegin, begin);
        if (Skip("\\Z") || Skip("\\z")) {
          return AddAnchor(Kind::kTextEnd, begin);
        }
        break;
      default:
        break;
    }
    uint32_t code_point = 0;
    if (Next('\\')) {
      FORETOKEN_ASSIGN_OR_RETURN(Atom atom, ParseEscape(/*in_class=*/false));
      if (atom.set.has_value()) {
        return AddClass(*std::move(atom.set), begin);
      }
      // As an escape it could only be matched by text that is not UTF-8.
      if (IsSurrogate(atom.code_point)) {
        return NotSupported("half of a surrogate pair is", begin);
      }
      code_point = atom.code_point;
    } else {
      code_point = TakeCodePoint();
    }
    // Each character has one set, however often it stands in the pattern.
    const uint64_t key = uint64_t{code_point} << 1 | (ignore_case_ ? 1 : 0);
    const auto known = set_of_character_.find(key);
    if (known != set_of_character_.end()) return AddSet(known->second, begin);
    CodePointSet set;
    set.Add(code_point);
    if (ignore_case_) set = AllCases(set);
    FORETOKEN_ASSIGN_OR_RETURN(const int32_t node,
                               AddClass(std::move(set), begin));
    set_of_character_.emplace(key, pattern_.nodes[node].set);
    return node;
  }

  struct Braces {
    int64_t min = 0;
    int64_t max = 0;  // or Pattern::kUnbounded
    size_t end = 0;   // after the brace that closes
  };
  // {m}, {m,} or {m,n} at the current position, which stays. A brace that does
  // not begin one of them is a character (ECMA-262, annex B).
  std::optional<Braces> ReadBraces() const {
    Braces braces = {.end = at_ + 1};
    if (!ReadCount(braces.end, braces.min)) return std::nullopt;
    braces.max = braces.min;
    if (braces.end < text_.size() && text_[braces.end] == ',') {
      ++braces.end;
      if (!ReadCount(braces.end, braces.max)) braces.max = Pattern::kUnbounded;
    }
    if (braces.end >= text_.size() || text_[braces.end] != '}') {
      return std::nullopt;
    }
    ++braces.end;
    return braces;
  }
  bool ReadCount(size_t& at, int64_t& count) const {
    const size_t begin = at;
    count = 0;
    for (; at < text_.size() &&
           absl::ascii_isdigit(static_cast<unsigned char>(text_[at]));
         ++at) {
      // Saturates far above every limit.
      count = std::min<int64_t>(count * 10 + (text_[at] - '0'), 1'000'000'000);
    }
    return at > begin;
  }

  absl::StatusOr<int32_t> ParseQuantifier(int32_t term, size_t begin) {
    const size_t at = at_;
    int64_t min = 0, max = Pattern::kUnbounded;
    if (Skip("*")) {
    } else if (Skip("+")) {
      min = 1;
    } else if (Skip("?")) {
      max = 1;
    } else if (Next('{')) {
      const std::optional<Braces> braces = ReadBraces();
      if (!braces.has_value()) {
        // Python reads {0,n}; ECMA-262 a text that begins with a brace.
        if (absl::StartsWith(text_.substr(at_), "{,")) {
          const size_t close = text_.find_first_not_of("0123456789", at_ + 2);
          if (close != absl::string_view::npos && text_[close] == '}') {
            return NotSupported(
                "a repetition without a minimum (write {0,n}) "
                "is",
                at);
          }
        }
        return term;
      }
      min = braces->min;
      max = braces->max;
      at_ = braces->end;
    } else {
      return term;
    }
    // Each count is a state of its own (a derivative), so this bounds memory.
    if (min > Pattern::kMaxRepeat || max > Pattern::kMaxRepeat) {
      return Error(
          absl::StrCat("more than ", Pattern::kMaxRepeat, " repetitions"), at);
    }
    if (max != Pattern::kUnbounded && max < min) {
      return Error("a repetition with its maximum below its minimum", at);
    }
    // A lazy quantifier matches the same texts.
    if (!Skip("?") && Next('+')) {
      return NotSupported("a possessive quantifier is", at_);
    }
    if (Next('*') || Next('+') || Next('?') ||
        (Next('{') && ReadBraces().has_value())) {
      return Error("nothing to repeat", at_);
    }
    const Kind kind = pattern_.nodes[term].kind;
    if ((kind == Kind::kTextBegin || kind == Kind::kTextEnd) &&
        text_[begin] != '(') {
      return Error("nothing to repeat", at);
    }
    if (kind == Kind::kLookahead) {  // once is as good as often
      return min > 0 ? term
                     : Add({.kind = Kind::kConcat,
                            .at = static_cast<int32_t>(begin),
                            .children = {}});
    }
    return Add({.kind = Kind::kRepeat,
                .min = static_cast<int32_t>(min),
                .max = static_cast<int32_t>(max),
                .at = static_cast<int32_t>(begin),
                .children = {term}});
  }

  // Flags up to `end`, of which i and s are known.
  absl::Status ParseFlags(char end) {
    bool on = true;
    for (; !AtEnd() && !Next(end); ++at_) {
      switch (text_[at_]) {
        case 'i':
          ignore_case_ = on;
          break;
        case 's':
          dot_all_ = on;
          break;
        case '-':
          if (on) {
            on = false;
            break;
          }
          [[fallthrough]];
        default:
          return NotSupported("this flag is", at_);
      }
    }
    if (!Skip(absl::string_view(&end, 1))) return Error("an open group", at_);
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> ParseGroup(int depth) {
    const size_t begin = at_;
    Skip("(");
    const bool ignore_case = ignore_case_, dot_all = dot_all_;
    bool lookahead = false, negative = false;
    if (Skip("?")) {
      if (Skip("=")) {
        lookahead = true;
      } else if (Skip("!")) {
        lookahead = negative = true;
      } else if (Next('<') && at_ + 1 < text_.size() &&
                 (text_[at_ + 1] == '=' || text_[at_ + 1] == '!')) {
        return NotSupported("look-behind is", begin);
      } else if (Skip("<") || Skip("P<")) {
        const size_t name = at_;
        while (!AtEnd() &&
               (absl::ascii_isalnum(static_cast<unsigned char>(text_[at_])) ||
                text_[at_] == '_' || text_[at_] == '$')) {
          ++at_;
        }
        if (at_ == name || !Skip(">")) return Error("a bad group name", name);
      } else if (Skip("P=")) {
        return NotSupported("a backreference is", begin);
      } else if (Next('i') || Next('s') || Next('m') || Next('-') ||
                 Next('x') || Next('u')) {
        const size_t close = text_.find_first_of("):", at_);
        if (close != absl::string_view::npos && text_[close] == ')') {
          return NotSupported("a flag that is not at the beginning is", begin);
        }
        FORETOKEN_RETURN_IF_ERROR(ParseFlags(':'));
      } else if (!Skip(":")) {
        return NotSupported("this kind of group is", begin);
      }
    }
    FORETOKEN_ASSIGN_OR_RETURN(const int32_t body,
                               ParseAlternatives(depth + 1));
    if (!Skip(")")) return Error("'(' without ')'", begin);
    ignore_case_ = ignore_case;
    dot_all_ = dot_all;
    if (!lookahead) return body;
    return Add({.kind = Kind::kLookahead,
                .negative = negative,
                .anchored = true,
                .lookahead = true,
                .at = static_cast<int32_t>(begin),
                .children = {body}});
  }

  absl::StatusOr<int32_t> ParseClass() {
    const size_t begin = at_;
    Skip("[");
    const bool negated = Skip("^");
    // Without flags; classes that are escapes keep their own case, as \d \w \s
    // have none.
    CodePointSet set;
    CodePointSet escapes;
    bool halves = false;
    while (!Next(']')) {
      if (AtEnd()) return Error("'[' without ']'", begin);
      const size_t at = at_;
      FORETOKEN_ASSIGN_OR_RETURN(const Atom first, ParseClassAtom());
      // A hyphen is a range only between two code points (annex B).
      if (Next('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        FORETOKEN_ASSIGN_OR_RETURN(const Atom last, ParseClassAtom());
        if (first.set.has_value() || last.set.has_value()) {
          set.Add('-');
          AddAtom(first, set, escapes);
          AddAtom(last, set, escapes);
          continue;
        }
        if (last.code_point < first.code_point) {
          return Error("a range that ends before it begins", at);
        }
        halves |= IsSurrogate(first.code_point) && IsSurrogate(last.code_point);
        set.Add(first.code_point, last.code_point);
        continue;
      }
      halves |= !first.set.has_value() && IsSurrogate(first.code_point);
      AddAtom(first, set, escapes);
    }
    Skip("]");
    // Halves of surrogate pairs in a class with characters can be ignored:
    // texts have none. A class of halves alone means a part of a character.
    if (halves && !negated && set.Ranges().empty() &&
        escapes.Ranges().empty()) {
      return NotSupported("half of a surrogate pair is", begin);
    }
    if (ignore_case_) set = AllCases(set);
    set.Add(escapes);
    return AddClass(negated ? set.Negated() : std::move(set), begin);
  }

  static void AddAtom(const Atom& atom, CodePointSet& set,
                      CodePointSet& escapes) {
    if (atom.set.has_value()) {
      escapes.Add(*atom.set);
    } else {
      set.Add(atom.code_point);
    }
  }

  absl::StatusOr<Atom> ParseClassAtom() {
    if (Next('\\')) return ParseEscape(/*in_class=*/true);
    return Atom{.set = std::nullopt, .code_point = TakeCodePoint()};
  }

  absl::StatusOr<Atom> ParseEscape(bool in_class) {
    const size_t begin = at_;
    Skip("\\");
    if (AtEnd()) return Error("'\\' at the end", begin);
    const char letter = text_[at_];
    if (std::optional<CodePointSet> set = ClassOfEscape(letter)) {
      ++at_;
      return Atom{.set = std::move(set)};
    }
    if (!absl::ascii_isalnum(static_cast<unsigned char>(letter))) {
      // Stands for itself.
      return Atom{.set = std::nullopt, .code_point = TakeCodePoint()};
    }
    ++at_;
    const auto one = [](uint32_t code_point) {
      return Atom{.set = std::nullopt, .code_point = code_point};
    };
    switch (letter) {
      case 'f':
        return one('\f');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'v':
        return one('\v');
      case '0':
        if (!AtEnd() &&
            absl::ascii_isdigit(static_cast<unsigned char>(text_[at_]))) {
          return NotSupported("an octal escape is", begin);
        }
        return one(0);
      case 'b':
        if (in_class) return one('\b');
        [[fallthrough]];
      case 'B':
        return NotSupported("a word border is", begin);
      case 'k':
        return NotSupported("a backreference is", begin);
      case 'c':
        if (AtEnd() ||
            !absl::ascii_isalpha(static_cast<unsigned char>(text_[at_]))) {
          return Error("\\c without a letter", begin);
        }
        return one(text_[at_++] & 31);
      case 'x': {
        const auto value = TakeHex(2);
        if (!value.has_value()) return Error("a bad \\x escape", begin);
        return one(*value);
      }
      case 'u': {
        FORETOKEN_ASSIGN_OR_RETURN(const uint32_t value,
                                   ParseUnicodeEscape(begin));
        return one(value);
      }
      case 'p':
      case 'P': {
        const size_t close = text_.find('}', at_);
        if (!Skip("{") || close == absl::string_view::npos) {
          return Error("\\p without {...}", begin);
        }
        const absl::string_view name = text_.substr(at_, close - at_);
        at_ = close + 1;
        auto known = properties_.find(name);
        if (known == properties_.end()) {
          std::optional<CodePointSet> set = UnicodeProperty(name);
          if (!set.has_value()) return Error("an unknown property", begin);
          if (properties_.size() == kMaxProperties) {
            return Error("too many different properties", begin);
          }
          known = properties_.emplace(name, *std::move(set)).first;
        }
        return Atom{.set = letter == 'p' ? known->second
                                         : known->second.Negated()};
      }
      default:
        if (absl::ascii_isdigit(static_cast<unsigned char>(letter))) {
          return NotSupported(
              in_class ? "an octal escape is" : "a backreference is", begin);
        }
        return Error(
            absl::StrCat("an unknown escape \\", absl::string_view(&letter, 1)),
            begin);
    }
  }

  CodePointSet AllCases(const CodePointSet& set) {
    if (!case_variants_.has_value()) case_variants_.emplace();
    work_ += kCaseWork;
    return case_variants_->Close(set);
  }

  std::optional<uint32_t> TakeHex(size_t digits) {
    if (text_.size() - at_ < digits) return std::nullopt;
    const auto value = HexValue(text_.substr(at_, digits));
    if (value.has_value()) at_ += digits;
    return value;
  }

  absl::StatusOr<uint32_t> ParseUnicodeEscape(size_t begin) {
    if (Skip("{")) {
      const size_t close = text_.find('}', at_);
      if (close == absl::string_view::npos) {
        return Error("a bad \\u escape", begin);
      }
      const auto value = HexValue(text_.substr(at_, close - at_));
      if (!value.has_value() || *value > kMaxCodePoint) {
        return Error("a bad \\u escape", begin);
      }
      at_ = close + 1;
      return *value;
    }
    const auto high = TakeHex(4);
    if (!high.has_value()) return Error("a bad \\u escape", begin);
    if (!IsHighSurrogate(*high)) return *high;
    const size_t after = at_;
    if (Skip("\\u")) {
      const auto low = TakeHex(4);
      if (low.has_value() && IsLowSurrogate(*low)) {
        return 0x10000 + ((*high & 0x3FF) << 10) + (*low & 0x3FF);
      }
      at_ = after;
    }
    return *high;
  }

  bool ignore_case_ = false;
  bool dot_all_ = false;
  Pattern pattern_;
  size_t work_ = 0;
  absl::flat_hash_map<std::vector<uint32_t>, int32_t> set_index_;
  absl::flat_hash_map<uint64_t, int32_t> set_of_character_;
  absl::flat_hash_map<std::string, CodePointSet> properties_;
  std::optional<CaseVariants> case_variants_;
};

}  // namespace

absl::StatusOr<Pattern> ParsePattern(absl::string_view text) {
  return Parser(text).Parse();
}

}  // namespace foretoken::grammar
