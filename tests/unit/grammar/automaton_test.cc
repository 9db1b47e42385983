#include "common/grammar/automaton.h"

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/grammar/grammar.h"
#include "common/grammar/json_text.h"
#include "common/grammar/regex_syntax.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

Automaton Built(GrammarBuilder& builder, Symbol root,
                int64_t max_growth = Automaton::kMaxGrowth) {
  auto grammar = std::move(builder).Build(root);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return Automaton(std::make_shared<const Grammar>(*std::move(grammar)),
                   max_growth);
}

// Whether a text leads from `state` to an end: all states are seen that can be
// reached, but no more than `most`.
enum class End { kFound, kNone, kNotKnown };
End FindEnd(Automaton& automaton, Automaton::State state,
            absl::string_view alphabet, size_t most) {
  std::set<Automaton::State> seen = {state};
  std::vector<Automaton::State> open = {state};
  for (size_t i = 0; i < open.size(); ++i) {
    if (automaton.Accepts(open[i])) return End::kFound;
    if (open.size() > most) return End::kNotKnown;
    for (const char c : alphabet) {
      const Automaton::State to =
          automaton.Step(open[i], static_cast<uint8_t>(c));
      if (to != Automaton::kDead && seen.insert(to).second) open.push_back(to);
    }
  }
  return End::kNone;
}

TEST(AutomatonTest, ATextMatchesAsAWhole) {
  GrammarBuilder b;
  Automaton automaton = Built(b, b.Literal("cat"));
  EXPECT_TRUE(automaton.Matches("cat"));
  EXPECT_FALSE(automaton.Matches("ca"));
  EXPECT_FALSE(automaton.Matches("cats"));
  EXPECT_FALSE(automaton.Matches(""));
  const Automaton::State end = automaton.Step(automaton.start(), "cat");
  EXPECT_TRUE(automaton.Accepts(end));
  EXPECT_FALSE(automaton.Continues(end));
  EXPECT_EQ(automaton.Step(end, 's'), Automaton::kDead);
  EXPECT_EQ(automaton.Step(Automaton::kDead, 's'), Automaton::kDead);
  EXPECT_FALSE(automaton.Accepts(Automaton::kDead));
}

TEST(AutomatonTest, LeftRecursionIsAList) {
  GrammarBuilder b;
  const Symbol list = b.Declare();
  b.AddAlternative(list, {list, b.Literal(","), b.Literal("a")});
  b.AddAlternative(list, {b.Literal("a")});
  Automaton automaton = Built(b, list);
  EXPECT_TRUE(automaton.Matches("a"));
  EXPECT_TRUE(automaton.Matches("a,a,a"));
  EXPECT_FALSE(automaton.Matches("a,"));
  EXPECT_FALSE(automaton.Matches(",a"));
  EXPECT_FALSE(automaton.Matches("aa"));
}

TEST(AutomatonTest, RecursionInTheMiddleCounts) {
  GrammarBuilder b;
  const Symbol nest = b.Declare();
  b.AddAlternative(nest, {b.Literal("("), nest, b.Literal(")")});
  b.AddAlternative(nest, {});
  Automaton automaton = Built(b, nest);
  for (int depth = 0; depth < 50; ++depth) {
    const std::string open(depth, '('), close(depth, ')');
    EXPECT_TRUE(automaton.Matches(open + close));
    EXPECT_FALSE(automaton.Matches(open + close + ")"));
    EXPECT_FALSE(automaton.Matches(open + "(" + close));
  }
}

