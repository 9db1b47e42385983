// Grammar: a context-free grammar over regular expressions of bytes, with
// objects and lists as rules of their own.
//
// A terminal is a regular expression; a nonterminal has alternatives, or is a
// list or an object, whose rules are made as a text needs them, so that an
// object of a hundred optional members takes no more room than its members.
// Ambiguity, empty rules and recursion of every kind are allowed.
//
// A grammar that was built is consistent: whatever begins a text can be
// continued to a whole text.
#ifndef FORETOKEN_COMMON_GRAMMAR_GRAMMAR_H_
#define FORETOKEN_COMMON_GRAMMAR_GRAMMAR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {

// Terminals are >= 0, nonterminals are < 0.
using Symbol = int32_t;

inline constexpr int32_t kNoLimit = -1;

// item separator item separator ... item. The items of `first` come in their
// order; those after them are `rest`, if there is any.
struct ListRule {
  std::vector<Symbol> first;
  bool has_rest = false;
  Symbol rest = 0;
  Symbol separator = 0;
  int32_t min = 0;  // items, of `first` and `rest` together
  int32_t max = kNoLimit;
};

struct ObjectMember {
  Symbol key = 0;    // all before the value: the name in quotes, ": "
  Symbol value = 0;
  bool required = false;
  // Members (by index) that must be there if this one is.
  std::vector<int32_t> needs;
  bool possible = true;  // set by Build: false if it can never match
};

// member separator member separator ... member, without braces.
struct ObjectRule {
  std::vector<ObjectMember> members;  // each at most once
  // Any number of times each; their keys match no key of `members`. `required`
  // and `needs` are not looked at.
  std::vector<ObjectMember> others;
  Symbol separator = 0;
  int32_t min = 0;  // members, of both kinds together
  int32_t max = kNoLimit;
  // Members and others in any order; otherwise members in their order, then
  // others.
  bool any_order = false;
};

struct GrammarLimits {
  int64_t regex_bytes = int64_t{32} << 20;
  int64_t rules = 200'000;  // alternatives and members
  int64_t terminals = 50'000;
};

// A built grammar, as the automaton reads it.
struct Grammar {
  struct Nonterminal {
    enum Kind : uint8_t { kRules, kList, kObject } kind = kRules;
    bool nullable = false;
    std::vector<std::vector<Symbol>> alternatives;  // kRules
    int32_t index = 0;                              // in lists or objects
  };
  Regexes regexes;
  std::vector<Expr> terminals;
  std::vector<Nonterminal> nonterminals;  // of symbol ~index
  std::vector<ListRule> lists;
  std::vector<ObjectRule> objects;
  Symbol root = 0;
};

class GrammarBuilder {
 public:
  explicit GrammarBuilder(const GrammarLimits& limits = {});

  Regexes& regexes() { return grammar_.regexes; }

  // A text that `expr` matches; equal expressions are one terminal.
  Symbol Terminal(Expr expr);
  Symbol Literal(absl::string_view bytes) {
    return Terminal(regexes().Literal(bytes));
  }
  // A nonterminal without alternatives yet, for recursion.
  Symbol Declare();
  // Adds an alternative; an empty body matches the empty text.
  void AddAlternative(Symbol nonterminal, absl::Span<const Symbol> body);
  Symbol Sequence(absl::Span<const Symbol> symbols);
  // One of them; none of them if there are none.
  Symbol Choice(absl::Span<const Symbol> symbols);
  Symbol Optional(Symbol symbol);
  // min..max times `symbol`, without a separator.
  Symbol Repeat(Symbol symbol, int32_t min, int32_t max);
  Symbol List(ListRule rule);
  Symbol Object(ObjectRule rule);

  // Whether a limit was exceeded so far: ResourceExhausted. What is added
  // after that is not looked at.
  absl::Status status() const;

  // Leaves out what can never match. InvalidArgument if `root` matches no text
  // at all ("unsatisfiable"), ResourceExhausted if a limit was exceeded. The
  // builder must not be used afterwards.
  absl::StatusOr<Grammar> Build(Symbol root) &&;

 private:
  Symbol NewNonterminal();
  bool Count(int64_t rules);

  const GrammarLimits limits_;
  Grammar grammar_;
  absl::flat_hash_map<Expr, Symbol> terminal_of_;
  int64_t rules_ = 0;
  absl::Status status_;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_GRAMMAR_H_
