#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "common/infer/cpu/cpu_backend.h"
#include "gtest/gtest.h"
#include "tests/lab/greedy_agreement.h"
#include "tests/lab/mode_run.h"
#include "tests/lab/noisy_weights.h"
#include "tests/lab/published_mode.h"

namespace foretoken {
namespace {

ModelConfig Shape() {
  ModelConfig config;
  config.d_model = 32;
  config.n_layers = 2;
  config.n_heads = 2;
  config.n_kv_heads = 2;
  config.head_dim = 16;
  config.d_ff = 48;
  config.vocab_size = 48;
  config.max_positions = 512;
  return config;
}

std::shared_ptr<const ModelWeights> Target() {
  auto weights = ModelWeights::Random(Shape(), WeightType::kFloat32, 7);
  EXPECT_TRUE(weights.ok()) << weights.status();
  return *std::move(weights);
}

std::vector<float> Values(const WeightTensor& tensor) {
  std::vector<float> values(tensor.size());
  tensor.CopyTo(0, absl::MakeSpan(values));
  return values;
}

std::unique_ptr<Backend> Model(std::unique_ptr<ModelWeights> weights) {
  CpuOptions options;
  options.threads = 1;
  options.max_rows = 512;
  options.kv_cache_tokens = 1 << 13;
  auto backend = MakeCpuBackend(std::move(weights), options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

std::unique_ptr<Backend> Noisy(double relative, uint64_t seed = 1) {
  return Model(std::make_unique<NoisyWeights>(Target(), relative, seed));
}

// --- NoisyWeights ------------------------------------------------------------

TEST(NoisyWeightsTest, WithoutNoiseTheMatricesAreTheSource) {
  const auto target = Target();
  const NoisyWeights same(target, 0, 1);
  EXPECT_EQ(Values(same.layers()[1].down), Values(target->layers()[1].down));
  EXPECT_EQ(Values(same.layers()[0].q), Values(target->layers()[0].q));
}

TEST(NoisyWeightsTest, NoiseHasTheStrengthAskedForInEveryMatrix) {
  const auto target = Target();
  const NoisyWeights noisy(target, 0.25, 1);
  const LayerWeights& own = noisy.layers()[1];
  const LayerWeights& source = target->layers()[1];
  for (const auto& [changed, original] :
       {std::pair(&own.q, &source.q), std::pair(&own.k, &source.k),
        std::pair(&own.v, &source.v), std::pair(&own.o, &source.o),
        std::pair(&own.gate, &source.gate), std::pair(&own.up, &source.up),
        std::pair(&own.down, &source.down)}) {
    const std::vector<float> after = Values(*changed);
    const std::vector<float> before = Values(*original);
    double noise = 0;
    double weights = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      noise += std::pow(after[i] - before[i], 2);
      weights += std::pow(before[i], 2);
    }
    // A thousand elements or more: the sample's deviation is within 10 %.
    EXPECT_NEAR(std::sqrt(noise / weights), 0.25, 0.025);
  }
  EXPECT_EQ(Values(noisy.embedding()), Values(target->embedding()));
  EXPECT_EQ(Values(own.ffn_norm), Values(source.ffn_norm));
}

TEST(NoisyWeightsTest, TheSeedDecidesTheNoise) {
  const auto target = Target();
  const NoisyWeights first(target, 0.1, 1);
  const NoisyWeights again(target, 0.1, 1);
  const NoisyWeights other(target, 0.1, 2);
  EXPECT_EQ(Values(first.layers()[0].up), Values(again.layers()[0].up));
  EXPECT_EQ(first.digest(), again.digest());
  EXPECT_NE(Values(first.layers()[0].up), Values(other.layers()[0].up));
  EXPECT_NE(first.digest(), other.digest());
  EXPECT_NE(first.digest(), NoisyWeights(target, 0.2, 1).digest());
}

TEST(NoisyWeightsTest, MatricesOfOneShapeHaveNoiseOfTheirOwn) {
  const auto target = Target();
  const NoisyWeights noisy(target, 1, 1);
  const auto noise_of = [](const WeightTensor& after,
                           const WeightTensor& before) {
    std::vector<float> noise = Values(after);
    const std::vector<float> source = Values(before);
    for (size_t i = 0; i < noise.size(); ++i) noise[i] -= source[i];
    return noise;
  };
  EXPECT_NE(noise_of(noisy.layers()[0].gate, target->layers()[0].gate),
            noise_of(noisy.layers()[1].gate, target->layers()[1].gate));
}

// --- Agreement ---------------------------------------------------------------

std::vector<std::vector<TokenId>> Prompts() {
  return {{1, 5, 9, 5, 9}, {2, 40, 7}, {3, 3, 8, 30, 11, 12, 13}};
}

std::vector<TargetText> TargetTexts(verifier::VerifyEngine& target) {
  const auto off = ModeRun(target, nullptr, {}).Run(Mode(), Prompts());
  EXPECT_TRUE(off.ok()) << off.status();
  std::vector<TargetText> texts;
  for (size_t i = 0; i < Prompts().size(); ++i) {
    std::vector<TokenId> tokens = Prompts()[i];
    const int64_t length = static_cast<int64_t>(tokens.size());
    tokens.insert(tokens.end(), off->outputs[i].begin(), off->outputs[i].end());
    texts.push_back({std::move(tokens), length});
  }
  return texts;
}

TEST(AgreementTest, TheTargetAgreesWithItselfAndNoiseAgreesLess) {
  verifier::VerifyEngine target({}, Noisy(0));
  const std::vector<TargetText> texts = TargetTexts(target);
  const auto same = MeasureAgreement(*Noisy(0), texts);
  ASSERT_TRUE(same.ok()) << same.status();
  int64_t written = 0;
  for (const TargetText& text : texts) {
    written += static_cast<int64_t>(text.tokens.size()) - text.prompt_length;
  }
  EXPECT_EQ(same->positions, written);
  EXPECT_EQ(same->equal, written);
  const auto little = MeasureAgreement(*Noisy(0.3), texts);
  const auto much = MeasureAgreement(*Noisy(3), texts);
  ASSERT_TRUE(little.ok() && much.ok());
  EXPECT_LT(little->equal, same->equal);
  EXPECT_LT(much->equal, little->equal);
}

TEST(FindNoiseTest, BisectsAFunctionThatFalls) {
  int calls = 0;
  const auto rate_of = [&](double noise) -> absl::StatusOr<double> {
    ++calls;
    return 1 / (1 + noise);
  };
  const auto found = FindNoise(rate_of, 0.8, 0.001, 1.0, 20);
  ASSERT_TRUE(found.ok());
  EXPECT_NEAR(found->relative, 0.25, 0.002);
  EXPECT_NEAR(found->rate, 0.8, 0.001);
  EXPECT_LT(calls, 12);
}

TEST(FindNoiseTest, GivesTheNearestWhereNoneIsNearEnough) {
  const auto step = [](double noise) -> absl::StatusOr<double> {
    return noise < 0.4 ? 0.9 : 0.3;
  };
  const auto found = FindNoise(step, 0.8, 0.01, 1.0, 6);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->rate, 0.9);
}

TEST(FindNoiseTest, PassesErrorsOn) {
  const auto broken = [](double) -> absl::StatusOr<double> {
    return absl::DataLossError("no numbers");
  };
  EXPECT_EQ(FindNoise(broken, 0.8, 0.01, 1.0, 6).status().code(),
            absl::StatusCode::kDataLoss);
}

// --- ModeRun -----------------------------------------------------------------

class ModeRunTest : public ::testing::Test {
 protected:
  ModeCounts Run(const std::string& mode, bool warm_start = false) {
    ModeRunOptions options;
    options.max_tokens = 96;
    options.warm_start = warm_start;
    const auto parsed = ParsePublished(mode);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    auto counts = ModeRun(target_, &draft_, options).Run(*parsed, Prompts());
    EXPECT_TRUE(counts.ok()) << mode << ": " << counts.status();
    return *std::move(counts);
  }

