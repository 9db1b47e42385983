#include "common/grammar/token_masks.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/grammar/automaton.h"
#include "common/grammar/json_text.h"
#include "common/grammar/regex_syntax.h"
#include "common/grammar/token_trie.h"
#include "common/text/vocabulary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::shared_ptr<const Vocabulary> TextVocabulary(
    const std::vector<std::string>& tokens) {
  auto vocabulary = std::make_shared<Vocabulary>();
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_TRUE(vocabulary->Add(static_cast<TokenId>(i), tokens[i], tokens[i],
                                TokenKind::kText));
  }
  return vocabulary;
}

Automaton Built(const std::function<Symbol(GrammarBuilder&)>& make) {
  GrammarBuilder builder;
  const Symbol root = make(builder);
  auto grammar = std::move(builder).Build(root);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return Automaton(std::make_shared<const Grammar>(*std::move(grammar)));
}

TokenTrie TrieOf(const std::map<std::string, TokenId>& tokens) {
  std::vector<std::vector<CharacterGroups>> groups;
  groups.reserve(tokens.size());
  std::vector<TokenTrie::Entry> entries;
  for (const auto& [bytes, token] : tokens) {
    groups.push_back(GroupsToTheEnd(bytes));
    entries.push_back({bytes, token, groups.back()});
  }
  return TokenTrie(entries);
}

TEST(TokenTrieTest, NodesFollowTheirParentAndSkipWhatIsBelowThem) {
  const TokenTrie trie = TrieOf({{"b", 3}, {"ab", 1}, {"abcd", 2}, {"ax", 0}});
  struct Want {
    char byte;
    int depth;
    int skip;
    TokenId token;
  };
  const std::vector<Want> wants = {{'a', 0, 5, -1}, {'b', 1, 4, 1},
                                   {'c', 2, 4, -1}, {'d', 3, 4, 2},
                                   {'x', 1, 5, 0},  {'b', 0, 6, 3}};
  ASSERT_EQ(trie.nodes().size(), wants.size());
  for (size_t i = 0; i < wants.size(); ++i) {
    const TokenTrie::Node& node = trie.nodes()[i];
    EXPECT_EQ(node.byte, wants[i].byte) << i;
    EXPECT_EQ(node.depth, wants[i].depth) << i;
    EXPECT_EQ(node.skip, wants[i].skip) << i;
    EXPECT_EQ(node.token, wants[i].token) << i;
  }
  EXPECT_EQ(trie.max_depth(), 4);
}

TEST(TokenTrieTest, WithoutTokensThereAreNoNodes) {
  const TokenTrie trie = TrieOf({});
  EXPECT_TRUE(trie.nodes().empty());
  EXPECT_EQ(trie.max_depth(), 0);
}

TEST(TokenTrieTest, ANodeKnowsTheTokensAndTheCharactersBelowIt) {
  const TokenTrie trie =
      TrieOf({{"a", 7}, {"ab", 1}, {"abc9", 2}, {"x\xC3\xA9", 0}, {"\xC3", 5}});
  const auto groups = [](absl::string_view text) {
    return GroupsToTheEnd(text).front();
  };
  struct Want {
    std::vector<TokenId> tokens;
    CharacterGroups groups;
  };
  // a, ab, abc, abc9, x, x and half a character, the whole, half a character.
  const std::vector<Want> wants = {{{7, 1, 2}, groups("bc9")},
                                   {{1, 2}, groups("c9")},
                                   {{2}, groups("9")},
                                   {{2}, 0},
                                   {{0}, groups("\xC3\xA9")},
                                   {{0}, kNoCharacters},
                                   {{0}, 0},
                                   {{5}, 0}};
  ASSERT_EQ(trie.nodes().size(), wants.size());
  for (size_t i = 0; i < wants.size(); ++i) {
    EXPECT_THAT(trie.tokens_from(static_cast<int32_t>(i)),
                ::testing::ElementsAreArray(wants[i].tokens))
        << i;
    EXPECT_EQ(trie.groups_below(static_cast<int32_t>(i)), wants[i].groups) << i;
  }
}

