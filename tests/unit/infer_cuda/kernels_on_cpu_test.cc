// The kernels' own source, run on a CPU (tests/support/cuda_on_cpu): what they
// compute against the fp32 CPU engine and the sampler, and that no row depends
// on its company, bit for bit. That a GPU does the same is for a GPU to show.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cuda/cuda_backend.h"
#include "common/infer/cuda/device_weights.h"
#include "common/infer/cuda/kernels/engine_shape.h"
#include "common/infer/cuda/kernels/pass_tier.h"
#include "common/infer/model_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/huge_values.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/one_by_one.h"
#include "tests/unit/infer/states_contract.h"
#include "tests/unit/infer/tiny_backend.h"
#include "tests/unit/infer/truncate_contract.h"
#include "tests/unit/infer_cuda/kernels_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of kernels_backend.h
using ::testing::HasSubstr;

struct NamedConfig {
  const char* name;
  WeightType type;
  ModelConfig config;
};

std::vector<NamedConfig> Configs() {
  std::vector<NamedConfig> all;
  const auto add = [&](const char* name) -> ModelConfig& {
    all.push_back({name, WeightType::kBFloat16, TinyConfig()});
    return all.back().config;
  };
  add("plain");
  ModelConfig& norm = add("qk_norm_tied");
  norm.qk_norm = norm.tied_embeddings = true;
  ModelConfig& bias = add("biases_head_64");
  bias.qkv_bias = bias.output_bias = bias.mlp_bias = true;
  bias.head_dim = 64;
  ModelConfig& whole = add("no_grouping_head_80");
  whole.n_kv_heads = 6;
  whole.head_dim = 80;
  whole.d_ff = 200;
  ModelConfig& wide = add("head_128_group_7");
  wide.n_heads = 7;
  wide.n_kv_heads = 1;
  wide.head_dim = 128;
  ModelConfig& widest = add("head_256_group_20");
  widest.n_heads = 20;
  widest.n_kv_heads = 1;
  widest.head_dim = 256;
  widest.n_layers = 1;
  ModelConfig& grouped = add("several_groups_of_k");
  grouped.d_model = 780;
  grouped.d_ff = 780;
  grouped.n_layers = 1;
  add("fp16");
  all.back().type = WeightType::kFloat16;
  return all;
}

class KernelsOnCpuLogitsTest : public ::testing::TestWithParam<NamedConfig> {};

TEST_P(KernelsOnCpuLogitsTest, AreWithinThreeHundredthsOfTheFp32Engine) {
  auto weights = ModelWeights::Random(GetParam().config, GetParam().type, 3);
  FORETOKEN_ASSERT_OK(weights);
  std::mt19937 random(5);
  const std::vector<TokenId> tokens =
      RandomTokens(100, GetParam().config, random);
  CudaOptions options = SmallOptions();
  options.kv_cache_bytes = int64_t{8} << 20;
  const std::vector<Bits> got =
      RunChain(*MakeKernels(**weights, options), tokens);
  CpuOptions cpu;
  cpu.precision = Precision::kFloat32;
  cpu.threads = 1;
  const auto reference = MakeCpuBackend(*std::move(weights), cpu);
  FORETOKEN_ASSERT_OK(reference);
  const SessionId session = (*reference)->Open("", {})->session;
  PassSession pass;
  pass.session = session;
  pass.tokens = tokens;
  const std::vector<int32_t> parents = Chain(tokens.size());
  pass.parents = parents;
  PassResult result;
  FORETOKEN_ASSERT_OK((*reference)->Forward({pass}, result));
  float largest = 0.0f, difference = 0.0f;
  for (size_t r = 0; r < tokens.size(); ++r) {
    const Bits want = RowLogits(**reference, session, static_cast<int32_t>(r));
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      const float off = std::abs(want[i] - got[r][i]);
      if (!(off <= difference)) difference = off;  // keeps a NaN
    }
  }
  EXPECT_LE(difference / largest, 3e-2f);
}

