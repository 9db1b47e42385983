#include "services/trie_drafter/core/scope_prior.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/drafting/prior_builder.h"
#include "services/trie_drafter/core/trie_sessions.h"
#include "tests/support/draft_caller.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/trie_drafter/fakes.h"

namespace foretoken::trie_drafter {
namespace {

using ::foretoken::testing::DraftCaller;
using ::foretoken::testing::Eventually;
using ::foretoken::testing::IsOk;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int32_t kVocab = 1000;

ScopePriorOptions SmallPrior() {
  ScopePriorOptions options;
  options.max_tokens = 1000;
  options.compact_every = 40;
  options.vocab_size = kVocab;
  return options;
}

// 20 tokens from `first` on.
std::vector<TokenId> Output(TokenId first) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back(first + i);
  return tokens;
}

bool Knows(const ScopePrior& prior, TokenId token) {
  const std::shared_ptr<const StaticPrior> published = prior.Get();
  return published != nullptr && published->AfterToken(token).size > 0;
}

TEST(ScopePriorTest, PublishesWhatItCountedWhenItIsCompacted) {
  ScopePrior prior(SmallPrior(), nullptr);
  EXPECT_FALSE(prior.Add(Output(100)).due);
  EXPECT_TRUE(prior.Add(Output(200)).due);
  EXPECT_FALSE(prior.Add(Output(300)).due) << "due already";
  EXPECT_EQ(prior.Get(), nullptr);
  EXPECT_EQ(prior.counted_tokens(), 0);
  EXPECT_TRUE(prior.Compact().value());
  EXPECT_TRUE(Knows(prior, 105));
  EXPECT_TRUE(Knows(prior, 305));
  EXPECT_FALSE(Knows(prior, 119)) << "the last token of an output";
  EXPECT_EQ(prior.counted_tokens(), 3 * 21);
  EXPECT_EQ(prior.bytes(),
            (3 * 21 + 3 * 20) * sizeof(TokenId) + prior.Get()->bytes());
  EXPECT_FALSE(prior.Add(Output(400)).due);
  EXPECT_TRUE(prior.Add(Output(500)).due);
}

TEST(ScopePriorTest, LeavesOutWhatTheHistoryHolds) {
  const auto history = std::make_shared<FusedMemory>(32);
  ScopePrior prior(SmallPrior(), history);
  const auto add = [&](TokenId first) {
    history->AddOutput(Output(first));
    return prior.Add(Output(first)).due;
  };
  EXPECT_FALSE(add(100));
  EXPECT_FALSE(prior.Compact().value()) << "the history holds everything";
  EXPECT_EQ(prior.Get(), nullptr);
  EXPECT_FALSE(add(200));
  EXPECT_FALSE(add(300));
  EXPECT_TRUE(add(400)) << "84 tokens, of which the history holds 32";
  EXPECT_TRUE(prior.Compact().value());
  EXPECT_TRUE(Knows(prior, 105));
  EXPECT_TRUE(Knows(prior, 205));
  EXPECT_FALSE(Knows(prior, 315));
  EXPECT_FALSE(Knows(prior, 405));
  EXPECT_EQ(prior.counted_tokens() + history->Tokens(), 4 * 21);
}

TEST(ScopePriorTest, TheMoreIsCountedTheLaterTheNextCompaction) {
  ScopePriorOptions options = SmallPrior();
  options.max_tokens = 100'000;
  ScopePrior prior(options, nullptr);
  int compactions = 0;
  int64_t counted = 0;
  for (int i = 0; i < 1000; ++i) {
    if (!prior.Add(Output(100 + i % 800)).due) continue;
    ASSERT_TRUE(prior.Compact().ok());
    ++compactions;
    counted += prior.counted_tokens();
  }
  EXPECT_LT(compactions, 60);  // 21,000 tokens; every 40 of them: 525
  EXPECT_LT(counted, 10 * 21'000);
}

TEST(ScopePriorTest, DropsItsOldestOutputs) {
  ScopePriorOptions options = SmallPrior();
  options.max_tokens = 100;
  ScopePrior prior(options, nullptr);
  for (TokenId first = 100; first < 900; first += 20) prior.Add(Output(first));
  prior.TakeBatch();
  EXPECT_EQ(prior.bytes(), 100 * sizeof(TokenId));
  ASSERT_TRUE(prior.Compact().value());
  EXPECT_EQ(prior.counted_tokens(), 100);
  EXPECT_TRUE(Knows(prior, 885));
  EXPECT_FALSE(Knows(prior, 105));
  // Of an output that is too long alone, its end.
  std::vector<TokenId> all;
  for (TokenId token = 0; token < kVocab; ++token) all.push_back(token);
  prior.Add(all);
  ASSERT_TRUE(prior.Compact().value());
  EXPECT_TRUE(Knows(prior, 990));
  EXPECT_FALSE(Knows(prior, 500));
}

TEST(ScopePriorTest, LeavesOutTokensBeyondItsVocabulary) {
  ScopePrior prior(SmallPrior(), nullptr);
  prior.Add(Output(kVocab - 10));
  prior.Add(Output(-5));
  prior.Restore({Output(kVocab - 10)}, {Output(-5)});
  prior.Add(Output(100));
  ASSERT_TRUE(prior.Compact().value());
  EXPECT_EQ(prior.counted_tokens(), 21);
  EXPECT_FALSE(Knows(prior, kVocab - 8));
  EXPECT_TRUE(Knows(prior, 105));
}

TEST(ScopePriorTest, APriorThatDoesNotFitIsAnError) {
  ScopePriorOptions options = SmallPrior();
  options.max_bytes = 100;
  ScopePrior prior(options, nullptr);
  prior.Add(Output(100));
  const absl::Status status = prior.Compact().status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("too small"));
  EXPECT_EQ(prior.Get(), nullptr);
}

TEST(ScopePriorTest, APriorStaysWithinItsBytes) {
  ScopePriorOptions options = SmallPrior();
  options.max_tokens = 100'000;
  options.max_bytes = 8192;
  ScopePrior prior(options, nullptr);
  uint32_t random = 1;
  for (int i = 0; i < 500; ++i) {
    std::vector<TokenId> output;
    for (int j = 0; j < 100; ++j) {
      random = random * 1664525u + 1013904223u;
      output.push_back(static_cast<TokenId>((random >> 8) % kVocab));
    }
    prior.Add(output);
  }
  ASSERT_TRUE(prior.Compact().value());
  EXPECT_LE(prior.Get()->bytes(), 8192u);
}

TEST(ScopePriorTest, OutputsLeaveInBatchesOfOneRecord) {
  ScopePrior prior(SmallPrior(), nullptr);
  EXPECT_THAT(prior.TakeBatch(), IsEmpty());
  const std::vector<TokenId> half(kMaxRecordTokens / 2, 7);
  EXPECT_THAT(prior.Add(half).batch, IsEmpty());
  EXPECT_THAT(prior.Add(half).batch, IsEmpty());
  EXPECT_THAT(prior.Add(Output(100)).batch, ElementsAre(half, half));
  EXPECT_THAT(prior.TakeBatch(), ElementsAre(Output(100)));
  EXPECT_THAT(prior.TakeBatch(), IsEmpty());
}

TEST(ScopePriorTest, StoredTextIsOlderThanAllAndCountedOnce) {
  const auto history = std::make_shared<FusedMemory>(64);
  ScopePrior prior(SmallPrior(), history);
  history->AddOutput(Output(500));
  prior.Add(Output(500));
  // The store has the last two outputs twice.
  history->AddOutput(Output(200));
  history->AddOutput(Output(300));
  EXPECT_TRUE(
      prior.Restore({Output(100), Output(200)}, {Output(200), Output(300)}));
  EXPECT_TRUE(prior.Compact().value());
  EXPECT_TRUE(Knows(prior, 105));
  EXPECT_FALSE(Knows(prior, 205)) << "in the history";
  EXPECT_FALSE(Knows(prior, 305));
  EXPECT_FALSE(Knows(prior, 505));
  EXPECT_FALSE(prior.Restore({}, {})) << "nothing new";
}

// Scopes of sessions, with a short history.
class ScopePriorSessionsTest : public ::testing::Test {
 protected:
  static TrieOptions Options() {
    TrieOptions options;
    options.scopes.history_tokens = 16;
    options.scopes.prior = SmallPrior();
    return options;
  }
  void Write(const std::string& scope, const std::vector<TokenId>& output,
             TokenId prompt = 1) {
    DraftAnswer answer;
    EXPECT_THAT(Open(scope, prompt)->Round(RoundOf(1, output), answer), IsOk());
  }
  // Enough to push earlier outputs out of the history.
  void WriteMore(const std::string& scope) {
    Write(scope, Output(700));
    Write(scope, Output(800));
  }
  // What a new request drafts after a prompt of one token.
  std::vector<TokenId> Drafted(const std::string& scope, TokenId prompt) {
    DraftAnswer answer;
    EXPECT_THAT(Open(scope, prompt)->Round(RoundOf(1, {}), answer), IsOk());
    return answer.tree.tokens;
  }
  std::unique_ptr<DraftCaller> Open(const std::string& scope, TokenId prompt) {
    DraftOpen open;
    open.prompt_length = 1;
    open.tokens = {prompt};
    open.mode = *Mode::Parse("auto");
    open.cache_scope = scope;
    auto session = DraftCaller::Open(*sessions_, std::move(open));
    EXPECT_THAT(session, IsOk());
    return *std::move(session);
  }
  static DraftRound RoundOf(int64_t before, std::vector<TokenId> committed) {
    DraftRound round;
    round.length = before + static_cast<int64_t>(committed.size());
    round.committed = std::move(committed);
    round.max_nodes = 16;
    return round;
  }

