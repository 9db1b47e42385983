#include "common/grammar/grammar.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::grammar {
namespace {

using Nonterminal = Grammar::Nonterminal;

// Finds, for every nonterminal, whether it has a property that grows from its
// parts: matching some text, or matching the empty text. Works from the leaves
// up: a nonterminal is looked at again whenever a part of it got the property.
template <typename Parts, typename Holds>
std::vector<bool> LeastFixpoint(int count, const Parts& parts_of,
                                const Holds& holds) {
  std::vector<std::vector<int32_t>> used_by(count);
  for (int32_t i = 0; i < count; ++i) {
    parts_of(i, [&](Symbol symbol) {
      if (symbol < 0) used_by[~symbol].push_back(i);
    });
  }
  std::vector<bool> result(count, false), queued(count, true);
  std::deque<int32_t> queue;
  for (int32_t i = 0; i < count; ++i) queue.push_back(i);
  while (!queue.empty()) {
    const int32_t i = queue.front();
    queue.pop_front();
    queued[i] = false;
    if (result[i] || !holds(i, result)) continue;
    result[i] = true;
    // Only users of `i` can change by this; the others need no second look.
    for (const int32_t user : used_by[i]) {
      if (result[user] || queued[user]) continue;
      queued[user] = true;
      queue.push_back(user);
    }
  }
  return result;
}

// Calls `take` with every symbol that nonterminal `index` mentions.
template <typename Take>
void ForEachPart(const Grammar& grammar, int32_t index, const Take& take) {
  const Nonterminal& nonterminal = grammar.nonterminals[index];
  switch (nonterminal.kind) {
    case Nonterminal::kRules:
      for (const auto& body : nonterminal.alternatives) {
        for (const Symbol symbol : body) take(symbol);
      }
      return;
    case Nonterminal::kList: {
      const ListRule& list = grammar.lists[nonterminal.index];
      for (const Symbol symbol : list.first) take(symbol);
      if (list.has_rest) take(list.rest);
      take(list.separator);
      return;
    }
    case Nonterminal::kObject: {
      const ObjectRule& object = grammar.objects[nonterminal.index];
      for (const auto* members : {&object.members, &object.others}) {
        for (const ObjectMember& member : *members) {
          take(member.key);
          take(member.value);
        }
      }
      take(object.separator);
      return;
    }
  }
}

// Members that are needed by required ones are required; what is needed by
// what is needed is needed.
void CloseNeeds(ObjectRule& object) {
  const int32_t count = static_cast<int32_t>(object.members.size());
  bool any = false;
  for (const ObjectMember& member : object.members) {
    any = any || !member.needs.empty();
  }
  if (!any) return;
  for (int32_t i = 0; i < count; ++i) {
    std::vector<bool> needed(count, false);
    std::vector<int32_t> open = object.members[i].needs;
    while (!open.empty()) {
      const int32_t next = open.back();
      open.pop_back();
      // A member does not need itself.
      if (next == i || needed[next]) continue;
      needed[next] = true;
      const auto& more = object.members[next].needs;
      open.insert(open.end(), more.begin(), more.end());
    }
    object.members[i].needs.clear();
    for (int32_t j = 0; j < count; ++j) {
      if (needed[j]) object.members[i].needs.push_back(j);
    }
  }
  for (int32_t i = 0; i < count; ++i) {
    if (!object.members[i].required) continue;
    for (const int32_t need : object.members[i].needs) {
      object.members[need].required = true;
    }
  }
}

template <typename Can>
bool ListMatches(const ListRule& list, const Can& can) {
  if (list.min == 0) return true;
  if (list.max != kNoLimit && list.max < list.min) return false;
  for (int32_t i = 0; i < list.min; ++i) {
    const bool first = i < static_cast<int32_t>(list.first.size());
    if (!first && !list.has_rest) return false;
    if (!can(first ? list.first[i] : list.rest)) return false;
    if (!first) break;  // the others are the same
  }
  return list.min == 1 || can(list.separator);
}

template <typename Can>
bool ObjectMatches(const ObjectRule& object, const Can& can) {
  int64_t required = 0, possible = 0;
  const auto member_can = [&](const ObjectMember& member) {
    return can(member.key) && can(member.value);
  };
  for (const ObjectMember& member : object.members) {
    bool fits = member_can(member);
    for (size_t i = 0; fits && i < member.needs.size(); ++i) {
      fits = member_can(object.members[member.needs[i]]);
    }
    if (member.required && !fits) return false;
    required += member.required;
    possible += fits;
  }
  bool more = false;
  for (const ObjectMember& other : object.others) {
    more = more || member_can(other);
  }
  if (object.max != kNoLimit && std::max<int64_t>(required, object.min) >
                                    object.max) {
    return false;
  }
  if (!more && possible < object.min) return false;
  // A separator is needed as soon as there are two members.
  return std::max<int64_t>(required, object.min) <= 1 || can(object.separator);
}

}  // namespace

