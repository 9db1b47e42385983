#include "services/orchestrator/core/drafters/served_source.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/services/orchestrator/drafters/fake_draft_sessions.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Phrases that come when a test says so.
class FakePhrases final : public SharedPhrases {
 public:
  std::unique_ptr<Fetch> GetPhrases(const PhraseQuery& query,
                                    Done done) override {
    asked = query;
    on_phrases = std::move(done);
    return std::make_unique<FakeFetch>(*this);
  }

  PhraseQuery asked;
  Done on_phrases;

 private:
  class FakeFetch final : public Fetch {
   public:
    explicit FakeFetch(FakePhrases& owner) : owner_(owner) {}
    ~FakeFetch() override { owner_.on_phrases = nullptr; }

   private:
    FakePhrases& owner_;
  };
};

class ServedSourceTest : public ::testing::Test {
 protected:
  ServedSourceTest() {
    service_.SetMembers({"a"},
                        [this](size_t) { return EndpointOf(sessions_); });
  }
  std::unique_ptr<ServedSource> Start(ServedSourceOptions options = {},
                                      const std::string& scope = "",
                                      const std::vector<TokenId>& text = {7, 8},
                                      const std::string& page_scope = "") {
    options.id = DrafterId::kNgramTrie;
    options.mode = Mode::Parse("ngram_trie:n=5").value();
    options.tokenizer_fingerprint = "fingerprint";
    auto source = std::make_unique<ServedSource>(std::move(options), service_);
    DraftOpen open;
    open.prompt_length = static_cast<int32_t>(text.size());
    open.cache_scope = scope;
    open.page_scope = page_scope;
    text_ = text;
    source->Start(open, text_);
    return source;
  }
  static DraftRound Round(int64_t length, int max_nodes) {
    DraftRound round;
    round.length = length;
    round.committed = {static_cast<TokenId>(length)};
    round.max_nodes = max_nodes;
    return round;
  }

  void Ask(ServedSource& source, const DraftRound& round) {
    text_.insert(text_.end(), round.committed.begin(), round.committed.end());
    source.Ask(round, text_);
  }

  static constexpr int kLong = kShortText + 1;
  const std::vector<TokenId> long_text_ = std::vector<TokenId>(kLong, 7);
  std::vector<TokenId> text_;
  FakeDraftSessions sessions_;
  DraftReplicas service_{"test", CircuitBreakerOptions(), absl::Now};
  SourceDraft draft_;
};

TEST_F(ServedSourceTest, RoundsGoToASessionOfTheRequestsMode) {
  auto source = Start();
  EXPECT_EQ(sessions_.opens, 1);
  Ask(*source, Round(3, 8));
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kAnswered);
  EXPECT_THAT(draft_.tree.tokens, ElementsAre(3));
  EXPECT_EQ(sessions_.opened.mode.ToString(), "ngram_trie:n=5");
  EXPECT_EQ(sessions_.opened.tokenizer_fingerprint, "fingerprint");
  EXPECT_THAT(sessions_.opened.tokens, ElementsAre(7, 8));
}

TEST_F(ServedSourceTest, TheNextAskTellsWhatRoundsWithoutADraftCommitted) {
  auto source = Start();
  Ask(*source, Round(3, 8));
  Ask(*source, Round(4, 0));
  EXPECT_EQ(source->Collect(absl::InfinitePast(), draft_),
            DraftOutcome::kNotAsked);
  EXPECT_THAT(draft_.tree.tokens, IsEmpty());
  EXPECT_THAT(sessions_.lengths, ElementsAre(3));
  Ask(*source, Round(5, 8));
  EXPECT_THAT(sessions_.lengths, ElementsAre(3, 5));
  EXPECT_THAT(sessions_.committed, ElementsAre(3, 4, 5));
}

TEST_F(ServedSourceTest, TheRestOfTheOutputIsToldAtTheEnd) {
  auto source = Start();
  Ask(*source, Round(3, 8));
  Ask(*source, Round(4, 0));
  source.reset();
  EXPECT_THAT(sessions_.committed, ElementsAre(3, 4));
  EXPECT_EQ(sessions_.live, 0);
}