TEST(AutomatonTest, RightRecursionTakesNoRoom) {
  GrammarBuilder b;
  const Symbol tail = b.Declare(), list = b.Declare();
  b.AddAlternative(list, {b.Literal("ab"), tail});
  b.AddAlternative(tail, {b.Literal(","), list});
  b.AddAlternative(tail, {});
  Automaton automaton = Built(b, list);
  std::string text = "ab";
  while (text.size() < 100'000) text += ",ab";
  EXPECT_TRUE(automaton.Matches(text));
  EXPECT_FALSE(automaton.Matches(text + ","));
  EXPECT_LE(automaton.steps(), 12);
}

// A state is the same whatever was written on the way to it.
TEST(AutomatonTest, ListsOfAnyLengthCycleThroughFewStates) {
  GrammarBuilder b;
  ListRule numbers;
  numbers.has_rest = true;
  numbers.rest = b.Terminal(
      b.regexes().Repeat(b.regexes().Bytes(ByteSet::Range('0', '9')), 1, 3));
  numbers.separator = b.Literal(", ");
  const Symbol list =
      b.Sequence({b.Literal("["), b.List(numbers), b.Literal("]")});
  Automaton automaton = Built(b, list);
  std::string text = "[12";
  for (int i = 0; i < 30'000; ++i) absl::StrAppend(&text, ", ", i % 1000);
  EXPECT_TRUE(automaton.Matches(text + "]"));
  EXPECT_LE(automaton.steps(), 24);
  const int64_t bytes = automaton.bytes();
  EXPECT_TRUE(automaton.Matches(text + text.substr(3) + "]"));
  EXPECT_EQ(automaton.bytes(), bytes);
}

TEST(AutomatonTest, AmbiguousSumsMatchAllTheSame) {
  GrammarBuilder b;
  const Symbol sum = b.Declare();
  b.AddAlternative(sum, {sum, b.Literal("+"), sum});
  b.AddAlternative(sum, {b.Literal("("), sum, b.Literal(")")});
  b.AddAlternative(sum, {b.Literal("n")});
  Automaton automaton = Built(b, sum);
  EXPECT_TRUE(automaton.Matches("n+n+n+(n+(n)+n)+n"));
  EXPECT_FALSE(automaton.Matches("n+n+n+(n+(n)+n+n"));
  EXPECT_FALSE(automaton.Matches("n++n"));
  EXPECT_FALSE(automaton.Matches("n+"));
  std::string text = "n";
  for (int i = 0; i < 100; ++i) text += "+n";
  EXPECT_TRUE(automaton.Matches(text));
  EXPECT_FALSE(automaton.Matches(text + ")"));
}

TEST(AutomatonTest, HiddenLeftRecursionAndCyclesEnd) {
  GrammarBuilder b;
  const Symbol none = b.Declare(), s = b.Declare(), x = b.Declare(),
               y = b.Declare();
  b.AddAlternative(none, {});
  b.AddAlternative(none, {none, none});
  b.AddAlternative(s, {none, s, b.Literal("a")});  // left recursion, hidden
  b.AddAlternative(s, {x});
  b.AddAlternative(x, {x});  // cycles
  b.AddAlternative(x, {y});
  b.AddAlternative(y, {x});
  b.AddAlternative(y, {b.Literal("b")});
  Automaton automaton = Built(b, s);
  EXPECT_TRUE(automaton.Matches("b"));
  EXPECT_TRUE(automaton.Matches("baaa"));
  EXPECT_FALSE(automaton.Matches("a"));
  EXPECT_FALSE(automaton.Matches(""));
  EXPECT_FALSE(automaton.Matches("bb"));
}

TEST(AutomatonTest, WhatFollowsMayBeEmpty) {
  GrammarBuilder b;
  const Symbol tail = b.Optional(b.Optional(b.Literal("!")));
  const Symbol root = b.Declare();
  b.AddAlternative(root,
                   {b.Literal("a"), tail, b.Optional(b.Literal("?")), tail});
  Automaton automaton = Built(b, root);
  for (const char* text : {"a", "a!", "a?", "a!?", "a?!", "a!!", "a!?!"}) {
    EXPECT_TRUE(automaton.Matches(text)) << text;
  }
  for (const char* text : {"", "!", "a??", "a!!!", "a?!?"}) {
    EXPECT_FALSE(automaton.Matches(text)) << text;
  }
}

TEST(AutomatonTest, TerminalsEndWhereverTheyMatch) {
  GrammarBuilder b;
  Regexes& r = b.regexes();
  const Expr letter = r.Bytes(ByteSet::Range('a', 'z'));
  const Symbol word = b.Terminal(r.Repeat(letter, 1, Regexes::kUnbounded));
  const Symbol root =
      b.Choice({b.Sequence({word, b.Literal("if"), word}),
                b.Sequence({b.Literal("if"), b.Terminal(r.Star(letter)),
                            b.Literal(";")})});
  Automaton automaton = Built(b, root);
  EXPECT_TRUE(automaton.Matches("xifx"));
  EXPECT_TRUE(automaton.Matches("ififif"));
  EXPECT_TRUE(automaton.Matches("if;"));
  EXPECT_TRUE(automaton.Matches("ifxyz;"));
  EXPECT_FALSE(automaton.Matches("ifx"));
  EXPECT_FALSE(automaton.Matches("xif"));
  EXPECT_FALSE(automaton.Matches("xifx;"));
}

TEST(AutomatonTest, ARootWithoutATextIsRefused) {
  const auto build = [](const std::function<Symbol(GrammarBuilder&)>& make) {
    GrammarBuilder b;
    const Symbol root = make(b);
    return std::move(b).Build(root);
  };
  const auto unsatisfiable =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("unsatisfiable"));
  EXPECT_THAT(
      build([](GrammarBuilder& b) { return b.Terminal(Regexes::kNothing); }),
      unsatisfiable);
  EXPECT_THAT(build([](GrammarBuilder& b) { return b.Choice({}); }),
              unsatisfiable);
  EXPECT_THAT(build([](GrammarBuilder& b) {
                const Symbol s = b.Declare();
                b.AddAlternative(s, {b.Literal("("), s, b.Literal(")")});
                return s;
              }),
              unsatisfiable);
  EXPECT_THAT(build([](GrammarBuilder& b) {
                Regexes& r = b.regexes();
                return b.Sequence(
                    {b.Literal("x"),
                     b.Terminal(r.And(r.Literal("ab"), r.Literal("cd")))});
              }),
              unsatisfiable);
}

TEST(AutomatonTest, BranchesWithoutAnEndAreNotBegun) {
  GrammarBuilder b;
  Regexes& r = b.regexes();
  const Symbol endless = b.Declare();
  b.AddAlternative(endless, {b.Literal("("), endless});
  const Symbol never = b.Terminal(r.And(r.Literal("ab"), r.Literal("cd")));
  const Symbol root = b.Choice(
      {b.Literal("ok"), b.Sequence({b.Literal("x"), endless}),
       b.Sequence({b.Literal("y"), never}),
       // Within a terminal as well.
       b.Terminal(r.Concat(
           r.Literal("z"),
           r.Or(r.Literal("!"), r.And(r.Literal("12"), r.Literal("13")))))});
  Automaton automaton = Built(b, root);
  EXPECT_TRUE(automaton.Matches("ok"));
  EXPECT_TRUE(automaton.Matches("z!"));
  for (const char* text : {"x", "y", "z1"}) {
    EXPECT_EQ(automaton.Step(automaton.start(), text), Automaton::kDead)
        << text;
  }
}

TEST(AutomatonTest, TooManyRulesAreAnError) {
  GrammarBuilder b({.rules = 20});
  const Symbol root = b.Declare();
  for (int i = 0; i < 30; ++i) b.AddAlternative(root, {b.Literal("a")});
  EXPECT_THAT(
      std::move(b).Build(root),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("20 rules")));
  GrammarBuilder c({.terminals = 5});
  std::vector<Symbol> words;
  for (int i = 0; i < 9; ++i) words.push_back(c.Literal(absl::StrCat("w", i)));
  const Symbol choice = c.Choice(words);
  EXPECT_THAT(
      std::move(c).Build(choice),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("5 terminals")));
}

