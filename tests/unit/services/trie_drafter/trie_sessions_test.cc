#include "services/trie_drafter/core/trie_sessions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "services/trie_drafter/core/warm_record.h"
#include "tests/support/draft_caller.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/trie_drafter/fakes.h"

namespace foretoken::trie_drafter {
namespace {

using ::foretoken::testing::DraftCaller;
using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

DraftOpen OpenOf(const std::string& mode, const std::string& scope,
                 std::vector<TokenId> tokens = {1, 2, 3}) {
  DraftOpen open;
  open.prompt_length = static_cast<int64_t>(tokens.size());
  open.tokens = std::move(tokens);
  open.mode = *Mode::Parse(mode);
  open.cache_scope = scope;
  return open;
}

DraftRound RoundOf(int64_t length, std::vector<TokenId> committed,
                   int max_nodes = 16) {
  DraftRound round;
  round.length = length;
  round.committed = std::move(committed);
  round.max_nodes = max_nodes;
  return round;
}

// 20 tokens that no other output has.
std::vector<TokenId> Output(TokenId first) {
  std::vector<TokenId> tokens(20);
  for (int i = 0; i < 20; ++i) tokens[static_cast<size_t>(i)] = first + i;
  return tokens;
}

class TrieSessionsTest : public ::testing::Test {
 protected:
  std::unique_ptr<DraftCaller> Open(DraftOpen open) {
    auto session = DraftCaller::Open(*sessions_, std::move(open));
    EXPECT_THAT(session, IsOk());
    return *std::move(session);
  }
  // A whole request of mode `auto` that wrote `output`.
  void Write(const std::string& scope, const std::vector<TokenId>& output) {
    const auto session = Open(OpenOf("auto", scope));
    DraftAnswer answer;
    EXPECT_THAT(
        session->Round(RoundOf(3 + static_cast<int64_t>(output.size()), output),
                       answer),
        IsOk());
  }
  // A whole request that adds `phrases` to those of its scope.
  static void AddPhrases(TrieSessions& sessions, const std::string& scope,
                         std::vector<Phrase> phrases) {
    const auto session =
        DraftCaller::Open(sessions, OpenOf("ouroboros", scope));
    ASSERT_THAT(session, IsOk());
    DraftRound round = RoundOf(4, {9});
    round.phrases = std::move(phrases);
    DraftAnswer answer;
    EXPECT_THAT((*session)->Round(round, answer), IsOk());
  }
  // The first drafted tokens of a new request whose prompt ends with `last`.
  std::vector<TokenId> Drafted(const std::string& scope,
                               std::vector<TokenId> prompt) {
    const int64_t length = static_cast<int64_t>(prompt.size());
    const auto session = Open(OpenOf("auto", scope, std::move(prompt)));
    DraftAnswer answer;
    EXPECT_THAT(session->Round(RoundOf(length, {}), answer), IsOk());
    return answer.tree.tokens;
  }