INSTANTIATE_TEST_SUITE_P(Shapes, KernelsOnCpuLogitsTest,
                         ::testing::ValuesIn(Configs()),
                         [](const auto& test) { return test.param.name; });

// K in two groups of the products with the residual stream.
ModelConfig Grouped() {
  ModelConfig config = TinyConfig();
  config.d_model = 520;
  config.d_ff = 520;
  config.n_layers = 1;
  return config;
}

class KernelsOnCpuTest : public ::testing::Test {
 protected:
  const ModelConfig config_ = TinyConfig();
  std::mt19937 random_{21};
};

// A chain of `chain` and children of its last three rows, so that there are few
// paths however many rows.
void CheckRowCounts(const ModelConfig& config, int chain,
                    const std::vector<int>& counts, std::mt19937& random) {
  const auto reference = MakeKernels(config, SmallOptions(false));
  OneByOne one_by_one(*reference);
  const auto backend = MakeKernels(config, SmallOptions());
  const std::vector<TokenId> some = RandomTokens(chain + 2, config, random);
  one_by_one.Logits({some.begin(), some.begin() + chain});
  for (const int rows : counts) {
    std::vector<TokenId> tokens(rows);
    std::vector<int32_t> parents = Chain(rows);
    for (int r = 0; r < rows; ++r) {
      tokens[r] = r < chain ? some[r] : some[chain + r % 2];
      if (r >= chain) parents[r] = chain - 1 - r % 3;
    }
    const SessionId session = backend->Open("", {})->session;
    PassSession pass;
    pass.session = session;
    pass.tokens = tokens;
    pass.parents = parents;
    PassResult result;
    // The second time it is a graph that runs.
    for (int time = 0; time < (rows <= 17 ? 2 : 1); ++time) {
      FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
    }
    for (int r = 0; r < rows; ++r) {
      const Bits& want = one_by_one.Logits(PathTo({}, tokens, parents, r));
      ASSERT_TRUE(SameBits(RowLogits(*backend, session, r), want))
          << rows << " rows, row " << r;
      ASSERT_EQ(result.outputs[0][r].token,
                std::max_element(want.begin(), want.end()) - want.begin());
    }
    FORETOKEN_ASSERT_OK(backend->Close(session));
  }
}

TEST_F(KernelsOnCpuTest, EveryRowCountGivesTheSameRows) {
  CheckRowCounts(config_, 36, {1, 2, 3, 8, 17, 64, 130, 320}, random_);
}

TEST_F(KernelsOnCpuTest, EveryRowCountGivesTheSameRowsWhereKIsCutIntoGroups) {
  // (With 320 rows a product adds its groups itself.)
  CheckRowCounts(Grouped(), 5, {1, 9, 33, 200, 320}, random_);
}

// A row of the norm is longer than what a thread keeps. (The machine has four
// multiprocessors: passes of more rows have another norm.)
TEST_F(KernelsOnCpuTest, EveryRowCountGivesTheSameRowsWhereTheyAreLong) {
  ModelConfig config = TinyConfig();
  config.d_model = 4'100;
  config.n_layers = 1;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.d_ff = 64;
  CheckRowCounts(config, 3, {1, 4, 5, 9}, random_);
}

