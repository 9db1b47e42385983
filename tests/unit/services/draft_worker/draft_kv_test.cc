// The KV of a draft's chain is kept from pass to pass and dropped where a round
// commits other tokens: drafts equal those of a mode whose every pass computes
// the whole text and the whole chain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/draft_worker/core/draft_mode.h"
#include "tests/unit/infer/tiny_backend.h"
#include "tests/unit/infer_cuda/twin_backend.h"
#include "tests/unit/services/draft_worker/draft_fixture.h"

namespace foretoken::draft_worker {
namespace {

using ::foretoken::testing::FakeBackendOptions;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kMaxNodes = 256;

enum class Engine { kCpu, kCudaTwin };

std::unique_ptr<Backend> TinyModel(Engine engine) {
  ModelConfig config = testing::TinyConfig();
  config.max_positions = 900;
  if (engine == Engine::kCudaTwin) {
    CudaOptions twin = testing::TwinOptions();
    twin.max_rows = 1024;
    return testing::MakeTwinBackend(config, twin);
  }
  CpuOptions options = testing::Options();
  options.max_rows = 1024;
  return testing::MakeBackend(config, options);
}

// One session's drafts by a model that keeps no KV at all.
class WithoutKv {
 public:
  WithoutKv(const DraftOpen& open, Backend& backend)
      : backend_(backend), open_(open) {
    ModeLimits limits;
    limits.vocab_limit = backend.config().vocab_size;
    limits.max_rows = 320;
    limits.end_tokens = open.sampling.end_tokens;
    limits.temperature = open.sampling.temperature;
    limits.seed = open.sampling.seed;
    auto mode = MakeDraftMode(open.mode, limits, open.phrases);
    EXPECT_TRUE(mode.ok()) << mode.status();
    mode_ = *std::move(mode);
  }

  DraftTree Draft(const Tokens& text, const DraftRound& round) {
    Observation observation;
    observation.committed = round.committed;
    observation.follows_draft = drafted_ && !round.committed.empty();
    if (!round.verified.row_tokens.empty()) {
      observation.verified = &round.verified;
    }
    mode_->Observe(observation);
    DraftTree tree;
    const DraftRoom room = {
        round.max_nodes,
        backend_.config().max_positions - static_cast<int64_t>(text.size())};
    if (drafted_ && round.committed.empty()) {
      mode_->Resume(room);
    } else {
      mode_->Begin(text, room);
    }
    drafted_ = true;
    while (!mode_->done()) RunPass(text);
    mode_->Finish(tree);
    return tree;
  }

 private:
  void RunPass(const Tokens& text) {
    PassRows rows;
    int32_t row = kRootParent;
    for (const TokenId token : text) row = rows.Add(token, row);
    mode_->LayOut(row, /*kept=*/0, rows);
    SamplingState sampling(open_.sampling, open_.prompt_length,
                           backend_.config().vocab_size);
    sampling.set_logprobs(mode_->logprobs());
    PassSession pass;
    pass.session = backend_.Open("", {})->session;
    pass.tokens = rows.tokens;
    pass.parents = rows.parents;
    pass.outputs = RowOutputs::kListedRows;
    pass.output_rows = rows.outputs;
    pass.sampling = &sampling;
    PassResult result;
    const absl::Status ran = backend_.Forward({pass}, result);
    ASSERT_TRUE(ran.ok()) << ran;
    std::vector<SampledToken> by_row(rows.size());
    for (size_t i = 0; i < rows.outputs.size(); ++i) {
      by_row[rows.outputs[i]] = result.outputs[0][i];
    }
    mode_->Take(by_row);
    ASSERT_TRUE(backend_.Close(pass.session).ok());
  }