TEST(AutomatonTest, StatesBeyondItsMemoryShowInTheStatus) {
  GrammarBuilder b;
  Regexes& r = b.regexes();
  const Expr any = r.Bytes(ByteSet::Range('a', 'b'));
  const Symbol root = b.Terminal(
      r.Concat({r.Star(any), r.Literal("a"), r.Repeat(any, 19, 19)}));
  Automaton automaton = Built(b, root, /*max_growth=*/400'000);
  FORETOKEN_EXPECT_OK(automaton.status());
  std::mt19937 random(5);
  Automaton::State state = automaton.start();
  for (int i = 0; i < 20'000 && automaton.status().ok(); ++i) {
    state = automaton.Step(state, random() % 2 == 0 ? 'a' : 'b');
  }
  EXPECT_THAT(automaton.status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
}

TEST(AutomatonTest, ForcedBytesEndAtAChoiceAtAnEndOrAtTheLimit) {
  GrammarBuilder b;
  const Symbol root = b.Sequence(
      {b.Literal("name: "), b.Choice({b.Literal("cat"), b.Literal("car")}),
       b.Optional(b.Literal("!!"))});
  Automaton automaton = Built(b, root);
  Automaton::State state = automaton.start();
  EXPECT_EQ(automaton.Forced(state, 100), "name: ca");
  EXPECT_EQ(state, automaton.Step(automaton.start(), "name: ca"));
  EXPECT_EQ(automaton.Forced(state, 100), "");  // t or r
  state = automaton.Step(state, 't');
  EXPECT_EQ(automaton.Forced(state, 100), "");  // it may end
  state = automaton.Step(state, '!');
  EXPECT_EQ(automaton.Forced(state, 100), "!");
  EXPECT_EQ(automaton.Forced(state, 100), "");  // the end
  state = automaton.start();
  EXPECT_EQ(automaton.Forced(state, 4), "name");
  EXPECT_EQ(state, automaton.Step(automaton.start(), "name"));
}

TEST(AutomatonTest, AByteOfASetIsNotForced) {
  GrammarBuilder b;
  const Symbol root = b.Sequence(
      {b.Literal("<"), b.Terminal(b.regexes().Bytes(ByteSet::Range('0', '9'))),
       b.Literal(">")});
  Automaton automaton = Built(b, root);
  Automaton::State state = automaton.start();
  EXPECT_EQ(automaton.Forced(state, 100), "<");
  state = automaton.Step(state, '7');
  EXPECT_EQ(automaton.Forced(state, 100), ">");
}

// Bits of texts over a and b of at most kLongest letters; a text's bit is its
// letters as binary digits behind a 1.
constexpr int kLongest = 7;
using Language = std::bitset<size_t{1} << (kLongest + 1)>;

int LengthOf(uint32_t code) {
  int length = 0;
  for (; code > 1; code >>= 1) ++length;
  return length;
}

std::string TextOf(uint32_t code) {
  std::string text;
  for (; code > 1; code >>= 1) text += code & 1 ? 'b' : 'a';
  return {text.rbegin(), text.rend()};
}

Language Joined(const Language& heads, const Language& tails) {
  Language joined;
  for (uint32_t head = 1; head < heads.size(); ++head) {
    if (!heads[head]) continue;
    const uint32_t end = uint32_t{1} << (kLongest + 1 - LengthOf(head));
    for (uint32_t tail = 1; tail < end; ++tail) {
      if (!tails[tail]) continue;
      const int length = LengthOf(tail);
      joined.set(head << length | (tail ^ (1u << length)));
    }
  }
  return joined;
}

struct TestTerminal {
  Expr expr;
  Language language;
};

// Terminals that overlap, and may be empty or end in several places.
std::vector<TestTerminal> TestTerminals(Regexes& r) {
  const Expr a = r.Literal("a"), b = r.Literal("b"), any = r.Or(a, b);
  const std::vector<std::pair<Expr, const char*>> all = {
      {a, "a"},
      {b, "b"},
      {r.Literal("ab"), "ab"},
      {r.Repeat(a, 1, Regexes::kUnbounded), "a+"},
      {r.Concat(r.Star(any), b), "(a|b)*b"},
      {r.Optional(b), "b?"},
      {r.And(r.Star(any), r.Not(r.Concat({r.Star(any), a, a, r.Star(any)}))),
       "(b|ab)*a?"}};
  std::vector<TestTerminal> terminals;
  for (const auto& [expr, pattern] : all) {
    TestTerminal& terminal = terminals.emplace_back();
    terminal.expr = expr;
    const std::regex regex(pattern);
    for (uint32_t code = 1; code < terminal.language.size(); ++code) {
      terminal.language[code] = std::regex_match(TextOf(code), regex);
    }
  }
  return terminals;
}

TEST(AutomatonTest, RandomGrammarsMatchWhatTheirRulesDerive) {
  int unsatisfiable = 0, texts = 0, ends = 0, dead = 0;
  int far = 0, not_known = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    GrammarBuilder builder;
    const std::vector<TestTerminal> terminals =
        TestTerminals(builder.regexes());
    // Mostly single letters, so that rules matter.
    const int kinds = seed % 3 == 0 ? static_cast<int>(terminals.size()) : 2;
    const int count = 1 + random() % 4;
    std::vector<Symbol> symbols;
    std::vector<std::vector<std::vector<int>>> rules(count);  // >= count: kind
    for (int i = 0; i < count; ++i) symbols.push_back(builder.Declare());
    for (int i = 0; i < count; ++i) {
      const int alternatives = random() % 4;
      for (int j = 0; j < alternatives; ++j) {
        std::vector<int>& body = rules[i].emplace_back(random() % 4);
        for (int& part : body) part = random() % (count + 3);
        for (int& part : body) {
          if (part >= count) part = count + random() % kinds;
        }
        std::vector<Symbol> converted;
        for (const int part : body) {
          converted.push_back(
              part < count ? symbols[part]
                           : builder.Terminal(terminals[part - count].expr));
        }
        builder.AddAlternative(symbols[i], converted);
      }
    }
    // What the rules derive, and whether they derive anything of any length.
    std::vector<Language> derived(count);
    std::vector<bool> productive(count);
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = 0; i < count; ++i) {
        for (const std::vector<int>& body : rules[i]) {
          Language whole;
          whole.set(1);
          bool all = true;
          for (const int part : body) {
            whole =
                Joined(whole, part < count ? derived[part]
                                           : terminals[part - count].language);
            all = all && (part >= count || productive[part]);
          }
          const Language more = derived[i] | whole;
          changed = changed || more != derived[i] || (all && !productive[i]);
          derived[i] = more;
          if (all) productive[i] = true;
        }
      }
    }
    auto grammar = std::move(builder).Build(symbols[0]);
    ASSERT_EQ(grammar.ok(), productive[0]) << "seed " << seed;
    if (!grammar.ok()) {
      ++unsatisfiable;
      continue;
    }
    Automaton automaton(std::make_shared<const Grammar>(*std::move(grammar)));
    Language begun;  // beginnings of what is derived
    for (uint32_t code = 1; code < begun.size(); ++code) {
      if (!derived[0][code]) continue;
      for (uint32_t part = code; part > 0; part >>= 1) begun.set(part);
    }
    for (uint32_t code = 1; code < derived[0].size(); ++code) {
      const std::string text = TextOf(code);
      const Automaton::State state = automaton.Step(automaton.start(), text);
      ASSERT_EQ(automaton.Accepts(state), derived[0][code])
          << '"' << text << "\" seed " << seed;
      ++texts;
      ends += automaton.Accepts(state);
      if (state == Automaton::kDead) {
        ++dead;
        ASSERT_FALSE(begun[code]) << '"' << text << "\" seed " << seed;
      } else if (!begun[code]) {
        // Its end is beyond the letters that are looked at.
        const End end = FindEnd(automaton, state, "ab", 3000);
        ASSERT_NE(end, End::kNone)
            << '"' << text << "\" leads nowhere, seed " << seed;
        ++(end == End::kFound ? far : not_known);
      }
    }
  }
  EXPECT_GT(unsatisfiable, 50);
  EXPECT_GT(texts, 60'000);
  EXPECT_GT(ends, 6'000);
  EXPECT_GT(dead, 6'000);
  EXPECT_GT(far, 1'000);
  EXPECT_LT(not_known, far / 40);
}

// All sequences of at most `longest` of 0..count-1, shortest first.
std::vector<std::vector<int>> Sequences(int count, int longest) {
  std::vector<std::vector<int>> all = {{}};
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int>(all[i].size()) == longest) break;
    for (int item = 0; item < count; ++item) {
      all.push_back(all[i]);
      all.back().push_back(item);
    }
  }
  return all;
}

// Compares a grammar of sequences with their definition. The text of a
// sequence is its items with commas between them. Beginnings of up to `surely`
// items must be possible exactly if one of the sequences continues them.
void ExpectSequences(GrammarBuilder& builder, Symbol root,
                     const std::vector<std::string>& items, int surely,
                     const std::function<bool(const std::vector<int>&)>& fits,
                     const std::string& what, int& unsatisfiable) {
  const int longest = items.size() > 4 ? 5 : 6;
  std::vector<std::pair<std::string, bool>> texts;
  std::set<std::string> beginnings;
  for (const std::vector<int>& sequence :
       Sequences(static_cast<int>(items.size()), longest)) {
    std::string text =
        absl::StrJoin(sequence, ",",
                      [&](std::string* out, int item) { *out += items[item]; });
    const bool valid = fits(sequence);
    for (size_t n = 0; valid && n <= text.size(); ++n) {
      beginnings.insert(text.substr(0, n));
    }
    texts.push_back({std::move(text), valid});
  }
  auto grammar = std::move(builder).Build(root);
  ASSERT_EQ(grammar.ok(), !beginnings.empty()) << what << grammar.status();
  if (!grammar.ok()) {
    ++unsatisfiable;
    return;
  }
  Automaton automaton(std::make_shared<const Grammar>(*std::move(grammar)));
  for (const auto& [text, valid] : texts) {
    ASSERT_EQ(automaton.Matches(text), valid) << '"' << text << "\" " << what;
    if (std::count(text.begin(), text.end(), ',') >= surely) continue;
    for (const char* more : {"", ","}) {
      const std::string begun = absl::StrCat(text, more);
      ASSERT_EQ(automaton.Step(automaton.start(), begun) != Automaton::kDead,
                beginnings.count(begun) > 0)
          << '"' << begun << "\" " << what;
    }
  }
}

TEST(AutomatonTest, RandomListsMatchTheirDefinition) {
  int unsatisfiable = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    GrammarBuilder b;
    ListRule rule;
    std::vector<std::string> items;
    std::vector<bool> possible;
    const auto add = [&] {
      items.push_back(std::string(1, static_cast<char>('a' + items.size())));
      possible.push_back(random() % 8 != 0);
      return possible.back() ? b.Literal(items.back())
                             : b.Terminal(Regexes::kNothing);
    };
    const int first = random() % 4;
    for (int i = 0; i < first; ++i) rule.first.push_back(add());
    rule.has_rest = random() % 2 == 0;
    if (rule.has_rest) rule.rest = add();
    if (items.empty()) continue;
    const bool has_separator = random() % 10 != 0;
    rule.separator =
        has_separator ? b.Literal(",") : b.Terminal(Regexes::kNothing);
    rule.min = random() % 4;
    rule.max = random() % 2 == 0 ? kNoLimit : random() % 5;
    const auto fits = [&](const std::vector<int>& sequence) {
      const int count = static_cast<int>(sequence.size());
      if (count < rule.min || (rule.max != kNoLimit && count > rule.max)) {
        return false;
      }
      if (count > 1 && !has_separator) return false;
      for (int i = 0; i < count; ++i) {
        const int want = std::min(i, first);
        if (i >= first && !rule.has_rest) return false;
        if (sequence[i] != want || !possible[want]) return false;
      }
      return true;
    };
    const Symbol root = b.List(rule);
    ASSERT_NO_FATAL_FAILURE(ExpectSequences(
        b, root, items, /*surely=*/2, fits,
        absl::StrCat("min ", rule.min, " max ", rule.max, " seed ", seed),
        unsatisfiable));
  }
  EXPECT_GT(unsatisfiable, 20);
  EXPECT_LT(unsatisfiable, 200);
}

