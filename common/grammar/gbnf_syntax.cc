#include "common/grammar/gbnf_syntax.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/grammar/code_points.h"
#include "common/grammar/text_cursor.h"
#include "common/text/utf8.h"

namespace foretoken::grammar {
namespace {

using Kind = GbnfText::Kind;

// Quantifiers of one item; trees are walked recursively.
constexpr int kMaxQuantifiers = 10;

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
         c == '_';
}

class Parser : private TextCursor {
 public:
  explicit Parser(absl::string_view text) : TextCursor(text) {}

  absl::StatusOr<GbnfText> Parse() {
    if (text_.size() > GbnfText::kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("grammar: %d bytes, want at most %d", text_.size(),
                          GbnfText::kMaxBytes));
    }
    // Checked once, so that TakeCodePoint need not.
    const size_t valid = ValidUtf8Prefix(text_);
    if (valid < text_.size()) return Error("text that is not UTF-8", valid);
    for (SkipSpace(true); !AtEnd(); SkipSpace(true)) {
      FORETOKEN_RETURN_IF_ERROR(ParseRule());
    }
    // After all rules: they may be used before they are defined.
    for (size_t i = 0; i < result_.rules.size(); ++i) {
      if (defined_[i]) continue;
      return Error(
          absl::StrCat("rule \"", result_.rules[i].name, "\" is not defined"),
          first_use_[i]);
    }
    return std::move(result_);
  }

 private:
  absl::Status Error(absl::string_view what, size_t at) const {
    const absl::string_view before = text_.substr(0, at);
    // Counted only for an error; the parser itself needs no lines.
    return absl::InvalidArgumentError(absl::StrCat(
        "grammar: line ", 1 + std::count(before.begin(), before.end(), '\n'),
        ": ", what));
  }

