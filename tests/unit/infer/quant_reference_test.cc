// Logits of tiny models of every architecture and weight type against a forward
// pass in double precision that follows the same quantised arithmetic
// (reference_pass.h), block of activations by block.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/thread_pool.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/gguf_export.h"
#include "common/infer/model_weights.h"
#include "common/infer/weight_types.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/infer/reference_pass.h"
#include "tests/unit/infer/tiny_backend.h"
#include "tests/unit/infer/watched_ops.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h
using ::testing::HasSubstr;

// Of the largest logit, five times what fp32 was seen to err by.
constexpr double kMostError = 2e-6;

ModelConfig Config(ModelFamily family) {
  ModelConfig config;
  config.family = family;
  config.d_model = 256;
  config.n_layers = 2;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = 64;
  config.d_ff = 256;
  config.vocab_size = 100;
  config.max_positions = 64;
  config.qkv_bias = family == ModelFamily::kQwen2;
  config.qk_norm = family == ModelFamily::kQwen3;
  config.tied_embeddings = family == ModelFamily::kQwen2;
  config.mlp_bias = config.output_bias = family == ModelFamily::kLlama;
  return config;
}

// A backend on watched kernels, and what its passes give.
class Watched {
 public:
  explicit Watched(std::unique_ptr<ModelWeights> weights,
                   CpuIsa isa = SupportedCpuIsas().back())
      : ops_(isa) {
    CpuOptions options = Options(2);
    options.ops = ops_.ops();
    auto backend = MakeCpuBackend(std::move(weights), options);
    EXPECT_THAT(backend, IsOk());
    backend_ = *std::move(backend);
  }

  Backend& backend() { return *backend_; }

  // Runs a chain and compares it with the reference: the largest difference of
  // a logit over the largest logit.
  absl::StatusOr<double> RelativeError(const ReferenceModel& reference,
                                       const std::vector<TokenId>& tokens) {
    ops_.Clear();
    PassSession pass;
    pass.session = backend_->Open("", {})->session;
    pass.tokens = tokens;
    const std::vector<int32_t> parents = Chain(static_cast<int>(tokens.size()));
    pass.parents = parents;
    PassResult result;
    FORETOKEN_EXPECT_OK(backend_->Forward({pass}, result));
    const auto want = ReferenceLogits(reference, tokens, ops_);
    double error = 0, largest = 0;
    for (size_t t = 0; want.ok() && t < tokens.size(); ++t) {
      const Bits logits =
          RowLogits(*backend_, pass.session, static_cast<int32_t>(t));
      for (size_t i = 0; i < logits.size(); ++i) {
        const double wanted = (*want)[t * logits.size() + i];
        const double difference = std::abs(logits[i] - wanted);
        if (!(difference <= error)) error = difference;  // keeps a NaN
        largest = std::max(largest, std::abs(wanted));
      }
    }
    FORETOKEN_EXPECT_OK(backend_->Close(pass.session));
    if (!want.ok()) return want.status();
    EXPECT_GT(largest, 0.5);
    return error / largest;
  }

 private:
  WatchedOps ops_;
  std::unique_ptr<Backend> backend_;
};

std::vector<std::vector<TokenId>> RandomChains(int count) {
  std::mt19937 random(21);
  std::vector<std::vector<TokenId>> chains;
  for (int i = 0; i < count; ++i) {
    chains.push_back(RandomTokens(5, Config(ModelFamily::kLlama), random));
  }
  return chains;
}

// Of every chain; a failure names `what`. Returns the largest error.
double ExpectTheReference(Watched& watched, const ReferenceModel& reference,
                          const std::string& what) {
  double most = 0;
  for (const std::vector<TokenId>& chain : RandomChains(8)) {
    const auto error = watched.RelativeError(reference, chain);
    EXPECT_THAT(error, IsOk()) << what;
    if (!error.ok()) continue;
    EXPECT_LE(*error, kMostError) << what;
    most = std::max(most, *error);
  }
  ::testing::Test::RecordProperty(what, absl::StrCat(most));
  return most;
}

TEST(QuantReferenceTest, EveryArchitectureAndTypeFollowsTheReference) {
  double most = 0;
  for (const ModelFamily family :
       {ModelFamily::kLlama, ModelFamily::kQwen2, ModelFamily::kQwen3}) {
    for (const WeightType type :
         {WeightType::kFloat32, WeightType::kFloat16, WeightType::kBFloat16,
          WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
          WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4_K,
          WeightType::kQ5_K, WeightType::kQ6_K}) {
      const auto make = [&] {
        return *ModelWeights::Random(Config(family), type, 11);
      };
      Watched watched(make());
      most = std::max(
          most, ExpectTheReference(watched, ReadReference(*make(), false, {}),
                                   absl::StrCat(ModelFamilyName(family), "_",
                                                WeightTypeName(type))));
    }
  }
  RecordProperty("most", absl::StrCat(most));
}