TEST(TokenTrieTest, AWalkPassesEveryTokenOnceAndSharesPrefixes) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    std::map<std::string, TokenId> tokens;
    for (int i = 0; i < 300; ++i) {
      std::string bytes(1 + random() % 6, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random() % 4 * 85);
      tokens.emplace(bytes, i);
    }
    const TokenTrie trie = TrieOf(tokens);
    std::map<std::string, TokenId> found;
    std::set<std::string> paths;
    std::string path;
    const int32_t size = static_cast<int32_t>(trie.nodes().size());
    for (int32_t i = 0; i < size; ++i) {
      const TokenTrie::Node& node = trie.nodes()[i];
      ASSERT_LE(node.depth, path.size()) << "seed " << seed;
      path.resize(node.depth);
      path += static_cast<char>(node.byte);
      ASSERT_TRUE(paths.insert(path).second) << "seed " << seed;
      if (node.token >= 0) found[path] = node.token;
      // The next node that is not deeper.
      int32_t next = i + 1;
      while (next < size && trie.nodes()[next].depth > node.depth) ++next;
      ASSERT_EQ(node.skip, next) << "seed " << seed;
    }
    ASSERT_EQ(found, tokens) << "seed " << seed;
  }
}

TEST(TokenVocabularyTest, OnlyTokensOfTextHaveBytes) {
  auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->Add(0, "text", "text", TokenKind::kText);
  vocabulary->Add(1, "<0x0A>", "\n", TokenKind::kByte);
  vocabulary->Add(2, "<s>", "<s>", TokenKind::kSpecial);
  vocabulary->Add(3, "<unk>", "?", TokenKind::kUnknown);
  vocabulary->Add(5, "", "", TokenKind::kText);  // 4 is absent
  vocabulary->Add(6, "long", std::string(4096, 'x'), TokenKind::kText);
  vocabulary->Add(7, "longer", std::string(4097, 'x'), TokenKind::kText);
  const TokenVocabulary tokens(vocabulary, 100);
  EXPECT_EQ(tokens.size(), 100);
  EXPECT_EQ(tokens.words(), 2u);
  EXPECT_EQ(tokens.bytes(0), "text");
  EXPECT_EQ(tokens.bytes(1), "\n");
  for (const TokenId token : {2, 3, 4, 5, 7, 8, 99, 1000}) {
    EXPECT_EQ(tokens.bytes(token), "") << token;
  }
  EXPECT_EQ(tokens.bytes(6).size(), 4096u);
  // A model without logits for the last tokens cannot write them.
  const TokenVocabulary fewer(vocabulary, 3);
  EXPECT_EQ(fewer.size(), 3);
  EXPECT_EQ(fewer.bytes(0), "text");
  EXPECT_EQ(fewer.bytes(6), "");
  EXPECT_EQ(TokenVocabulary(vocabulary).size(), 8);
}

TEST(TokenVocabularyTest, TokensOfEqualBytesAreTwins) {
  const TokenVocabulary tokens(TextVocabulary({"a", "b", "a", "c", "a", "b"}));
  EXPECT_THAT(tokens.twins(), ::testing::UnorderedElementsAre(
                                  Pair(0, 2), Pair(0, 4), Pair(1, 5)));
}

TEST(TokenVocabularyTest, ASliceHasTheTokensOfAsManyPlainCharacters) {
  const std::vector<std::string> plain = {
      "a", " word", "\xC3\xA9", "\xF0\x9F\x98\x80!", "[]{}:,", "'/"};
  const std::vector<std::string> others = {
      "\"",       "a\"",          "\\n",      "a\nb",
      "\x7F",     "\xC3",         "a\xC3",    "\xA9",
      "\xE2\x82", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80",
      "\t",       "x\x1F",        "\xF0\x9F"};
  std::vector<std::string> all = plain;
  all.insert(all.end(), others.begin(), others.end());
  std::map<int, TokenId> by_length;
  for (const int length : {5, 6, 7, 15, 16, 17, 63, 64, 65}) {
    by_length[length] = static_cast<TokenId>(all.size());
    std::string word;
    for (int i = 0; i < length; ++i) word += "\xC3\xA9";
    all.push_back(word);
  }
  const TokenVocabulary tokens(TextVocabulary(all));
  for (const int room : {0, 1, 5, 6, 7, 15, 16, 40, 63, 64, 1000}) {
    const TokenVocabulary::Slice& slice = tokens.slice(room);
    EXPECT_LE(slice.characters, room);
    std::set<TokenId> rest;
    for (const TokenTrie::Node& node : slice.rest.nodes()) {
      if (node.token >= 0) rest.insert(node.token);
    }
    // Every token is on one side.
    for (TokenId token = 0; token < tokens.size(); ++token) {
      const bool apart = slice.characters > 0 && HasToken(slice.tokens, token);
      EXPECT_EQ(rest.count(token), apart ? 0u : 1u) << token << " of " << room;
      if (token >= static_cast<TokenId>(plain.size()) &&
          token < static_cast<TokenId>(plain.size() + others.size())) {
        EXPECT_FALSE(apart) << "token " << token;
      } else if (token < static_cast<TokenId>(plain.size()) && room >= 6) {
        EXPECT_TRUE(apart) << "token " << token;
      }
    }
    for (const auto& [length, token] : by_length) {
      if (slice.characters == 0) continue;
      EXPECT_EQ(HasToken(slice.tokens, token), length <= slice.characters);
    }
  }
}