  Backend& backend_;
  const DraftOpen open_;
  std::unique_ptr<DraftMode> mode_;
  bool drafted_ = false;
};

int ChainLength(const DraftTree& tree) {
  int length = 0;
  while (length < tree.size() && tree.parents[length] == length - 1) ++length;
  return length;
}

// A round that accepts the first `accepted` nodes of `tree`'s first path and
// then `bonus`. The target agrees with every other row below.
DraftRound RoundAfter(const Tokens& text, const DraftTree& tree, int accepted,
                      TokenId bonus) {
  DraftRound round;
  round.max_nodes = kMaxNodes;
  round.verified.tree = *TokenTree::Create(tree.tokens, tree.parents);
  round.verified.row_tokens.assign(tree.size() + 1, bonus);
  for (int node = 0; node < tree.size(); ++node) {
    const int32_t row = tree.parents[node] + 1;
    if (row != accepted && node % 2 == 1) {
      round.verified.row_tokens[row] = tree.tokens[node];
    }
  }
  for (int node = 0; node < accepted; ++node) {
    round.verified.row_tokens[node] = tree.tokens[node];
    round.verified.path.push_back(node);
    round.committed.push_back(tree.tokens[node]);
  }
  round.committed.push_back(bonus);
  round.length = static_cast<int64_t>(text.size() + round.committed.size());
  return round;
}

enum class Accept { kNone, kSome, kAll, kAny };

struct KvCase {
  std::string mode;
  SamplingParams sampling;
  Accept accept;
  Engine engine = Engine::kCpu;
};

void PrintTo(const KvCase& test, std::ostream* out) {
  *out << test.mode << " temperature " << test.sampling.temperature
       << " penalty " << test.sampling.repetition_penalty << " accept "
       << static_cast<int>(test.accept)
       << (test.engine == Engine::kCpu ? "" : " CUDA twin");
}

class DraftKvTest : public ::testing::TestWithParam<KvCase> {
 protected:
  static DraftAnswer Ask(DraftEngine& engine, SessionId key,
                         const DraftRound& round) {
    const absl::Status submitted = engine.Submit(key, round);
    EXPECT_TRUE(submitted.ok()) << submitted;
    while (true) {
      DraftReport report = engine.RunPass();
      EXPECT_THAT(report.failures, IsEmpty());
      for (auto& answer : report.answers) {
        if (answer.session == key) return std::move(answer.answer);
      }
    }
  }
  // Asks `mate`, which has had every round of the session, in the same passes.
  static std::pair<DraftAnswer, DraftAnswer> AskBoth(DraftEngine& engine,
                                                     SessionId key,
                                                     SessionId mate,
                                                     const DraftRound& round) {
    EXPECT_TRUE(engine.Submit(mate, round).ok());
    EXPECT_TRUE(engine.Submit(key, round).ok());
    std::pair<DraftAnswer, DraftAnswer> both;
    for (int answers = 0; answers < 2;) {
      DraftReport report = engine.RunPass();
      EXPECT_THAT(report.failures, IsEmpty());
      for (auto& answer : report.answers) {
        ++answers;
        (answer.session == key ? both.first : both.second) =
            std::move(answer.answer);
      }
    }
    return both;
  }