  verifier::VerifyEngine target_{{}, Noisy(0)};
  draft_worker::DraftEngine draft_{{}, Noisy(0.1)};
};

TEST_F(ModeRunTest, EveryModeWritesWhatPlainDecodingWrites) {
  const ModeCounts off = Run("off");
  EXPECT_EQ(off.tokens, off.rounds);
  EXPECT_EQ(off.target.rows(), off.rounds);
  EXPECT_EQ(off.draft.passes(), 0);
  for (const char* mode :
       {"lookahead", "draft_model:gamma=4", "ouroboros:gamma=8,window=6"}) {
    SCOPED_TRACE(mode);
    const ModeCounts counts = Run(mode);
    EXPECT_EQ(counts.outputs, off.outputs);
    EXPECT_EQ(counts.tokens, off.tokens);
    EXPECT_EQ(counts.target.passes(), counts.rounds);
    EXPECT_LT(counts.rounds, off.rounds) << "nothing was accepted";
  }
}

TEST_F(ModeRunTest, CountsARowForTheLastTokenAndOneForEachNode) {
  const ModeCounts counts = Run("draft_model:gamma=4");
  EXPECT_EQ(counts.target.rows(), counts.rounds + counts.nodes);
  EXPECT_EQ(counts.matches.drafted, counts.nodes);
  EXPECT_GE(counts.draft.passes(), counts.nodes);
}

TEST_F(ModeRunTest, CountsRowsOfTheLookaheadWindow) {
  const ModeCounts counts = Run("lookahead");
  EXPECT_GT(counts.target.rows(), counts.rounds + counts.nodes);
  EXPECT_EQ(counts.draft.passes(), 0);
}

TEST_F(ModeRunTest, PhrasesOfEarlierPromptsServeAWarmStart) {
  const ModeCounts cold = Run("ouroboros:gamma=8,window=6");
  const ModeCounts warm = Run("ouroboros:gamma=8,window=6", true);
  EXPECT_EQ(warm.outputs, cold.outputs);
  // Other phrases were tried: the passes are not the same ones.
  EXPECT_NE(warm.draft.rows(), cold.draft.rows());
}

TEST_F(ModeRunTest, CountsPhrasesThatTheVerifiedTreesGave) {
  const ModeCounts both = Run("ouroboros:gamma=12,window=6,beta=3");
  EXPECT_GT(both.phrases.inspired, 0);
  EXPECT_GT(both.phrases.refined, 0);
  const ModeCounts neither =
      Run("ouroboros:gamma=12,window=6,beta=3,inspiration=0,refinement=0");
  EXPECT_EQ(neither.phrases.inspired, 0);
  EXPECT_EQ(neither.phrases.refined, 0);
}

TEST_F(ModeRunTest, RepeatsToTheDigit) {
  const ModeCounts first = Run("ouroboros:gamma=8,window=6");
  const ModeCounts again = Run("ouroboros:gamma=8,window=6");
  EXPECT_EQ(first.rounds, again.rounds);
  EXPECT_EQ(first.draft.rows(), again.draft.rows());
  EXPECT_EQ(first.target.rows(), again.target.rows());
}

TEST_F(ModeRunTest, RefusesOtherModes) {
  EXPECT_EQ(ModeRun(target_, &draft_, {})
                .Run(*Mode::Parse("prompt_lookup"), Prompts())
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ModeRun(target_, nullptr, {})
                .Run(*Mode::Parse("ouroboros"), Prompts())
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

TEST(RowCountsTest, BinsBeginAtTheirEdges) {
  RowCounts counts;
  for (const int32_t rows : {1, 3, 4, 7, 255, 256, 900}) counts.Add(rows);
  EXPECT_EQ(counts.passes(), 7);
  EXPECT_EQ(counts.rows(), 1426);
  EXPECT_EQ(counts.bins()[0].passes, 1);   // 1
  EXPECT_EQ(counts.bins()[1].passes, 1);   // 3
  EXPECT_EQ(counts.bins()[2].rows, 11);    // 4, 7
  EXPECT_EQ(counts.bins()[12].rows, 255);  // below the last edge
  EXPECT_EQ(counts.bins()[13].rows, 1156);
}

}  // namespace
}  // namespace foretoken
