// Models that are loaded in another type, or with a part of their LM head.
#include "common/infer/cpu/cpu_model.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/gguf/gguf_writer.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/gguf_export.h"
#include "common/sampling/sampler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/infer/tiny_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<TokenId> kText = {5, 199, 0, 64, 17, 2, 130};

ModelConfig Config(bool tied) {
  ModelConfig config;
  config.d_model = 256;
  config.n_layers = 2;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = 64;
  config.d_ff = 256;
  config.vocab_size = 203;
  config.max_positions = 64;
  config.eos_tokens = {201};
  config.tied_embeddings = tied;
  return config;
}

std::unique_ptr<ModelWeights> Weights(bool tied, WeightType type) {
  auto weights = ModelWeights::Random(Config(tied), type, 7);
  EXPECT_THAT(weights, IsOk());
  return *std::move(weights);
}

std::unique_ptr<Backend> Make(std::unique_ptr<ModelWeights> weights,
                              const CpuOptions& options) {
  auto backend = MakeCpuBackend(std::move(weights), options);
  EXPECT_THAT(backend, IsOk());
  return *std::move(backend);
}

struct Ran {
  std::vector<Bits> logits;  // of every row
  std::vector<TokenId> drawn;
};

// One chain over kText.
Ran RunText(Backend& backend, const SamplingState* sampling = nullptr) {
  PassSession pass;
  pass.session = backend.Open("", {})->session;
  const std::vector<int32_t> parents = Chain(kText.size());
  pass.tokens = kText;
  pass.parents = parents;
  pass.sampling = sampling;
  PassResult result;
  EXPECT_THAT(backend.Forward({pass}, result), IsOk());
  Ran ran;
  for (const SampledToken& token : result.outputs.at(0)) {
    ran.drawn.push_back(token.token);
  }
  for (size_t row = 0; row < kText.size(); ++row) {
    ran.logits.push_back(
        RowLogits(backend, pass.session, static_cast<int32_t>(row)));
  }
  return ran;
}

TEST(CpuModelTest, LoadingAsQ8_0EqualsAQuantisedFile) {
  for (const bool tied : {false, true}) {
    TempDir dir;
    const std::string path = dir.File("model.gguf");
    ThreadPool pool(2);
    FORETOKEN_ASSERT_OK(
        ExportGguf(*Weights(tied, WeightType::kBFloat16), GgufFileKind::kQ8_0,
                   path, pool, GgufWriter(), [](const GgufExportedTensor&) {}));
    auto file = ModelWeights::Load(path);
    FORETOKEN_ASSERT_OK(file);
    CpuOptions options = Options(2);
    const Ran want = RunText(*Make(*std::move(file), options));
    options.conversion = WeightConversion::kQ8_0;
    const Ran got =
        RunText(*Make(Weights(tied, WeightType::kBFloat16), options));
    for (size_t row = 0; row < kText.size(); ++row) {
      EXPECT_TRUE(SameBits(got.logits[row], want.logits[row]))
          << "tied: " << tied << ", row " << row;
    }
  }
}

TEST(CpuModelTest, TheStoredWeightsStillNameTheModel) {
  const auto fingerprint = [](WeightConversion conversion, int32_t head_size) {
    CpuOptions options = Options();
    options.conversion = conversion;
    options.head_size = head_size;
    return Make(Weights(false, WeightType::kBFloat16), options)
        ->numerics_fingerprint();
  };
  const std::string kept = fingerprint(WeightConversion::kKeep, 0);
  const std::string digest = kept.substr(kept.find(";weights="));
  EXPECT_THAT(kept, Not(HasSubstr("conversion")));
  // So small a model gains nothing.
  EXPECT_EQ(fingerprint(WeightConversion::kAuto, 0), kept);
  EXPECT_EQ(fingerprint(WeightConversion::kAuto, 203), kept);
  EXPECT_THAT(fingerprint(WeightConversion::kQ4_0, 0),
              EndsWith(digest + ";conversion=q4_0"));
  EXPECT_THAT(fingerprint(WeightConversion::kQ4_0, 0),
              HasSubstr(";matrices=q4_0;"));
  EXPECT_THAT(fingerprint(WeightConversion::kKeep, 20),
              HasSubstr(digest + ";head=20,"));
}