GrammarBuilder::GrammarBuilder(const GrammarLimits& limits)
    : limits_(limits) {
  grammar_.regexes = Regexes(limits.regex_bytes);
}

absl::Status GrammarBuilder::status() const {
  return status_.ok() ? grammar_.regexes.status() : status_;
}

bool GrammarBuilder::Count(int64_t rules) {
  rules_ += rules;
  if (rules_ > limits_.rules && status_.ok()) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat("the grammar has more than ", limits_.rules, " rules"));
  }
  return status_.ok();
}

Symbol GrammarBuilder::Terminal(Expr expr) {
  // Equal expressions are one terminal, so the automaton follows them once.
  const auto [found, fresh] = terminal_of_.try_emplace(
      expr, static_cast<Symbol>(grammar_.terminals.size()));
  if (fresh) {
    grammar_.terminals.push_back(expr);
    if (static_cast<int64_t>(grammar_.terminals.size()) > limits_.terminals &&
        status_.ok()) {
      status_ = absl::ResourceExhaustedError(absl::StrCat(
          "the grammar has more than ", limits_.terminals, " terminals"));
    }
  }
  return found->second;
}

Symbol GrammarBuilder::NewNonterminal() {
  grammar_.nonterminals.emplace_back();
  return ~static_cast<Symbol>(grammar_.nonterminals.size() - 1);
}

Symbol GrammarBuilder::Declare() {
  Count(1);
  return NewNonterminal();
}

void GrammarBuilder::AddAlternative(Symbol nonterminal,
                                    absl::Span<const Symbol> body) {
  // Long bodies count as several rules: they cost as many places.
  if (!Count(1 + static_cast<int64_t>(body.size()) / 8)) return;
  grammar_.nonterminals[~nonterminal].alternatives.emplace_back(body.begin(),
                                                                body.end());
}

Symbol GrammarBuilder::Sequence(absl::Span<const Symbol> symbols) {
  if (symbols.size() == 1) return symbols[0];
  const Symbol symbol = Declare();
  AddAlternative(symbol, symbols);
  return symbol;
}

Symbol GrammarBuilder::Choice(absl::Span<const Symbol> symbols) {
  if (symbols.size() == 1) return symbols[0];
  const Symbol choice = Declare();
  for (const Symbol symbol : symbols) AddAlternative(choice, {symbol});
  return choice;
}

Symbol GrammarBuilder::Optional(Symbol symbol) {
  const Symbol optional = Declare();
  AddAlternative(optional, {});
  AddAlternative(optional, {symbol});
  return optional;
}

Symbol GrammarBuilder::Repeat(Symbol symbol, int32_t min, int32_t max) {
  ListRule rule;
  rule.has_rest = true;
  rule.rest = symbol;
  rule.separator = Terminal(Regexes::kEmpty);
  rule.min = min;
  rule.max = max;
  return List(std::move(rule));
}

Symbol GrammarBuilder::List(ListRule rule) {
  Count(1 + static_cast<int64_t>(rule.first.size()));
  const Symbol symbol = NewNonterminal();
  grammar_.nonterminals[~symbol].kind = Nonterminal::kList;
  grammar_.nonterminals[~symbol].index =
      static_cast<int32_t>(grammar_.lists.size());
  grammar_.lists.push_back(std::move(rule));
  return symbol;
}

Symbol GrammarBuilder::Object(ObjectRule rule) {
  int64_t cost = 1;
  for (const ObjectMember& member : rule.members) {
    cost += 1 + static_cast<int64_t>(member.needs.size());
  }
  Count(cost + static_cast<int64_t>(rule.others.size()));
  if (cost > 1 + static_cast<int64_t>(rule.members.size()) &&
      (rule.min > 0 || rule.max != kNoLimit) && status_.ok()) {
    // Whether such an object can be completed is a question of subsets.
    status_ = absl::UnimplementedError(
        "members that need each other in an object with a limited number of "
        "members");
  }
  const Symbol symbol = NewNonterminal();
  grammar_.nonterminals[~symbol].kind = Nonterminal::kObject;
  grammar_.nonterminals[~symbol].index =
      static_cast<int32_t>(grammar_.objects.size());
  grammar_.objects.push_back(std::move(rule));
  return symbol;
}

