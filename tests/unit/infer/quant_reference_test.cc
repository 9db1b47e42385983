// Logits of tiny quantised models of every architecture against a forward pass
// in double precision that rounds where the CPU backend rounds: activations to
// int8 before every product, keys and values to bf16.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
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
#include "tests/unit/infer/tiny_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h
using ::testing::HasSubstr;

using Vector = std::vector<double>;

std::vector<float> Values(const WeightTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.size()));
  if (tensor.present()) tensor.CopyTo(0, absl::MakeSpan(values));
  return values;
}

// Blocks of 32 to multiples of their largest magnitude over 127.
Vector RoundToInt8(const Vector& x) {
  Vector out(x.size());
  for (size_t b = 0; b < x.size(); b += 32) {
    float largest = 0;
    for (size_t i = b; i < b + 32; ++i) {
      largest = std::max(largest, std::abs(static_cast<float>(x[i])));
    }
    for (size_t i = b; i < b + 32; ++i) {
      out[i] = std::nearbyint(static_cast<float>(x[i]) * (127.0f / largest)) *
               static_cast<double>(largest / 127.0f);
    }
  }
  return out;
}

Vector Product(const WeightTensor& matrix, const Vector& x,
               const WeightTensor& bias) {
  const std::vector<float> weights = Values(matrix);
  const std::vector<float> added = Values(bias);
  const Vector rounded = RoundToInt8(x);
  Vector out(matrix.rows);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    double sum = bias.present() ? added[r] : 0.0;
    for (int64_t c = 0; c < matrix.cols; ++c) {
      sum += weights[r * matrix.cols + c] * rounded[c];
    }
    out[r] = sum;
  }
  return out;
}

// In place, values[begin, begin + size).
void RmsNorm(const WeightTensor& weight, double eps, int64_t begin,
             Vector& values) {
  const std::vector<float> weights = Values(weight);
  const int64_t size = static_cast<int64_t>(weights.size());
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += std::pow(values[begin + i], 2);
  const double inverse = 1 / std::sqrt(sum / static_cast<double>(size) + eps);
  for (int64_t i = 0; i < size; ++i) values[begin + i] *= inverse * weights[i];
}

void Rotate(const ModelConfig& config, int64_t position, int64_t begin,
            Vector& values) {
  const int half = config.head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) *
                         std::pow(static_cast<double>(config.rope_theta),
                                  -2.0 * i / config.head_dim);
    double& a = values[begin + i];
    double& b = values[begin + i + half];
    const double rotated = a * std::cos(angle) - b * std::sin(angle);
    b = b * std::cos(angle) + a * std::sin(angle);
    a = rotated;
  }
}

double RoundToBf16(double value) {
  return FloatFromBFloat16(BFloat16FromFloat(static_cast<float>(value)));
}

void AddTo(Vector& acc, const Vector& values) {
  for (size_t i = 0; i < acc.size(); ++i) acc[i] += values[i];
}

// Attention of every position to itself and those before, with heads of q, k
// and v already rotated: [position][heads * head_dim].
std::vector<Vector> Attend(const ModelConfig& config,
                           const std::vector<Vector>& q,
                           const std::vector<Vector>& k,
                           const std::vector<Vector>& v) {
  const int dim = config.head_dim;
  const int group = config.n_heads / config.n_kv_heads;
  std::vector<Vector> out(q.size(), Vector(config.n_heads * dim));
  for (size_t t = 0; t < q.size(); ++t) {
    for (int head = 0; head < config.n_heads; ++head) {
      const int kv = head / group * dim;
      Vector weight(t + 1);
      double total = 0;
      for (size_t s = 0; s <= t; ++s) {
        double score = 0;
        for (int d = 0; d < dim; ++d) {
          score += q[t][head * dim + d] * k[s][kv + d];
        }
        weight[s] = std::exp(score / std::sqrt(static_cast<double>(dim)));
        total += weight[s];
      }
      for (size_t s = 0; s <= t; ++s) {
        for (int d = 0; d < dim; ++d) {
          out[t][head * dim + d] += weight[s] / total * v[s][kv + d];
        }
      }
    }
  }
  return out;
}