  TrieOptions options_;
  FakeStore store_;
  FakeObserver observer_;
  std::unique_ptr<TrieSessions> sessions_ =
      std::make_unique<TrieSessions>(options_, nullptr, &store_, observer_);
};

TEST_F(TrieSessionsTest, NgramTrieDraftsFromPromptAndOutput) {
  const auto session =
      Open(OpenOf("ngram_trie:n=5,match_length=2", "s", {1, 2, 3, 4, 1, 2}));
  DraftAnswer answer;
  ASSERT_THAT(session->Round(RoundOf(6, {}, 2), answer), IsOk());
  EXPECT_EQ(answer.length, 6);
  EXPECT_THAT(answer.tree.tokens, ElementsAre(3, 4));
  answer.Clear();
  ASSERT_THAT(session->Round(RoundOf(12, {7, 8, 9, 5, 7, 8}, 1), answer),
              IsOk());
  EXPECT_THAT(answer.tree.tokens, ElementsAre(9));  // learned as it came
}

TEST_F(TrieSessionsTest, StaleAndRepeatedRoundsAreRefused) {
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("committed_length"));
  for (const DraftRound& round :
       {RoundOf(5, {8, 9}), RoundOf(4, {}), RoundOf(9, {1})}) {
    const auto session = Open(OpenOf("ngram_trie", ""));
    DraftAnswer answer;
    ASSERT_THAT(session->Round(RoundOf(5, {8, 9}), answer), IsOk());
    EXPECT_THAT(session->Round(round, answer), refused);
  }
}

TEST_F(TrieSessionsTest, OutputServesLaterRequestsOfItsScopeAlone) {
  Write("a", Output(100));
  EXPECT_THAT(Drafted("a", {5, 100, 101}), Not(IsEmpty()));
  EXPECT_EQ(Drafted("a", {5, 100, 101})[0], 102);
  EXPECT_THAT(Drafted("b", {5, 100, 101}), IsEmpty());
  EXPECT_THAT(Drafted("", {5, 100, 101}), IsEmpty());
}

// A request whose target found `candidate` likely after its first tokens 90 and
// 91, and after the rejected draft 95.
DraftRound RoundWithCandidate(TokenId candidate) {
  DraftRound round = RoundOf(6, {90, 91, 92});
  round.verified.tree = TokenTree::Create({95}, {-1}).value();
  round.verified.candidates =
      CandidateRows::Of({{{candidate, 0.0f}}, {{candidate, 0.0f}}});
  return round;
}

TEST_F(TrieSessionsTest, NoScopeSeesAnothersCandidates) {
  for (const std::string scope : {"", "a"}) {
    const auto session = Open(OpenOf("auto", scope));
    DraftAnswer answer;
    ASSERT_THAT(session->Round(RoundWithCandidate(700), answer), IsOk());
    ASSERT_THAT(session->Round(RoundOf(7, {95}), answer), IsOk());
    // The request itself drafts from what was rejected.
    EXPECT_THAT(answer.tree.tokens, ::testing::Contains(700));
    // Others do not before it ends.
    EXPECT_THAT(Drafted("a", {5, 90, 91}), Not(::testing::Contains(700)));
  }
  EXPECT_THAT(Drafted("a", {5, 90, 91}), ::testing::Contains(700));
  for (const std::string scope : {"b", ""}) {
    EXPECT_THAT(Drafted(scope, {5, 90, 91}), IsEmpty());
    EXPECT_THAT(Drafted(scope, {5, 91}), IsEmpty());
  }
  // Nor does the scope learn what followed tokens that were only drafted.
  EXPECT_THAT(Drafted("a", {5, 91, 95}), Not(::testing::Contains(700)));
}

TEST_F(TrieSessionsTest, ScopesOfDifferentTokenizersAreDifferent) {
  Write("a", Output(100));
  DraftOpen open = OpenOf("auto", "a", {5, 100, 101});
  open.tokenizer_fingerprint = std::string(32, 'x');
  const auto session = Open(std::move(open));
  DraftAnswer answer;
  ASSERT_THAT(session->Round(RoundOf(3, {}), answer), IsOk());
  EXPECT_THAT(answer.tree.tokens, IsEmpty());
}

TEST_F(TrieSessionsTest, RequestsWithoutScopeLeaveNothing) {
  Write("", Output(100));
  EXPECT_EQ(sessions_->scopes().scopes, 0);
  EXPECT_THAT(store_.outputs(), IsEmpty());
  EXPECT_THAT(Drafted("", {5, 100, 101}), IsEmpty());
}

TEST_F(TrieSessionsTest, OutputBecomesHistoryAtTheEndAndPromptsNever) {
  {
    const auto running = Open(OpenOf("auto", "a", Output(500)));
    DraftAnswer answer;
    ASSERT_THAT(running->Round(RoundOf(40, Output(100)), answer), IsOk());
    EXPECT_THAT(Drafted("a", {5, 100, 101}), IsEmpty());
  }
  EXPECT_THAT(Drafted("a", {5, 100, 101}), Not(IsEmpty()));
  EXPECT_THAT(Drafted("a", {5, 500, 501}), IsEmpty());
}

TEST_F(TrieSessionsTest, OuroborosTakesPhrasesAndDraftsNothing) {
  const auto session = Open(OpenOf("ouroboros:gamma=3", "a"));
  DraftRound round = RoundOf(4, {9});
  round.phrases = {{7, 1, 2}, {8, 3, 4}};
  DraftAnswer answer;
  ASSERT_THAT(session->Round(round, answer), IsOk());
  EXPECT_EQ(answer.tree.size(), 0);
  EXPECT_EQ(answer.length, 4);
  EXPECT_THAT(sessions_->NewestPhrases({"a", "", 3, 10}),
              ElementsAre(ElementsAre(8, 3, 4), ElementsAre(7, 1, 2)));
  EXPECT_THAT(sessions_->NewestPhrases({"a", "", 3, 1}),
              ElementsAre(ElementsAre(8, 3, 4)));
  EXPECT_THAT(sessions_->NewestPhrases({"b", "", 3, 10}), IsEmpty());
  EXPECT_THAT(sessions_->NewestPhrases({"", "", 3, 10}), IsEmpty());
  EXPECT_EQ(observer_.pool_[1], 2);
  EXPECT_EQ(observer_.pool_[0], 1);
}

// Bad parameters never get here: Mode::Parse refuses them
// (tests/unit/speculation/modes_test.cc).
TEST_F(TrieSessionsTest, ModesDraftedElsewhereAreRefused) {
  EXPECT_THAT(
      DraftCaller::Open(*sessions_, OpenOf("draft_model", "")),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("draft_model")));
  EXPECT_EQ(sessions_->sessions(), 0);
}