TEST(AutomatonTest, RandomObjectsMatchTheirDefinition) {
  int unsatisfiable = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    GrammarBuilder b;
    ObjectRule rule;
    std::vector<std::string> items;
    std::vector<bool> possible;
    const Symbol never = b.Terminal(Regexes::kNothing);
    const auto add = [&] {
      const char name = static_cast<char>('a' + items.size());
      const int fault = random() % 20;  // 0: of the key, 1: of the value
      ObjectMember member;
      member.key = fault == 0 ? never : b.Literal(std::string(1, name));
      member.value = fault == 1 ? never : b.Literal("=");
      items.push_back(std::string(1, name) + "=");
      possible.push_back(fault > 1);
      return member;
    };
    const int members = random() % 4, others = random() % 3;
    for (int i = 0; i < members; ++i) rule.members.push_back(add());
    for (int i = 0; i < others; ++i) rule.others.push_back(add());
    if (items.empty()) continue;
    bool needs = false;
    for (int i = 0; i < members; ++i) {
      ObjectMember& member = rule.members[i];
      member.required = random() % 3 == 0;
      if (seed % 2 == 0 && random() % 2 == 0) {
        member.needs.push_back(random() % members);
        needs = true;
      }
    }
    if (!needs) {  // together they are refused
      rule.min = random() % 2 == 0 ? 0 : random() % 4;
      rule.max = random() % 2 == 0 ? kNoLimit : random() % 4;
    }
    rule.any_order = random() % 2 == 0;
    const bool has_separator = random() % 10 != 0;
    rule.separator = has_separator ? b.Literal(",") : never;
    const auto fits = [&](const std::vector<int>& sequence) {
      const int count = static_cast<int>(sequence.size());
      if (count < rule.min || (rule.max != kNoLimit && count > rule.max)) {
        return false;
      }
      if (count > 1 && !has_separator) return false;
      std::vector<bool> there(members);
      int last = -1;
      for (const int item : sequence) {
        if (!possible[item]) return false;
        if (item < members && there[item]) return false;
        if (item < members) there[item] = true;
        const int place = std::min(item, members);
        if (!rule.any_order && place < last) return false;
        last = place;
      }
      for (int i = 0; i < members; ++i) {
        if (rule.members[i].required && !there[i]) return false;
        for (const int need : rule.members[i].needs) {
          if (there[i] && !there[need]) return false;
        }
      }
      return true;
    };
    const Symbol root = b.Object(rule);
    ASSERT_NO_FATAL_FAILURE(ExpectSequences(
        b, root, items, /*surely=*/2, fits,
        absl::StrCat(members, " members, ", others, " others, min ", rule.min,
                     " max ", rule.max, rule.any_order ? " any order" : "",
                     has_separator ? "" : " alone", " seed ", seed, " "),
        unsatisfiable));
  }
  EXPECT_GT(unsatisfiable, 50);
  EXPECT_LT(unsatisfiable, 600);
}