// So little memory for attention's partial results that a pass needs several
// slabs, whose bounds cut through the sessions' tasks.
TEST_F(KernelsOnCpuTest, AttentionInSlabsChangesNothing) {
  ModelConfig config = TinyConfig();
  config.n_layers = 1;
  config.n_heads = 3;
  config.n_kv_heads = 1;
  config.max_positions = 256;
  const auto weights = ModelWeights::Random(config, WeightType::kBFloat16, 7);
  FORETOKEN_ASSERT_OK(weights);
  int slab = 0;
  const auto made = MakeCudaBackend(
      **weights,
      [&](const DeviceShape& shape, DeviceOptions options) {
        options.attention_bytes = 1;
        device::EngineShape sizes;
        EXPECT_TRUE(device::EngineShape::Create(shape, options, &sizes).ok());
        slab = sizes.SlabQueries(sizes.max_chunks);
        return MakeEngine(shape, options);
      },
      SmallOptions());
  FORETOKEN_ASSERT_OK(made);
  Backend& small = **made;
  const auto plain = MakeKernels(**weights, SmallOptions());
  // 11 queries of a first session, so that tasks straddle every bound.
  constexpr int kRows[] = {5, 60, 65};
  int queries = 0;
  for (const int rows : kRows) queries += 3 * rows;
  ASSERT_GT(queries, 2 * slab);
  ASSERT_NE((slab - 3 * kRows[0]) % device::kTaskQueries, 0);
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<int32_t>> parents;
  for (const int rows : kRows) {
    tokens.push_back(RandomTokens(rows, config, random_));
    parents.push_back(RandomParents(rows, 1, random_));
  }
  const auto run = [&](Backend& backend) {
    std::vector<PassSession> pass(std::size(kRows));
    for (size_t s = 0; s < pass.size(); ++s) {
      pass[s].session = backend.Open("", {})->session;
      pass[s].tokens = tokens[s];
      pass[s].parents = parents[s];
    }
    PassResult result;
    EXPECT_THAT(backend.Forward(pass, result), IsOk());
    std::vector<Bits> all;
    for (size_t s = 0; s < pass.size(); ++s) {
      for (int r = 0; r < kRows[s]; ++r) {
        all.push_back(RowLogits(backend, pass[s].session, r));
      }
    }
    return all;
  };
  // The second time in a graph, whose tier has a slab without a task.
  ASSERT_LT(queries, (3 * device::RowTier(queries / 3) - 1) / slab * slab);
  const std::vector<Bits> want = run(*plain);
  for (int turn = 0; turn < 2; ++turn) {
    const std::vector<Bits> got = run(small);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(SameBits(got[i], want[i])) << "row " << i;
    }
  }
}

TEST_F(KernelsOnCpuTest, BatchMatesChunksAndTheOrderOfATreeChangeNothing) {
  const auto reference = MakeKernels(config_, SmallOptions(false));
  const auto backend = MakeKernels(config_, SmallOptions());
  // The same in a separate session whose context came in two chunks.
  const auto alone = [&](const std::vector<TokenId>& context,
                         const std::vector<TokenId>& path) {
    const SessionId session = reference->Open("", {})->session;
    const auto middle = context.begin() + context.size() / 3;
    for (const std::vector<TokenId>& part :
         {std::vector<TokenId>(context.begin(), middle),
          std::vector<TokenId>(middle, context.end()),
          std::vector<TokenId>(path.begin(), path.end() - 1)}) {
      if (!part.empty()) Append(*reference, session, part);
    }
    PassSession pass;
    pass.session = session;
    const std::vector<TokenId> last = {path.back()};
    const std::vector<int32_t> parents = {-1};
    pass.tokens = last;
    pass.parents = parents;
    PassResult result;
    EXPECT_THAT(reference->Forward({pass}, result), IsOk());
    const Bits logits = RowLogits(*reference, session, 0);
    EXPECT_THAT(reference->Close(session), IsOk());
    return logits;
  };
  for (const int mates : {1, 3}) {
    std::vector<std::vector<TokenId>> contexts, tokens;
    std::vector<std::vector<int32_t>> parents;
    std::vector<PassSession> pass(mates);
    for (int s = 0; s < mates; ++s) {
      pass[s].session = backend->Open("", {})->session;
      contexts.push_back(RandomTokens(random_() % 150, config_, random_));
      const int rows = 1 + random_() % 12;
      tokens.push_back(RandomTokens(rows, config_, random_));
      parents.push_back(RandomParents(rows, s % 3, random_));
      if (!contexts[s].empty()) Append(*backend, pass[s].session, contexts[s]);
    }
    for (int s = 0; s < mates; ++s) {
      pass[s].tokens = tokens[s];
      pass[s].parents = parents[s];
    }
    PassResult result;
    FORETOKEN_ASSERT_OK(backend->Forward(pass, result));
    for (int s = 0; s < mates; ++s) {
      for (size_t r = 0; r < tokens[s].size(); ++r) {
        const Bits want =
            alone(contexts[s], PathTo({}, tokens[s], parents[s], r));
        ASSERT_TRUE(SameBits(RowLogits(*backend, pass[s].session, r), want))
            << "session " << s << " of " << mates << ", row " << r;
      }
      FORETOKEN_ASSERT_OK(backend->Close(pass[s].session));
    }
  }
}

