#include "services/verifier/core/session_grammars.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/text/vocabulary.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kBytes = int64_t{64} << 20;
constexpr TokenId kEnd = 2;

std::shared_ptr<const grammar::TokenVocabulary> Letters() {
  auto vocabulary = std::make_shared<Vocabulary>();
  vocabulary->Add(0, "a", "a", TokenKind::kText);
  vocabulary->Add(1, "b", "b", TokenKind::kText);
  vocabulary->Add(kEnd, "</s>", "</s>", TokenKind::kSpecial);
  return std::make_shared<grammar::TokenVocabulary>(vocabulary);
}

std::shared_ptr<const grammar::Grammar> Word(absl::string_view word) {
  grammar::GrammarBuilder builder;
  const grammar::Symbol root = builder.Literal(word);
  auto grammar = std::move(builder).Build(root);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return std::make_shared<const grammar::Grammar>(*std::move(grammar));
}

TEST(SessionGrammarsTest, WithoutAVocabularyAConstraintIsRefused) {
  SessionGrammars grammars(nullptr, kBytes);
  EXPECT_THAT(grammars.Begin(Word("ab"), {kEnd}, "me"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no tokenizer")));
}

TEST(SessionGrammarsTest, TextsOfOneGrammarAreIndependent) {
  SessionGrammars grammars(Letters(), kBytes);
  const auto word = Word("ab");
  auto first = grammars.Begin(word, {kEnd}, "me");
  FORETOKEN_ASSERT_OK(first);
  (*first)->Append({0});
  auto second = grammars.Begin(word, {kEnd}, "me");
  FORETOKEN_ASSERT_OK(second);
  EXPECT_EQ((*first)->Forced(9), "b");
  EXPECT_EQ((*second)->Forced(9), "ab");
  (*first)->Append({1});
  EXPECT_TRUE((*first)->complete());
  EXPECT_FALSE((*second)->complete());
}

// The automaton and whatever else is kept of a grammar hold it.
TEST(SessionGrammarsTest, TextsOfOneGrammarShareItsAutomaton) {
  SessionGrammars grammars(Letters(), kBytes);
  const auto word = Word("ab");
  const auto first = grammars.Begin(word, {kEnd}, "me");
  FORETOKEN_ASSERT_OK(first);
  const long holders = word.use_count();
  EXPECT_GT(holders, 1);
  std::vector<std::unique_ptr<grammar::ConstrainedText>> more;
  for (int i = 0; i < 5; ++i) {
    auto text = grammars.Begin(word, {kEnd}, "me");
    FORETOKEN_ASSERT_OK(text);
    more.push_back(*std::move(text));
  }
  EXPECT_EQ(word.use_count(), holders);
}

TEST(SessionGrammarsTest, ThoseThatNoSessionUsesAreKeptForTheNextOne) {
  SessionGrammars grammars(Letters(), kBytes);
  std::weak_ptr<const grammar::Grammar> kept;
  {
    const auto word = Word("ab");
    kept = word;
    FORETOKEN_ASSERT_OK(grammars.Begin(word, {kEnd}, "me"));
  }
  FORETOKEN_ASSERT_OK(grammars.Begin(Word("ba"), {kEnd}, "me"));
  EXPECT_FALSE(kept.expired());
}

TEST(SessionGrammarsTest, OfManyUnusedOnesTheOldestGo) {
  SessionGrammars grammars(Letters(), kBytes);
  const auto used = Word("ab");
  const auto text = grammars.Begin(used, {kEnd}, "me");
  FORETOKEN_ASSERT_OK(text);
  const long holders = used.use_count();
  std::vector<std::weak_ptr<const grammar::Grammar>> others;
  for (int i = 0; i < 100; ++i) {
    const auto word = Word(absl::StrCat("word", i));
    others.push_back(word);
    FORETOKEN_ASSERT_OK(grammars.Begin(word, {kEnd}, "me"));
  }
  int alive = 0;
  for (const auto& other : others) alive += !other.expired();
  EXPECT_GE(alive, 10);
  EXPECT_LE(alive, 40);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(others[i].expired(), i < 100 - alive) << i;
  }
  EXPECT_EQ(used.use_count(), holders);  // in use, and the oldest of all
}

TEST(SessionGrammarsTest, BeyondTheMemoryOneIsRefusedAndLeavesNothing) {
  SessionGrammars grammars(Letters(), /*max_bytes=*/1);
  const auto word = Word("ba");
  const long holders = word.use_count();
  EXPECT_THAT(grammars.Begin(word, {kEnd}, "me"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("take all memory")));
  EXPECT_EQ(word.use_count(), holders);
}

TEST(SessionGrammarsTest, UnusedOnesMakeRoomForThoseThatCome) {
  int64_t each = 0;
  {
    grammar::LiveGrammar live(Word("ab"), Letters());
    each = live.bytes();
  }
  // Room for two.
  SessionGrammars grammars(Letters(), 5 * each / 2);
  const auto used = grammars.Begin(Word("ab"), {kEnd}, "me");
  FORETOKEN_ASSERT_OK(used);
  for (const char* word : {"ba", "aa", "bb"}) {
    FORETOKEN_EXPECT_OK(grammars.Begin(Word(word), {kEnd}, word)) << word;
  }
  const auto second = grammars.Begin(Word("ba"), {kEnd}, "you");
  FORETOKEN_ASSERT_OK(second);
  EXPECT_THAT(
      grammars.Begin(Word("aa"), {kEnd}, "they"),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("memory")));
  (*used)->Append({0});
  EXPECT_EQ((*used)->Forced(9), "b");
}

TEST(SessionGrammarsTest, TheGrammarsOfOneCallerTakeHalfOfTheMemory) {
  int64_t each = 0;
  {
    grammar::LiveGrammar live(Word("ab"), Letters());
    each = live.bytes();
  }
  SessionGrammars grammars(Letters(), 5 * each);
  const auto first = grammars.Begin(Word("ab"), {kEnd}, "me");
  FORETOKEN_ASSERT_OK(first);
  const auto second = grammars.Begin(Word("ba"), {kEnd}, "me");
  FORETOKEN_ASSERT_OK(second);
  EXPECT_THAT(grammars.Begin(Word("aa"), {kEnd}, "me"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("one caller may have")));
  FORETOKEN_EXPECT_OK(grammars.Begin(Word("aa"), {kEnd}, "you"));
}

}  // namespace
}  // namespace foretoken::verifier
