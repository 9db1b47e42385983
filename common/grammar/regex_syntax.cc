#include "common/grammar/regex_syntax.h"

#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/grammar/byte_set.h"
#include "common/grammar/code_points.h"
#include "common/grammar/regex.h"
#include "common/grammar/regex_pattern.h"
#include "common/text/utf8.h"

namespace foretoken::grammar {
namespace {

using Kind = Pattern::Kind;

// Steps of a lowering, with some for every node: an anchor or a look-ahead in a
// repetition is unrolled.
constexpr int64_t kMinSteps = 2'000;

// Turns a pattern into an expression.
//
// Parts without anchors and look-aheads are turned into expressions by
// themselves. The others are turned together with all that follows them, the
// rest of the text: `$` leaves of the rest what matches the empty text, and a
// look-ahead intersects the rest. `^` needs to know whether the text has begun,
// so a rest is a pair of expressions.
class Lowering {
 public:
  Lowering(const Pattern& pattern, TextForm form, Regexes& regexes)
      : pattern_(pattern),
        form_(form),
        regexes_(regexes),
        max_steps_(kMinSteps + 4 * int64_t{std::ssize(pattern.nodes)}),
        plain_(pattern.nodes.size(), kUnknown),
        class_(pattern.sets.size(), kUnknown) {}

  absl::StatusOr<Expr> Whole() {
    FORETOKEN_ASSIGN_OR_RETURN(
        const Rest rest,
        WithRest(pattern_.root, {Regexes::kEmpty, Regexes::kEmpty}));
    return rest.at_begin;
  }

  absl::StatusOr<Expr> Anywhere() {
    const Expr any = AnyCodePoint(form_, regexes_);
    any_text_ = regexes_.Star(any);
    FORETOKEN_ASSIGN_OR_RETURN(const Rest rest,
                               WithRest(pattern_.root, {any_text_, any_text_}));
    if (rest.at_begin == rest.later) {
      return regexes_.Concat(any_text_, rest.later);
    }
    const Expr some_text = regexes_.Repeat(any, 1, Regexes::kUnbounded);
    return regexes_.Or(rest.at_begin, regexes_.Concat(some_text, rest.later));
  }

 private:
  static constexpr Expr kUnknown = -1;

  // What the text from a position on must be: at the beginning of the text, and
  // anywhere later.
  struct Rest {
    Expr at_begin = Regexes::kNothing;
    Expr later = Regexes::kNothing;
    bool operator==(const Rest&) const = default;
  };

  const Pattern::Node& node(int32_t index) const {
    return pattern_.nodes[index];
  }
  absl::Status Refuse(int32_t index, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "regular expression: ", what, " at byte ", node(index).at));
  }
  Rest Or(const Rest& a, const Rest& b) {
    return {regexes_.Or(a.at_begin, b.at_begin), regexes_.Or(a.later, b.later)};
  }
  Expr EmptyIfNullable(Expr expr) const {
    return regexes_.nullable(expr) ? Regexes::kEmpty : Regexes::kNothing;
  }
  Expr NotEmpty(Expr expr) {
    return regexes_.And(expr, regexes_.Concat(regexes_.Bytes(ByteSet::All()),
                                              Regexes::kAnything));
  }

  // Texts that the node matches without a text begin, a text end or a
  // look-ahead.
  Expr Plain(int32_t index) {
    if (plain_[index] == kUnknown) plain_[index] = NewPlain(index);
    return plain_[index];
  }

  Expr NewPlain(int32_t index) {
    const Pattern::Node& n = node(index);
    std::vector<Expr> parts;
    for (const int32_t child : n.children) {
      if (n.kind != Kind::kLookahead) parts.push_back(Plain(child));
    }
    switch (n.kind) {
      case Kind::kClass:
        if (class_[n.set] == kUnknown) {
          class_[n.set] = CodePointClass(pattern_.sets[n.set], form_, regexes_);
        }
        return class_[n.set];
      case Kind::kConcat:
        return regexes_.Concat(parts);
      case Kind::kAlternatives:
        return regexes_.Or(parts);
      case Kind::kRepeat:
        return regexes_.Repeat(parts[0], n.min, n.max);
      case Kind::kTextBegin:
      case Kind::kTextEnd:
      case Kind::kLookahead:
        break;
    }
    return Regexes::kNothing;
  }

