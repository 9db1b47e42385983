#include "tests/lab/model_replay/model_replayer.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/drafting/drafter_factory.h"
#include "common/drafting/replay.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/model_weights.h"
#include "common/infer/pass_timing.h"
#include "common/speculation/drafter_id.h"
#include "common/speculation/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/lab/model_replay/priced_rounds.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/lab/model_replay/made_up_set.h"

namespace foretoken::model_replay {
namespace {

using ::foretoken::testing::FakeBackend;
using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kNodes = 16;

void NoProgress(int64_t) {}
bool All(size_t) { return true; }

// The results of each source.
absl::StatusOr<std::vector<std::vector<TurnResult>>> ReplayBeside(
    Backend& backend, const std::vector<RoundSource*>& sources, int nodes,
    const RecordedSet& set, const Windows& windows = {}) {
  std::vector<std::vector<TurnResult>> all(sources.size());
  const absl::Status status =
      ModelReplayer(backend, sources, nodes, windows)
          .Replay(set, All, [&](size_t, absl::Span<const TurnResult> results) {
            EXPECT_EQ(results.size(), sources.size());
            for (size_t i = 0; i < results.size(); ++i) {
              all[i].push_back(results[i]);
            }
            return absl::OkStatus();
          });
  if (!status.ok()) return status;
  return all;
}
absl::StatusOr<std::vector<TurnResult>> ReplayAll(Backend& backend,
                                                  RoundSource& source,
                                                  int nodes,
                                                  const RecordedSet& set,
                                                  const Windows& windows = {}) {
  auto all = ReplayBeside(backend, {&source}, nodes, set, windows);
  if (!all.ok()) return all.status();
  return all->front();
}

std::unique_ptr<Drafter> Make(const std::string& mode, bool online = false) {
  DrafterResources resources;
  resources.keep_history = online;
  auto drafter = MakeDrafter(*Mode::Parse(mode, ModeUse::kReplay), resources);
  EXPECT_THAT(drafter, IsOk());
  return *std::move(drafter);
}

std::unique_ptr<Backend> TinyModel(bool prefix_reuse = false) {
  ModelConfig config;
  config.d_model = 16;
  config.n_layers = 1;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 8;
  config.d_ff = 16;
  config.vocab_size = kVocabulary;
  config.max_positions = 256;
  auto weights = ModelWeights::Random(config, WeightType::kFloat32, 1);
  EXPECT_THAT(weights, IsOk());
  CpuOptions options;
  options.threads = 1;
  options.prefix_reuse = prefix_reuse;
  auto backend = MakeCpuBackend(*std::move(weights), options);
  EXPECT_THAT(backend, IsOk());
  return *std::move(backend);
}

struct Sums {
  int64_t turns = 0;
  int64_t tokens = 0;
  int64_t rounds = 0;
  int64_t nodes = 0;
};

Sums SumOf(const std::vector<TurnResult>& turns, const std::string& category) {
  Sums sums;
  for (const TurnResult& turn : turns) {
    if (!category.empty() && turn.category != category) continue;
    ++sums.turns;
    sums.tokens += turn.tokens;
    sums.rounds += turn.rounds;
    sums.nodes += turn.nodes;
  }
  return sums;
}

struct Case {
  std::string mode;
  bool online;
};

class SameAsReplayTest : public ::testing::TestWithParam<Case> {};

TEST_P(SameAsReplayTest, RealPassesAcceptWhatReplayAccepts) {
  const RecordedSet set = MadeUpSet();
  const std::unique_ptr<Backend> backend = TinyModel();
  DrafterRounds source(Make(GetParam().mode, GetParam().online), kNodes);
  const auto turns = ReplayAll(*backend, source, kNodes, set);
  FORETOKEN_ASSERT_OK(turns);

  const std::unique_ptr<Drafter> drafter =
      Make(GetParam().mode, GetParam().online);
  Replayer model_free(*drafter, kNodes);
  const auto want = model_free.Replay(set, {}, NoProgress);
  FORETOKEN_ASSERT_OK(want);

  const Sums all = SumOf(*turns, "");
  EXPECT_EQ(all.turns, want->all.turns);
  EXPECT_EQ(all.tokens, want->all.tokens);
  EXPECT_EQ(all.rounds, want->all.rounds);
  EXPECT_EQ(all.nodes, want->tree_nodes);
  ASSERT_EQ(want->categories.size(), 2u);
  for (const auto& [name, counts] : want->categories) {
    EXPECT_EQ(SumOf(*turns, name).turns, counts.turns) << name;
    EXPECT_EQ(SumOf(*turns, name).tokens, counts.tokens) << name;
    EXPECT_EQ(SumOf(*turns, name).rounds, counts.rounds) << name;
  }
  EXPECT_EQ(backend->kv_usage().sessions, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, SameAsReplayTest,
    ::testing::Values(Case{"off", false}, Case{"prompt_lookup", false},
                      Case{"ngram_trie", false}, Case{"phrase_pool", true},
                      Case{"auto", false}, Case{"auto", true}));

TEST(ModelReplayerTest, BothSidesRunTheSameTokens) {
  RecordedSet set = MadeUpSet(3);
  set.turns[1].output.resize(1);  // prefill alone writes it
  testing::FakeBackendOptions options;
  options.max_rows = 8;  // prompts of 20 tokens take three passes
  FakeBackend backend(options);
  DrafterRounds source(Make("off"), 4);
  const auto turns = ReplayAll(backend, source, 4, set);
  FORETOKEN_ASSERT_OK(turns);
  // Without drafts a round is a pass of plain decoding. The first turn's first
  // 32 tokens warm up.
  int64_t passes = 3 + 2 * 31;
  for (const RecordedTurn& turn : set.turns) {
    passes += 3 + 2 * (static_cast<int64_t>(turn.output.size()) - 1);
  }
  EXPECT_EQ(backend.forwards(), passes);
  ASSERT_EQ(turns->size(), 3u);
  for (size_t i = 0; i < turns->size(); ++i) {
    const TurnResult& turn = (*turns)[i];
    EXPECT_EQ(turn.tokens,
              static_cast<int64_t>(set.turns[i].output.size()) - 1);
    EXPECT_EQ(turn.rounds, turn.tokens);
    EXPECT_EQ(turn.id, set.turns[i].id);
    EXPECT_GT(turn.prefill, 0.0);
    EXPECT_GE(turn.drafting, turn.indexing);
    EXPECT_GE(turn.speculative, turn.drafting + turn.verifying);
    EXPECT_EQ(turn.verifying > 0.0, turn.rounds > 0);
  }
  EXPECT_EQ(backend.kv_usage().sessions, 0);
}

TEST(ModelReplayerTest, SourcesBesideOneAnotherDoWhatTheyDoAlone) {
  const RecordedSet set = MadeUpSet();
  const std::unique_ptr<Backend> backend = TinyModel();
  const std::vector<std::string> modes = {"prompt_lookup", "off", "ngram_trie"};
  std::vector<std::unique_ptr<RoundSource>> owned;
  std::vector<RoundSource*> sources;
  for (const std::string& mode : modes) {
    owned.push_back(std::make_unique<DrafterRounds>(Make(mode), kNodes));
    sources.push_back(owned.back().get());
  }
  const auto beside = ReplayBeside(*backend, sources, kNodes, set);
  FORETOKEN_ASSERT_OK(beside);
  for (size_t i = 0; i < modes.size(); ++i) {
    DrafterRounds source(Make(modes[i]), kNodes);
    const auto alone = ReplayAll(*backend, source, kNodes, set);
    FORETOKEN_ASSERT_OK(alone);
    EXPECT_EQ(SumOf((*beside)[i], "").rounds, SumOf(*alone, "").rounds);
    EXPECT_EQ(SumOf((*beside)[i], "").nodes, SumOf(*alone, "").nodes);
    EXPECT_EQ(SumOf((*beside)[i], "").tokens, SumOf(*alone, "").tokens);
    for (size_t turn = 0; turn < set.turns.size(); ++turn) {
      EXPECT_EQ((*beside)[i][turn].plain, beside->front()[turn].plain);
      EXPECT_EQ((*beside)[i][turn].prefill, beside->front()[turn].prefill);
    }
  }
  EXPECT_EQ(backend->kv_usage().sessions, 0);
}

TEST(ModelReplayerTest, OnlyWantedTurnsAreReplayed) {
  const RecordedSet set = MadeUpSet(4);
  FakeBackend backend({});
  DrafterRounds source(Make("off"), 4);
  ModelReplayer replayer(backend, {&source}, 4);
  std::vector<size_t> replayed;
  FORETOKEN_EXPECT_OK(replayer.Replay(
      set, [](size_t index) { return index % 2 == 1; },
      [&](size_t index, absl::Span<const TurnResult> results) {
        replayed.push_back(index);
        EXPECT_EQ(results[0].id, set.turns[index].id);
        return absl::OkStatus();
      }));
  EXPECT_THAT(replayed, ElementsAre(1, 3));
  EXPECT_THAT(
      replayer.Replay(set, All,
                      [](size_t, absl::Span<const TurnResult>) {
                        return absl::DataLossError("disk full");
                      }),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("turn 0 (q0)"), HasSubstr("disk full"))));
}

TEST(ModelReplayerTest, ErrorsNameTheTurn) {
  const RecordedSet set = MadeUpSet(2);
  FakeBackend backend({});
  DrafterRounds source(Make("off"), 4);
  backend.FailNextForward(absl::ResourceExhaustedError("no memory"));
  EXPECT_THAT(ReplayAll(backend, source, 4, set),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("made up: turn 0 (q0)"),
                             HasSubstr("no memory"))));
  // A source that was told of more nodes than the replay allows.
  DrafterRounds wide(Make("prompt_lookup"), 16);
  EXPECT_THAT(ReplayAll(backend, wide, 1, set),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("turn 0 (q0)"),
                             HasSubstr("nodes, want at most 1"))));
  EXPECT_EQ(backend.kv_usage().sessions, 0);
}

