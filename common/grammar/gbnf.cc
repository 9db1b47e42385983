#include "common/grammar/gbnf.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/grammar/code_points.h"
#include "common/grammar/gbnf_syntax.h"
#include "common/grammar/grammar.h"
#include "common/grammar/regex.h"
#include "common/grammar/regex_syntax.h"

namespace foretoken::grammar {
namespace {

using Kind = GbnfText::Kind;

// A rule without recursion becomes part of the terminals that use it, unless
// its expression would have more nodes than this: rules that use each other
// twice double with every rule, and expressions are made recursively.
constexpr int64_t kMaxInlined = 2000;

class Builder {
 public:
  Builder(const GbnfText& text, GrammarBuilder& builder)
      : text_(text),
        builder_(builder),
        regular_(text.nodes.size(), false),
        size_(text.nodes.size(), 0),
        expr_(text.nodes.size(), kUnknown),
        inlined_(text.rules.size(), false),
        symbol_(text.rules.size(), 0),
        declared_(text.rules.size(), false) {}

  Symbol Build(int32_t root) {
    FindRegularRules();
    const Symbol symbol = SymbolOfRule(root);
    // A list, not recursion: rules may refer to each other in chains as long as
    // the grammar.
    while (!open_.empty()) {
      const int32_t rule = open_.back();
      open_.pop_back();
      AddRule(rule);
    }
    return symbol;
  }

 private:
  static constexpr Expr kUnknown = -1;

  const GbnfText::Node& node(int32_t index) const { return text_.nodes[index]; }

  // Sets `regular_` and `size_` of a rule's nodes, children first.
  void Classify(const GbnfText::Rule& rule) {
    for (int32_t i = rule.first_node; i <= rule.body; ++i) {
      const GbnfText::Node& n = node(i);
      bool regular = true;
      int64_t size = 1;
      if (n.kind == Kind::kLiteral) {
        size = static_cast<int64_t>(text_.texts[n.index].size());
      } else if (n.kind == Kind::kRule) {
        regular = inlined_[n.index];
        if (regular) size += size_[text_.rules[n.index].body];
      }
      for (const int32_t child : n.children) {
        regular = regular && regular_[child];
        size += size_[child];
      }
      regular_[i] = regular;
      // Saturates: sizes double with each rule that uses another twice.
      size_[i] = std::min<int64_t>(size, int64_t{1} << 40);
    }
  }

  // Rules are looked at once all that they use are known to be regular.
  void FindRegularRules() {
    const size_t count = text_.rules.size();
    std::vector<std::vector<int32_t>> used_by(count);
    std::vector<int32_t> pending(count, 0);
    std::vector<int32_t> ready;
    for (size_t i = 0; i < count; ++i) {
      const GbnfText::Rule& rule = text_.rules[i];
      for (int32_t k = rule.first_node; k <= rule.body; ++k) {
        if (node(k).kind != Kind::kRule) continue;
        used_by[node(k).index].push_back(static_cast<int32_t>(i));
        ++pending[i];
      }
      if (pending[i] == 0) ready.push_back(static_cast<int32_t>(i));
    }
    while (!ready.empty()) {
      const int32_t rule = ready.back();
      ready.pop_back();
      Classify(text_.rules[rule]);
      // Users of a rule that is too large stay pending, and so become
      // nonterminals.
      if (size_[text_.rules[rule].body] > kMaxInlined) continue;
      inlined_[rule] = true;
      for (const int32_t user : used_by[rule]) {
        if (--pending[user] == 0) ready.push_back(user);
      }
    }
    // What is left is recursive, or uses such rules; parts of it may be regular
    // all the same.
    for (size_t i = 0; i < count; ++i) {
      if (!inlined_[i]) Classify(text_.rules[i]);
    }
  }

  Expr ExprOf(int32_t index) {
    if (expr_[index] == kUnknown) expr_[index] = NewExpr(index);
    return expr_[index];
  }

  Expr NewExpr(int32_t index) {
    Regexes& regexes = builder_.regexes();
    const GbnfText::Node& n = node(index);
    std::vector<Expr> parts;
    for (const int32_t child : n.children) parts.push_back(ExprOf(child));
    switch (n.kind) {
      case Kind::kLiteral:
        return regexes.Literal(text_.texts[n.index]);
      case Kind::kClass:
        return CodePointClass(text_.sets[n.index], TextForm::kUtf8, regexes);
      case Kind::kRule:
        return ExprOf(text_.rules[n.index].body);
      case Kind::kConcat:
        return regexes.Concat(parts);
      case Kind::kAlternatives:
        return regexes.Or(parts);
      case Kind::kRepeat:
        return regexes.Repeat(parts[0], n.min, n.max);
    }
    return Regexes::kNothing;
  }