TEST_F(TrieSessionsTest, SessionsAndTheirBytesAreBounded) {
  options_.max_sessions = 2;
  options_.max_context_tokens = 8;
  TrieSessions bounded(options_, nullptr, nullptr, observer_);
  auto first = DraftCaller::Open(bounded, OpenOf("ngram_trie", ""));
  auto second = DraftCaller::Open(bounded, OpenOf("auto", ""));
  const auto full =
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("sessions"));
  EXPECT_THAT(DraftCaller::Open(bounded, OpenOf("ngram_trie", "")), full);
  EXPECT_GT(observer_.bytes_, 0);
  DraftAnswer answer;
  EXPECT_THAT((*first)->Round(RoundOf(9, {1, 2, 3, 4, 5, 6}), answer),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("committed_length")));
  first->reset();
  second->reset();
  EXPECT_EQ(observer_.bytes_, 0);
  EXPECT_EQ(bounded.sessions(), 0);
  EXPECT_THAT(
      DraftCaller::Open(bounded, OpenOf("ngram_trie", "", Output(1))),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token_ids")));

  options_.max_session_bytes = 0;
  TrieSessions tight(options_, nullptr, nullptr, observer_);
  auto holder = DraftCaller::Open(tight, OpenOf("ngram_trie", ""));
  ASSERT_THAT(holder, IsOk());
  EXPECT_THAT(DraftCaller::Open(tight, OpenOf("ngram_trie", "")), full);
}

TEST_F(TrieSessionsTest, AnyTokenIdIsDraftedFromSafely) {
  constexpr TokenId kMax = std::numeric_limits<TokenId>::max();
  for (const char* mode : {"ngram_trie", "auto"}) {
    const auto session = Open(OpenOf(mode, "s", {kMax, 0, kMax, 0, kMax}));
    DraftAnswer answer;
    ASSERT_THAT(session->Round(RoundOf(7, {0, kMax}), answer), IsOk());
    ASSERT_GT(answer.tree.size(), 0) << mode;
    EXPECT_EQ(answer.tree.tokens[0], 0) << mode;
  }
}