  // The node, then `rest`.
  absl::StatusOr<Rest> WithRest(int32_t index, const Rest& rest) {
    if (++steps_ > max_steps_) {
      return Refuse(index, "an anchor or a look-ahead repeated too often");
    }
    const Pattern::Node& n = node(index);
    if (!n.anchored) return PlainWithRest(index, rest);
    switch (n.kind) {
      case Kind::kTextBegin:
        return Rest{rest.at_begin, Regexes::kNothing};
      case Kind::kTextEnd:
        return Rest{EmptyIfNullable(rest.at_begin),
                    EmptyIfNullable(rest.later)};
      case Kind::kConcat: {
        Rest after = rest;
        for (auto it = n.children.rbegin(); it != n.children.rend(); ++it) {
          FORETOKEN_ASSIGN_OR_RETURN(after, WithRest(*it, after));
        }
        return after;
      }
      case Kind::kAlternatives: {
        std::vector<Expr> at_begin, later;
        for (const int32_t child : n.children) {
          FORETOKEN_ASSIGN_OR_RETURN(const Rest one, WithRest(child, rest));
          at_begin.push_back(one.at_begin);
          later.push_back(one.later);
        }
        return Rest{regexes_.Or(at_begin), regexes_.Or(later)};
      }
      case Kind::kRepeat:
        return RepeatWithRest(index, rest);
      case Kind::kLookahead: {
        FORETOKEN_ASSIGN_OR_RETURN(const Rest ahead, Ahead(index));
        return Rest{regexes_.And(ahead.at_begin, rest.at_begin),
                    regexes_.And(ahead.later, rest.later)};
      }
      case Kind::kClass:
        break;
    }
    return PlainWithRest(index, rest);
  }

  Rest PlainWithRest(int32_t index, const Rest& rest) {
    const Expr plain = Plain(index);
    const Expr later = regexes_.Concat(plain, rest.later);
    if (rest.at_begin == rest.later || !regexes_.nullable(plain)) {
      return {later, later};
    }
    // Only the empty text stays at the beginning.
    return {regexes_.Or(rest.at_begin,
                        regexes_.Concat(NotEmpty(plain), rest.later)),
            later};
  }

  // Constraint of a look-ahead on the rest.
  absl::StatusOr<Rest> Ahead(int32_t index) {
    const Pattern::Node& n = node(index);
    FORETOKEN_ASSIGN_OR_RETURN(
        Rest ahead,
        WithRest(n.children[0], {Regexes::kAnything, Regexes::kAnything}));
    if (!n.negative) return ahead;
    return Rest{regexes_.Not(ahead.at_begin), regexes_.Not(ahead.later)};
  }

  absl::StatusOr<Rest> RepeatWithRest(int32_t index, Rest rest) {
    const Pattern::Node& n = node(index);
    const int32_t child = n.children[0];
    if (n.max == Pattern::kUnbounded) {
      // Before a rest that takes every text, repetitions change nothing.
      const bool any_rest =
          any_text_ != kUnknown && rest == Rest{any_text_, any_text_};
      if (n.min == 0 && any_rest) return rest;
      if (!any_rest) {
        if (node(child).lookahead) return GuardedWithRest(index, rest);
        FORETOKEN_ASSIGN_OR_RETURN(rest, StarWithRest(child, rest));
      }
    } else {
      if (node(child).lookahead && n.max > 1) {
        absl::StatusOr<Rest> guarded = GuardedWithRest(index, rest);
        if (guarded.ok()) return guarded;
      }
      Rest more = rest;
      for (int32_t i = n.min; i < n.max && more.later != Regexes::kNothing;
           ++i) {
        FORETOKEN_ASSIGN_OR_RETURN(const Rest once, WithRest(child, more));
        const Rest longer = Or(rest, once);
        if (longer == more) break;
        more = longer;
      }
      rest = more;
    }
    for (int32_t i = 0; i < n.min; ++i) {
      FORETOKEN_ASSIGN_OR_RETURN(const Rest once, WithRest(child, rest));
      if (once == rest) break;
      rest = once;
    }
    return rest;
  }