// Tokens as vocabularies have them, and such as should trip a mask up.
std::vector<std::string> ManyTokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(std::string(1, static_cast<char>(byte)));
  }
  for (const char* token : {"\"\"",
                            "\":",
                            "\": ",
                            "\": \"",
                            "a\"",
                            "\"a",
                            "ab\", \"cd",
                            "\"}",
                            "\"]",
                            "}}",
                            "}}}",
                            "]]",
                            "[[",
                            "{\"",
                            "{\"a\": ",
                            ", \"",
                            "},{",
                            "null",
                            "true",
                            "false",
                            "tru",
                            "ue",
                            "nul",
                            "l]",
                            "\\\"",
                            "\\\\",
                            "\\u",
                            "\\u00",
                            "00e9",
                            "\\n",
                            "\\ud83d",
                            "\\ude00",
                            "\n",
                            "\n\n",
                            "\r\n",
                            "\t\t",
                            "a\nb",
                            "\xC3\xA9",
                            "\xC3\xA9\xC3",
                            "\xA9\"",
                            "\xE2\x82\xAC",
                            "\xE2\x82",
                            "\x82\xAC",
                            "\xF0\x9F\x98\x80",
                            "\xF0\x9F",
                            "\x98\x80",
                            "\x98\x80x",
                            "x\xF0\x9F\x98",
                            "\xED\xA0\x80",
                            "\xC0\x80",
                            "\xFF\xFE",
                            "123",
                            "0",
                            "00",
                            "-",
                            "-0",
                            "1.",
                            ".5",
                            "e+",
                            "1e5",
                            "-1.5e-3",
                            "12\"",
                            "0}",
                            "1, 2",
                            "9]",
                            "aaaa",
                            "abab",
                            "ab",
                            "ba",
                            "xyz",
                            "word",
                            " word",
                            "aa\"bb"}) {
    tokens.push_back(token);
  }
  for (const int spaces : {2, 4, 8, 16, 17, 40, 64, 65, 130}) {
    tokens.push_back(std::string(spaces, ' '));
    tokens.push_back(std::string(spaces, ' ') + "a");
  }
  std::mt19937 random(20261127);
  const std::string alphabet =
      "ab{}[]:,\"\\0123.- \xC3\xA9"
      "etu";
  for (int i = 0; i < 250; ++i) {
    std::string token(1 + random() % 5, ' ');
    for (char& byte : token) byte = alphabet[random() % alphabet.size()];
    tokens.push_back(token);
  }
  for (const int length : {5, 6, 7, 15, 16, 17}) {
    std::string token;
    for (int i = 0; i < length; ++i) token += i % 3 == 0 ? "\xC3\xA9" : "b";
    tokens.push_back(token);
  }
  return tokens;
}

std::shared_ptr<const TokenVocabulary> ManyTokensAndSpecial() {
  static const auto* const kept = [] {
    auto vocabulary = std::make_shared<Vocabulary>();
    TokenId id = 0;
    for (const std::string& token : ManyTokens()) {
      vocabulary->Add(id++, token, token, TokenKind::kText);
    }
    vocabulary->Add(id++, "<s>", "a", TokenKind::kSpecial);
    vocabulary->Add(id++, "<unk>", "a", TokenKind::kUnknown);
    return new std::shared_ptr<const TokenVocabulary>(
        std::make_shared<TokenVocabulary>(vocabulary, id + 70));
  }();
  return *kept;
}

