// The sampler's kernel by its own source on a CPU, where thousands of
// candidates are at one distance from the best: too many to be sorted at once.
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "common/infer/model_weights.h"
#include "common/sampling/sampler.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer_cuda/kernels_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of kernels_backend.h

ModelConfig ManyTokens() {
  ModelConfig config = TinyConfig();
  config.n_layers = 1;
  config.vocab_size = 3001;
  return config;
}

// The same logit for every token.
class LevelWeights : public ModelWeights {
 public:
  explicit LevelWeights(const ModelConfig& config)
      : base_(*ModelWeights::Random(config, WeightType::kBFloat16, 7)),
        output_(base_->output()),
        zeros_(output_.bytes(), 0) {
    output_.data = zeros_.data();
  }
  const ModelConfig& config() const override { return base_->config(); }
  const WeightTensor& embedding() const override { return base_->embedding(); }
  const WeightTensor& output() const override { return output_; }
  const WeightTensor& final_norm() const override {
    return base_->final_norm();
  }
  absl::Span<const LayerWeights> layers() const override {
    return base_->layers();
  }
  const Sha256Digest& digest() const override { return base_->digest(); }

 private:
  const std::unique_ptr<ModelWeights> base_;
  WeightTensor output_;
  const std::vector<uint8_t> zeros_;
};

// Draws of `params` against the sampler's on the same logits.
void ExpectTheSamplersDraws(Backend& backend, const SamplingParams& params) {
  const std::vector<TokenId> tokens = {5, 11};
  const std::vector<int32_t> parents = Chain(tokens.size());
  const SessionId session = backend.Open("", {})->session;
  SamplingState state(params, 0, backend.config().vocab_size);
  PassSession pass;
  pass.session = session;
  pass.tokens = tokens;
  pass.parents = parents;
  pass.sampling = &state;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward({pass}, result));
  SamplingState::Scratch scratch;
  for (size_t r = 0; r < tokens.size(); ++r) {
    const Bits logits = RowLogits(backend, session, static_cast<int32_t>(r));
    const SampledToken want =
        state.Sample(logits, absl::MakeConstSpan(tokens).first(r + 1), scratch);
    const SampledToken& got = result.outputs[0][r];
    EXPECT_EQ(got.token, want.token) << "row " << r;
    EXPECT_EQ(got.logprob, want.logprob);
    ASSERT_EQ(got.top_logprobs.size(), want.top_logprobs.size());
    for (size_t i = 0; i < want.top_logprobs.size(); ++i) {
      EXPECT_EQ(got.top_logprobs[i].token, want.top_logprobs[i].token);
      EXPECT_EQ(got.top_logprobs[i].logprob, want.top_logprobs[i].logprob);
    }
  }
  FORETOKEN_ASSERT_OK(backend.Close(session));
}

// At a temperature of 1,000 all distances are below a bin, at one of 0.01
// almost all are beyond the last.
TEST(KernelsOnCpuSamplerTest, FiltersAreExactAtAnyTemperature) {
  const auto backend = MakeKernels(ManyTokens(), SmallOptions());
  for (const float temperature : {1000.0f, 1.0f, 0.01f}) {
    for (const int top_k : {0, 1, 700, 2900}) {
      for (const float top_p : {1.0f, 0.6f}) {
        SamplingParams params;
        params.temperature = temperature;
        params.top_k = top_k;
        params.top_p = top_p;
        params.seed = 3 + top_k;
        params.logprobs = top_k == 1 ? 8 : -1;
        SCOPED_TRACE(::testing::Message()
                     << temperature << " " << top_k << " " << top_p);
        ExpectTheSamplersDraws(*backend, params);
      }
    }
  }
}

TEST(KernelsOnCpuSamplerTest, OfEqualLogitsTheLowestIdsStay) {
  const LevelWeights weights(ManyTokens());
  const auto backend = MakeKernels(weights, SmallOptions());
  for (const int top_k : {0, 1, 40, 2900}) {
    SamplingParams params;
    params.temperature = 1.0f;
    params.top_k = top_k;
    params.top_p = top_k == 40 ? 0.5f : 1.0f;
    params.logprobs = 8;
    params.seed = 100 + top_k;
    SCOPED_TRACE(top_k);
    ExpectTheSamplersDraws(*backend, params);
  }
}

}  // namespace
}  // namespace foretoken