// The model's own tokens as a draft, wrong ones beside them: the walk, what it
// moved ahead, and explicit commits.
TEST_F(KernelsOnCpuTest, SpeculationWritesWhatPlainDecodingWrites) {
  SamplingParams params;
  for (const float temperature : {0.0f, 0.8f}) {
    params.temperature = temperature;
    params.seed = 5;
    params.repetition_penalty = temperature > 0.0f ? 1.2f : 1.0f;
    const std::vector<TokenId> prompt = RandomTokens(28, config_, random_);
    const auto backend = MakeKernels(config_, SmallOptions());
    const auto write = [&](bool drafts, const std::vector<TokenId>& known) {
      const SessionId session = backend->Open("", {})->session;
      SamplingState state(params, prompt.size(), config_.vocab_size);
      Append(*backend, session, prompt);
      state.Append(prompt);
      std::vector<TokenId> written = {prompt.back()};
      // (The last prompt token once more: any token will do as the first row.)
      while (written.size() < 40) {
        std::vector<TokenId> tokens = {written.back()};
        std::vector<int32_t> parents = {-1};
        if (drafts) {
          for (int d = 0; d < 3; ++d) {
            const size_t at = written.size() + d;
            const TokenId right = at < known.size() ? known[at] : 0;
            // A wrong sibling, then the right token (but not always).
            tokens.push_back((right + 1) % config_.vocab_size);
            parents.push_back(d == 0 ? 0 : 2 * d);
            tokens.push_back(at % 7 == 3 ? (right + 2) % config_.vocab_size
                                         : right);
            parents.push_back(d == 0 ? 0 : 2 * d);
          }
        }
        if (written.size() % 2 == 0) {
          EXPECT_THAT(backend->Reserve(session, 28 + written.size() + 8),
                      IsOk());
        }
        PassSession pass;
        pass.session = session;
        pass.tokens = tokens;
        pass.parents = parents;
        pass.sampling = &state;
        PassResult result;
        EXPECT_THAT(backend->Forward({pass}, result), IsOk());
        std::vector<int32_t> path = {0};
        std::vector<TokenId> committed = {tokens[0]};
        for (size_t r = 1; r < tokens.size(); ++r) {
          if (parents[r] == path.back() &&
              tokens[r] == result.outputs[0][path.back()].token) {
            path.push_back(static_cast<int32_t>(r));
            committed.push_back(tokens[r]);
          }
        }
        EXPECT_THAT(backend->Commit(session, path), IsOk());
        state.Append(committed);
        for (size_t i = 1; i < committed.size(); ++i) {
          written.push_back(committed[i]);
        }
        written.push_back(result.outputs[0][path.back()].token);
      }
      EXPECT_THAT(backend->Close(session), IsOk());
      written.resize(40);
      return written;
    };
    const std::vector<TokenId> plain = write(false, {});
    EXPECT_EQ(write(true, plain), plain);
  }
}

// Where the sums of the last product have several groups and a bias, too.
TEST_F(KernelsOnCpuTest, StatesAreThoseOfEachRowsOwnPath) {
  ModelConfig grouped = Grouped();
  grouped.mlp_bias = true;
  for (const ModelConfig& config : {config_, grouped}) {
    const auto reference = MakeKernels(config, SmallOptions(false));
    const auto backend = MakeKernels(config, SmallOptions());
    ExpectStatesOfEachRowsOwnPath(*backend, *reference, random_);
  }
}

