#include "services/orchestrator/core/modes.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "services/trie_drafter/core/trie_sessions.h"
#include "tests/support/draft_caller.h"
#include "tests/support/status_matchers.h"

namespace foretoken::orchestrator {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NamedSource final : public DraftSource {
 public:
  NamedSource(DrafterId id, bool drafts) : id_(id), drafts_(drafts) {}
  DrafterId id() const override { return id_; }
  bool drafts() const override { return drafts_; }
  void Start(const DraftOpen&, absl::Span<const TokenId>) override {}
  void Ask(const DraftRound&, absl::Span<const TokenId>) override {}
  DraftOutcome Collect(absl::Time, SourceDraft&) override {
    return DraftOutcome::kLate;
  }

 private:
  const DrafterId id_;
  const bool drafts_;
};

class FakeServices final : public DraftServices {
 public:
  bool has_trie_drafter() const override { return trie; }
  bool has_draft_worker() const override { return worker; }
  bool has_crest() const override { return crest; }
  std::unique_ptr<DraftSource> TrieDrafter(DrafterId id,
                                           const Mode& mode) override {
    asked += " trie:" + mode.ToString();
    return std::make_unique<NamedSource>(id, true);
  }
  std::unique_ptr<DraftSource> DraftWorker(DrafterId id,
                                           const Mode& mode) override {
    asked += " worker:" + mode.ToString();
    return std::make_unique<NamedSource>(id, true);
  }
  std::unique_ptr<DraftSource> PhraseKeeper(const Mode& mode) override {
    asked += " keeper:" + mode.ToString();
    return std::make_unique<NamedSource>(DrafterId::kOuroboros, false);
  }
  std::unique_ptr<DraftSource> Crest(const std::string& datastore) override {
    asked += " crest:" + datastore;
    return std::make_unique<NamedSource>(DrafterId::kCrest, true);
  }

  bool trie = true, worker = true, crest = true;
  std::string asked;
};

absl::StatusOr<ModeSources> Make(const std::string& mode,
                                 DraftServices* services = nullptr) {
  ModeContext context;
  context.services = services;
  const auto parsed = Mode::Parse(mode);
  if (!parsed.ok()) return parsed.status();
  return MakeSources(*parsed, context);
}

std::vector<std::string> Names(const absl::StatusOr<ModeSources>& made) {
  EXPECT_THAT(made, testing::IsOk());
  std::vector<std::string> names;
  for (const auto& source : made->sources) {
    names.push_back(source->drafts() ? DrafterName(source->id()) : "keeper");
  }
  return names;
}

TEST(ModesTest, WithoutServicesFiveModesRun) {
  EXPECT_THAT(
      ServedModes(nullptr),
      ElementsAre("off", "lookahead", "ngram_trie", "prompt_lookup", "auto"));
  EXPECT_THAT(Names(Make("off")), IsEmpty());
  EXPECT_THAT(Names(Make("prompt_lookup:max_n=4,tokens=7,match=latest")),
              ElementsAre("prompt_lookup"));
  EXPECT_THAT(Names(Make("lookahead:window=10,ngram=4,pool=7")),
              ElementsAre("lookahead"));
  EXPECT_THAT(Names(Make("ngram_trie:n=8,match_length=2,num_draft=16")),
              ElementsAre("ngram_trie"));
  EXPECT_THAT(Names(Make("auto")), ElementsAre("fused"));
}

TEST(ModesTest, ModesWhoseServiceIsMissingSayTheirName) {
  for (const char* mode : {"draft_model", "ouroboros", "crest"}) {
    EXPECT_THAT(Make(mode),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(mode)));
    FakeServices services;
    services.worker = services.crest = false;
    EXPECT_THAT(Make(mode, &services),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(mode)));
  }
}

TEST(ModesTest, ServicesDraftWhereTheyAreThere) {
  FakeServices services;
  EXPECT_EQ(ServedModes(&services).size(), 8u);
  EXPECT_THAT(Names(Make("draft_model:gamma=7", &services)),
              ElementsAre("draft_model"));
  EXPECT_THAT(Names(Make("ouroboros:gamma=9", &services)),
              ElementsAre("ouroboros", "keeper"));
  EXPECT_THAT(Names(Make("ngram_trie:match_length=2", &services)),
              ElementsAre("ngram_trie"));
  EXPECT_THAT(Names(Make("crest:datastore=code", &services)),
              ElementsAre("crest"));
  EXPECT_EQ(services.asked,
            " worker:draft_model:gamma=7 worker:ouroboros:gamma=9"
            " keeper:ouroboros:gamma=9 trie:ngram_trie:match_length=2"
            " crest:code");
}

