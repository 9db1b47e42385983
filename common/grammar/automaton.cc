#include "common/grammar/automaton.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/numeric/bits.h"

namespace foretoken::grammar {
namespace {

using Nonterminal = Grammar::Nonterminal;

// Memory of a node of each kind besides its vectors, about.
constexpr int64_t kPlaceBytes = 160;
constexpr int64_t kColumnBytes = 160;
constexpr int64_t kStateBytes = 112;

// Items of a column: the ways to read a text in an ambiguous grammar.
constexpr size_t kMaxItems = 20'000;
constexpr int64_t kMaxVisits = 1'000'000;

// The search for plain characters that may follow gives up after this many
// states: beyond that, walking the whole vocabulary is cheaper.
constexpr size_t kMaxPlainStates = 3;
// It looks this far, unless the form of an expression tells more.
constexpr int kFewCharacters = 16;

// A state that stays the same on all characters of a form has few states within
// these; the others are not worth a search.
constexpr size_t kMaxStatesInside = 2;

bool Seen(const std::vector<uint64_t>& seen, int32_t member) {
  return (seen[member >> 6] >> (member & 63)) & 1;
}

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar, int64_t max_growth)
    : grammar_(std::move(grammar)),
      regexes_(grammar_->regexes),
      classes_(regexes_.Classes()),
      class_count_(static_cast<int32_t>(classes_.representative.size())),
      starts_(grammar_->nonterminals.size(), -1) {
  const auto classes_in = [&](uint8_t first, uint8_t last) {
    std::vector<uint8_t> classes;
    for (int byte = first; byte <= last; ++byte) {
      const uint8_t byte_class = classes_.class_of[byte];
      if (std::find(classes.begin(), classes.end(), byte_class) ==
          classes.end()) {
        classes.push_back(byte_class);
      }
    }
    return classes;
  };
  for (const auto& [first, last] :
       {std::pair{' ', '!'}, {'#', '['}, {']', '~'}}) {
    for (const uint8_t byte_class : classes_in(first, last)) {
      if (std::find(plain_ascii_.begin(), plain_ascii_.end(), byte_class) ==
          plain_ascii_.end()) {
        plain_ascii_.push_back(byte_class);
      }
    }
  }
  for (const Utf8Form& form : kUtf8Forms) {
    std::vector<std::vector<uint8_t>>& positions = plain_utf8_.emplace_back();
    for (int i = 0; i < form.length; ++i) {
      positions.push_back(classes_in(form.ranges[i][0], form.ranges[i][1]));
    }
  }
  // Half of the growth for expressions, half for the automaton's own nodes.
  regexes_.AllowMore(max_growth / 2);
  max_bytes_ = max_growth / 2;
  // The first of each kind is the dead one.
  // Index 0 means "no way on" everywhere, so a step needs no other mark for it.
  columns_.emplace_back();
  DfaOf({});
  StateOf({}, false);
  const int32_t column =
      ColumnOf({{StartOf(~grammar_->root), {kRoot, ~grammar_->root}}});
  std::vector<Thread> threads;
  if (columns_[column].dfa != 0) {
    threads.push_back({column, columns_[column].dfa});
  }
  start_ = StateOf(std::move(threads), columns_[column].accepting);
}

void Automaton::Charge(int64_t bytes) {
  // The first bound that is exceeded stays the reason.
  bytes_ += bytes;
  if (bytes_ > max_bytes_ && status_.ok()) {
    status_ = absl::ResourceExhaustedError(
        "the grammar has too many states for its memory");
  }
}

int32_t Automaton::PlaceOf(PlaceKey key) {
  const auto [found, fresh] = place_index_.try_emplace(
      std::move(key), static_cast<int32_t>(places_.size()));
  if (fresh) {
    places_.emplace_back();
    // A copy: the map's own keys may move.
    place_keys_.push_back(found->first);
    Charge(kPlaceBytes);
  }
  return found->second;
}

int32_t Automaton::StartOf(int32_t nonterminal) {
  if (starts_[nonterminal] >= 0) return starts_[nonterminal];
  PlaceKey key;
  key.nonterminal = nonterminal;
  const Nonterminal& rules = grammar_->nonterminals[nonterminal];
  if (rules.kind == Nonterminal::kRules) {
    key.a = -1;
  } else {
    key.phase = PlaceKey::kStart;
    if (rules.kind == Nonterminal::kObject) {
      const size_t members = grammar_->objects[rules.index].members.size();
      key.seen.resize((members + 63) / 64);
    }
  }
  return starts_[nonterminal] = PlaceOf(std::move(key));
}

const Automaton::Place& Automaton::Made(int32_t place) {
  if (!places_[place].made) {
    // By value: making a place may make others, and move the vectors.
    const PlaceKey key = place_keys_[place];
    Place made;
    made.made = true;
    switch (grammar_->nonterminals[key.nonterminal].kind) {
      case Nonterminal::kRules:
        MakeRule(key, made);
        break;
      case Nonterminal::kList:
        MakeList(key, made);
        break;
      case Nonterminal::kObject:
        MakeObject(key, made);
        break;
    }
    // A place where the rule can only end; calls from it can return to the
    // caller's caller (ColumnOf).
    made.last = made.final && made.edges.empty();
    Charge(static_cast<int64_t>(made.edges.size() * sizeof(Edge)));
    places_[place] = std::move(made);
  }
  return places_[place];
}

void Automaton::MakeRule(const PlaceKey& key, Place& place) {
  const auto& bodies = grammar_->nonterminals[key.nonterminal].alternatives;
  const auto add = [&](int32_t alternative, int32_t passed) {
    const auto& body = bodies[alternative];
    if (passed == static_cast<int32_t>(body.size())) {
      place.final = true;
      return;
    }
    PlaceKey next = key;
    // All ends are one place, so that the last symbol's end is recognised.
    const bool end = passed + 1 == static_cast<int32_t>(body.size());
    next.a = end ? -2 : alternative;
    next.b = end ? 0 : passed + 1;
    place.edges.push_back({body[passed], PlaceOf(std::move(next))});
  };
  if (key.a == -2) {
    place.final = true;
  } else if (key.a >= 0) {
    add(key.a, key.b);
  } else {
    for (size_t i = 0; i < bodies.size(); ++i) {
      add(static_cast<int32_t>(i), 0);
    }
  }
}

// key.a is the number of items so far, as far as it matters.
void Automaton::MakeList(const PlaceKey& key, Place& place) {
  const ListRule& list =
      grammar_->lists[grammar_->nonterminals[key.nonterminal].index];
  const int32_t first = static_cast<int32_t>(list.first.size());
  const bool may_have_more = list.max == kNoLimit || key.a < list.max;
  const auto item = [&] {
    PlaceKey next = key;
    next.phase = PlaceKey::kAfter;
    // Beyond its last border the number does not matter.
    next.a = list.max == kNoLimit
                 ? std::min(key.a + 1, std::max(list.min, first))
                 : key.a + 1;
    place.edges.push_back(
        {key.a < first ? list.first[key.a] : list.rest,
         PlaceOf(std::move(next))});
  };
  switch (key.phase) {
    case PlaceKey::kStart:
      place.final = list.min == 0;
      if (may_have_more && (first > 0 || list.has_rest)) item();
      return;
    case PlaceKey::kItem:
      item();
      return;
    default:
      break;
  }
  place.final = key.a >= list.min;
  if (may_have_more && (key.a < first || list.has_rest)) {
    PlaceKey next = key;
    next.phase = PlaceKey::kItem;
    place.edges.push_back({list.separator, PlaceOf(std::move(next))});
  }
}

// key.a is the number of members so far, as far as it matters; key.b the first
// member that may still come, in the rule's order; key.seen those that were
// there, if it matters.
void Automaton::MakeObject(const PlaceKey& key, Place& place) {
  const ObjectRule& object =
      grammar_->objects[grammar_->nonterminals[key.nonterminal].index];
  const int32_t count = static_cast<int32_t>(object.members.size());
  if (key.phase == PlaceKey::kValue) {
    PlaceKey next = key;
    next.phase = PlaceKey::kAfter;
    next.c = 0;
    const ObjectMember& member = key.c < count ? object.members[key.c]
                                               : object.others[key.c - count];
    place.edges.push_back({member.value, PlaceOf(std::move(next))});
    return;
  }
  // What those that were there need is required by now. In the rule's order,
  // members before the cursor were there or are not required: they could not
  // have been passed.
  std::vector<bool> required(count, false);
  bool needs = false;
  for (int32_t i = 0; i < count; ++i) {
    if (object.members[i].required) required[i] = true;
    needs = needs || !object.members[i].needs.empty();
    // Whatever member came first, the ones it needs are owed from then on.
    if (!Seen(key.seen, i)) continue;
    for (const int32_t need : object.members[i].needs) required[need] = true;
  }
  int32_t missing = 0;  // required and not yet there
  int32_t first_missing = count;
  int32_t left = 0;  // members that could still come
  for (int32_t i = key.b; i < count; ++i) {
    if (Seen(key.seen, i)) continue;
    left += object.members[i].possible;
    if (!required[i]) continue;
    ++missing;
    first_missing = std::min(first_missing, i);
  }
  const auto have_room = [&](bool fills_missing) {
    // Counts the members that are still owed: optional ones must leave them
    // room.
    return object.max == kNoLimit ||
           key.a + 1 + missing - (fills_missing ? 1 : 0) <= object.max;
  };
  // Members that may come now, each of which leaves a way to the end.
  std::vector<int32_t> open;
  for (int32_t i = key.b; i < count; ++i) {
    const ObjectMember& member = object.members[i];
    if (Seen(key.seen, i) || !member.possible) continue;
    if (!object.any_order) {
      if (first_missing < i) break;
      --left;
      // Passing too many optional members would miss the minimum.
      if (object.others.empty() && key.a + 1 + left < object.min) break;
      // One that needs a member that was passed comes too late.
      if (std::any_of(member.needs.begin(), member.needs.end(),
                      [&](int32_t need) {
                        return need < i && !Seen(key.seen, need);
                      })) {
        continue;
      }
    }
    if (have_room(required[i])) open.push_back(i);
  }
  // In the rule's order other members come last, so nothing may be missing
  // before them.
  const bool others = !object.others.empty() && have_room(false) &&
                      (object.any_order || missing == 0);
  if (key.phase != PlaceKey::kItem) {
    place.final = missing == 0 && key.a >= object.min;
  }
  if (key.phase == PlaceKey::kAfter) {
    if (open.empty() && !others) return;
    PlaceKey next = key;
    next.phase = PlaceKey::kItem;
    place.edges.push_back({object.separator, PlaceOf(std::move(next))});
    return;
  }
  PlaceKey next = key;
  next.phase = PlaceKey::kValue;
  next.a = object.max != kNoLimit ? key.a + 1
                                  : std::min(key.a + 1, object.min);
  for (const int32_t i : open) {
    PlaceKey member = next;
    member.c = i;
    if (!object.any_order) member.b = i + 1;
    if (object.any_order || needs) {
      member.seen[i >> 6] |= uint64_t{1} << (i & 63);
    }
    place.edges.push_back({object.members[i].key, PlaceOf(std::move(member))});
  }
  if (!others) return;
  if (!object.any_order) next.b = count;
  for (size_t i = 0; i < object.others.size(); ++i) {
    PlaceKey other = next;
    other.c = count + static_cast<int32_t>(i);
    place.edges.push_back({object.others[i].key, PlaceOf(std::move(other))});
  }
}

int32_t Automaton::ColumnOf(std::vector<Item> kernel) {
  // Sorted, since equal kernels must be the same column: texts that lead to the
  // same ways on share all that follows.
  std::sort(kernel.begin(), kernel.end());
  kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
  const auto [found, fresh] = column_index_.try_emplace(
      kernel, static_cast<int32_t>(columns_.size()));
  if (!fresh) return found->second;
  const int32_t number = found->second;

  Column column;
  absl::flat_hash_set<Item> seen(kernel.begin(), kernel.end());
  std::vector<Item> open = kernel;
  const auto add = [&](const Item& item) {
    if (seen.insert(item).second) open.push_back(item);
  };
  // Earley's algorithm (1970): one column, with all items that follow from its
  // kernel.
  int64_t visits = 0;  // of items that waited for one that ended here
  while (!open.empty()) {
    const Item item = open.back();
    open.pop_back();
    // In an ambiguous grammar both grow with the text: an error here, where the
    // engine would stand still otherwise.
    if (seen.size() > kMaxItems || visits > kMaxVisits) {
      status_ = absl::ResourceExhaustedError(
          "the grammar has too many ways to read the text");
      break;
    }
    if (Made(item.place).final) {
      if (item.caller.column == kRoot) {
        column.accepting = true;
      } else if (item.caller.column != kHere) {
        // Within this column, what is complete was empty: those that wait for
        // it went on at once.
        const auto& waiting = columns_[item.caller.column].nonterminals;
        auto it = std::lower_bound(
            waiting.begin(), waiting.end(), item.caller.nonterminal,
            [](const auto& entry, int32_t key) { return entry.first < key; });
        for (; it != waiting.end() && it->first == item.caller.nonterminal;
             ++it) {
          add(it->second);
          ++visits;
        }
      }
    }
    // By index: what follows may make places, and move them.
    for (size_t i = 0; i < places_[item.place].edges.size(); ++i) {
      const Edge edge = places_[item.place].edges[i];
      const Item next = {edge.to, item.caller};
      if (edge.symbol >= 0) {
        const Expr expr = grammar_->terminals[edge.symbol];
        if (expr != Regexes::kEmpty) {
          column.terminals.push_back({edge.symbol, next});
        }
        if (regexes_.nullable(expr)) add(next);
        continue;
      }
      const int32_t called = ~edge.symbol;
      if (grammar_->nonterminals[called].nullable) add(next);
      // Leo (1991): right recursion would otherwise leave an item for each
      // level, and every end would pass through all of them.
      if (Made(edge.to).last) {
        // Its end is our end: it returns to our caller.
        add({StartOf(called), item.caller});
      } else {
        column.nonterminals.push_back({called, next});
        add({StartOf(called), {kHere, called}});
      }
    }
  }
  for (auto* waiting : {&column.terminals, &column.nonterminals}) {
    for (auto& [symbol, item] : *waiting) {
      // Items that were made in this column can name its number only now.
      if (item.caller.column == kHere) item.caller.column = number;
    }
    std::sort(waiting->begin(), waiting->end());
    waiting->erase(std::unique(waiting->begin(), waiting->end()),
                   waiting->end());
  }
  std::vector<std::pair<int32_t, Expr>> parts;
  for (const auto& [terminal, item] : column.terminals) {
    if (parts.empty() || parts.back().first != terminal) {
      parts.push_back({terminal, grammar_->terminals[terminal]});
    }
  }
  column.dfa = DfaOf(std::move(parts));
  // Counted as work, so that a mask that needs many columns ends in time.
  work_ += 2 * static_cast<int64_t>(seen.size()) + visits;
  Charge(kColumnBytes + static_cast<int64_t>(sizeof(Item) * 2 * kernel.size()) +
         static_cast<int64_t>(
             sizeof(std::pair<int32_t, Item>) *
             (column.terminals.size() + column.nonterminals.size())));
  column.kernel = std::move(kernel);
  columns_.push_back(std::move(column));
  return number;
}

int32_t Automaton::DfaOf(std::vector<std::pair<int32_t, Expr>> parts) {
  const auto [found, fresh] = dfa_index_.try_emplace(
      std::move(parts), static_cast<int32_t>(dfas_.size()));
  if (!fresh) return found->second;
  DfaState dfa;
  dfa.parts = found->first;
  dfa.leaf = true;
  for (const auto& [terminal, expr] : dfa.parts) {
    if (regexes_.nullable(expr)) dfa.accepts.push_back(terminal);
    if (expr != Regexes::kEmpty) dfa.leaf = false;
  }
  Charge(kStateBytes +
         static_cast<int64_t>(32 * dfa.parts.size() + 4 * class_count_));
  dfas_.push_back(std::move(dfa));
  dfa_plain_.push_back(-1);
  dfa_next_.resize(dfa_next_.size() + class_count_, -1);
  return found->second;
}

int32_t Automaton::DfaStep(int32_t dfa, uint8_t byte_class) {
  const size_t slot = static_cast<size_t>(dfa) * class_count_ + byte_class;
  // Brzozowski derivatives (1964): the state after a byte is the expression
  // that the rest has to match.
  if (dfa_next_[slot] >= 0) return dfa_next_[slot];
  work_ += 4 + 4 * static_cast<int64_t>(dfas_[dfa].parts.size());
  const uint8_t byte = classes_.representative[byte_class];
  std::vector<std::pair<int32_t, Expr>> next;
  for (const auto& [terminal, expr] : dfas_[dfa].parts) {
    const Expr left = regexes_.Derivative(expr, byte);
    if (left == Regexes::kNothing) continue;
    // A derivative that matches no text would let the model write itself into a
    // dead end.
    const auto nothing = regexes_.MatchesNothing(left);
    if (!nothing.ok()) status_ = nothing.status();
    if (!nothing.ok() || *nothing) continue;
    next.push_back({terminal, left});
  }
  const int32_t to = DfaOf(std::move(next));
  dfa_next_[slot] = to;
  return to;
}

Automaton::State Automaton::StateOf(std::vector<Thread> threads,
                                    bool accepting) {
  std::sort(threads.begin(), threads.end());
  // Equal sets of threads are one state, whatever order they arose in.
  threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
  const auto [found, fresh] = state_index_.try_emplace(
      {std::move(threads), accepting}, static_cast<State>(states_.size()));
  if (!fresh) return found->second;
  const std::vector<Thread>& kept = found->first.first;
  StateData state;
  state.first_thread = static_cast<int32_t>(threads_.size());
  state.threads = static_cast<int32_t>(kept.size());
  state.accepting = accepting;
  threads_.insert(threads_.end(), kept.begin(), kept.end());
  states_.push_back(state);
  next_.resize(next_.size() + class_count_, -1);
  loops_.emplace_back();
  Charge(kStateBytes + static_cast<int64_t>(16 * kept.size()) +
         4 * class_count_);
  return found->second;
}

Automaton::State Automaton::NewStep(State state, uint8_t byte_class) {
  ++steps_;
  work_ += 8;
  // Nothing is computed any more once a bound is reached: see status().
  if (!status().ok()) return kDead;
  const auto view = threads(states_[state]);
  // A copy: new states move the vector that the view points into.
  const std::vector<Thread> from(view.begin(), view.end());
  std::vector<Thread> to;
  std::vector<Item> kernel;
  for (const Thread& thread : from) {
    const int32_t dfa = DfaStep(thread.dfa, byte_class);
    if (dfa == 0) continue;
    if (!dfas_[dfa].leaf) to.push_back({thread.column, dfa});
    const auto& waiting = columns_[thread.column].terminals;
    for (const int32_t terminal : dfas_[dfa].accepts) {
      auto it = std::lower_bound(
          waiting.begin(), waiting.end(), terminal,
          [](const auto& entry, int32_t key) { return entry.first < key; });
      // Several items may wait for the same terminal.
      for (; it != waiting.end() && it->first == terminal; ++it) {
        kernel.push_back(it->second);
      }
    }
  }
  bool accepting = false;
  if (!kernel.empty()) {
    const int32_t column = ColumnOf(std::move(kernel));
    accepting = columns_[column].accepting;
    if (columns_[column].dfa != 0) {
      to.push_back({column, columns_[column].dfa});
    }
  }
  const State next = StateOf(std::move(to), accepting);
  next_[Slot(state, byte_class)] = next;
  return next;
}

std::string Automaton::Forced(State& state, size_t max) {
  // Classes of a single byte can be forced, others never.
  std::string forced;
  // A text that may end here is not forced to go on.
  while (forced.size() < max && !Accepts(state)) {
    int32_t only = -1;
    bool choice = false;
    for (int32_t i = 0; i < class_count_ && !choice; ++i) {
      if (StepClass(state, static_cast<uint8_t>(i)) == kDead) continue;
      choice = only >= 0;
      only = i;
    }
    if (choice || only < 0) break;
    // A class of several bytes still leaves a choice.
    if (std::count(classes_.class_of.begin(), classes_.class_of.end(), only) !=
        1) {
      break;
    }
    forced.push_back(static_cast<char>(classes_.representative[only]));
    state = StepClass(state, static_cast<uint8_t>(only));
  }
  return forced;
}

bool Automaton::StaysOn(State state, CharacterGroups groups,
                        int64_t last_work) {
  if ((groups & loops_[state].leaves) != 0) return false;
  for (CharacterGroups open = groups & ~loops_[state].stays; open != 0;
       open &= open - 1) {
    // Without an answer the trie is walked, which has bounds of its own.
    if (work_ > last_work) return false;
    const CharacterGroups group = open & (~open + 1);
    // By value: new states move loops_.
    const bool stays =
        group != kNoCharacters && StaysOnGroup(state, absl::countr_zero(open));
    (stays ? loops_[state].stays : loops_[state].leaves) |= group;
    if (!stays) return false;
  }
  return true;
}

bool Automaton::StaysOnGroup(State state, int group) {
  if (group >= kUtf8FormCount) {
    const absl::Span<const uint8_t> characters = AsciiOfGroup(group);
    return std::all_of(
        characters.begin(), characters.end(),
        [&](uint8_t character) { return Step(state, character) == state; });
  }
  std::vector<State> inside = {state};
  for (const std::vector<uint8_t>& position : plain_utf8_[group]) {
    std::vector<State> further;
    for (const State at : inside) {
      for (const uint8_t byte_class : position) {
        const State to = StepClass(at, byte_class);
        if (to == kDead) return false;
        if (std::find(further.begin(), further.end(), to) == further.end()) {
          further.push_back(to);
        }
        if (further.size() > kMaxStatesInside) return false;
      }
    }
    inside = std::move(further);
  }
  return inside.size() == 1 && inside.front() == state;
}

int Automaton::PlainCharacters(State state, int most) {
  int best = 0;
  const auto view = threads(states_[state]);
  const std::vector<Thread> all(view.begin(), view.end());
  for (const Thread& thread : all) {
    best = std::max(best, DfaPlain(thread.dfa, most));
  }
  return best;
}

bool Automaton::MatchesEachPlain(Expr expr) {
  const auto [known, fresh] = matches_each_plain_.try_emplace(expr, false);
  if (!fresh) return known->second;
  const auto holds = [&] {
    for (const uint8_t byte_class : plain_ascii_) {
      if (!regexes_.nullable(regexes_.Derivative(
              expr, classes_.representative[byte_class]))) {
        return false;
      }
    }
    for (const auto& positions : plain_utf8_) {
      std::vector<Expr> inside = {expr};
      for (const std::vector<uint8_t>& position : positions) {
        std::vector<Expr> further;
        for (const Expr at : inside) {
          for (const uint8_t byte_class : position) {
            const Expr to = regexes_.Derivative(
                at, classes_.representative[byte_class]);
            if (std::find(further.begin(), further.end(), to) ==
                further.end()) {
              further.push_back(to);
            }
          }
        }
        inside = std::move(further);
      }
      for (const Expr to : inside) {
        if (!regexes_.nullable(to)) return false;
      }
    }
    return true;
  };
  const bool result = holds();
  return matches_each_plain_[expr] = result;
}

// The distance to the nearest state in which some plain character cannot
// follow. `most` must be the same in every call, at most 127.
int Automaton::DfaPlain(int32_t dfa, int most) {
  if (dfa_plain_[dfa] >= 0) return dfa_plain_[dfa];
  // Strings with nothing but a bound on their length are common, and would have
  // a state for every length.
  int32_t run = 0;
  for (const auto& [terminal, expr] : dfas_[dfa].parts) {
    run = std::max(run, regexes_.AnyRun(expr, [&](Expr part) {
      return MatchesEachPlain(part);
    }));
  }
  if (run >= std::min(most, kFewCharacters)) {
    dfa_plain_[dfa] = static_cast<int8_t>(std::min(run, most));
    return dfa_plain_[dfa];
  }
  const auto search = [&]() -> int {
    absl::flat_hash_set<int32_t> seen = {dfa};
    std::vector<int32_t> frontier = {dfa};
    for (int level = 0; level < std::min(most, kFewCharacters); ++level) {
      std::vector<int32_t> next;
      const auto reach = [&](int32_t to) {
        if (seen.insert(to).second) next.push_back(to);
        return seen.size() <= kMaxPlainStates;
      };
      for (const int32_t from : frontier) {
        for (const uint8_t byte_class : plain_ascii_) {
          const int32_t to = DfaStep(from, byte_class);
          if (to == 0 || !reach(to)) return level;
        }
        for (const auto& positions : plain_utf8_) {
          std::vector<int32_t> inside = {from};
          for (size_t i = 0; i < positions.size(); ++i) {
            std::vector<int32_t> further;
            for (const int32_t at : inside) {
              for (const uint8_t byte_class : positions[i]) {
                const int32_t to = DfaStep(at, byte_class);
                if (to == 0) return level;
                if (std::find(further.begin(), further.end(), to) ==
                    further.end()) {
                  further.push_back(to);
                }
              }
            }
            inside = std::move(further);
          }
          for (const int32_t to : inside) {
            if (!reach(to)) return level;
          }
        }
      }
      if (next.empty()) return most;
      frontier = std::move(next);
    }
    return std::min(most, kFewCharacters);
  };
  const int found = std::max(run, search());
  dfa_plain_[dfa] = static_cast<int8_t>(found);
  return found;
}

}  // namespace foretoken::grammar