struct Case {
  WeightType type;
  WeightConversion conversion;
};

class CutHeadTest : public ::testing::TestWithParam<Case> {
 protected:
  // 70 ids: more than a block of columns, the end token and gaps among them.
  static CpuOptions Cut(CpuOptions options) {
    options.head_size = 70;
    options.head_first = {199, 77, 130};
    return options;
  }
  static CpuOptions Whole() {
    CpuOptions options = Options(2);
    options.conversion = GetParam().conversion;
    return options;
  }
  static bool InHead(TokenId id) {
    return id < 66 || id == 77 || id == 130 || id == 199 || id == 201;
  }
};

TEST_P(CutHeadTest, LogitsOfItsIdsAreThoseOfTheWholeHead) {
  for (const bool tied : {false, true}) {
    const auto whole = Make(Weights(tied, GetParam().type), Whole());
    const auto cut = Make(Weights(tied, GetParam().type), Cut(Whole()));
    const Ran want = RunText(*whole);
    const Ran got = RunText(*cut);
    EXPECT_LT(cut->weight_bytes_per_pass(), whole->weight_bytes_per_pass());
    for (TokenId id = 0; id < 203; ++id) {
      EXPECT_TRUE(whole->Draws(id));
      EXPECT_EQ(cut->Draws(id), InHead(id)) << id;
      for (size_t row = 0; row < kText.size(); ++row) {
        const float logit = got.logits[row][id];
        EXPECT_EQ(logit, InHead(id) ? want.logits[row][id]
                                    : -std::numeric_limits<float>::infinity())
            << "tied: " << tied << ", id " << id << ", row " << row;
      }
    }
  }
}

// An id has the noise that it has with all the others.
TEST_P(CutHeadTest, DrawsWhatTheWholeHeadDrawsAmongItsIds) {
  const auto whole = Make(Weights(false, GetParam().type), Whole());
  const auto cut = Make(Weights(false, GetParam().type), Cut(Whole()));
  int outside = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SamplingParams params;
    params.temperature = seed == 0 ? 0.0f : 0.9f;
    params.seed = seed;
    const SamplingState state(params, 0, 203);
    const Ran free = RunText(*whole, &state);
    const Ran got = RunText(*cut, &state);
    SamplingState::Scratch scratch;
    for (size_t row = 0; row < kText.size(); ++row) {
      Bits masked = free.logits[row];
      for (TokenId id = 0; id < 203; ++id) {
        if (!InHead(id)) masked[id] = -std::numeric_limits<float>::infinity();
      }
      const auto path = absl::MakeConstSpan(kText).first(row + 1);
      EXPECT_EQ(got.drawn[row], state.Sample(masked, path, scratch).token);
      EXPECT_TRUE(cut->Draws(got.drawn[row]));
      outside += !cut->Draws(free.drawn[row]);
    }
  }
  EXPECT_GT(outside, 0);  // else nothing was cut off
}

INSTANTIATE_TEST_SUITE_P(
    EveryType, CutHeadTest,
    ::testing::Values(Case{WeightType::kFloat32, WeightConversion::kKeep},
                      Case{WeightType::kBFloat16, WeightConversion::kKeep},
                      Case{WeightType::kQ8_0, WeightConversion::kKeep},
                      Case{WeightType::kQ6_K, WeightConversion::kQ8_0},
                      Case{WeightType::kBFloat16, WeightConversion::kQ4_0}),
    [](const ::testing::TestParamInfo<Case>& test) {
      return std::string(WeightTypeName(test.param.type)) + "_" +
             kWeightConversionNames[static_cast<int>(test.param.conversion)];
    });

}  // namespace
}  // namespace foretoken