TEST(AutomatonTest, MembersThatNeedEachOtherWithALimitAreRefused) {
  GrammarBuilder b;
  ObjectRule rule;
  for (const char* name : {"a", "b"}) {
    ObjectMember& member = rule.members.emplace_back();
    member.key = b.Literal(name);
    member.value = b.Literal("=");
  }
  rule.members[0].needs = {1};
  rule.max = 1;
  rule.separator = b.Literal(",");
  const Symbol root = b.Object(rule);
  EXPECT_THAT(
      std::move(b).Build(root),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("need each other")));
}

TEST(AutomatonTest, AHundredOptionalMembersInAnyOrderTakeNoMoreThanIsWritten) {
  GrammarBuilder b;
  ObjectRule rule;
  rule.any_order = true;
  rule.separator = b.Literal(",");
  std::string text;
  for (int i = 0; i < 100; ++i) {
    ObjectMember& member = rule.members.emplace_back();
    member.key = b.Literal(absl::StrCat("k", i, ":"));
    member.value = b.Literal("v");
    if (i > 0) text += ",";
    absl::StrAppend(&text, "k", (i * 37) % 100, ":v");
  }
  const Symbol root = b.Object(rule);
  Automaton automaton = Built(b, root);
  EXPECT_TRUE(automaton.Matches(text));
  EXPECT_FALSE(automaton.Matches(text + ",k5:v"));
  EXPECT_LE(automaton.steps(), static_cast<int64_t>(text.size()) + 2);
}