TEST_F(KernelsOnCpuTest, StatesAreWhatTheHeadReads) {
  ModelConfig grouped = Grouped();
  grouped.mlp_bias = true;
  for (const ModelConfig& config : {config_, grouped}) {
    const auto weights = ModelWeights::Random(config, WeightType::kBFloat16, 7);
    FORETOKEN_ASSERT_OK(weights);
    const auto backend = MakeKernels(**weights, SmallOptions());
    ExpectStatesAreWhatTheHeadReads(*backend, **weights, random_);
    ExpectStatesRefuseOtherRows(*backend);
  }
}

TEST_F(KernelsOnCpuTest, ATruncatedSessionEqualsAFreshOne) {
  const auto reference = MakeKernels(config_, SmallOptions());
  const auto backend = MakeKernels(config_, SmallOptions());
  ExpectTruncateLeavesAFreshPrefix(*backend, *reference);
}

TEST_F(KernelsOnCpuTest, SamplesAsTheSamplerDoesAlongEachRowsOwnPath) {
  std::vector<SamplingParams> cases(9);
  cases[1].temperature = 0.9f;
  cases[2] = cases[1];
  cases[2].top_k = 20;
  cases[2].top_p = 0.8f;
  cases[2].min_p = 0.01f;
  cases[3] = cases[1];
  cases[3].repetition_penalty = 1.3f;
  cases[3].presence_penalty = 0.7f;
  cases[3].frequency_penalty = 0.4f;
  cases[4].logit_bias = {{7, 60.0f}, {9, -100.0f}};
  cases[5].min_tokens = 6;
  cases[6] = cases[3];
  cases[6].logit_bias = {{11, 5.0f}};
  cases[6].min_tokens = 5;
  cases[6].top_p = 0.9f;
  cases[7].temperature = 2.5f;
  cases[7].top_p = 1e-13f;
  cases[8].temperature = 1.0f;
  cases[8].top_k = 3;
  cases[8].logprobs = 8;
  const auto backend = MakeKernels(config_, SmallOptions());
  const SessionId session = backend->Open("", {})->session;
  const std::vector<TokenId> context = RandomTokens(37, config_, random_);
  Append(*backend, session, context);
  std::vector<TokenId> tokens = RandomTokens(10, config_, random_);
  tokens[4] = tokens[1];  // counted twice on one path
  tokens[2] = context[0];
  const std::vector<int32_t> parents = {-1, 0, 0, 1, 3, 4, 2, 5, 2, 0};
  PassSession pass;
  pass.session = session;
  pass.tokens = tokens;
  pass.parents = parents;
  PassResult result;
  for (size_t c = 0; c < cases.size(); ++c) {
    SamplingParams params = cases[c];
    params.seed = 99 + c;
    pass.sampling = nullptr;
    FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
    if (params.min_tokens > 0) {
      params.end_tokens = {result.outputs[0][0].token};
    }
    SamplingState state(params, 35, config_.vocab_size);
    state.Append(context);
    pass.sampling = &state;
    FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
    SamplingState::Scratch scratch;
    for (int r = 0; r < 10; ++r) {
      const Bits logits = RowLogits(*backend, session, r);
      const SampledToken want =
          state.Sample(logits, PathTo({}, tokens, parents, r), scratch);
      const SampledToken& got = result.outputs[0][r];
      EXPECT_EQ(got.token, want.token) << "case " << c << ", row " << r;
      EXPECT_EQ(got.logprob, want.logprob);
      ASSERT_EQ(got.top_logprobs.size(), want.top_logprobs.size());
      for (size_t i = 0; i < want.top_logprobs.size(); ++i) {
        EXPECT_EQ(got.top_logprobs[i].token, want.top_logprobs[i].token);
        EXPECT_EQ(got.top_logprobs[i].logprob, want.top_logprobs[i].logprob);
      }
    }
  }
}