void RunLayer(const ModelConfig& config, const LayerWeights& layer,
              std::vector<Vector>& hidden) {
  const double eps = config.rms_norm_eps;
  std::vector<Vector> q, k, v;
  for (size_t t = 0; t < hidden.size(); ++t) {
    Vector x = hidden[t];
    RmsNorm(layer.attention_norm, eps, 0, x);
    q.push_back(Product(layer.q, x, layer.q_bias));
    k.push_back(Product(layer.k, x, layer.k_bias));
    v.push_back(Product(layer.v, x, layer.v_bias));
    for (int h = 0; h < config.n_heads; ++h) {
      const int64_t at = int64_t{h} * config.head_dim;
      if (config.qk_norm) RmsNorm(layer.q_norm, eps, at, q[t]);
      Rotate(config, static_cast<int64_t>(t), at, q[t]);
    }
    for (int h = 0; h < config.n_kv_heads; ++h) {
      const int64_t at = int64_t{h} * config.head_dim;
      if (config.qk_norm) RmsNorm(layer.k_norm, eps, at, k[t]);
      Rotate(config, static_cast<int64_t>(t), at, k[t]);
    }
    for (double& value : k[t]) value = RoundToBf16(value);
    for (double& value : v[t]) value = RoundToBf16(value);
  }
  const std::vector<Vector> attention = Attend(config, q, k, v);
  for (size_t t = 0; t < hidden.size(); ++t) {
    AddTo(hidden[t], Product(layer.o, attention[t], layer.o_bias));
    Vector x = hidden[t];
    RmsNorm(layer.ffn_norm, eps, 0, x);
    Vector gate = Product(layer.gate, x, layer.gate_bias);
    const Vector up = Product(layer.up, x, layer.up_bias);
    for (size_t i = 0; i < gate.size(); ++i) {
      gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    }
    AddTo(hidden[t], Product(layer.down, gate, layer.down_bias));
  }
}

// Of every token of the chain, one after the other.
Vector ReferenceLogits(const ModelWeights& weights,
                       const std::vector<TokenId>& tokens) {
  const ModelConfig& config = weights.config();
  const std::vector<float> embedding = Values(weights.embedding());
  std::vector<Vector> hidden;
  for (const TokenId token : tokens) {
    const auto row = embedding.begin() + int64_t{token} * config.d_model;
    hidden.emplace_back(row, row + config.d_model);
  }
  for (const LayerWeights& layer : weights.layers()) {
    RunLayer(config, layer, hidden);
  }
  Vector logits;
  for (Vector& row : hidden) {
    RmsNorm(weights.final_norm(), config.rms_norm_eps, 0, row);
    const Vector some = Product(weights.output(), row, {});
    logits.insert(logits.end(), some.begin(), some.end());
  }
  return logits;
}

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

using Chains = std::vector<std::vector<TokenId>>;

Chains RandomChains() {
  std::mt19937 random(21);
  Chains chains;
  for (int i = 0; i < 16; ++i) {
    chains.push_back(RandomTokens(3, Config(ModelFamily::kLlama), random));
  }
  return chains;
}

