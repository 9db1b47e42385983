#include "common/grammar/constrained_text.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/grammar/json_text.h"
#include "common/text/vocabulary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::grammar {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNull;

using Masks = std::vector<std::shared_ptr<const TokenBits>>;

const std::vector<std::string>& Tokens() {
  static const auto* const tokens = new std::vector<std::string>{
      "{",    "}",   "\"",   "\"a\"", "\"b\"", ": ", ", ",       "1",
      "23",   "-",   ".5",   "a",     "b",     "ab", "ba",       "\\",
      "\\n",  "x\"", "\": ", "{\"",   "}}",    " ",  "\xC3\xA9", "\xC3",
      "\xA9", "[",   "]",    "true",  "tr",    "ue", "null",     "0"};
  return *tokens;
}

const TokenId kEnd = static_cast<TokenId>(Tokens().size());
const TokenId kOtherEnd = kEnd + 1;
const TokenId kSpecial = kEnd + 2;

TokenId Id(absl::string_view token) {
  for (size_t i = 0; i < Tokens().size(); ++i) {
    if (Tokens()[i] == token) return static_cast<TokenId>(i);
  }
  ADD_FAILURE() << "no token " << token;
  return -1;
}

std::shared_ptr<const TokenVocabulary> SmallVocabulary() {
  auto vocabulary = std::make_shared<Vocabulary>();
  TokenId id = 0;
  for (const std::string& token : Tokens()) {
    vocabulary->Add(id++, token, token, TokenKind::kText);
  }
  vocabulary->Add(kEnd, "</s>", "</s>", TokenKind::kSpecial);
  vocabulary->Add(kOtherEnd, "<eot>", "<eot>", TokenKind::kSpecial);
  vocabulary->Add(kSpecial, "<pad>", "<pad>", TokenKind::kSpecial);
  return std::make_shared<TokenVocabulary>(vocabulary);
}

using Make = std::function<Symbol(GrammarBuilder&)>;

std::shared_ptr<LiveGrammar> Live(
    const Make& make, int64_t max_growth = LiveGrammar::kDefaultGrowth,
    int64_t max_memory = Automaton::kMaxGrowth) {
  GrammarBuilder builder;
  const Symbol root = make(builder);
  auto grammar = std::move(builder).Build(root);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return std::make_shared<LiveGrammar>(
      std::make_shared<const Grammar>(*std::move(grammar)), SmallVocabulary(),
      max_growth, max_memory);
}

ConstrainedText Text(std::shared_ptr<LiveGrammar> live) {
  return ConstrainedText(std::move(live), {kEnd, kOtherEnd});
}

// Objects in objects, with numbers and strings.
Symbol Objects(GrammarBuilder& b) {
  const Symbol value = b.Declare();
  const Symbol quote = b.Literal("\"");
  const Symbol string = b.Sequence(
      {quote,
       b.Terminal(JsonStringContent(0, Regexes::kUnbounded, b.regexes())),
       quote});
  ObjectRule object;
  object.others.emplace_back();
  object.others[0].key = b.Sequence({string, b.Literal(": ")});
  object.others[0].value = value;
  object.separator = b.Literal(", ");
  b.AddAlternative(value, {b.Terminal(JsonNumber({}, b.regexes()))});
  b.AddAlternative(value, {string});
  b.AddAlternative(
      value, {b.Sequence({b.Literal("{"), b.Object(object), b.Literal("}")})});
  return value;
}

Symbol Cats(GrammarBuilder& b) {
  return b.Sequence({b.Literal("a"), b.Optional(b.Literal("ba"))});
}

// The mask after the text alone; null if it has ended or breaks the constraint.
std::shared_ptr<const TokenBits> MaskAfter(ConstrainedText& text) {
  if (!text.status().ok()) return nullptr;
  const auto masks = text.MaskRows({0}, {-1});
  EXPECT_TRUE(masks.ok()) << masks.status();
  return masks.ok() ? (*masks)[0] : nullptr;
}

std::vector<TokenId> AllowedBy(const std::shared_ptr<const TokenBits>& mask) {
  std::vector<TokenId> tokens;
  if (mask == nullptr) return tokens;
  for (TokenId token = 0; token < static_cast<TokenId>(mask->size() * 64);
       ++token) {
    if (HasToken(*mask, token)) tokens.push_back(token);
  }
  return tokens;
}

