// Automaton: recognises the texts of a grammar byte by byte, from any state.
//
// A state is a set of threads; a thread is a column of an Earley parser, which
// holds what is being parsed since which column, and a state of a lazy DFA over
// the terminals that may come next there. Terminals may end wherever they
// match, so that ambiguity is exact, between terminals as well.
//
// Columns, DFA states and states are interned: a column is known by the items
// that a terminal's end put into it, which refer to older columns. A list of
// any length therefore cycles through the same few states, and what was
// computed for a state (its steps, and a mask of the vocabulary) holds whenever
// a text comes back to it. A nonterminal that ends its rule returns to the
// rule's own caller, so that right recursion takes no room either.
//
// Source: J. Earley, "An Efficient Context-Free Parsing Algorithm", CACM 1970;
// J. Aycock and N. Horspool, "Practical Earley Parsing", 2002 (empty rules).
// Owned by one thread.
#ifndef FORETOKEN_COMMON_GRAMMAR_AUTOMATON_H_
#define FORETOKEN_COMMON_GRAMMAR_AUTOMATON_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/grammar/character_groups.h"
#include "common/grammar/grammar.h"
#include "common/grammar/regex.h"

namespace foretoken::grammar {

class Automaton {
 public:
  using State = int32_t;
  static constexpr State kDead = 0;  // no text continues from here

  static constexpr int64_t kMaxGrowth = int64_t{64} << 20;

  // `max_growth`: memory of states and expressions beyond the grammar's own.
  explicit Automaton(std::shared_ptr<const Grammar> grammar,
                     int64_t max_growth = kMaxGrowth);
  Automaton(const Automaton&) = delete;
  Automaton& operator=(const Automaton&) = delete;

  State start() const { return start_; }
  // The state after one more byte.
  State Step(State state, uint8_t byte) {
    return StepClass(state, classes_.class_of[byte]);
  }
  State Step(State state, absl::string_view bytes) {
    for (size_t i = 0; i < bytes.size() && state != kDead; ++i) {
      state = Step(state, static_cast<uint8_t>(bytes[i]));
    }
    return state;
  }
  // Whether the text may end here.
  bool Accepts(State state) const { return states_[state].accepting; }
  // Whether it can go on.
  bool Continues(State state) const { return states_[state].threads > 0; }
  bool Matches(absl::string_view text) {
    return Accepts(Step(start_, text));
  }

  // The bytes that must follow, since nothing else can: at most `max`. Moves
  // `state` beyond them.
  std::string Forced(State& state, size_t max);

  // The number of characters, at most `most`, that may follow whatever they
  // are, as long as they are plain: code points of valid UTF-8 without
  // controls, '"' and '\'.
  int PlainCharacters(State state, int most);

  // Whether the state stays the same whatever characters of these groups
  // follow, so that any text of them, also one cut off within its last
  // character, may follow. Never with kNoCharacters. False as well if that is
  // not known by the time work() is beyond `last_work`.
  bool StaysOn(State state, CharacterGroups groups, int64_t last_work);

  // Bytes of one class lead from every state to the same state.
  const std::array<uint8_t, 256>& class_of() const { return classes_.class_of; }
  State StepClass(State state, uint8_t byte_class) {
    const State known = next_[Slot(state, byte_class)];
    return known >= 0 ? known : NewStep(state, byte_class);
  }

  // ResourceExhausted once states or expressions took too much memory or time:
  // steps may lead to kDead wrongly from then on.
  absl::Status status() const {
    return status_.ok() ? regexes_.status() : status_;
  }
  int64_t bytes() const { return bytes_ + regexes_.bytes(); }  // about
  int64_t steps() const { return steps_; }  // computed, not looked up
  // Work so far, in units of some 100 ns on a slow core.
  int64_t work() const { return work_; }

 private:
  // Where a nonterminal's text began, and which: what its end continues.
  struct Caller {
    int32_t column = 0;       // kRoot: the whole text
    int32_t nonterminal = 0;  // index in the grammar
    bool operator==(const Caller&) const = default;
    bool operator<(const Caller& o) const {
      return std::tie(column, nonterminal) < std::tie(o.column, o.nonterminal);
    }
    template <typename H>
    friend H AbslHashValue(H h, const Caller& c) {
      return H::combine(std::move(h), c.column, c.nonterminal);
    }
  };
  static constexpr int32_t kRoot = -1;
  // Within a column that has no number yet.
  static constexpr int32_t kHere = -2;