TEST_F(TrieSessionsTest, WhatEndsIsStoredAndWhatWasStoredIsLoaded) {
  Write("a", Output(100));
  AddPhrases(*sessions_, "a", {{7, 1}, {7, 2}});
  ASSERT_THAT(store_.outputs(), SizeIs(1));
  EXPECT_THAT(store_.outputs()[0].second, ElementsAreArray(Output(100)));
  ASSERT_THAT(store_.phrases(), SizeIs(1));
  EXPECT_TRUE(store_.phrases()[0].first == ScopeKey::Of("a", ""));

  FakeStore other;
  TrieSessions restarted(options_, nullptr, &other, observer_);
  EXPECT_THAT(restarted.NewestPhrases({"a", "", 0, 10}),
              IsEmpty());  // not waited
  AddPhrases(restarted, "a", {{7, 3}});
  StoredScope stored;
  stored.outputs = {store_.outputs()[0].second};
  stored.phrases = store_.phrases()[0].second;
  EXPECT_EQ(other.AnswerLoads(stored), 1);  // once a scope
  // What was stored is older than what came since.
  EXPECT_THAT(
      restarted.NewestPhrases({"a", "", 2, 10}),
      ElementsAre(ElementsAre(7, 3), ElementsAre(7, 2), ElementsAre(7, 1)));
  auto session =
      DraftCaller::Open(restarted, OpenOf("auto", "a", {5, 100, 101}));
  DraftAnswer answer;
  ASSERT_THAT((*session)->Round(RoundOf(3, {}), answer), IsOk());
  ASSERT_GT(answer.tree.size(), 0);
  EXPECT_EQ(answer.tree.tokens[0], 102);
}

TEST_F(TrieSessionsTest, LongOutputsAreStoredFromTheirEnd) {
  std::unique_ptr<DraftCaller> session = Open(OpenOf("auto", "a"));
  int64_t length = 3;
  DraftAnswer answer;
  for (int i = 0; i < 3000; ++i) {
    length += 10;
    ASSERT_THAT(
        session->Round(RoundOf(length, std::vector<TokenId>(10, i % 50), 0),
                       answer),
        IsOk());
  }
  session.reset();
  ASSERT_THAT(store_.outputs(), SizeIs(1));
  const std::vector<TokenId> stored = store_.outputs()[0].second;
  EXPECT_GE(stored.size(), kMaxRecordTokens);
  EXPECT_LT(stored.size(), 2 * kMaxRecordTokens);
  EXPECT_EQ(stored.back(), 2999 % 50);
}

TEST_F(TrieSessionsTest, OneScopeServesManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int request = 0; request < 8; ++request) {
        auto session = DraftCaller::Open(
            *sessions_,
            OpenOf(t % 2 == 0 ? "auto" : "ouroboros", "shared", Output(t)));
        ASSERT_THAT(session, IsOk());
        int64_t length = 20;
        DraftAnswer answer;
        for (int i = 0; i < 20; ++i) {
          DraftRound round = RoundOf(length += 2, {100 + i, 101 + i}, 32);
          round.phrases = {{100 + i, t, request}};
          answer.Clear();
          ASSERT_THAT((*session)->Round(round, answer), IsOk());
        }
        sessions_->NewestPhrases({"shared", "", 3, 100});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sessions_->sessions(), 0);
  EXPECT_EQ(observer_.open_, 0);
  EXPECT_EQ(observer_.bytes_, 0);
  // Two threads of 8 requests of 40 tokens and a border each.
  EXPECT_EQ(sessions_->scopes().history_tokens, 2 * 8 * 41);
  EXPECT_GT(sessions_->scopes().phrases, 0);
}

}  // namespace
}  // namespace foretoken::trie_drafter