TEST(ConstrainedTextTest, EndTokensMayFollowExactlyWhereTheTextMayEnd) {
  ConstrainedText text = Text(Live(Cats));
  EXPECT_THAT(AllowedBy(MaskAfter(text)), ElementsAre(Id("a"), Id("ab")));
  text.Append({Id("a")});
  EXPECT_THAT(AllowedBy(MaskAfter(text)),
              ElementsAre(Id("b"), Id("ba"), kEnd, kOtherEnd));
  EXPECT_FALSE(text.complete());
  text.Append({Id("b")});
  EXPECT_THAT(AllowedBy(MaskAfter(text)), ElementsAre(Id("a")));
  text.Append({Id("a")});
  EXPECT_THAT(AllowedBy(MaskAfter(text)), ElementsAre(kEnd, kOtherEnd));
  EXPECT_TRUE(text.complete());
  FORETOKEN_EXPECT_OK(text.status());
}

TEST(ConstrainedTextTest, AnEndTokenCompletesTheText) {
  ConstrainedText text = Text(Live(Cats));
  text.Append({Id("a"), kOtherEnd});
  EXPECT_TRUE(text.complete());
  FORETOKEN_EXPECT_OK(text.status());
  EXPECT_THAT(MaskAfter(text), IsNull());
  text.Append({Id("{")});  // nothing comes after the end
  EXPECT_TRUE(text.complete());
}