  FakeStore store_;
  FakeObserver observer_;
  std::unique_ptr<TrieSessions> sessions_ =
      std::make_unique<TrieSessions>(Options(), nullptr, &store_, observer_);
};

TEST_F(ScopePriorSessionsTest, DraftsForItsScopeAlone) {
  Write("a", Output(100));
  WriteMore("a");
  Write("", Output(300));
  WriteMore("");
  ASSERT_TRUE(Eventually([&] { return !Drafted("a", 105).empty(); }));
  EXPECT_THAT(Drafted("a", 105), Contains(106));
  EXPECT_THAT(Drafted("b", 105), IsEmpty());
  EXPECT_THAT(Drafted("", 105), IsEmpty());
  // What was written without a scope is nowhere.
  EXPECT_THAT(Drafted("a", 305), Not(Contains(306)));
  EXPECT_THAT(Drafted("", 305), IsEmpty());
  EXPECT_EQ(sessions_->scopes().compactions, 1);
}

TEST_F(ScopePriorSessionsTest, PromptsNeverEnterIt) {
  Write("a", Output(101), /*prompt=*/100);
  WriteMore("a");
  ASSERT_TRUE(Eventually([&] { return !Drafted("a", 105).empty(); }));
  EXPECT_THAT(Drafted("a", 100), IsEmpty());
}

TEST_F(ScopePriorSessionsTest, IsBuiltAgainFromAWarmStart) {
  Write("a", Output(100));
  Write("a", Output(200));
  sessions_ = nullptr;  // stores the batch
  ASSERT_THAT(store_.texts(), SizeIs(2));
  StoredScope stored;
  for (const auto& [key, text] : store_.texts()) {
    EXPECT_TRUE(key == ScopeKey::Of("a", ""));
    stored.texts.push_back(text);
  }
  for (const auto& [key, output] : store_.outputs()) {
    stored.outputs.push_back(output);
  }
  EXPECT_EQ(store_.AnswerLoads({}), 1);
  sessions_ =
      std::make_unique<TrieSessions>(Options(), nullptr, &store_, observer_);
  EXPECT_THAT(Drafted("a", 105), IsEmpty());
  EXPECT_EQ(store_.AnswerLoads(stored), 1);
  EXPECT_TRUE(Eventually([&] {
    const std::vector<TokenId> drafted = Drafted("a", 105);
    return std::count(drafted.begin(), drafted.end(), 106) > 0;
  }));
  EXPECT_THAT(Drafted("b", 105), IsEmpty());
}

TEST_F(ScopePriorSessionsTest, ItsBytesAreThoseOfItsScopeAndReported) {
  Write("a", Output(100));
  const int64_t text = sessions_->scopes().prior_bytes;
  EXPECT_EQ(text, (21 + 20) * int64_t{sizeof(TokenId)});
  WriteMore("a");
  ASSERT_TRUE(Eventually([&] { return sessions_->scopes().compactions == 1; }));
  const ScopeTotals totals = sessions_->scopes();
  EXPECT_EQ(totals.prior_tokens, 3 * 21 - 16);
  EXPECT_GT(totals.prior_bytes, text + kVocab);
  EXPECT_GT(totals.bytes, totals.prior_bytes);
}

TEST_F(ScopePriorSessionsTest, WithoutTheOptionNothingIsKept) {
  TrieOptions options = Options();
  options.scopes.prior.max_tokens = 0;
  sessions_ =
      std::make_unique<TrieSessions>(options, nullptr, &store_, observer_);
  Write("a", Output(100));
  WriteMore("a");
  EXPECT_EQ(sessions_->scopes().prior_bytes, 0);
  sessions_ = nullptr;
  EXPECT_THAT(store_.texts(), IsEmpty());
}

}  // namespace
}  // namespace foretoken::trie_drafter