TEST_F(ServedSourceTest, AnotherSessionBeginsWithAllOfTheText) {
  auto source = Start();
  Ask(*source, Round(3, 8));
  sessions_.failure = absl::UnavailableError("gone");
  Ask(*source, Round(4, 8));
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kBroken);
  sessions_.failure = absl::OkStatus();
  DraftRound round = Round(5, 8);
  round.verified.row_tokens = {9};
  Ask(*source, round);
  EXPECT_THAT(sessions_.opened.tokens, ElementsAre(7, 8, 3, 4, 5));
  EXPECT_THAT(sessions_.committed, ElementsAre(3));
}

TEST_F(ServedSourceTest, OneThatDraftsNothingIsToldOfEveryRound) {
  ServedSourceOptions options;
  options.drafts = false;
  auto source = Start(options);
  DraftRound round = Round(3, 0);
  round.phrases = {{5, 6}};
  Ask(*source, round);
  Ask(*source, Round(4, 0));
  EXPECT_THAT(sessions_.lengths, ElementsAre(3, 4));
  EXPECT_THAT(sessions_.phrases, ElementsAre(ElementsAre(5, 6)));
}

TEST_F(ServedSourceTest, ASessionWaitsForTheSharedPhrasesOfItsScope) {
  FakePhrases phrases;
  ServedSourceOptions options;
  options.phrases = &phrases;
  options.warm_phrases = 10;
  options.phrase_tokens = 2;
  auto source = Start(options, "scope");
  EXPECT_EQ(sessions_.opens, 0);
  EXPECT_EQ(phrases.asked.cache_scope, "scope");
  EXPECT_EQ(phrases.asked.tokenizer_fingerprint, "fingerprint");
  EXPECT_EQ(phrases.asked.max_phrases, 10);
  EXPECT_EQ(phrases.asked.phrase_tokens, 2);
  phrases.on_phrases({{3, 4}, {1, 2}});
  // Oldest first.
  EXPECT_THAT(sessions_.opened.phrases,
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
  Ask(*source, Round(3, 8));
  EXPECT_EQ(sessions_.opens, 1);
}

TEST_F(ServedSourceTest, TheFirstRoundWaitsForNoPhrases) {
  FakePhrases phrases;
  ServedSourceOptions options;
  options.phrases = &phrases;
  auto source = Start(options, "scope");
  Ask(*source, Round(3, 8));
  EXPECT_TRUE(phrases.on_phrases == nullptr);
  EXPECT_THAT(sessions_.opened.phrases, IsEmpty());
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kAnswered);
}

TEST_F(ServedSourceTest, ARequestWithoutAScopeAsksForNoPhrases) {
  FakePhrases phrases;
  ServedSourceOptions options;
  options.phrases = &phrases;
  Start(options);
  EXPECT_TRUE(phrases.on_phrases == nullptr);
  EXPECT_EQ(sessions_.opens, 1);
}

// A draft model reuses the pages of a request that shares nothing else; no
// history or phrase is shared for it.
TEST_F(ServedSourceTest, AScopeOfPagesIsForServicesThatKeepNothingElse) {
  FakePhrases phrases;
  ServedSourceOptions options;
  options.phrases = &phrases;
  Start(options, "", {7, 8}, "pages");
  EXPECT_EQ(sessions_.opened.cache_scope, "");
  options.keeps_only_pages = true;
  Start(options, "", {7, 8}, "pages");
  EXPECT_EQ(sessions_.opened.cache_scope, "pages");
  EXPECT_EQ(sessions_.opens, 2);
  EXPECT_TRUE(phrases.on_phrases == nullptr);
  auto source = Start(options, "scope", {7, 8}, "scope");
  EXPECT_EQ(phrases.asked.cache_scope, "scope");
  phrases.on_phrases({});
  EXPECT_EQ(sessions_.opened.cache_scope, "scope");
}

// Reading a prompt takes processors that the target may need for its own.
TEST_F(ServedSourceTest, AModelIsOpenedByItsFirstAsk) {
  ServedSourceOptions options;
  options.opens_late = true;
  auto source = Start(options, "", long_text_);
  EXPECT_EQ(sessions_.opens, 0);
  EXPECT_FALSE(source->has_text());
  Ask(*source, Round(kLong + 1, 0));
  EXPECT_EQ(sessions_.opens, 0);
  Ask(*source, Round(kLong + 2, 8));
  EXPECT_EQ(sessions_.opens, 1);
  EXPECT_TRUE(source->has_text());
  EXPECT_EQ(sessions_.opened.tokens, text_);
  EXPECT_THAT(sessions_.committed, IsEmpty());
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kAnswered);
}