  int Accepted(const DraftTree& tree, std::mt19937& random) const {
    const int chain = ChainLength(tree);
    switch (GetParam().accept) {
      case Accept::kNone:
        return 0;
      case Accept::kSome:
        return chain / 2;
      case Accept::kAll:
        return chain;
      case Accept::kAny:
        break;
    }
    return static_cast<int>(random() % (chain + 1));
  }
};

void ExpectSameDraft(const DraftTree& got, const DraftTree& want) {
  EXPECT_THAT(got.tokens, ElementsAreArray(want.tokens));
  EXPECT_THAT(got.parents, ElementsAreArray(want.parents));
  // To the bit.
  EXPECT_THAT(got.probs, ElementsAreArray(want.probs));
}

TEST_P(DraftKvTest, DraftsEqualThoseOfAModelThatKeepsNoKv) {
  const KvCase& test = GetParam();
  std::mt19937 random(3);
  Tokens text;
  for (int i = 0; i < 27; ++i) text.push_back(1 + i * i % 90);
  DraftOpen open = MakeOpen(test.mode, text, test.sampling);
  open.cache_scope = "scope";
  std::unique_ptr<Backend> plain = TinyModel(test.engine);
  WithoutKv reference(open, *plain);
  auto model = TinyModel(test.engine);
  const Backend& backend = *model;
  // Its clock stands still, so that passes have the reference's prices.
  DraftEngine engine({}, std::move(model), [] { return absl::UnixEpoch(); });
  // Two sessions of one scope and text share their pages.
  const SessionId key = *engine.Open(open);
  const SessionId mate = *engine.Open(open);

  DraftRound round = MakeRound(28, {7}, kMaxNodes);
  for (int i = 0; i < 7; ++i) {
    SCOPED_TRACE(i);
    text = Joined(text, round.committed);
    const DraftTree want = reference.Draft(text, round);
    const auto [answer, mates] = AskBoth(engine, key, mate, round);
    ExpectSameDraft(answer.tree, want);
    ExpectSameDraft(mates.tree, want);
    if (HasFailure()) return;
    round = RoundAfter(text, want, Accepted(want, random),
                       static_cast<TokenId>(random() % 203));
    if (i % 3 != 1) continue;
    // A request for the same text that is aborted in the middle of its draft.
    DraftOpen aborted = open;
    aborted.tokens = text;
    const SessionId other = *engine.Open(aborted);
    DraftRound first;
    first.length = static_cast<int64_t>(text.size());
    first.max_nodes = kMaxNodes;
    EXPECT_TRUE(engine.Submit(other, first).ok());
    for (int pass = 0; pass < 3; ++pass) engine.RunPass();
    EXPECT_TRUE(engine.Close(other).ok());
  }
  // What the drafts left in the prefix cache is right for the next request.
  DraftOpen again = open;
  again.tokens = text;
  const SessionId replay = *engine.Open(again);
  DraftRound rest;
  rest.length = static_cast<int64_t>(text.size());
  rest.max_nodes = kMaxNodes;
  ExpectSameDraft(Ask(engine, replay, rest).tree,
                  WithoutKv(again, *plain).Draft(text, rest));
  for (const SessionId session : {key, mate, replay}) {
    EXPECT_TRUE(engine.Close(session).ok());
  }
  EXPECT_EQ(backend.kv_usage().pages_free, backend.kv_usage().pages_total);
}

std::vector<KvCase> Cases() {
  SamplingParams penalties = Seeded(6);
  penalties.repetition_penalty = 1.2f;
  penalties.frequency_penalty = 0.4f;
  std::vector<KvCase> cases;
  for (const char* mode :
       {"draft_model:gamma=1", "draft_model:gamma=5", "draft_model:gamma=12",
        "draft_model:gamma=70", "draft_model", "ouroboros", "ouroboros:gamma=5",
        "ouroboros:gamma=12",
        "ouroboros:gamma=12,window=3,beta=4,lookahead=0,context=1",
        "ouroboros:gamma=40,window=2,beta=3,passes=3,context=1"}) {
    for (const Accept accept :
         {Accept::kNone, Accept::kSome, Accept::kAll, Accept::kAny}) {
      cases.push_back({mode, {}, accept});
      cases.push_back({mode, Seeded(5, 0.3f), accept});
    }
    cases.push_back({mode, penalties, Accept::kAny});
  }
  for (const char* mode :
       {"draft_model:gamma=12", "draft_model",
        "ouroboros:gamma=12,window=3,beta=4,lookahead=0,context=1"}) {
    for (const Accept accept : {Accept::kNone, Accept::kAny}) {
      cases.push_back({mode, {}, accept, Engine::kCudaTwin});
      cases.push_back({mode, penalties, accept, Engine::kCudaTwin});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, DraftKvTest, ::testing::ValuesIn(Cases()));

// Two sessions of a scope draft the same tokens over the end of a page, which
// they then share. One commits them and the other does not: what it writes in
// their place must not reach the first.
TEST(DraftKvSharingTest, DroppedTokensLeaveThePagesOfThoseWhoKeepThem) {
  for (const Engine engine_kind : {Engine::kCpu, Engine::kCudaTwin}) {
    for (const char* mode :
         {"draft_model:gamma=12",
          "ouroboros:gamma=12,window=3,beta=4,lookahead=0,context=1"}) {
      SCOPED_TRACE(mode);
      Tokens text;
      for (int i = 0; i < 28; ++i) text.push_back(1 + i * i % 90);
      DraftOpen open = MakeOpen(mode, text);
      open.cache_scope = "scope";
      std::unique_ptr<Backend> plain = TinyModel(engine_kind);
      auto model = TinyModel(engine_kind);
      DraftEngine engine({}, std::move(model));
      const SessionId keys[] = {*engine.Open(open), *engine.Open(open)};
      WithoutKv references[] = {{open, *plain}, {open, *plain}};
      Tokens texts[] = {text, text};
      DraftRound rounds[] = {MakeRound(29, {7}, kMaxNodes),
                             MakeRound(29, {7}, kMaxNodes)};
      for (int i = 0; i < 4; ++i) {
        DraftTree drafts[2];
        // The one that drops its draft goes first.
        for (int s = 0; s < 2; ++s) {
          texts[s] = Joined(texts[s], rounds[s].committed);
          ASSERT_TRUE(engine.Submit(keys[s], rounds[s]).ok());
        }
        for (int answers = 0; answers < 2;) {
          for (auto& answer : engine.RunPass().answers) {
            ++answers;
            drafts[answer.session == keys[1]] = std::move(answer.answer.tree);
          }
        }
        for (int s = 0; s < 2; ++s) {
          const DraftTree want = references[s].Draft(texts[s], rounds[s]);
          ExpectSameDraft(drafts[s], want);
          const int accepted = s == 0 ? 0 : ChainLength(want);
          rounds[s] = RoundAfter(texts[s], want, accepted,
                                 static_cast<TokenId>(11 + 5 * i + s));
        }
        if (HasFailure()) return;
      }
    }
  }
}

// Rows of the passes of one round.
int64_t RowsOf(EngineFixture& f, SessionId key, const DraftRound& round) {
  const int64_t before = f.engine.snapshot().totals.rows;
  f.Ask(key, round);
  return f.engine.snapshot().totals.rows - before;
}

TEST(DraftRowsTest, APassHasRowsForWhatIsNewAlone) {
  for (const int gamma : {1, 5, 12, 40}) {
    EngineFixture f;
    const SessionId key =
        f.Open(MakeOpen("draft_model:gamma=" + std::to_string(gamma), kPrompt));
    // The prompt's last token and the one after it, and the chain but its last.
    EXPECT_EQ(RowsOf(f, key, MakeRound(6, {20})), 5 + gamma);
    EXPECT_EQ(RowsOf(f, key, MakeRound(7, {21})), gamma);
    // All of them, and the bonus token: the last one drafted has no KV either.
    const Tokens all = Decode(Joined(kPrompt, {20, 21}), 5, gamma + 1, {});
    EXPECT_EQ(RowsOf(f, key, MakeRound(8 + gamma, all)), 1 + gamma);
  }
}

TEST(DraftRowsTest, AnEngineThatKeepsNoChainDraftsTheSameFromMoreRows) {
  for (const std::string mode :
       {"draft_model:gamma=5", "draft_model:gamma=12",
        "ouroboros:gamma=12,window=3,beta=4,lookahead=0,context=1"}) {
    EngineFixture keeps;
    DraftEngineOptions options;
    options.keep_chain = false;
    EngineFixture computes(RoomyBackend(), options);
    const SessionId key = keeps.Open(MakeOpen(mode, kPrompt, Seeded(2)));
    const SessionId same = computes.Open(MakeOpen(mode, kPrompt, Seeded(2)));
    DraftRound round = MakeRound(6, {20});
    for (int i = 0; i < 12; ++i) {
      const DraftTree tree = keeps.Ask(key, round).tree;
      ExpectSameDraft(tree, computes.Ask(same, round).tree);
      Tokens committed(tree.tokens.begin(),
                       tree.tokens.begin() + i % (ChainLength(tree) + 1));
      committed.push_back(30 + i);
      round = MakeRound(round.length + static_cast<int64_t>(committed.size()),
                        committed);
    }
    const auto kept = keeps.engine.snapshot().totals;
    const auto computed = computes.engine.snapshot().totals;
    EXPECT_EQ(kept.passes, computed.passes) << mode;
    EXPECT_LT(kept.rows, computed.rows) << mode;
    EXPECT_EQ(kept.kept_rows, computed.kept_rows) << mode;
  }
}

TEST(DraftRowsTest, ADraftThatGoesOnKeepsItsChain) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=9", kPrompt));
  const Tokens want = Decode(Joined(kPrompt, {20}), 5, 9, {});
  EXPECT_THAT(f.Ask(key, MakeRound(6, {20}, 4)).tree.tokens,
              ElementsAreArray(Tokens(want.begin(), want.begin() + 4)));
  const int64_t before = f.engine.snapshot().totals.rows;
  EXPECT_THAT(f.Ask(key, MakeRound(6, {})).tree.tokens, ElementsAreArray(want));
  EXPECT_EQ(f.engine.snapshot().totals.rows - before, 5);
}

// A chain without pages is computed again in each pass; nothing else changes.
TEST(DraftRowsTest, WithoutPagesTheChainIsComputedAgain) {
  FakeBackendOptions few = RoomyBackend();
  few.pages = 1;
  DraftEngineOptions options;
  options.admission_reserve = 0;
  EngineFixture f(few, options);
  const Tokens prompt(30, 7);
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=6", prompt));
  Tokens text = prompt;
  for (int i = 0; i < 2; ++i) {
    const Tokens committed = {20 + i};
    text = Joined(text, committed);
    EXPECT_THAT(
        f.Ask(key, MakeRound(static_cast<int64_t>(text.size()), committed))
            .tree.tokens,
        ElementsAreArray(Decode(text, 30, 6, {})));
  }
  EXPECT_THAT(f.failures, IsEmpty());
  EXPECT_EQ(f.engine.snapshot().kv.pages_free, 0);
}

// The KV of a draft saves time; that of text is what a session lives on.
TEST(DraftRowsTest, TextTakesThePagesOfDrafts) {
  FakeBackendOptions few = RoomyBackend();
  few.pages = 3;
  DraftEngineOptions options;
  options.admission_reserve = 0;
  EngineFixture f(few, options);
  const Tokens prompt(30, 7);
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=60", prompt));
  Tokens text = Joined(prompt, {20});
  f.Ask(key, MakeRound(31, {20}));
  EXPECT_EQ(f.engine.snapshot().kv.pages_free, 0);

  // A prompt.
  const SessionId other =
      f.Open(MakeOpen("draft_model:gamma=1", Tokens(31, 5)));
  EXPECT_EQ(f.engine.snapshot().kv.pages_free, 1);
  // The draft goes on, by computing its chain again; it takes the last page.
  const Tokens want = Decode(text, 30, 60, {});
  EXPECT_THAT(f.Ask(key, MakeRound(31, {})).tree.tokens,
              ElementsAreArray(want));
  Tokens committed(want.begin(), want.begin() + 10);
  EXPECT_THAT(f.Ask(key, MakeRound(41, committed)).tree.tokens,
              ElementsAreArray(Decode(Joined(text, committed), 30, 60, {})));
  EXPECT_THAT(f.failures, IsEmpty());
  EXPECT_TRUE(f.engine.Close(key).ok());

  // A text that grows over the end of its page.
  const SessionId last = f.Open(MakeOpen("draft_model:gamma=30", prompt));
  f.Ask(last, MakeRound(31, {20}));
  EXPECT_EQ(f.engine.snapshot().kv.pages_free, 0);
  const Tokens more = {1, 2, 3};
  EXPECT_THAT(f.Ask(other, MakeRound(34, more)).tree.tokens,
              ElementsAreArray(Decode(Joined(Tokens(31, 5), more), 31, 1, {})));
  EXPECT_THAT(f.failures, IsEmpty());
}

// A draft's pages are given back as soon as its tokens are not committed.
TEST(DraftRowsTest, PagesOfADraftGoBackWithIt) {
  EngineFixture f;
  const SessionId key = f.Open(MakeOpen("draft_model:gamma=100", kPrompt));
  const auto used = [&] {
    const KvUsage kv = f.engine.snapshot().kv;
    return kv.pages_total - kv.pages_free;
  };
  const int64_t reserved = used();
  f.Ask(key, MakeRound(6, {20}, 256));
  EXPECT_EQ(used(), 4);  // of 105 tokens
  ASSERT_TRUE(f.engine.Submit(key, MakeRound(7, {21}, 0)).ok());
  f.RunAll();
  EXPECT_EQ(used(), reserved);
}

}  // namespace
}  // namespace foretoken::draft_worker