TEST(ConstrainedTextTest, WhereNoTokenAndNoEndCanFollowIsAnError) {
  // No token has the bytes that must follow.
  ConstrainedText text =
      Text(Live([](GrammarBuilder& b) { return b.Literal("aQ"); }));
  text.Append({Id("a")});
  EXPECT_FALSE(text.complete());
  EXPECT_THAT(text.MaskRows({0}, {-1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no token of the vocabulary")));
}

TEST(ConstrainedTextTest, EndTokensBeyondTheVocabularyAreNotSet) {
  const auto live = Live(Cats);
  ConstrainedText text(live, {kEnd, 64, 100'000});
  text.Append({Id("a")});
  EXPECT_THAT(AllowedBy(MaskAfter(text)), ElementsAre(Id("b"), Id("ba"), kEnd));
}

TEST(ConstrainedTextTest, AForbiddenTokenOfAReplayIsAnError) {
  for (const std::vector<TokenId>& replay :
       std::vector<std::vector<TokenId>>{{Id("a"), Id("1")},
                                         {Id("a"), kSpecial, Id("ba")},
                                         {Id("{"), Id("}")}}) {
    ConstrainedText text = Text(Live(Cats));
    text.Append(replay);
    EXPECT_THAT(text.status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("forbids token")));
    EXPECT_FALSE(text.complete());
    EXPECT_EQ(text.Forced(100), "");
    EXPECT_EQ(text.MaskRows({0, Id("1"), kSpecial}, {-1, 0, 1}).status(),
              text.status());
    EXPECT_THAT(text.Allowed({Id("1"), kSpecial, kEnd}, {-1, 0, -1}),
                ElementsAre(true, true, true));
  }
}

TEST(ConstrainedTextTest, AllowedSaysOfEachNodeWhetherItMayFollowItsParent) {
  ConstrainedText text = Text(Live(Cats));
  text.Append({Id("a")});
  //  a -+- b -+- a --- end
  //     |     +- b --- a      (a child of a forbidden one is forbidden)
  //     +- end --- b
  //     +- special
  EXPECT_THAT(text.Allowed({Id("b"), Id("a"), kEnd, Id("b"), Id("a"), kEnd,
                            Id("b"), kSpecial},
                           {-1, 0, 1, 0, 3, -1, 5, -1}),
              ElementsAre(true, true, true, false, false, true, false, false));
  EXPECT_THAT(text.Allowed({}, {}), ElementsAre());
  FORETOKEN_EXPECT_OK(text.status());  // it asks, no more
}

TEST(ConstrainedTextTest, ForcedIsWhatMustFollow) {
  ConstrainedText text = Text(Live([](GrammarBuilder& b) {
    return b.Sequence({b.Literal("{\"a\": "),
                       b.Choice({b.Literal("true"), b.Literal("null")}),
                       b.Literal("}")});
  }));
  EXPECT_EQ(text.Forced(100), "{\"a\": ");
  EXPECT_EQ(text.Forced(3), "{\"a");
  EXPECT_EQ(text.Forced(0), "");
  text.Append({Id("{\""), Id("a")});
  EXPECT_EQ(text.Forced(100), "\": ");
  text.Append({Id("\": ")});
  EXPECT_EQ(text.Forced(100), "");
  text.Append({Id("tr")});
  EXPECT_EQ(text.Forced(100), "ue}");
  text.Append({Id("ue"), Id("}")});
  EXPECT_EQ(text.Forced(100), "");
}

// A random tree: mostly tokens that may follow, now and then any.
struct Tree {
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
};

TokenId RandomToken(std::mt19937& random, const TokenBits* mask) {
  if (mask != nullptr && random() % 5 != 0) {
    for (int tries = 0; tries < 500; ++tries) {
      const TokenId token = static_cast<TokenId>(random() % (kSpecial + 1));
      if (HasToken(*mask, token)) return token;
    }
  }
  return static_cast<TokenId>(random() % (kSpecial + 1));
}

TEST(ConstrainedTextTest, MasksOfATreeAreThoseOfEachPathAlone) {
  int rows = 0, limited = 0, same_parent = 0;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    std::mt19937 random(seed);
    const auto live = Live(Objects);
    ConstrainedText text = Text(live);
    std::vector<TokenId> so_far;
    for (int i = 0; i < static_cast<int>(random() % 12); ++i) {
      const auto mask = MaskAfter(text);
      const TokenId token = RandomToken(random, mask.get());
      if (!HasToken(*mask, token) || token == kEnd || token == kOtherEnd) break;
      text.Append({token});
      so_far.push_back(token);
    }
    Tree tree;
    tree.tokens.push_back(so_far.empty() ? 0 : so_far.back());
    tree.parents.push_back(-1);
    std::vector<std::vector<TokenId>> paths = {so_far};
    const int size = 1 + random() % 30;
    while (static_cast<int>(tree.tokens.size()) < size) {
      const int32_t parent = random() % tree.tokens.size();
      ConstrainedText at = Text(live);
      at.Append(paths[parent]);
      const TokenId token = RandomToken(random, MaskAfter(at).get());
      same_parent += parent + 1 < static_cast<int>(tree.tokens.size());
      tree.tokens.push_back(token);
      tree.parents.push_back(parent);
      paths.push_back(paths[parent]);
      paths.back().push_back(token);
    }
    const auto masks = text.MaskRows(tree.tokens, tree.parents);
    ASSERT_TRUE(masks.ok()) << masks.status() << " seed " << seed;
    ASSERT_EQ(masks->size(), tree.tokens.size());
    for (size_t row = 0; row < masks->size(); ++row) {
      ConstrainedText alone = Text(Live(Objects));
      alone.Append(paths[row]);
      const auto want = MaskAfter(alone);
      const std::string what =
          absl::StrCat("row ", row, " after ", absl::StrJoin(paths[row], " "),
                       " seed ", seed);
      ASSERT_EQ((*masks)[row] == nullptr, want == nullptr) << what;
      if (want != nullptr) {
        ASSERT_EQ(*(*masks)[row], *want) << what;
        ++limited;
      }
      ++rows;
    }
  }
  EXPECT_GT(limited, 500);
  EXPECT_GT(rows - limited, 100);  // forbidden ones and ended ones
  EXPECT_GT(same_parent, 500);
}

TEST(ConstrainedTextTest, AllowedAgreesWithTheMaskOfTheParent) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    ConstrainedText text = Text(Live(Objects));
    for (int i = 0; i < 20; ++i) {
      const auto mask = MaskAfter(text);
      if (mask == nullptr) break;
      std::vector<TokenId> all(kSpecial + 1);
      for (TokenId token = 0; token <= kSpecial; ++token) all[token] = token;
      const std::vector<bool> allowed =
          text.Allowed(all, std::vector<int32_t>(all.size(), -1));
      for (const TokenId token : all) {
        ASSERT_EQ(allowed[token], HasToken(*mask, token))
            << "token " << token << " seed " << seed;
      }
      const std::string forced = text.Forced(1);
      for (const TokenId token : all) {
        if (forced.empty() || !HasToken(*mask, token)) continue;
        ASSERT_EQ(Tokens()[token][0], forced[0]) << "seed " << seed;
      }
      text.Append({RandomToken(random, mask.get())});
      if (!text.status().ok()) break;
    }
  }
}

TEST(ConstrainedTextTest, BeginningAnewChangesNothing) {
  const auto large = Live(Objects);
  const auto small = Live(Objects, /*max_growth=*/1);
  int64_t renewed = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    // Two texts in turn, which both lose their states.
    std::vector<ConstrainedText> plain = {Text(large), Text(large)};
    std::vector<ConstrainedText> tight = {Text(small), Text(small)};
    for (int i = 0; i < 60; ++i) {
      const size_t which = random() % 2;
      const auto mask = MaskAfter(plain[which]);
      const auto tight_mask = MaskAfter(tight[which]);
      ASSERT_EQ(mask == nullptr, tight_mask == nullptr) << "seed " << seed;
      if (mask == nullptr) break;
      ASSERT_EQ(*mask, *tight_mask) << "seed " << seed;
      ASSERT_EQ(plain[which].Forced(9), tight[which].Forced(9));
      const TokenId token = RandomToken(random, mask.get());
      ASSERT_EQ(plain[which].Allowed({token, Id("1")}, {-1, 0}),
                tight[which].Allowed({token, Id("1")}, {-1, 0}));
      plain[which].Append({token});
      tight[which].Append({token});
      ASSERT_EQ(plain[which].status(), tight[which].status());
      ASSERT_EQ(plain[which].complete(), tight[which].complete())
          << "seed " << seed;
    }
    renewed = small->generation();
  }
  EXPECT_GT(renewed, 2);
  EXPECT_EQ(large->generation(), 1);
}