  // A place in a nonterminal, and who waits for its end.
  struct Item {
    int32_t place = 0;
    Caller caller;
    bool operator==(const Item&) const = default;
    bool operator<(const Item& o) const {
      return std::tie(place, caller) < std::tie(o.place, o.caller);
    }
    template <typename H>
    friend H AbslHashValue(H h, const Item& i) {
      return H::combine(std::move(h), i.place, i.caller);
    }
  };
  struct Edge {
    Symbol symbol = 0;
    int32_t to = 0;  // place
  };
  // A place knows what may come there; it is made when first asked for.
  struct Place {
    bool made = false;
    bool final = false;
    bool last = false;  // final, and nothing can follow
    std::vector<Edge> edges;
  };
  // Key of a place.
  struct PlaceKey {
    enum Phase : uint8_t { kRule, kStart, kItem, kValue, kAfter } phase = kRule;
    int32_t nonterminal = 0;
    int32_t a = 0;  // rule: alternative (-1: all); list, object: count
    int32_t b = 0;  // rule: symbols passed; object: cursor
    int32_t c = 0;  // object: the member whose value is next
    std::vector<uint64_t> seen;  // object: members that were there
    bool operator==(const PlaceKey&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const PlaceKey& k) {
      return H::combine(std::move(h), k.phase, k.nonterminal, k.a, k.b, k.c,
                        k.seen);
    }
  };
  struct Column {
    std::vector<Item> kernel;
    // Items that wait for a terminal or a nonterminal, sorted by symbol.
    std::vector<std::pair<int32_t, Item>> terminals;
    std::vector<std::pair<int32_t, Item>> nonterminals;
    int32_t dfa = 0;  // of its terminals; 0: none
    bool accepting = false;
  };
  struct DfaState {
    std::vector<std::pair<int32_t, Expr>> parts;  // terminal, what is left
    std::vector<int32_t> accepts;                 // terminals that end here
    bool leaf = false;                            // nothing can follow
  };
  struct Thread {
    int32_t column = 0;
    int32_t dfa = 0;
    bool operator==(const Thread&) const = default;
    bool operator<(const Thread& o) const {
      return std::tie(column, dfa) < std::tie(o.column, o.dfa);
    }
    template <typename H>
    friend H AbslHashValue(H h, const Thread& t) {
      return H::combine(std::move(h), t.column, t.dfa);
    }
  };
  struct StateData {
    int32_t first_thread = 0;
    int32_t threads = 0;
    bool accepting = false;
  };

  // Results of StaysOn for a state.
  struct Loops {
    CharacterGroups stays = 0;
    CharacterGroups leaves = 0;
  };

  // Counts memory; beyond the bound, status() says so.
  void Charge(int64_t bytes);
  size_t Slot(State state, uint8_t byte_class) const {
    return static_cast<size_t>(state) * class_count_ + byte_class;
  }
  absl::Span<const Thread> threads(const StateData& state) const {
    return absl::MakeConstSpan(threads_).subspan(state.first_thread,
                                                 state.threads);
  }

  int32_t PlaceOf(PlaceKey key);
  const Place& Made(int32_t place);
  int32_t StartOf(int32_t nonterminal);
  void MakeRule(const PlaceKey& key, Place& place);
  void MakeList(const PlaceKey& key, Place& place);
  void MakeObject(const PlaceKey& key, Place& place);
  int32_t ColumnOf(std::vector<Item> kernel);
  int32_t DfaOf(std::vector<std::pair<int32_t, Expr>> parts);
  int32_t DfaStep(int32_t dfa, uint8_t byte_class);
  State StateOf(std::vector<Thread> threads, bool accepting);
  State NewStep(State state, uint8_t byte_class);
  bool StaysOnGroup(State state, int group);
  int DfaPlain(int32_t dfa, int most);
  // Whether the expression matches every single plain character.
  bool MatchesEachPlain(Expr expr);

  const std::shared_ptr<const Grammar> grammar_;
  Regexes regexes_;  // the grammar's, with the derivatives of this automaton
  Regexes::ByteClasses classes_;
  int32_t class_count_ = 0;
  absl::Status status_;

  std::vector<int32_t> starts_;  // places, by nonterminal; -1: not made
  std::vector<Place> places_;
  std::vector<PlaceKey> place_keys_;
  absl::flat_hash_map<PlaceKey, int32_t> place_index_;
  std::vector<Column> columns_;
  absl::flat_hash_map<std::vector<Item>, int32_t> column_index_;
  std::vector<DfaState> dfas_;
  std::vector<int32_t> dfa_next_;  // [dfas, classes], -1: not known
  absl::flat_hash_map<std::vector<std::pair<int32_t, Expr>>, int32_t>
      dfa_index_;
  std::vector<int8_t> dfa_plain_;  // PlainCharacters; -1: not known
  absl::flat_hash_map<Expr, bool> matches_each_plain_;
  std::vector<StateData> states_;
  std::vector<Loops> loops_;  // by state
  std::vector<Thread> threads_;
  std::vector<State> next_;  // [states, classes], -1: not known
  absl::flat_hash_map<std::pair<std::vector<Thread>, bool>, State>
      state_index_;
  // Classes of the bytes of plain characters: ASCII, and the longer forms of
  // UTF-8 (kUtf8Forms) with the classes of each of their bytes.
  std::vector<uint8_t> plain_ascii_;
  std::vector<std::vector<std::vector<uint8_t>>> plain_utf8_;
  State start_ = kDead;
  int64_t bytes_ = 0;
  int64_t max_bytes_ = 0;
  int64_t steps_ = 0;
  int64_t work_ = 0;
};

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_AUTOMATON_H_