Symbol JsonValue(GrammarBuilder& b) {
  Regexes& r = b.regexes();
  const Symbol value = b.Declare();
  const Symbol quote = b.Literal("\"");
  const Symbol string = b.Sequence(
      {quote, b.Terminal(JsonStringContent(0, Regexes::kUnbounded, r)), quote});
  ObjectRule object;
  object.others.emplace_back();
  object.others[0].key = b.Sequence({string, b.Literal(": ")});
  object.others[0].value = value;
  object.separator = b.Literal(", ");
  ListRule list;
  list.has_rest = true;
  list.rest = value;
  list.separator = b.Literal(", ");
  for (const Symbol one :
       {string, b.Terminal(JsonNumber({}, r)), b.Literal("null"),
        b.Literal("true"), b.Literal("false"),
        b.Sequence({b.Literal("{"), b.Object(object), b.Literal("}")}),
        b.Sequence({b.Literal("["), b.List(list), b.Literal("]")})}) {
    b.AddAlternative(value, {one});
  }
  return value;
}

struct MaskCase {
  const char* name;
  std::function<Symbol(GrammarBuilder&)> make;
  int states;  // at least, that are different
};

std::vector<MaskCase> MaskCases() {
  const auto string_of = [](int min, int max) {
    return [=](GrammarBuilder& b) {
      return b.Sequence({b.Literal("\""),
                         b.Terminal(JsonStringContent(min, max, b.regexes())),
                         b.Literal("\"")});
    };
  };
  return {
      {"a string", string_of(0, Regexes::kUnbounded), 5},
      {"a short string", string_of(2, 20), 20},
      {"a string of at most 70", string_of(0, 70), 20},
      {"a string of at least 30", string_of(30, Regexes::kUnbounded), 20},
      {"numbers",
       [](GrammarBuilder& b) {
         ListRule list;
         list.has_rest = true;
         list.rest = b.Terminal(JsonNumber({}, b.regexes()));
         list.separator = b.Literal(", ");
         return b.List(list);
       },
       8},
      {"numbers within bounds",
       [](GrammarBuilder& b) {
         Regexes& r = b.regexes();
         NumberRange range;
         range.min = {"-12.5", true};
         range.max = {"1234", false};
         return b.Sequence(
             {b.Literal("["),
              b.Terminal(r.And(JsonNumber(range, r), r.MultipleOf(5, 1))),
              b.Literal("]")});
       },
       12},
      {"any JSON", JsonValue, 60},
      {"words without ab or that are not xyz",
       [](GrammarBuilder& b) {
         Regexes& r = b.regexes();
         const Expr any = JsonStringContent(0, 40, r);
         const Expr has_ab = r.Concat(
             {Regexes::kAnything, r.Literal("ab"), Regexes::kAnything});
         return b.Sequence(
             {b.Literal("\""),
              b.Terminal(r.And({any, r.Not(has_ab), r.Not(r.Literal("xyz"))})),
              b.Choice({b.Literal("\""), b.Literal("!")})});
       },
       20},
      {"anything but a slash, also what is not UTF-8",
       [](GrammarBuilder& b) {
         Regexes& r = b.regexes();
         return b.Terminal(r.Star(r.Or(r.Bytes(ByteSet::Range(0, '.')),
                                       r.Bytes(ByteSet::Range('0', 0xFE)))));
       },
       1},
      {"characters without digits and one of two bytes",
       [](GrammarBuilder& b) {
         Regexes& r = b.regexes();
         const Expr wrong =
             r.Or(r.Literal("\xC3\xA9"), r.Bytes(ByteSet::Range('0', '9')));
         return b.Terminal(r.And(
             r.Star(AnyCodePoint(TextForm::kUtf8, r)),
             r.Not(r.Concat({Regexes::kAnything, wrong, Regexes::kAnything}))));
       },
       4},
      {"keys but some",
       [](GrammarBuilder& b) {
         Regexes& r = b.regexes();
         const Expr any = JsonStringContent(0, Regexes::kUnbounded, r);
         return b.Sequence(
             {b.Literal("\""),
              b.Terminal(
                  r.And(any, r.Not(r.Or({r.Literal("ab"), r.Literal("ba"),
                                         r.Literal("word")})))),
              b.Literal("\"")});
       },
       8},
      {"hexadecimal digits",
       [](GrammarBuilder& b) {
         Regexes& r = b.regexes();
         return b.Terminal(r.Star(r.Or(r.Bytes(ByteSet::Range('0', '9')),
                                       r.Bytes(ByteSet::Range('a', 'f')))));
       },
       1},
      {"two ways to read a text",
       [](GrammarBuilder& b) {
         Regexes& r = b.regexes();
         const Symbol tail = b.Declare();
         b.AddAlternative(
             tail, {b.Terminal(r.Repeat(r.Bytes(ByteSet::Range('a', 'b')), 1,
                                        Regexes::kUnbounded)),
                    tail, b.Literal("b")});
         b.AddAlternative(tail, {});
         return tail;
       },
       10},
  };
}

