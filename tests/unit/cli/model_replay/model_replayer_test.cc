#include "tools/cli/model_replay/model_replayer.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/drafting/drafter_factory.h"
#include "common/drafting/replay.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/model_weights.h"
#include "common/infer/pass_timing.h"
#include "common/speculation/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/cli/model_replay/made_up_set.h"
#include "tools/cli/model_replay/priced_rounds.h"

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
    const RecordedSet& set) {
  std::vector<std::vector<TurnResult>> all(sources.size());
  const absl::Status status =
      ModelReplayer(backend, sources, nodes)
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
                                                  const RecordedSet& set) {
  auto all = ReplayBeside(backend, {&source}, nodes, set);
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

std::unique_ptr<Backend> TinyModel() {
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
  options.prefix_reuse = false;
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
  PricedRounds priced(Make("auto"), steep, kVocabulary, kNodes);
  const auto cut = ReplayAll(backend, priced, kNodes, set);
  FORETOKEN_ASSERT_OK(cut);
  EXPECT_EQ(SumOf(*cut, "").tokens, SumOf(*all, "").tokens);
  EXPECT_GT(SumOf(*cut, "").rounds, SumOf(*all, "").rounds);
  EXPECT_LT(SumOf(*cut, "").nodes * 4, SumOf(*all, "").nodes);
}

}  // namespace
}  // namespace foretoken::model_replay