TEST(ModesTest, AutoTakesAllThatAreThereInTheOrderOfTheTable) {
  FakeServices services;
  const auto all = Make("auto", &services);
  EXPECT_THAT(Names(all), ElementsAre("draft_model", "crest", "fused"));
  EXPECT_TRUE(all->economical);
  EXPECT_FALSE(Make("crest", &services)->economical);
  services.trie = services.worker = false;
  EXPECT_THAT(Names(Make("auto", &services)), ElementsAre("crest", "fused"));
}

class Deaf final : public trie_drafter::TrieObserver {
 public:
  void OnSessions(int64_t, int64_t) override {}
  void OnScopes(const trie_drafter::ScopeTotals&) override {}
  void OnLookup(trie_drafter::Lookup, bool) override {}
};

// A request drafts the same whether the trie drafter is there or not.
TEST(ModesTest, TheServiceAndTheFallbackDraftTheSame) {
  Deaf observer;
  trie_drafter::TrieSessions service({}, nullptr, nullptr, observer);
  for (const char* text : {"ngram_trie", "ngram_trie:learn=0",
                           "ngram_trie:n=4,match_length=2", "auto"}) {
    DraftOpen open;
    open.tokens = {1, 2, 3, 1, 2};
    open.prompt_length = 5;
    open.mode = *Mode::Parse(text);
    const auto session = testing::DraftCaller::Open(service, open);
    FORETOKEN_ASSERT_OK(session);
    const auto made = Make(text);
    FORETOKEN_ASSERT_OK(made);
    DraftSource& fallback = *made->sources[0];
    fallback.Start(open, open.tokens);
    int learned = 0;
    DraftRound round;
    round.length = 5;
    round.max_nodes = 64;
    for (const TokenId token : {7, 8, 7, 8, 9, 7}) {
      round.committed = {token};
      ++round.length;
      DraftAnswer answer;
      FORETOKEN_ASSERT_OK((*session)->Round(round, answer));
      SourceDraft draft;
      fallback.Ask(round, {});
      fallback.Collect(absl::InfiniteFuture(), draft);
      EXPECT_EQ(answer.tree.tokens, draft.tree.tokens) << text;
      EXPECT_EQ(answer.tree.parents, draft.tree.parents) << text;
      EXPECT_EQ(answer.tree.probs, draft.tree.probs) << text;
      learned += draft.tree.size();
    }
    // Nothing of the output stands in the prompt.
    EXPECT_EQ(learned > 0, !absl::StrContains(text, "learn=0")) << text;
  }
}

TEST(ModesTest, UnknownModesAndParametersAreInvalid) {
  FakeServices services;
  const auto invalid = [&](const std::string& mode, const std::string& why) {
    EXPECT_THAT(Make(mode, &services),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  invalid("magic", "unknown mode 'magic'");
  invalid("phrase_pool", "unknown mode 'phrase_pool'");
  invalid("off:gamma=5", "gamma");
  invalid("auto:gamma=5", "gamma");
  invalid("prompt_lookup:max_n=0", "max_n");
  invalid("draft_model:gamma=0", "gamma");
  invalid("draft_model:gamma=65", "gamma");
  invalid("draft_model:beta=2", "'beta'");
  invalid("ouroboros:beta=1", "beta");
  invalid("ouroboros:k=3", "'k'");
  invalid("ouroboros:passes=65", "passes");
  invalid("ouroboros:context=maybe", "context");
  invalid("ouroboros:window=40", "beta=8 and gamma=12 need");
  EXPECT_THAT(
      Make("ouroboros:window=30,lookahead=0,passes=2,context=1", &services),
      testing::IsOk());
  invalid("ngram_trie:n=1", "'n'");
  invalid("crest:path=x", "path");
  invalid("lookahead:ngram=1", "ngram");
  invalid("lookahead:window=200", "probe rows, there is room for 256");
}

}  // namespace
}  // namespace foretoken::orchestrator