// Some plain characters of each length and at each border.
std::vector<std::string> PlainSamples() {
  return {" ",
          "!",
          "#",
          "[",
          "]",
          "a",
          "~",
          "\xC2\x80",
          "\xDF\xBF",
          "\xC3\xA9",
          "\xE0\xA0\x80",
          "\xE2\x82\xAC",
          "\xED\x9F\xBF",
          "\xEF\xBF\xBF",
          "\xF0\x90\x80\x80",
          "\xF0\x9F\x98\x80",
          "\xF4\x8F\xBF\xBF"};
}

// The number of sample characters that may follow whatever they are.
int PlainBySearch(Automaton& automaton, Automaton::State state, int most) {
  std::set<Automaton::State> level = {state};
  for (int n = 0; n < most; ++n) {
    std::set<Automaton::State> next;
    for (const Automaton::State from : level) {
      for (const std::string& sample : PlainSamples()) {
        next.insert(automaton.Step(from, sample));
      }
    }
    if (next.count(Automaton::kDead) > 0) return n;
    level = std::move(next);
  }
  return most;
}

struct PlainCase {
  const char* name;
  std::function<Expr(Regexes&)> make;
  int at_start;  // exactly; -1: at most what a search finds
};

TEST(AutomatonTest, PlainCharactersAreThoseThatMayFollowWhateverTheyAre) {
  constexpr int kMost = 64;
  const auto content = [](int min, int max) {
    return [=](Regexes& r) { return JsonStringContent(min, max, r); };
  };
  const std::vector<PlainCase> cases = {
      {"any number", content(0, Regexes::kUnbounded), kMost},
      {"at least five", content(5, Regexes::kUnbounded), kMost},
      {"at most a hundred", content(0, 100), kMost},
      {"at most forty", content(10, 40), 40},
      {"at most three", content(0, 3), 3},
      {"none", content(0, 0), 0},
      {"everything", [](Regexes&) { return Regexes::kAnything; }, kMost},
      {"ten and a letter",
       [](Regexes& r) {
         return r.Concat(JsonStringContent(10, 10, r), r.Literal("x"));
       },
       -1},
      {"not one letter",
       [](Regexes& r) {
         return r.And(JsonStringContent(0, Regexes::kUnbounded, r),
                      r.Not(r.Literal("w")));
       },
       kMost},
      {"no 'a'",
       [](Regexes& r) {
         return r.And(JsonStringContent(0, Regexes::kUnbounded, r),
                      r.Not(r.Concat({Regexes::kAnything, r.Literal("a"),
                                      Regexes::kAnything})));
       },
       0},
      {"letters",
       [](Regexes& r) { return r.Star(r.Bytes(ByteSet::Range('a', 'z'))); }, 0},
      {"an alternative of two lengths",
       [](Regexes& r) {
         return r.Or(r.Concat(JsonStringContent(0, 20, r), r.Literal("\\")),
                     JsonStringContent(2, 30, r));
       },
       -1},
      {"an alternative without an end",
       [](Regexes& r) {
         return r.Or(r.Concat(JsonStringContent(0, 30, r),
                              r.And(r.Literal("ab"), r.Literal("cd"))),
                     r.Literal("z"));
       },
       0},
  };
  for (const PlainCase& test : cases) {
    GrammarBuilder b;
    const Symbol quote = b.Literal("\"");
    const Symbol root =
        b.Sequence({quote, b.Terminal(test.make(b.regexes())), quote});
    Automaton automaton = Built(b, root);
    const Automaton::State start = automaton.Step(automaton.start(), '"');
    EXPECT_EQ(automaton.PlainCharacters(automaton.start(), kMost), 0);
    if (test.at_start >= 0) {
      EXPECT_EQ(automaton.PlainCharacters(start, kMost), test.at_start)
          << test.name;
    }
    const uint32_t seed = 7;
    std::mt19937 random(seed);
    for (int walk = 0; walk < 30; ++walk) {
      Automaton::State state = start;
      for (int i = 0; i < 12 && state != Automaton::kDead; ++i) {
        const int got = automaton.PlainCharacters(state, kMost);
        ASSERT_LE(got, PlainBySearch(automaton, state, kMost))
            << test.name << " after " << i << " characters, seed " << seed;
        const auto samples = PlainSamples();
        state = automaton.Step(state, samples[random() % samples.size()]);
      }
    }
  }
}