absl::StatusOr<Grammar> GrammarBuilder::Build(Symbol root) && {
  FORETOKEN_RETURN_IF_ERROR(status());
  Grammar& grammar = grammar_;
  if (root >= 0) {
    // The automaton starts in a nonterminal.
    const Symbol whole = NewNonterminal();
    grammar.nonterminals[~whole].alternatives.push_back({root});
    root = whole;
  }
  grammar.root = root;
  for (ObjectRule& object : grammar.objects) CloseNeeds(object);

  const int count = static_cast<int>(grammar.nonterminals.size());
  const auto parts = [&](int32_t index, const auto& take) {
    ForEachPart(grammar, index, take);
  };
  // Whether nonterminal `index` has the property, if the terminals and other
  // nonterminals that `can` names have it.
  const auto matches = [&](int32_t index, const auto& can) {
    const Nonterminal& nonterminal = grammar.nonterminals[index];
    switch (nonterminal.kind) {
      case Nonterminal::kRules:
        return std::any_of(
            nonterminal.alternatives.begin(), nonterminal.alternatives.end(),
            [&](const std::vector<Symbol>& body) {
              return std::all_of(body.begin(), body.end(), can);
            });
      case Nonterminal::kList:
        return ListMatches(grammar.lists[nonterminal.index], can);
      case Nonterminal::kObject:
        return ObjectMatches(grammar.objects[nonterminal.index], can);
    }
    return false;
  };

  // A terminal whose expression matches nothing is as dead as a rule without an
  // end.
  std::vector<bool> live_terminal(grammar.terminals.size());
  for (size_t i = 0; i < grammar.terminals.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const bool nothing,
        grammar.regexes.MatchesNothing(grammar.terminals[i]));
    live_terminal[i] = !nothing;
  }
  FORETOKEN_RETURN_IF_ERROR(status());
  // Least fixpoint: a recursion without an end matches no text and stays false.
  const std::vector<bool> live = LeastFixpoint(
      count, parts, [&](int32_t index, const std::vector<bool>& known) {
        return matches(index, [&](Symbol symbol) {
          return symbol >= 0 ? live_terminal[symbol] : known[~symbol];
        });
      });
  if (!live[~root]) {
    return absl::InvalidArgumentError("unsatisfiable: no text matches");
  }
  const auto is_live = [&](Symbol symbol) {
    return symbol >= 0 ? live_terminal[symbol] : live[~symbol];
  };

  // Remove rules that can never match, so that every beginning has an end.
  for (Nonterminal& nonterminal : grammar.nonterminals) {
    auto& bodies = nonterminal.alternatives;
    bodies.erase(std::remove_if(bodies.begin(), bodies.end(),
                                [&](const std::vector<Symbol>& body) {
                                  return !std::all_of(body.begin(), body.end(),
                                                      is_live);
                                }),
                 bodies.end());
  }
  for (ListRule& list : grammar.lists) {
    if (list.has_rest && !is_live(list.rest)) list.has_rest = false;
    const auto dead =
        std::find_if_not(list.first.begin(), list.first.end(), is_live);
    // Items after a dead one can never be reached.
    if (dead != list.first.end()) {
      list.first.erase(dead, list.first.end());
      list.has_rest = false;
    }
    // 2^40 stands for "no limit" while minima are taken.
    int64_t most = list.max == kNoLimit ? int64_t{1} << 40 : list.max;
    if (!list.has_rest) {
      most = std::min<int64_t>(most, list.first.size());
    }
    // Without a separator there is one item at most.
    if (!is_live(list.separator)) most = std::min<int64_t>(most, 1);
    list.max = most >= int64_t{1} << 31 ? kNoLimit : static_cast<int32_t>(most);
  }
  for (ObjectRule& object : grammar.objects) {
    const auto dead_member = [&](const ObjectMember& member) {
      return !is_live(member.key) || !is_live(member.value);
    };
    // Members keep their numbers, since others need them by number; dead ones
    // become impossible.
    for (ObjectMember& member : object.members) {
      bool dead = dead_member(member);
      for (size_t i = 0; !dead && i < member.needs.size(); ++i) {
        dead = dead_member(object.members[member.needs[i]]);
      }
      member.possible = !dead;
    }
    object.others.erase(std::remove_if(object.others.begin(),
                                       object.others.end(), dead_member),
                        object.others.end());
    if (!is_live(object.separator)) {
      object.max = object.max == kNoLimit ? 1 : std::min(object.max, 1);
    }
  }

  const std::vector<bool> nullable = LeastFixpoint(
      count, parts, [&](int32_t index, const std::vector<bool>& known) {
        return matches(index, [&](Symbol symbol) {
          return symbol >= 0
                     ? grammar.regexes.nullable(grammar.terminals[symbol])
                     : known[~symbol];
        });
      });
  for (int i = 0; i < count; ++i) {
    grammar.nonterminals[i].nullable = nullable[i];
  }
  return std::move(grammar_);
}

}  // namespace foretoken::grammar