  // `child` any number of times; it has anchors, but no look-ahead. After the
  // first repetition that is not empty a text begin never matches, and after a
  // text end nothing follows, so that only the last may have one.
  absl::StatusOr<Rest> StarWithRest(int32_t child, const Rest& rest) {
    Expr last = Regexes::kNothing;
    if (regexes_.nullable(rest.later)) {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Rest ending,
          WithRest(child, {Regexes::kEmpty, Regexes::kEmpty}));
      last = ending.later;
    }
    const Expr later = regexes_.Concat(regexes_.Star(Plain(child)),
                                       regexes_.Or(rest.later, last));
    FORETOKEN_ASSIGN_OR_RETURN(const Rest first,
                               WithRest(child, {Regexes::kNothing, later}));
    return Rest{regexes_.Or(rest.at_begin, first.at_begin), later};
  }

  // Look-aheads before one code point, repeated up to the end of the text, as
  // in ^((?!--).)*$: the text has no position from which on one of them fails.
  absl::StatusOr<Rest> GuardedWithRest(int32_t index, const Rest& rest) {
    const absl::Status refused =
        Refuse(index,
               "a look-ahead in a repetition like this is not "
               "supported");
    const Pattern::Node& n = node(index);
    const Pattern::Node& body = node(n.children[0]);
    if (rest != Rest{Regexes::kEmpty, Regexes::kEmpty} ||
        body.kind != Kind::kConcat ||
        node(body.children.back()).kind != Kind::kClass) {
      return refused;
    }
    std::vector<Expr> bad;
    for (size_t i = 0; i + 1 < body.children.size(); ++i) {
      if (node(body.children[i]).kind != Kind::kLookahead) return refused;
      FORETOKEN_ASSIGN_OR_RETURN(const Rest ahead, Ahead(body.children[i]));
      if (ahead.at_begin != ahead.later) return refused;
      bad.push_back(regexes_.Not(ahead.later));
    }
    const Expr code_point = Plain(body.children.back());
    const Expr text = regexes_.Repeat(code_point, n.min, n.max);
    const Expr guarded = regexes_.And(
        text, regexes_.Not(regexes_.Concat(regexes_.Star(code_point),
                                           NotEmpty(regexes_.Or(bad)))));
    return Rest{guarded, guarded};
  }

  const Pattern& pattern_;
  const TextForm form_;
  Regexes& regexes_;
  const int64_t max_steps_;
  std::vector<Expr> plain_;   // by node
  std::vector<Expr> class_;   // by set
  Expr any_text_ = kUnknown;  // what follows a match in the text
  int64_t steps_ = 0;
};

}  // namespace

absl::StatusOr<Expr> ParseRegex(absl::string_view pattern,
                                const RegexSyntaxOptions& options,
                                Regexes& regexes) {
  FORETOKEN_ASSIGN_OR_RETURN(const Pattern parsed, ParsePattern(pattern));
  Lowering lowering(parsed, options.form, regexes);
  FORETOKEN_ASSIGN_OR_RETURN(
      const Expr expr, options.whole ? lowering.Whole() : lowering.Anywhere());
  FORETOKEN_RETURN_IF_ERROR(regexes.status());
  return expr;
}

Expr CodePoints(uint32_t first, uint32_t last, TextForm form,
                Regexes& regexes) {
  CodePointSet set;
  set.Add(first, last);
  return CodePointClass(set, form, regexes);
}

Expr AnyCodePoint(TextForm form, Regexes& regexes) {
  return CodePoints(0, kMaxCodePoint, form, regexes);
}

Expr TextLiteral(absl::string_view utf8, TextForm form, Regexes& regexes) {
  if (form == TextForm::kUtf8) return regexes.Literal(utf8);
  std::vector<Expr> parts;
  while (!utf8.empty()) {
    const Utf8Step step = NextUtf8(utf8);
    FORETOKEN_CHECK(step.kind == Utf8Step::kCharacter);
    const uint32_t c = step.code_point;
    parts.push_back(c < 0x20 || c == '"' || c == '\\'
                        ? CodePoints(c, c, form, regexes)
                        : regexes.Literal(utf8.substr(0, step.length)));
    utf8.remove_prefix(step.length);
  }
  return regexes.Concat(parts);
}

}  // namespace foretoken::grammar