  Symbol SymbolOfRule(int32_t rule) {
    if (!declared_[rule]) {
      declared_[rule] = true;
      if (regular_[text_.rules[rule].body]) {
        symbol_[rule] = builder_.Terminal(ExprOf(text_.rules[rule].body));
      } else {
        symbol_[rule] = builder_.Declare();
        open_.push_back(rule);
      }
    }
    return symbol_[rule];
  }

  void AddRule(int32_t rule) {
    const int32_t body = text_.rules[rule].body;
    if (node(body).kind != Kind::kAlternatives) {
      builder_.AddAlternative(symbol_[rule], SymbolsOf(body));
      return;
    }
    AddAlternatives(body, symbol_[rule]);
  }

  // Alternatives that are regular are one terminal.
  void AddAlternatives(int32_t index, Symbol symbol) {
    std::vector<Expr> regular;
    for (const int32_t child : node(index).children) {
      if (regular_[child]) regular.push_back(ExprOf(child));
    }
    if (!regular.empty()) {
      builder_.AddAlternative(
          symbol, {builder_.Terminal(builder_.regexes().Or(regular))});
    }
    for (const int32_t child : node(index).children) {
      if (!regular_[child]) {
        builder_.AddAlternative(symbol, SymbolsOf(child));
      }
    }
  }

  // What a node that is not regular is made of, one after the other;
  // neighbours that are regular are one terminal.
  std::vector<Symbol> SymbolsOf(int32_t index) {
    if (node(index).kind != Kind::kConcat) return {SymbolOf(index)};
    std::vector<Symbol> symbols;
    std::vector<Expr> regular;
    const auto flush = [&] {
      if (regular.empty()) return;
      symbols.push_back(builder_.Terminal(builder_.regexes().Concat(regular)));
      regular.clear();
    };
    for (const int32_t child : node(index).children) {
      if (regular_[child]) {
        regular.push_back(ExprOf(child));
      } else {
        flush();
        symbols.push_back(SymbolOf(child));
      }
    }
    flush();
    return symbols;
  }

  Symbol SymbolOf(int32_t index) {
    if (regular_[index]) return builder_.Terminal(ExprOf(index));
    const GbnfText::Node& n = node(index);
    switch (n.kind) {
      case Kind::kRule:
        return SymbolOfRule(n.index);
      case Kind::kRepeat:
        return builder_.Repeat(SymbolOf(n.children[0]), n.min, n.max);
      case Kind::kAlternatives: {
        const Symbol symbol = builder_.Declare();
        AddAlternatives(index, symbol);
        return symbol;
      }
      case Kind::kConcat:
      case Kind::kLiteral:
      case Kind::kClass:
        break;
    }
    return builder_.Sequence(SymbolsOf(index));
  }

  const GbnfText& text_;
  GrammarBuilder& builder_;
  std::vector<bool> regular_;   // by node: without nonterminals
  std::vector<int64_t> size_;   // by node: of its expression, about
  std::vector<Expr> expr_;      // by node
  std::vector<bool> inlined_;   // by rule
  std::vector<Symbol> symbol_;  // by rule, if declared
  std::vector<bool> declared_;  // by rule
  std::vector<int32_t> open_;   // declared rules without alternatives yet
};

}  // namespace

absl::StatusOr<Symbol> AddGbnf(absl::string_view text,
                               GrammarBuilder& builder) {
  FORETOKEN_ASSIGN_OR_RETURN(const GbnfText parsed, ParseGbnf(text));
  const auto root = std::find_if(
      parsed.rules.begin(), parsed.rules.end(),
      [](const GbnfText::Rule& rule) { return rule.name == "root"; });
  if (root == parsed.rules.end()) {
    return absl::InvalidArgumentError("grammar: rule \"root\" is not defined");
  }
  const Symbol symbol =
      Builder(parsed, builder)
          .Build(static_cast<int32_t>(root - parsed.rules.begin()));
  FORETOKEN_RETURN_IF_ERROR(builder.status());
  return symbol;
}

}  // namespace foretoken::grammar