// Reading it anew takes as long as the text, and must not be needed for every
// token of it.
TEST(ConstrainedTextTest, ATextThatNeedsMoreThanTheBytesIsRarelyReadAnew) {
  const auto live = Live(Objects, /*max_growth=*/100'000);
  ConstrainedText text = Text(live);
  for (int depth = 0; depth < 200; ++depth) {
    text.Append({Id("{"), Id("\"a\""), Id(": ")});
    ASSERT_NE(MaskAfter(text), nullptr);
  }
  FORETOKEN_EXPECT_OK(text.status());
  EXPECT_GT(live->generation(), 1);
  EXPECT_LT(live->generation(), 60);  // of 800 calls
}

// Strings in which the 16th character from the end is an 'a': masks are cheap,
// for any plain character may follow, but the states are many.
Symbol ManyStates(GrammarBuilder& b) {
  Regexes& r = b.regexes();
  const Expr any = JsonStringContent(1, 1, r);
  return b.Sequence({b.Literal("\""),
                     b.Terminal(r.Concat(
                         {r.Star(any), r.Literal("a"), r.Repeat(any, 15, 15)})),
                     b.Literal("\"")});
}

TEST(ConstrainedTextTest, ALiveGrammarStaysNearItsBytesHoweverManyTextsUseIt) {
  constexpr int64_t kBytes = 2'000'000;
  const auto live = Live(ManyStates, kBytes);
  const uint32_t seed = 4;
  std::mt19937 random(seed);
  int64_t most = 0;
  for (int i = 0; i < 100; ++i) {
    ConstrainedText text = Text(live);
    text.Append({Id("\"")});
    for (int step = 0; step < 60; ++step) {
      ASSERT_NE(MaskAfter(text), nullptr);
      text.Append({random() % 2 == 0 ? Id("a") : Id("b")});
      most = std::max(most, live->bytes());
    }
    FORETOKEN_ASSERT_OK(text.status());
  }
  EXPECT_GT(live->generation(), 2);
  EXPECT_LT(live->generation(), 60);
  EXPECT_LT(most, kBytes * 3 / 2) << "seed " << seed;
}

// What cannot be followed any more must not be taken for a text that breaks the
// constraint, nor for one that is free.
TEST(ConstrainedTextTest, ATextThatNeedsTooMuchMemoryIsAnErrorAndNotFree) {
  // The memory ends at another place each time.
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const auto live = Live(ManyStates, LiveGrammar::kDefaultGrowth,
                           200'000 + 2'000 * int64_t{seed});
    ConstrainedText text = Text(live);
    text.Append({Id("\"")});
    ConstrainedText plain = Text(Live(ManyStates));
    plain.Append({Id("\"")});
    std::mt19937 random(seed);
    absl::Status status;
    for (int i = 0; i < 3000 && status.ok(); ++i) {
      // A draft may be what the memory ends at: then it is not accepted.
      const std::vector<TokenId> rows = {0, Id("a"), Id("b"), Id("b")};
      const std::vector<int32_t> parents = {-1, 0, 1, 0};
      const auto masks = text.MaskRows(rows, parents);
      status = masks.status();
      if (!status.ok()) break;
      const auto want = plain.MaskRows(rows, parents);
      FORETOKEN_ASSERT_OK(want);
      for (size_t row = 0; row < rows.size(); ++row) {
        if ((*masks)[row] == nullptr) continue;
        ASSERT_EQ(*(*masks)[row], *(*want)[row])
            << "row " << row << " after " << i << " tokens, seed " << seed;
      }
      ASSERT_NE((*masks)[0], nullptr)
          << "free after " << i << " tokens, seed " << seed;
      const TokenId token = random() % 2 == 0 ? Id("a") : Id("b");
      ASSERT_TRUE(HasToken(*(*masks)[0], token)) << "seed " << seed;
      text.Append({token});
      plain.Append({token});
    }
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")))
        << "seed " << seed;
  }
}