  void SkipSpace(bool newlines) {
    while (!AtEnd()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      } else if (c == ' ' || c == '\t' ||
                 (newlines && (c == '\r' || c == '\n'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  int32_t Add(GbnfText::Node node) {
    result_.nodes.push_back(std::move(node));
    return static_cast<int32_t>(result_.nodes.size()) - 1;
  }
  int32_t AddLeaf(Kind kind, size_t index) {
    return Add(
        {.kind = kind, .index = static_cast<int32_t>(index), .children = {}});
  }
  int32_t AddClass(CodePointSet set) {
    result_.sets.push_back(std::move(set));
    return AddLeaf(Kind::kClass, result_.sets.size() - 1);
  }

  absl::StatusOr<absl::string_view> ParseName() {
    const size_t begin = at_;
    while (!AtEnd() && IsNameCharacter(text_[at_])) ++at_;
    if (at_ == begin) return Error("want a rule's name", begin);
    return text_.substr(begin, at_ - begin);
  }

  size_t RuleOf(absl::string_view name, size_t at) {
    // A use makes the rule as well as its definition does, as either may come
    // first.
    const auto [found, fresh] =
        rule_of_.try_emplace(std::string(name), result_.rules.size());
    if (fresh) {
      result_.rules.push_back({.name = std::string(name)});
      defined_.push_back(false);
      first_use_.push_back(at);
    }
    return found->second;
  }

  // Whether a rule's definition begins here.
  bool AtDefinition() {
    // Looks ahead and goes back: only "::=" tells a definition from the use of
    // a rule.
    const size_t begin = at_;
    while (!AtEnd() && IsNameCharacter(text_[at_])) ++at_;
    SkipSpace(false);
    const bool definition = Skip("::=");
    at_ = begin;
    return definition;
  }

  absl::Status ParseRule() {
    const size_t begin = at_;
    FORETOKEN_ASSIGN_OR_RETURN(const absl::string_view name, ParseName());
    const size_t rule = RuleOf(name, begin);
    if (defined_[rule]) {
      return Error(absl::StrCat("rule \"", name, "\" is defined twice"), begin);
    }
    defined_[rule] = true;
    SkipSpace(false);
    if (!Skip("::=")) return Error("want '::=' after a rule's name", at_);
    SkipSpace(true);
    // The nodes of a rule are contiguous, children before parents: gbnf.cc
    // walks them in this order.
    const auto first_node = static_cast<int32_t>(result_.nodes.size());
    FORETOKEN_ASSIGN_OR_RETURN(const int32_t body, ParseAlternatives(0));
    // Rules end with their line; a definition may follow on the same one.
    if (!AtEnd() && !Next('\n') && !Next('\r') && !AtDefinition()) {
      return Unexpected();
    }
    result_.rules[rule].first_node = first_node;
    result_.rules[rule].body = body;
    return absl::OkStatus();
  }

  absl::Status Unexpected() {
    const size_t begin = at_;
    if (Next('<')) {
      return Error("a token (<...>) is not supported", begin);
    }
    TakeCodePoint();
    return Error(
        absl::StrCat("unexpected '", text_.substr(begin, at_ - begin), "'"),
        begin);
  }

  // `depth` groups are open; within one, lines do not matter.
  absl::StatusOr<int32_t> ParseAlternatives(int depth) {
    // The parser is recursive, and so are those who walk the tree.
    if (depth > GbnfText::kMaxDepth) {
      return Error(absl::StrCat("groups more than ", GbnfText::kMaxDepth,
                                " levels deep"),
                   at_);
    }
    GbnfText::Node node = {.kind = Kind::kAlternatives, .children = {}};
    do {
      SkipSpace(true);
      FORETOKEN_ASSIGN_OR_RETURN(const int32_t branch, ParseConcat(depth));
      node.children.push_back(branch);
    } while (SkipBar());
    // No node for a single child: the tree stays as shallow as the text.
    if (node.children.size() == 1) return node.children[0];
    return Add(std::move(node));
  }

  // An alternative may begin on the next line: nothing else does with a bar.
  bool SkipBar() {
    const size_t begin = at_;
    SkipSpace(true);
    if (Skip("|")) return true;
    at_ = begin;
    return false;
  }

  absl::StatusOr<int32_t> ParseConcat(int depth) {
    GbnfText::Node node = {.kind = Kind::kConcat, .children = {}};
    while (!AtEnd() && !Next('|') && !Next(')') && !Next('\n') && !Next('\r') &&
           !(depth == 0 && AtDefinition())) {
      FORETOKEN_ASSIGN_OR_RETURN(int32_t item, ParseItem(depth));
      // Only within a group may the quantifier stand on the next line.
      SkipSpace(depth > 0);
      for (int quantifiers = 0;; ++quantifiers) {
        const size_t begin = at_;
        FORETOKEN_ASSIGN_OR_RETURN(const int32_t quantified,
                                   ParseQuantifier(item));
        if (quantified == item) break;
        if (quantifiers == kMaxQuantifiers) {
          return Error("too many quantifiers of one item", begin);
        }
        item = quantified;
        SkipSpace(depth > 0);
      }
      node.children.push_back(item);
    }
    if (node.children.size() == 1) return node.children[0];
    return Add(std::move(node));
  }

  absl::StatusOr<int32_t> ParseItem(int depth) {
    const size_t begin = at_;
    if (Next('"')) return ParseLiteral();
    if (Next('[')) return ParseClass();
    if (Skip(".")) return AddClass(CodePointSet::Any());
    if (Skip("(")) {
      FORETOKEN_ASSIGN_OR_RETURN(const int32_t group,
                                 ParseAlternatives(depth + 1));
      if (!Skip(")")) {
        return AtEnd() ? Error("'(' without ')'", begin) : Unexpected();
      }
      return group;
    }
    if (!IsNameCharacter(text_[at_])) return Unexpected();
    FORETOKEN_ASSIGN_OR_RETURN(const absl::string_view name, ParseName());
    return AddLeaf(Kind::kRule, RuleOf(name, begin));
  }

  // `item` itself if no quantifier follows.
  absl::StatusOr<int32_t> ParseQuantifier(int32_t item) {
    const size_t begin = at_;
    int32_t min = 0, max = GbnfText::kUnbounded;
    if (Skip("*")) {
    } else if (Skip("+")) {
      min = 1;
    } else if (Skip("?")) {
      max = 1;
    } else if (Skip("{")) {
      SkipSpace(false);
      const bool has_min = TakeCount(min);
      SkipSpace(false);
      bool has_max = has_min;
      max = min;
      if (Skip(",")) {
        SkipSpace(false);
        has_max = TakeCount(max);
        if (!has_max) max = GbnfText::kUnbounded;
        SkipSpace(false);
      }
      if (!Skip("}") || (!has_min && !has_max)) {
        return Error("want {m}, {m,}, {m,n} or {,n}", begin);
      }
      if (std::max(min, max) > GbnfText::kMaxRepeat) {
        return Error(
            absl::StrCat("more than ", GbnfText::kMaxRepeat, " repetitions"),
            begin);
      }
      if (has_max && max < min) {
        return Error("a repetition with its maximum below its minimum", begin);
      }
    } else {
      return item;
    }
    return Add(
        {.kind = Kind::kRepeat, .min = min, .max = max, .children = {item}});
  }
  bool TakeCount(int32_t& count) {
    const size_t begin = at_;
    count = 0;
    for (; !AtEnd() &&
           absl::ascii_isdigit(static_cast<unsigned char>(text_[at_]));
         ++at_) {
      // Saturates above the limit.
      count =
          std::min(count * 10 + (text_[at_] - '0'), GbnfText::kMaxRepeat + 1);
    }
    return at_ > begin;
  }

  absl::StatusOr<int32_t> ParseLiteral() {
    const size_t begin = at_;
    Skip("\"");
    std::string literal;
    while (!Skip("\"")) {
      if (AtEnd()) return Error("a text without its closing '\"'", begin);
      FORETOKEN_ASSIGN_OR_RETURN(const uint32_t c, ParseCharacter());
      AppendUtf8(c, literal);
    }
    result_.texts.push_back(std::move(literal));
    return AddLeaf(Kind::kLiteral, result_.texts.size() - 1);
  }

  absl::StatusOr<int32_t> ParseClass() {
    const size_t begin = at_;
    Skip("[");
    const bool negated = Skip("^");
    CodePointSet set;
    bool empty = true;
    while (!Skip("]")) {
      if (AtEnd()) return Error("'[' without ']'", begin);
      const size_t at = at_;
      FORETOKEN_ASSIGN_OR_RETURN(const uint32_t first, ParseCharacter());
      uint32_t last = first;
      // A hyphen before the end is itself.
      if (Next('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        FORETOKEN_ASSIGN_OR_RETURN(last, ParseCharacter());
      }
      if (last < first) return Error("a range that ends before it begins", at);
      set.Add(first, last);
      empty = false;
    }
    // [^] is any character, as in regular expressions of JavaScript.
    if (empty && !negated) return Error("a class without characters", begin);
    return AddClass(negated ? set.Negated() : std::move(set));
  }

  absl::StatusOr<uint32_t> ParseCharacter() {
    const size_t begin = at_;
    if (!Skip("\\")) return TakeCodePoint();
    if (AtEnd()) return Error("'\\' at the end", begin);
    const char letter = text_[at_];
    // More than llama.cpp allows: any punctuation stands for itself.
    if (absl::ascii_ispunct(static_cast<unsigned char>(letter))) {
      ++at_;
      return static_cast<uint8_t>(letter);
    }
    size_t digits = 0;
    switch (letter) {
      case 'n':
        ++at_;
        return '\n';
      case 'r':
        ++at_;
        return '\r';
      case 't':
        ++at_;
        return '\t';
      case 'x':
        digits = 2;
        break;
      case 'u':
        digits = 4;
        break;
      case 'U':
        digits = 8;
        break;
      default:
        return Error("an unknown escape", begin);
    }
    uint32_t value = 0;
    for (++at_; digits > 0; --digits, ++at_) {
      if (AtEnd() ||
          !absl::ascii_isxdigit(static_cast<unsigned char>(text_[at_])) ||
          value > kMaxCodePoint) {
        return Error("a bad escape", begin);
      }
      const int digit =
          absl::ascii_tolower(static_cast<unsigned char>(text_[at_]));
      value = value * 16 + (digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if (value > kMaxCodePoint || IsSurrogate(value)) {
      return Error("an escape that is not a character", begin);
    }
    return value;
  }

  GbnfText result_;
  absl::flat_hash_map<std::string, size_t> rule_of_;
  std::vector<bool> defined_;      // by rule
  std::vector<size_t> first_use_;  // by rule
};

}  // namespace

absl::StatusOr<GbnfText> ParseGbnf(absl::string_view text) {
  return Parser(text).Parse();
}

}  // namespace foretoken::grammar