// The largest difference of each chain from the reference, over the largest
// logit. The backend takes the weights.
std::vector<double> RelativeErrors(std::unique_ptr<ModelWeights> weights,
                                   CpuIsa isa, const std::vector<Vector>& want,
                                   const Chains& chains) {
  CpuOptions options = Options(2);
  options.isa = isa;
  auto backend = MakeCpuBackend(std::move(weights), options);
  EXPECT_THAT(backend, IsOk());
  std::vector<double> errors;
  for (size_t c = 0; c < chains.size(); ++c) {
    PassSession pass;
    pass.session = (*backend)->Open("", {})->session;
    pass.tokens = chains[c];
    const std::vector<int32_t> parents =
        Chain(static_cast<int>(chains[c].size()));
    pass.parents = parents;
    PassResult result;
    FORETOKEN_EXPECT_OK((*backend)->Forward({pass}, result));
    double error = 0, largest = 0;
    for (size_t t = 0; t < chains[c].size(); ++t) {
      const Bits logits =
          RowLogits(**backend, pass.session, static_cast<int32_t>(t));
      for (size_t i = 0; i < logits.size(); ++i) {
        const double wanted = want[c][t * logits.size() + i];
        const double difference = std::abs(logits[i] - wanted);
        if (!(difference <= error)) error = difference;  // keeps a NaN
        largest = std::max(largest, std::abs(wanted));
      }
    }
    EXPECT_GT(largest, 0.5);
    errors.push_back(error / largest);
    FORETOKEN_EXPECT_OK((*backend)->Close(pass.session));
  }
  return errors;
}

// Rounding to int8 jumps: where an activation lies within fp32's error of a tie
// the reference may round it the other way, and that chain is then off by up to
// a step, 1/254 of a block's largest magnitude. Few chains meet such a tie; an
// error in the arithmetic would show in every one.
void ExpectTheReference(std::vector<double> errors, const std::string& what) {
  std::sort(errors.begin(), errors.end());
  EXPECT_LE(errors[errors.size() * 3 / 4], 1e-4) << what;
  EXPECT_LE(errors.back(), 0.03) << what;
  ::testing::Test::RecordProperty(
      what, absl::StrCat(errors[errors.size() / 2], " median, ", errors.back(),
                         " at most"));
}

std::vector<Vector> References(const ModelWeights& weights,
                               const Chains& chains) {
  std::vector<Vector> logits;
  for (const std::vector<TokenId>& chain : chains) {
    logits.push_back(ReferenceLogits(weights, chain));
  }
  return logits;
}

TEST(QuantReferenceTest, EveryArchitectureAndTypeFollowsTheReference) {
  const Chains chains = RandomChains();
  for (const ModelFamily family :
       {ModelFamily::kLlama, ModelFamily::kQwen2, ModelFamily::kQwen3}) {
    for (const WeightType type :
         {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
          WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ4_K,
          WeightType::kQ5_K, WeightType::kQ6_K}) {
      const auto make = [&] {
        return *ModelWeights::Random(Config(family), type, 11);
      };
      ExpectTheReference(
          RelativeErrors(make(), SupportedCpuIsas().back(),
                         References(*make(), chains), chains),
          absl::StrCat(ModelFamilyName(family), "_", WeightTypeName(type)));
    }
  }
}

// A file whose tensors have several types, those of one product included.
TEST(QuantReferenceTest, AMixedFileFollowsTheReferenceOnEveryIsa) {
  const Chains chains = RandomChains();
  TempDir dir;
  const std::string path = dir.File("mixed.gguf");
  ModelConfig config = Config(ModelFamily::kLlama);
  config.d_ff = 288;  // no multiple of 256: Q5_0 and Q8_0
  const auto weights = ModelWeights::Random(config, WeightType::kFloat32, 3);
  FORETOKEN_ASSERT_OK(weights);
  ThreadPool pool(2);
  FORETOKEN_ASSERT_OK(ExportGguf(**weights, GgufFileKind::kQ4_K_M, path, pool,
                                 GgufWriter(),
                                 [](const GgufExportedTensor&) {}));
  const auto load = [&] { return *ModelWeights::Load(path); };
  const std::vector<Vector> want = References(*load(), chains);
  for (const CpuIsa isa : SupportedCpuIsas()) {
    ExpectTheReference(RelativeErrors(load(), isa, want, chains),
                       (*SelectCpuOps(isa))->name);
  }
  const auto backend = MakeCpuBackend(load(), Options());
  FORETOKEN_ASSERT_OK(backend);
  EXPECT_THAT((*backend)->numerics_fingerprint(),
              HasSubstr(";matrices=q8_0+q5_0+q4_k+q6_k;activations=int8x32;"));
}

}  // namespace
}  // namespace foretoken