TEST(ConstrainedTextTest, ALackOfMemoryForADraftEndsNothing) {
  // Enough for the text, which is read anew now and then, and seldom for what
  // its drafts visit.
  const auto live = Live(ManyStates, /*max_growth=*/60'000, 8'000'000);
  ConstrainedText text = Text(live);
  text.Append({Id("\"")});
  const uint32_t seed = 6;
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i) {
    std::vector<TokenId> tokens = {0};
    std::vector<int32_t> parents = {-1};
    for (int32_t row = 1; row < 200; ++row) {
      tokens.push_back(random() % 2 == 0 ? Id("a") : Id("b"));
      parents.push_back(static_cast<int32_t>(random() % row));
    }
    const auto masks = text.MaskRows(tokens, parents);
    FORETOKEN_ASSERT_OK(masks);
    ASSERT_NE((*masks)[0], nullptr);
    for (size_t row = 1; row < tokens.size(); ++row) {
      if ((*masks)[row] == nullptr) continue;
      ASSERT_NE((*masks)[parents[row]], nullptr) << "below a closed row";
    }
    text.Append({tokens[1]});
    FORETOKEN_ASSERT_OK(text.status());
  }
  EXPECT_GT(live->generation(), 1);
}

// A text of n bytes can be read in about n * n ways of n items each.
TEST(ConstrainedTextTest, AnAmbiguousGrammarEndsAtABoundOfWork) {
  const auto live = Live([](GrammarBuilder& b) {
    const Symbol s = b.Declare();
    b.AddAlternative(s, {s, s});
    b.AddAlternative(s,
                     {b.Terminal(b.regexes().Bytes(ByteSet::Range('a', 'b')))});
    return s;
  });
  ConstrainedText text = Text(live);
  int64_t most = 0;
  int written = 0;
  while (text.status().ok() && written < 5000) {
    const int64_t generation = live->generation();
    const int64_t before = live->automaton().work();
    text.Append({Id("a")});
    ++written;
    if (live->generation() == generation) {
      most = std::max(most, live->automaton().work() - before);
    }
  }
  EXPECT_GT(written, 100);
  EXPECT_THAT(text.status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
  EXPECT_LT(most, 3'000'000);  // by one byte
}

// An end token that the grammar asks for by name ends the text nevertheless.
TEST(ConstrainedTextTest, AnEndTokenInsideTheGrammarIsNotAllowed) {
  ConstrainedText text = Text(Live([](GrammarBuilder& b) {
    return b.Sequence(
        {b.Literal("a"),
         b.Choice({b.Literal("b"),
                   b.Literal(TokenVocabulary::ControlBytes("<eot>"))}),
         b.Literal("a")});
  }));
  text.Append({Id("a")});
  EXPECT_THAT(AllowedBy(MaskAfter(text)), ElementsAre(Id("b"), Id("ba")));
  text.Append({kOtherEnd});
  EXPECT_FALSE(text.complete());
  EXPECT_THAT(text.status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ended")));
}

TEST(ConstrainedTextTest, AMaskThatNeedsTooMuchMemoryIsAnError) {
  const auto live = Live(
      [](GrammarBuilder& b) {
        Regexes& r = b.regexes();
        const Expr any = r.Bytes(ByteSet::Range('a', 'b'));
        return b.Terminal(
            r.Concat({r.Star(any), r.Literal("a"), r.Repeat(any, 500, 500)}));
      },
      LiveGrammar::kDefaultGrowth, /*max_memory=*/60'000);
  ConstrainedText text = Text(live);
  bool failed = false;
  for (int i = 0; i < 200 && !failed; ++i) {
    const auto masks = text.MaskRows({0}, {-1});
    failed = !masks.ok();
    if (failed) {
      EXPECT_THAT(
          masks, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
      break;
    }
    ASSERT_NE((*masks)[0], nullptr) << "free after " << i << " tokens";
    text.Append({Id(i % 3 == 0 ? "a" : "b")});
  }
  EXPECT_TRUE(failed);
}

}  // namespace
}  // namespace foretoken::grammar