// A token is allowed exactly if its bytes lead on.
void ExpectExact(Automaton& automaton, TokenMasks& masks,
                 const TokenVocabulary& vocabulary, Automaton::State state,
                 const std::string& what) {
  const auto mask = masks.Mask(state);
  ASSERT_TRUE(mask.ok()) << mask.status() << what;
  ASSERT_EQ((*mask)->size(), vocabulary.words());
  for (TokenId token = 0; token < static_cast<TokenId>(vocabulary.words() * 64);
       ++token) {
    const absl::string_view bytes = vocabulary.bytes(token);
    const bool want =
        !bytes.empty() && automaton.Step(state, bytes) != Automaton::kDead;
    ASSERT_EQ(HasToken(**mask, token), want)
        << "token " << token << " \"" << bytes << "\" " << what;
  }
}

TEST(TokenMasksTest, AMaskAllowsExactlyTheTokensWhoseBytesLeadOn) {
  const auto vocabulary = ManyTokensAndSpecial();
  for (const MaskCase& test : MaskCases()) {
    Automaton automaton = Built(test.make);
    TokenMasks masks(automaton, vocabulary);
    std::set<Automaton::State> seen;
    const uint32_t seed = 42;
    std::mt19937 random(seed);
    for (int walk = 0; walk < 40; ++walk) {
      Automaton::State state = automaton.start();
      std::string text;
      for (int i = 0; i < 25; ++i) {
        if (seen.insert(state).second) {
          ASSERT_NO_FATAL_FAILURE(ExpectExact(
              automaton, masks, *vocabulary, state,
              absl::StrCat(test.name, " after ", text, " seed ", seed)));
        }
        const auto mask = masks.Mask(state);
        ASSERT_TRUE(mask.ok()) << mask.status();
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < vocabulary->size(); ++token) {
          if (HasToken(**mask, token)) allowed.push_back(token);
        }
        if (allowed.empty()) break;
        const TokenId token = allowed[random() % allowed.size()];
        state = automaton.Step(state, vocabulary->bytes(token));
        absl::StrAppend(&text, vocabulary->bytes(token));
      }
    }
    EXPECT_GE(static_cast<int>(seen.size()), test.states) << test.name;
  }
}

TEST(TokenMasksTest, WhereAStringMayGoOnButHasNoWayToItsEndNothingIsAllowed) {
  // The string's first form is long and cannot end; only "z" can.
  Automaton automaton = Built([](GrammarBuilder& b) {
    Regexes& r = b.regexes();
    return b.Terminal(r.Or(r.Concat(JsonStringContent(0, 100, r),
                                    r.And(r.Literal("ab"), r.Literal("cd"))),
                           r.Literal("z")));
  });
  const auto vocabulary = ManyTokensAndSpecial();
  TokenMasks masks(automaton, vocabulary);
  ExpectExact(automaton, masks, *vocabulary, automaton.start(), "");
}

TEST(TokenMasksTest, SpecialTokensNeverPassAsText) {
  auto texts = std::make_shared<Vocabulary>();
  texts->Add(0, "a", "a", TokenKind::kText);
  texts->Add(1, "<a>", "a", TokenKind::kSpecial);
  texts->Add(2, "<unk>", "a", TokenKind::kUnknown);
  texts->Add(3, "<0x61>", "a", TokenKind::kByte);
  const auto vocabulary = std::make_shared<TokenVocabulary>(texts, 5);
  Automaton automaton = Built([](GrammarBuilder& b) {
    return b.Terminal(
        b.regexes().Star(AnyCodePoint(TextForm::kUtf8, b.regexes())));
  });
  TokenMasks masks(automaton, vocabulary);
  const auto mask = masks.Mask(automaton.start());
  FORETOKEN_ASSERT_OK(mask);
  EXPECT_THAT(**mask, ElementsAre(uint64_t{0b01001}));
}