TEST(ModelReplayerTest, TurnsThatDoNotFitAreNamed) {
  const RecordedSet set = MadeUpSet(3);
  ModelConfig config;
  config.vocab_size = kVocabulary;
  config.max_positions = 200;
  FORETOKEN_EXPECT_OK(CheckFits(set, config, 16));
  config.max_positions = 70;
  EXPECT_THAT(CheckFits(set, config, 16),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("made up: turn 0 (q0) takes "),
                             HasSubstr("the model's limit is 70"))));
  config.max_positions = 200;
  config.vocab_size = 10;
  EXPECT_THAT(CheckFits(set, config, 16),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("but the model's vocabulary is 10")));
}

// Drafts the recording's next tokens, and keeps what it is told.
class KnowingSource final : public RoundSource {
 public:
  explicit KnowingSource(int depth) : depth_(depth) {}

  absl::Status Start(size_t, const RecordedTurn& turn) override {
    output_ = turn.output;
    told_.clear();
    return absl::OkStatus();
  }
  absl::Status Draft(DraftTree& tree) override {
    tree = DraftTree();
    for (int i = 0; i < depth_ && told_.size() + i < output_.size(); ++i) {
      tree.tokens.push_back(output_[told_.size() + i]);
      tree.parents.push_back(i - 1);
      tree.probs.push_back(1.0f);
    }
    return absl::OkStatus();
  }
  absl::Status Commit(absl::Span<const TokenId> tokens,
                      const VerifiedRound*) override {
    told_.insert(told_.end(), tokens.begin(), tokens.end());
    return absl::OkStatus();
  }
  void End() override { texts_.push_back(told_); }