TEST(AutomatonTest, AStateStaysOnTheCharactersThatItDoesNotTellApart) {
  constexpr int64_t kAnyWork = std::numeric_limits<int64_t>::max();
  const auto groups_of = [](absl::string_view text) {
    return GroupsToTheEnd(text).front();
  };
  GrammarBuilder b;
  Regexes& r = b.regexes();
  // No slash, no digits, and of the characters of three bytes no euro sign.
  const Expr wrong = r.Or({r.Literal("/"), r.Bytes(ByteSet::Range('0', '9')),
                           r.Literal("\xE2\x82\xAC")});
  const Symbol root = b.Sequence(
      {b.Literal("<"),
       b.Terminal(r.And(
           r.Star(AnyCodePoint(TextForm::kUtf8, r)),
           r.Not(r.Concat({Regexes::kAnything, wrong, Regexes::kAnything}))))});
  auto built = std::move(b).Build(root);
  FORETOKEN_ASSERT_OK(built);
  const auto grammar = std::make_shared<const Grammar>(*std::move(built));
  Automaton automaton(grammar);
  const Automaton::State start = automaton.start();
  const Automaton::State inside = automaton.Step(start, '<');
  for (const char* stays :
       {"", "a", "abcXYZ \n\"", "\xC3\xA9", "\xF0\x9F\x98\x80", "a\xC3",
        "\xF0\x9F", "\xEE\x80\x80!"}) {
    EXPECT_TRUE(automaton.StaysOn(inside, groups_of(stays), kAnyWork)) << stays;
  }
  // The euro sign is of the form of all from U+1000 to U+CFFF.
  for (const char* leaves : {"/", "a/b", "7", "0", "\xE2\x82\xAC",
                             "\xE4\xB8\xAD", "\xA9", "\xC0\x80", "a\xFF"}) {
    EXPECT_FALSE(automaton.StaysOn(inside, groups_of(leaves), kAnyWork))
        << leaves;
  }
  EXPECT_FALSE(automaton.StaysOn(start, groups_of("<"), kAnyWork));
  EXPECT_FALSE(automaton.StaysOn(Automaton::kDead, kNoCharacters, kAnyWork));
  // Without time for what is not known yet.
  Automaton other(grammar);
  const Automaton::State there = other.Step(other.start(), '<');
  EXPECT_FALSE(other.StaysOn(there, groups_of("a"), other.work() - 1));
  EXPECT_TRUE(other.StaysOn(there, groups_of("a"), kAnyWork));
}

}  // namespace
}  // namespace foretoken::grammar