TEST(TokenMasksTest, ADeadStateAllowsNothing) {
  Automaton automaton = Built([](GrammarBuilder& b) { return b.Literal("a"); });
  const auto vocabulary = ManyTokensAndSpecial();
  TokenMasks masks(automaton, vocabulary);
  const auto mask = masks.Mask(Automaton::kDead);
  FORETOKEN_ASSERT_OK(mask);
  EXPECT_EQ(**mask, TokenBits(vocabulary->words()));
}

// Tokens of random letters: a trie of thousands of nodes.
std::shared_ptr<const TokenVocabulary> LongTokens() {
  std::mt19937 random(3);
  std::set<std::string> tokens;
  while (tokens.size() < 400) {
    std::string token(12, ' ');
    for (char& byte : token) byte = static_cast<char>('a' + random() % 2);
    tokens.insert(token);
  }
  return std::make_shared<TokenVocabulary>(
      TextVocabulary({tokens.begin(), tokens.end()}));
}

Symbol TwelfthFromTheEnd(GrammarBuilder& b) {
  Regexes& r = b.regexes();
  const Expr any = r.Bytes(ByteSet::Range('a', 'b'));
  return b.Terminal(
      r.Concat({r.Star(any), r.Literal("a"), r.Repeat(any, 12, 12)}));
}

TEST(TokenMasksTest, AMaskThatTakesTooManyStepsIsAnError) {
  Automaton automaton = Built(TwelfthFromTheEnd);
  TokenMasks masks(automaton, LongTokens(), {.max_work = 3'000});
  EXPECT_THAT(masks.Mask(automaton.start()),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("takes too long")));
  EXPECT_EQ(masks.computed(), 0);
  EXPECT_EQ(masks.bytes(), 0);
  // The steps are not lost: a later try gets further, and ends.
  bool done = false;
  for (int tries = 0; tries < 100 && !done; ++tries) {
    done = masks.Mask(automaton.start()).ok();
  }
  EXPECT_TRUE(done);
}

TEST(TokenMasksTest, AnAutomatonWithoutMemoryGivesNoMask) {
  GrammarBuilder builder;
  const Symbol root = TwelfthFromTheEnd(builder);
  auto grammar = std::move(builder).Build(root);
  FORETOKEN_ASSERT_OK(grammar);
  Automaton automaton(std::make_shared<const Grammar>(*std::move(grammar)),
                      /*max_growth=*/200'000);
  TokenMasks masks(automaton, LongTokens());
  EXPECT_THAT(masks.Mask(automaton.start()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
}

TEST(TokenMasksTest, KeptMasksStayWithinTheirBytesAndHeldOnesStayValid) {
  const auto vocabulary = ManyTokensAndSpecial();
  Automaton automaton = Built([](GrammarBuilder& b) {
    return b.Sequence({b.Literal("\""),
                       b.Terminal(JsonStringContent(0, 70, b.regexes())),
                       b.Literal("\"")});
  });
  const int64_t size = static_cast<int64_t>(vocabulary->words()) * 8;
  TokenMasks masks(automaton, vocabulary, {.max_bytes = 3 * size});
  std::vector<Automaton::State> states;
  std::vector<std::shared_ptr<const TokenBits>> held;
  Automaton::State state = automaton.Step(automaton.start(), '"');
  for (int i = 0; i < 17; ++i) {
    states.push_back(state);
    const auto mask = masks.Mask(state);
    FORETOKEN_ASSERT_OK(mask);
    held.push_back(*mask);
    EXPECT_EQ(masks.Mask(state).value(), *mask);  // kept
    EXPECT_LE(masks.bytes(), 3 * size);
    state = automaton.Step(state, "abcd");
  }
  EXPECT_EQ(masks.computed(), 17);
  for (size_t i = 0; i < states.size(); ++i) {
    EXPECT_EQ(*masks.Mask(states[i]).value(), *held[i]) << i;
  }
  EXPECT_GT(masks.computed(), 17);
}

}  // namespace
}  // namespace foretoken::grammar
