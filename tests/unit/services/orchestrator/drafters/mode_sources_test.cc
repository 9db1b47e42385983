#include "services/orchestrator/core/drafters/mode_sources.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
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

// Notes the sessions that are opened, by service and mode, and refuses them.
class FakeSessions final : public DraftSessions {
 public:
  FakeSessions(std::string name, std::string& asked)
      : name_(std::move(name)), asked_(asked) {}
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener>) override {
    const std::string opened =
        absl::StrCat(" ", name_, ":", open.mode.ToString());
    if (!absl::StrContains(asked_, opened)) asked_ += opened;
    return absl::UnavailableError("a fake");
  }

 private:
  const std::string name_;
  std::string& asked_;
};

// Services of these names.
class FakeServices {
 public:
  explicit FakeServices(const std::vector<std::string>& names = {"trie_drafter",
                                                                 "draft_worker",
                                                                 "crest"})
      : services_(Options(names), "") {}

  DraftServices* get() { return &services_; }
  // Starts a request of these sources and its first round; the sessions that
  // were opened, in their order.
  std::string Started(const absl::StatusOr<ModeSources>& made) {
    EXPECT_THAT(made, testing::IsOk());
    asked_.clear();
    // Longer than what a model reads ahead.
    const std::vector<TokenId> prompt(kShortText + 1, 1);
    for (const auto& source : made->sources) source->Start({}, prompt);
    const std::string ahead = std::exchange(asked_, "");
    DraftRound round;
    round.length = static_cast<int64_t>(prompt.size());
    round.max_nodes = 8;
    for (const auto& source : made->sources) source->Ask(round, prompt);
    // Those that were opened ahead were refused, and tried again.
    std::string late = std::exchange(asked_, "");
    for (const absl::string_view each :
         absl::StrSplit(ahead, ' ', absl::SkipEmpty())) {
      absl::StrReplaceAll({{absl::StrCat(" ", each), ""}}, &late);
    }
    return late.empty() ? ahead : absl::StrCat(ahead, " |", late);
  }

 private:
  DraftServicesOptions Options(const std::vector<std::string>& names) {
    DraftServicesOptions options;
    options.crest_datastore = "text";
    for (const std::string& name : names) {
      options.services[name]["fake"].sessions =
          std::make_shared<FakeSessions>(name, asked_);
    }
    return options;
  }

  std::string asked_;
  DraftServices services_;
};

absl::StatusOr<ModeSources> Make(const std::string& mode,
                                 FakeServices* services = nullptr) {
  ModeContext context;
  if (services != nullptr) context.services = services->get();
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
    FakeServices services({"trie_drafter"});
    EXPECT_THAT(Make(mode, &services),
                StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(mode)));
  }
}

TEST(ModesTest, ServicesDraftWhereTheyAreThere) {
  FakeServices services;
  EXPECT_EQ(ServedModes(services.get()).size(), 8u);
  const auto chain = Make("draft_model:gamma=7", &services);
  EXPECT_THAT(Names(chain), ElementsAre("draft_model"));
  EXPECT_EQ(services.Started(chain), " | draft_worker:draft_model:gamma=7");
  EXPECT_FALSE(chain->sources[0]->reads_hints());
  EXPECT_TRUE(chain->sources[0]->reads_costs());
  const auto phrases = Make("ouroboros:gamma=9", &services);
  EXPECT_THAT(Names(phrases), ElementsAre("ouroboros", "keeper"));
  EXPECT_EQ(services.Started(phrases),
            " trie_drafter:ouroboros:gamma=9 | draft_worker:ouroboros:gamma=9");
  EXPECT_TRUE(phrases->sources[0]->needs_rows());
  const auto trie = Make("ngram_trie:match_length=2", &services);
  EXPECT_THAT(Names(trie), ElementsAre("ngram_trie"));
  EXPECT_EQ(services.Started(trie), " trie_drafter:ngram_trie:match_length=2");
  const auto crest = Make("crest:datastore=code", &services);
  EXPECT_THAT(Names(crest), ElementsAre("crest"));
  EXPECT_EQ(services.Started(crest), " crest:crest:datastore=code");
}

TEST(ModesTest, AutoTakesAllThatAreThereInTheOrderOfTheTable) {
  FakeServices services;
  const auto all = Make("auto", &services);
  // The draft worker chooses how to draft; its phrases are the request's own,
  // so none is fetched from, or kept for, other requests.
  EXPECT_THAT(Names(all), ElementsAre("ouroboros", "crest", "fused"));
  EXPECT_EQ(
      services.Started(all),
      " crest:crest:datastore=text trie_drafter:auto | draft_worker:auto");
  EXPECT_TRUE(all->sources[0]->reads_hints());
  EXPECT_TRUE(all->sources[0]->reads_costs());
  EXPECT_FALSE(all->sources[1]->reads_hints());
  EXPECT_TRUE(all->economical);
  EXPECT_FALSE(Make("crest", &services)->economical);
  FakeServices crest({"crest"});
  EXPECT_THAT(Names(Make("auto", &crest)), ElementsAre("crest", "fused"));
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