// As Llama 3.1 divides its frequencies, for a factor of 8 between 1 and 4 turns
// of an original context of 64.
std::vector<double> Divisors(const ModelConfig& config) {
  std::vector<double> divisors;
  for (int i = 0; i < config.head_dim / 2; ++i) {
    const double frequency = std::pow(static_cast<double>(config.rope_theta),
                                      -2.0 * i / config.head_dim);
    const double turns = 64 * frequency / (2 * std::acos(-1.0));
    const double keep = std::clamp((turns - 1) / (4 - 1), 0.0, 1.0);
    divisors.push_back(1 / ((1 - keep) / 8 + keep));
  }
  return divisors;
}

// A llama file of that kind: rotary pairs side by side, rope_freqs, and a d_ff
// that is no multiple of 256, so that Q4_K_M has Q5_0 and Q8_0 too.
std::string MixedFile(const TempDir& dir, GgufFileKind kind) {
  const std::string path = dir.File("mixed.gguf");
  ModelConfig config = Config(ModelFamily::kLlama);
  config.d_ff = 288;
  config.qkv_bias = true;
  config.rope_scaling = {RopeScaling::Type::kLlama3, 8, 1, 4, 64, {}};
  const auto weights = ModelWeights::Random(config, WeightType::kFloat32, 3);
  FORETOKEN_EXPECT_OK(weights);
  ThreadPool pool(2);
  FORETOKEN_EXPECT_OK(ExportGguf(**weights, kind, path, pool, GgufWriter(),
                                 [](const GgufExportedTensor&) {}));
  return path;
}

TEST(QuantReferenceTest, AMixedFileFollowsTheReferenceOnEveryIsa) {
  TempDir dir;
  const std::string path = MixedFile(dir, GgufFileKind::kQ4_K_M);
  const auto load = [&] { return *ModelWeights::Load(path); };
  const ReferenceModel reference =
      ReadReference(*load(), /*pairs=*/true, Divisors(load()->config()));
  for (const CpuIsa isa : SupportedCpuIsas()) {
    Watched watched(load(), isa);
    ExpectTheReference(watched, reference, (*SelectCpuOps(isa))->name);
    EXPECT_THAT(
        watched.backend().numerics_fingerprint(),
        HasSubstr(
            ";matrices=q8_0+q5_0+q4_k+q6_k;activations=int8x32+int8x256;"));
  }
}

// The tests above would see any of these.
TEST(QuantReferenceTest, EveryMistakeIsSeen) {
  struct Mistake {
    const char* what;
    std::function<void(ReferenceModel&)> make;
  };
  // 32 weights of row 7.
  const auto block = [](ReferenceMatrix& matrix, auto change) {
    for (int64_t i = 64; i < 96; ++i)
      change(matrix.values[7 * matrix.cols + i]);
  };
  const auto swap_rows = [](ReferenceMatrix& matrix) {
    std::swap_ranges(matrix.values.begin(), matrix.values.begin() + matrix.cols,
                     matrix.values.begin() + matrix.cols);
  };
  const Mistake mistakes[] = {
      {"a scale of one block of q, 1 % too large",
       [&](ReferenceModel& model) {
         block(model.layers[0].q, [](double& value) { value *= 1.01; });
       }},
      {"a scale of one block of down, 1 % too large",
       [&](ReferenceModel& model) {
         block(model.layers[1].down, [](double& value) { value *= 1.01; });
       }},
      {"a minimum of one block of gate, off by 1e-3",
       [&](ReferenceModel& model) {
         block(model.layers[0].gate, [](double& value) { value += 1e-3; });
       }},
      {"a minimum of one block of the output, off by 1e-3",
       [&](ReferenceModel& model) {
         block(model.output, [](double& value) { value += 1e-3; });
       }},
      {"two neighbours in a block of o",
       [&](ReferenceModel& model) {
         std::swap(model.layers[1].o.values[64], model.layers[1].o.values[65]);
       }},
      {"two rows of the keys",
       [&](ReferenceModel& model) { swap_rows(model.layers[1].k); }},
      {"two elements of the bias of the queries",
       [](ReferenceModel& model) {
         std::swap(model.layers[0].q.bias[0], model.layers[0].q.bias[1]);
       }},
      {"one rotary divisor of the last dimensions",
       [](ReferenceModel& model) { model.frequencies.back() *= 8; }},
  };
  TempDir dir;
  const std::string path = MixedFile(dir, GgufFileKind::kQ4_K_M);
  const auto load = [&] { return *ModelWeights::Load(path); };
  const std::vector<double> divisors = Divisors(load()->config());
  Watched watched(load());
  // Rounding to int8 hides a small mistake from a chain in which no activation
  // crosses a tie, so one of the chains suffices.
  const auto expect_seen = [&](const ReferenceModel& model, const char* what) {
    bool seen = false;
    for (const std::vector<TokenId>& chain : RandomChains(8)) {
      const auto error = watched.RelativeError(model, chain);
      seen = seen || !error.ok() || !(*error <= kMostError);
    }
    EXPECT_TRUE(seen) << what;
  };
  for (const Mistake& mistake : mistakes) {
    ReferenceModel model = ReadReference(*load(), /*pairs=*/true, divisors);
    mistake.make(model);
    expect_seen(model, mistake.what);
  }
  expect_seen(ReadReference(*load(), /*pairs=*/false, divisors),
              "pairs as two halves");
  expect_seen(ReadReference(*load(), /*pairs=*/true, {}), "no rope_freqs");
}

}  // namespace
}  // namespace foretoken