TEST_F(ServedSourceTest, AModelReadsAShortTextAhead) {
  ServedSourceOptions options;
  options.opens_late = options.reads_in_shadow = true;
  auto source = Start(options);
  EXPECT_EQ(sessions_.opens, 1);
  // And is waited for at once.
  Ask(*source, Round(3, 8));
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kAnswered);
  EXPECT_THAT(draft_.tree.tokens, ElementsAre(3));
}

TEST_F(ServedSourceTest, SharedPhrasesWaitForAModelThatIsOpenedLate) {
  FakePhrases phrases;
  ServedSourceOptions options;
  options.phrases = &phrases;
  options.opens_late = true;
  auto source = Start(options, "scope", long_text_);
  phrases.on_phrases({{3, 4}});
  EXPECT_EQ(sessions_.opens, 0);
  Ask(*source, Round(kLong + 1, 8));
  EXPECT_THAT(sessions_.opened.phrases, ElementsAre(ElementsAre(3, 4)));
}

TEST_F(ServedSourceTest, ATextIsReadInTheShadowOfRounds) {
  sessions_.at_once = false;
  ServedSourceOptions options;
  options.opens_late = options.reads_in_shadow = options.reads_hints = true;
  auto source = Start(options, "", long_text_);
  DraftRound round = Round(kLong + 1, 8);
  round.hints.Add(5, kRootParent, 0.5f);
  round.budget = absl::Milliseconds(100);
  Ask(*source, round);
  // Waits for nothing.
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kNotAsked);
  ASSERT_EQ(sessions_.asked.size(), 1u);
  EXPECT_EQ(sessions_.asked[0].max_nodes, 1);
  EXPECT_EQ(sessions_.asked[0].budget, absl::InfiniteDuration());
  EXPECT_EQ(sessions_.asked[0].hints.size(), 0);
  Ask(*source, Round(kLong + 2, 8));
  EXPECT_EQ(sessions_.asked.size(), 1u);
  sessions_.Answer();
  sessions_.at_once = true;
  round.length = kLong + 3;
  round.committed = {5};
  Ask(*source, round);
  EXPECT_EQ(source->Collect(absl::InfiniteFuture(), draft_),
            DraftOutcome::kAnswered);
  EXPECT_THAT(sessions_.committed, ElementsAre(kLong + 2, 5));
  EXPECT_EQ(sessions_.asked[1].max_nodes, 8);
  EXPECT_EQ(sessions_.asked[1].budget, absl::Milliseconds(100));
  EXPECT_THAT(sessions_.asked[1].hints.tokens, ElementsAre(5));
  const auto read = source->TakeTextRead();
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->tokens, kLong + 1);
}

TEST_F(ServedSourceTest, HintsAndCostsGoToThoseThatReadThem) {
  DraftRound round = Round(3, 8);
  round.hints.Add(5, kRootParent, 0.5f);
  round.token_time = absl::Milliseconds(30);
  round.row_ms = {1.0f, 2.0f};
  ServedSourceOptions reader;
  reader.reads_hints = reader.reads_costs = true;
  for (const ServedSourceOptions& options : {ServedSourceOptions(), reader}) {
    auto source = Start(options);
    EXPECT_EQ(source->reads_hints(), options.reads_hints);
    EXPECT_EQ(source->reads_costs(), options.reads_costs);
    Ask(*source, round);
  }
  ASSERT_EQ(sessions_.asked.size(), 2u);
  EXPECT_EQ(sessions_.asked[0].hints.size(), 0);
  EXPECT_EQ(sessions_.asked[0].token_time, absl::ZeroDuration());
  EXPECT_THAT(sessions_.asked[0].row_ms, IsEmpty());
  EXPECT_THAT(sessions_.asked[1].hints.tokens, ElementsAre(5));
  EXPECT_EQ(sessions_.asked[1].token_time, absl::Milliseconds(30));
  EXPECT_THAT(sessions_.asked[1].row_ms, ElementsAre(1.0f, 2.0f));
}

}  // namespace
}  // namespace foretoken::orchestrator