// The values of later rows share the tiles of earlier ones, with weight 0.
TEST_F(KernelsOnCpuTest, HugeValuesHarmNoRowThatDoesNotReadThem) {
  for (const WeightType type : {WeightType::kBFloat16, WeightType::kFloat16}) {
    const auto weights = HugeValueWeights::Create(config_, type);
    FORETOKEN_ASSERT_OK(weights);
    const auto backend = MakeKernels(**weights, SmallOptions());
    std::vector<TokenId> tokens = {1, 4, 3, 2, 5, 6, 7, 8};
    constexpr int kOwn = 4;
    std::vector<Bits> logits[2];
    for (const bool huge : {false, true}) {
      if (huge) {
        std::fill(tokens.begin() + kOwn, tokens.end(),
                  HugeValueWeights::kHugeToken);
      }
      const SessionId session = backend->Open("", {})->session;
      PassSession pass;
      pass.session = session;
      pass.tokens = tokens;
      const std::vector<int32_t> parents = Chain(tokens.size());
      pass.parents = parents;
      PassResult result;
      FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
      for (size_t r = 0; r < tokens.size(); ++r) {
        logits[huge].push_back(
            RowLogits(*backend, session, static_cast<int32_t>(r)));
      }
      FORETOKEN_ASSERT_OK(backend->Close(session));
    }
    for (size_t r = 0; r < tokens.size(); ++r) {
      EXPECT_EQ(SameBits(logits[0][r], logits[1][r]), r < kOwn) << "row " << r;
    }
  }
}

// Weights whose embedding of one token is no number.
class SpoiltWeights : public ModelWeights {
 public:
  static constexpr TokenId kSpoilt = 9;

  explicit SpoiltWeights(const ModelConfig& config)
      : base_(*ModelWeights::Random(config, WeightType::kFloat32, 7)),
        values_(base_->embedding().size()),
        embedding_(base_->embedding()) {
    embedding_.CopyTo(0, absl::MakeSpan(values_));
    std::fill_n(values_.begin() + kSpoilt * config.d_model, config.d_model,
                std::numeric_limits<float>::quiet_NaN());
    embedding_.data = reinterpret_cast<const uint8_t*>(values_.data());
  }
  const ModelConfig& config() const override { return base_->config(); }
  const WeightTensor& embedding() const override { return embedding_; }
  const WeightTensor& output() const override { return base_->output(); }
  const WeightTensor& final_norm() const override {
    return base_->final_norm();
  }
  absl::Span<const LayerWeights> layers() const override {
    return base_->layers();
  }
  const Sha256Digest& digest() const override { return base_->digest(); }

 private:
  const std::unique_ptr<ModelWeights> base_;
  std::vector<float> values_;
  WeightTensor embedding_;
};

// A row that is no number shares tiles, pages and products with others.
TEST_F(KernelsOnCpuTest, ARowWithoutNumbersIsReportedAndHarmsNoOther) {
  const SpoiltWeights weights(config_);
  const auto backend = MakeKernels(weights, SmallOptions());
  const SessionId session = backend->Open("", {})->session;
  std::vector<TokenId> tokens = {1, 4, 3, 2, 4};
  const std::vector<int32_t> parents = {-1, 0, 0, 2, 3};
  const std::vector<int32_t> listed = {0, 2, 3};
  PassSession pass;
  pass.session = session;
  pass.parents = parents;
  pass.outputs = RowOutputs::kListedRows;
  pass.output_rows = listed;
  std::vector<Bits> logits[2];
  for (const bool spoil : {false, true}) {
    if (spoil) tokens[1] = tokens[4] = SpoiltWeights::kSpoilt;
    pass.tokens = tokens;
    PassResult result;
    FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
    for (const int32_t row : listed) {
      logits[spoil].push_back(RowLogits(*backend, session, row));
    }
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    EXPECT_TRUE(SameBits(logits[0][i], logits[1][i])) << "row " << listed[i];
  }
  pass.outputs = RowOutputs::kAllRows;
  pass.output_rows = {};
  PassResult result;
  EXPECT_THAT(backend->Forward({pass}, result),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("logits of row 1 are not numbers")));
}

}  // namespace
}  // namespace foretoken