  // What the source was told of each turn's output, the warm-up's first.
  const std::vector<std::vector<TokenId>>& texts() const { return texts_; }

 private:
  const int depth_;
  std::vector<TokenId> output_;
  std::vector<TokenId> told_;
  std::vector<std::vector<TokenId>> texts_;
};

TEST(WindowTest, EveryPlaceInALongOutputIsDrawn) {
  Windows windows;
  windows.tokens = 4;
  std::set<size_t> begins;
  for (windows.seed = 0; windows.seed < 200; ++windows.seed) {
    const Window window = WindowOf(windows, 3, 12);
    EXPECT_EQ(window.end, window.begin + 4);
    begins.insert(window.begin);
  }
  EXPECT_THAT(begins, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  for (const size_t size : {1, 2, 5}) {  // all of a short output
    EXPECT_EQ(WindowOf(windows, 3, size).begin, 1u);
    EXPECT_EQ(WindowOf(windows, 3, size).end, size);
  }
  EXPECT_EQ(WindowOf({}, 3, 12).end, 12u);
  // A selection decodes what the whole file would.
  Windows selected = windows;
  selected.places = {0, 3};
  EXPECT_EQ(WindowOf(selected, 1, 1000).begin,
            WindowOf(windows, 3, 1000).begin);
}

TEST(ModelReplayerTest, AWindowIsDecodedBehindAllThatComesBeforeIt) {
  const RecordedSet set = MadeUpSet();
  const std::unique_ptr<Backend> backend = TinyModel(/*prefix_reuse=*/true);
  Windows windows;
  windows.tokens = 6;
  windows.seed = 1;
  KnowingSource source(0);
  const auto turns = ReplayAll(*backend, source, kNodes, set, windows);
  FORETOKEN_ASSERT_OK(turns);
  ASSERT_EQ(source.texts().size(), set.turns.size() + 1);
  for (size_t i = 0; i < set.turns.size(); ++i) {
    const std::vector<TokenId>& output = set.turns[i].output;
    const Window window = WindowOf(windows, i, output.size());
    EXPECT_EQ(source.texts()[i + 1],
              std::vector<TokenId>(output.begin(),
                                   output.begin() +
                                       static_cast<int64_t>(window.end)));
    const TurnResult& turn = (*turns)[i];
    EXPECT_EQ(turn.plain_tokens, 6);
    EXPECT_EQ(turn.tokens, 6);
    EXPECT_EQ(turn.rounds, 6);
    EXPECT_EQ(turn.length, static_cast<int64_t>(output.size()) - 1);
    EXPECT_EQ(turn.prefill, 0.0);
    EXPECT_GT(turn.plain, 0.0);
  }
  EXPECT_EQ(backend->kv_usage().sessions, 0);
}

TEST(ModelReplayerTest, ARoundThatExceedsItsWindowCountsWhole) {
  const RecordedSet set = MadeUpSet();
  const std::unique_ptr<Backend> backend = TinyModel(/*prefix_reuse=*/true);
  Windows windows;
  windows.tokens = 6;
  KnowingSource source(3);  // four tokens a round
  const auto turns = ReplayAll(*backend, source, kNodes, set, windows);
  FORETOKEN_ASSERT_OK(turns);
  for (size_t i = 0; i < set.turns.size(); ++i) {
    const size_t size = set.turns[i].output.size();
    const auto left =
        static_cast<int64_t>(size - WindowOf(windows, i, size).begin);
    const TurnResult& turn = (*turns)[i];
    EXPECT_EQ(turn.rounds, 2);
    EXPECT_EQ(turn.tokens, std::min<int64_t>(8, left));
    EXPECT_EQ(turn.plain_tokens, 6);
  }
}

TEST(ModelReplayerTest, WindowsAsLongAsTheOutputsAreWholeOutputs) {
  const RecordedSet set = MadeUpSet();
  const std::unique_ptr<Backend> backend = TinyModel(/*prefix_reuse=*/true);
  Windows windows;
  windows.tokens = 1000;
  for (const char* mode : {"prompt_lookup", "ngram_trie"}) {
    DrafterRounds part(Make(mode), kNodes), whole(Make(mode), kNodes);
    const auto got = ReplayAll(*backend, part, kNodes, set, windows);
    const auto want = ReplayAll(*backend, whole, kNodes, set);
    FORETOKEN_ASSERT_OK(got);
    FORETOKEN_ASSERT_OK(want);
    EXPECT_EQ(SumOf(*got, "").rounds, SumOf(*want, "").rounds);
    EXPECT_EQ(SumOf(*got, "").nodes, SumOf(*want, "").nodes);
    EXPECT_EQ(SumOf(*got, "").tokens, SumOf(*want, "").tokens);
  }
}

TEST(SelectTest, TakesTheFirstTurnsAndCutsOutputs) {
  RecordedSet set = MadeUpSet(6);  // copy free free copy free free
  Selection selection;
  EXPECT_THAT(Select(selection, set), ElementsAre(0, 1, 2, 3, 4, 5));
  selection.requests_per_category = 2;
  selection.max_new_tokens = 7;
  EXPECT_THAT(Select(selection, set), ElementsAre(0, 1, 2, 3));
  ASSERT_EQ(set.turns.size(), 4u);
  for (const RecordedTurn& turn : set.turns) EXPECT_EQ(turn.output.size(), 7u);
  selection.max_requests = 3;
  EXPECT_THAT(Select(selection, set), ElementsAre(0, 1, 2));
  EXPECT_EQ(set.turns.size(), 3u);
}

TEST(PricedRoundsTest, TreesOfItsDraftersAreMerged) {
  const RecordedSet set = MadeUpSet();
  FakeBackend backend({});
  PassTiming level;  // rows are free
  for (int rows = 1; rows <= kNodes + 1; ++rows) {
    level.Observe(rows, absl::Seconds(1));
  }
  const auto rounds = [&](std::vector<PricedRounds::Source> sources) {
    PricedRounds priced(std::move(sources), level, kVocabulary, kNodes);
    const auto turns = ReplayAll(backend, priced, kNodes, set);
    EXPECT_THAT(turns, IsOk());
    return SumOf(*turns, "");
  };
  const Sums nothing = rounds({{DrafterId::kFused, Make("off")}});
  const Sums copies = rounds({{DrafterId::kCrest, Make("prompt_lookup")},
                              {DrafterId::kFused, Make("off")}});
  EXPECT_EQ(nothing.rounds, nothing.tokens);
  EXPECT_LT(copies.rounds, copies.tokens);
  EXPECT_EQ(copies.tokens, nothing.tokens);
}

TEST(PricedRoundsTest, NodesThatCostTooMuchAreLeftOut) {
  const RecordedSet set = MadeUpSet();
  FakeBackend backend({});
  DrafterRounds whole(Make("auto"), kNodes);
  const auto all = ReplayAll(backend, whole, kNodes, set);
  FORETOKEN_ASSERT_OK(all);

  PassTiming steep;
  for (int rows = 1; rows <= kNodes + 1; ++rows) {
    steep.Observe(
        rows, rows == 1 ? absl::Milliseconds(1) : absl::Seconds(1000 * rows));
  }
  PricedRounds priced({{DrafterId::kFused, Make("auto")}}, steep, kVocabulary,
                      kNodes);
  const auto cut = ReplayAll(backend, priced, kNodes, set);
  FORETOKEN_ASSERT_OK(cut);
  EXPECT_EQ(SumOf(*cut, "").tokens, SumOf(*all, "").tokens);
  EXPECT_GT(SumOf(*cut, "").rounds, SumOf(*all, "").rounds);
  EXPECT_LT(SumOf(*cut, "").nodes * 4, SumOf(*all, "").nodes);
}

}  // namespace
}  // namespace foretoken::model_replay
