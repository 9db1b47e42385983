// Commits, sampling, errors and options of the CUDA backend, over the twin.
#include "common/infer/cuda/cuda_backend.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/infer/cuda/device_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/states_contract.h"
#include "tests/unit/infer/tiny_backend.h"
#include "tests/unit/infer/truncate_contract.h"
#include "tests/unit/infer_cuda/twin_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CudaBackendTest : public ::testing::Test {
 protected:
  CudaBackendTest()
      : backend_(MakeTwinBackend(config_, TwinOptions(), &log_)),
        session_(backend_->Open("", {})->session) {}

  // One pass of the session, alone.
  absl::Status Forward(const std::vector<TokenId>& tokens,
                       const std::vector<int32_t>& parents,
                       const SamplingState* sampling = nullptr,
                       RowOutputs outputs = RowOutputs::kAllRows) {
    PassSession pass;
    pass.session = session_;
    pass.tokens = tokens;
    pass.parents = parents;
    pass.sampling = sampling;
    pass.outputs = outputs;
    return backend_->Forward({pass}, result_);
  }

  // The chain that the model itself writes after `token`, and then a stranger.
  std::vector<TokenId> OwnChain(TokenId token, int length) {
    std::vector<TokenId> chain = {token};
    while (static_cast<int>(chain.size()) < length) {
      FORETOKEN_EXPECT_OK(Forward(chain, Chain(chain.size())));
      chain.push_back(result_.outputs[0].back().token);
    }
    FORETOKEN_EXPECT_OK(Forward(chain, Chain(chain.size())));
    chain.push_back((result_.outputs[0].back().token + 1) % config_.vocab_size);
    return chain;
  }

  const ModelConfig config_ = TinyConfig();
  EngineLog log_;
  const std::unique_ptr<Backend> backend_;
  const SessionId session_;
  PassResult result_;
};

TEST_F(CudaBackendTest, ACommitAlongTheModelsOwnTokensIsFree) {
  const std::vector<TokenId> chain = OwnChain(5, 4);  // 4 rows agree, 1 not
  FORETOKEN_ASSERT_OK(backend_->Reserve(session_, 10));
  FORETOKEN_ASSERT_OK(Forward(chain, Chain(5)));
  EXPECT_THAT(log_.commit_counts, ElementsAre(5));
  FORETOKEN_ASSERT_OK(backend_->Commit(session_, {0, 1, 2, 3}));
  EXPECT_EQ(log_.commits, 0);
  EXPECT_EQ(*backend_->CommittedLength(session_), 4);
}

TEST_F(CudaBackendTest, APathCutShortIsFreeAndALongerOneMovesItsRest) {
  const std::vector<TokenId> chain = OwnChain(5, 4);
  FORETOKEN_ASSERT_OK(backend_->Reserve(session_, 10));
  FORETOKEN_ASSERT_OK(Forward(chain, Chain(5)));
  FORETOKEN_ASSERT_OK(backend_->Commit(session_, {0, 1}));
  EXPECT_EQ(log_.commits, 0);

  const SessionId other = backend_->Open("", {})->session;
  FORETOKEN_ASSERT_OK(backend_->Reserve(other, 10));
  PassSession pass;
  pass.session = other;
  pass.tokens = chain;
  const std::vector<int32_t> parents = Chain(5);
  pass.parents = parents;
  FORETOKEN_ASSERT_OK(backend_->Forward({pass}, result_));
  FORETOKEN_ASSERT_OK(backend_->Commit(other, {0, 1, 2, 3, 4}));
  EXPECT_EQ(log_.commits, 1);
  EXPECT_EQ(log_.commit_rows, 1);
}

TEST_F(CudaBackendTest, AnotherPathThanTheModelsIsMovedFromWhereItLeaves) {
  std::vector<TokenId> tokens = OwnChain(5, 3);
  std::vector<int32_t> parents = Chain(4);
  tokens.push_back((tokens[2] + 1) % config_.vocab_size);  // beside row 2
  parents.push_back(1);
  FORETOKEN_ASSERT_OK(backend_->Reserve(session_, 10));
  FORETOKEN_ASSERT_OK(Forward(tokens, parents));
  FORETOKEN_ASSERT_OK(backend_->Commit(session_, {0, 1, 4}));
  EXPECT_EQ(log_.commits, 1);
  EXPECT_EQ(log_.commit_rows, 1);
}

TEST_F(CudaBackendTest, OnlySlotsOfPagesThatAreHeldAreFilledAhead) {
  const std::vector<TokenId> chain = OwnChain(5, 4);
  FORETOKEN_ASSERT_OK(Forward(chain, Chain(5)));
  EXPECT_THAT(log_.commit_counts, ElementsAre(0));  // no page yet
  FORETOKEN_ASSERT_OK(backend_->Commit(session_, {0, 1, 2, 3}));
  EXPECT_EQ(log_.commit_rows, 4);
  std::mt19937 random(1);
  Append(*backend_, session_, RandomTokens(26, config_, random));
  FORETOKEN_ASSERT_OK(Forward(chain, Chain(5)));
  EXPECT_THAT(log_.commit_counts, ElementsAre(2));  // of the first page
}

TEST_F(CudaBackendTest, PrefillsAndForestsAreNotWalked) {
  FORETOKEN_ASSERT_OK(backend_->Reserve(session_, 40));
  FORETOKEN_ASSERT_OK(
      Forward({1, 2, 3}, Chain(3), nullptr, RowOutputs::kLastRow));
  EXPECT_THAT(log_.commit_counts, ElementsAre(0));
  FORETOKEN_ASSERT_OK(Forward({1, 2, 3}, {-1, 0, -1}));
  EXPECT_THAT(log_.commit_counts, ElementsAre(0));
  FORETOKEN_ASSERT_OK(Forward({1}, {-1}, nullptr, RowOutputs::kNone));
  EXPECT_THAT(log_.commit_counts, ElementsAre(1));
}

// Allows one token for every row, and says when it was asked.
class OneToken : public AllowedTokens {
 public:
  OneToken(const ModelConfig& config, TokenId token, int rows,
           const EngineLog& log)
      : bits_((config.vocab_size + 63) / 64), log_(log) {
    bits_[token / 64] = uint64_t{1} << token % 64;
    rows_.assign(rows, bits_.data());
  }

  absl::Span<const uint64_t* const> Make() override {
    asked_.push_back(log_.computing);
    return rows_;
  }

  // At each call, whether the device was computing.
  const std::vector<bool>& asked() const { return asked_; }

 private:
  std::vector<uint64_t> bits_;
  std::vector<const uint64_t*> rows_;
  std::vector<bool> asked_;
  const EngineLog& log_;
};

TEST_F(CudaBackendTest, MasksAreMadeWhileTheDeviceComputes) {
  const std::vector<TokenId> tokens = {5, 6};
  const std::vector<int32_t> parents = Chain(2);
  const SamplingState sampling(SamplingParams(), 0, config_.vocab_size);
  OneToken seven(config_, 7, 2, log_), nine(config_, 9, 2, log_);
  std::vector<PassSession> pass(2);
  for (PassSession& part : pass) {
    part.session =
        &part == &pass[0] ? session_ : backend_->Open("", {})->session;
    part.tokens = tokens;
    part.parents = parents;
    part.sampling = &sampling;
    part.allowed = &part == &pass[0] ? &seven : &nine;
  }
  FORETOKEN_ASSERT_OK(backend_->Forward(pass, result_));
  EXPECT_THAT(seven.asked(), ElementsAre(true));
  EXPECT_THAT(nine.asked(), ElementsAre(true));
  for (int row = 0; row < 2; ++row) {
    EXPECT_EQ(result_.outputs[0][row].token, 7);
    EXPECT_EQ(result_.outputs[1][row].token, 9);
  }
}

// Each combination against the sampler on the same logits.
TEST_F(CudaBackendTest, SamplesAsTheSamplerDoesAlongEachRowsOwnPath) {
  std::vector<SamplingParams> cases(7);
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
  std::mt19937 random(3);
  const std::vector<TokenId> context = RandomTokens(37, config_, random);
  Append(*backend_, session_, context);
  std::vector<TokenId> tokens = RandomTokens(10, config_, random);
  tokens[4] = tokens[1];  // counted twice on one path
  tokens[2] = context[0];
  const std::vector<int32_t> parents = {-1, 0, 0, 1, 3, 4, 2, 5, 2, 0};
  for (size_t c = 0; c < cases.size(); ++c) {
    SamplingParams params = cases[c];
    params.seed = 99 + c;
    // An end token that would be drawn but for the ban.
    FORETOKEN_ASSERT_OK(Forward(tokens, parents));
    if (params.min_tokens > 0)
      params.end_tokens = {result_.outputs[0][0].token};
    SamplingState state(params, 35, config_.vocab_size);
    state.Append(context);
    FORETOKEN_ASSERT_OK(Forward(tokens, parents, &state));
    SamplingState::Scratch scratch;
    for (int r = 0; r < 10; ++r) {
      const Bits logits = RowLogits(*backend_, session_, r);
      EXPECT_EQ(
          result_.outputs[0][r].token,
          state.Sample(logits, PathTo({}, tokens, parents, r), scratch).token)
          << "case " << c << ", row " << r;
    }
  }
}

TEST_F(CudaBackendTest, LogprobsAreTheSamplersHoweverManyAreAskedFor) {
  const std::vector<TokenId> tokens = {3, 4};
  for (const int32_t logprobs : {0, 3, kDeviceTopTokens, 15}) {
    SamplingParams params;
    params.logprobs = logprobs;
    params.temperature = 1.1f;
    const SamplingState state(params, 0, config_.vocab_size);
    FORETOKEN_ASSERT_OK(Forward(tokens, {-1, 0}, &state));
    SamplingState::Scratch scratch;
    const SampledToken got = result_.outputs[0][1];
    const SampledToken want =
        state.Sample(RowLogits(*backend_, session_, 1), tokens, scratch);
    EXPECT_EQ(got.token, want.token);
    EXPECT_EQ(got.logprob, want.logprob);
    ASSERT_EQ(got.top_logprobs.size(), static_cast<size_t>(logprobs));
    for (int i = 0; i < logprobs; ++i) {
      EXPECT_EQ(got.top_logprobs[i].token, want.top_logprobs[i].token);
      EXPECT_EQ(got.top_logprobs[i].logprob, want.top_logprobs[i].logprob);
    }
  }
}

// Nor does the device report what it keeps too few of.
TEST_F(CudaBackendTest, LogprobsCostTheRowsOfTheirSessionAlone) {
  SamplingParams asks, asks_for_more, plain;
  asks.logprobs = 2;
  asks_for_more.logprobs = kDeviceTopTokens + 1;
  const std::vector<SamplingParams> params = {plain, asks, asks_for_more};
  const std::vector<TokenId> tokens = {3, 5};
  const std::vector<int32_t> parents = Chain(2);
  std::vector<SamplingState> states;
  for (const SamplingParams& p : params) {
    states.emplace_back(p, 0, config_.vocab_size);
  }
  std::vector<PassSession> pass(params.size());
  for (size_t s = 0; s < pass.size(); ++s) {
    pass[s].session = backend_->Open("", {})->session;
    pass[s].tokens = tokens;
    pass[s].parents = parents;
    pass[s].sampling = &states[s];
  }
  FORETOKEN_ASSERT_OK(backend_->Forward(pass, result_));
  EXPECT_THAT(log_.logprobs, ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_TRUE(result_.outputs[0][0].top_logprobs.empty());
  EXPECT_EQ(result_.outputs[1][1].top_logprobs.size(), 2u);
  EXPECT_EQ(result_.outputs[2][1].top_logprobs.size(), 9u);
}

TEST_F(CudaBackendTest, ListedOutputRowsHaveTheTokensOfAllRows) {
  const std::vector<TokenId> tokens = {3, 4, 5, 6};
  const std::vector<int32_t> parents = {-1, 0, 0, 2};
  FORETOKEN_ASSERT_OK(Forward(tokens, parents));
  const std::vector<SampledToken> all = result_.outputs[0];
  PassSession pass;
  pass.session = session_;
  pass.tokens = tokens;
  pass.parents = parents;
  pass.outputs = RowOutputs::kListedRows;
  const std::vector<int32_t> listed = {1, 3};
  pass.output_rows = listed;
  FORETOKEN_ASSERT_OK(backend_->Forward({pass}, result_));
  ASSERT_EQ(result_.outputs[0].size(), 2);
  EXPECT_EQ(result_.outputs[0][0].token, all[1].token);
  EXPECT_EQ(result_.outputs[0][1].token, all[3].token);
}

TEST_F(CudaBackendTest, WrongCallsAreNamedAndChangeNothing) {
  EXPECT_THAT(Forward({1, 203}, {-1, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("row 1 has token 203, want 0..202")));
  EXPECT_THAT(Forward(std::vector<TokenId>(321, 1), Chain(321)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("321 rows, want at most 320")));
  EXPECT_EQ(log_.passes, 0);
  EXPECT_THAT(backend_->Commit(session_, {0}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("not in the last pass")));
  EXPECT_THAT(backend_->Logits(session_, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("not in the last pass")));
  EXPECT_THAT(backend_->Reserve(session_, 301),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("301 tokens, the model's limit is 300")));
  FORETOKEN_ASSERT_OK(Forward({1, 2, 3}, {-1, -1, 0}));
  EXPECT_THAT(backend_->Commit(session_, {1, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("commit of row 2, which is no child")));
  FORETOKEN_EXPECT_OK(backend_->Commit(session_, {0, 2}));
  EXPECT_THAT(backend_->Commit(session_, {0}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("committed before")));
  FORETOKEN_EXPECT_OK(backend_->Close(session_));
  EXPECT_THAT(backend_->Commit(session_, {0}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no session")));
}

TEST(CudaBackendMemoryTest, PagesRunOutAndComeBack) {
  CudaOptions options = TwinOptions();
  options.kv_cache_bytes = 1;
  const auto weights =
      ModelWeights::Random(TinyConfig(), WeightType::kBFloat16, 7);
  EXPECT_THAT(TryTwinBackend(**weights, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("kv_cache_bytes 1, want at least")));
  options.kv_cache_bytes = int64_t{1} << 40;
  EXPECT_THAT(TryTwinBackend(**weights, options),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("cuda backend: device twin")));

  // Two pages: K and V, 16 bits, 2 layers, 2 heads padded to 32, 32 tokens.
  options.kv_cache_bytes = 2 * (2 * 2 * 2 * 2 * 32 * 32);
  const auto backend = *TryTwinBackend(**weights, options);
  ASSERT_EQ(backend->kv_usage().pages_total, 2);
  const SessionId hog = backend->Open("", {})->session;
  const SessionId session = backend->Open("", {})->session;
  FORETOKEN_ASSERT_OK(backend->Reserve(hog, 64));
  PassSession pass;
  pass.session = session;
  const std::vector<TokenId> tokens = {1, 2};
  const std::vector<int32_t> parents = {-1, 0};
  pass.tokens = tokens;
  pass.parents = parents;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
  EXPECT_THAT(
      backend->Commit(session, {0, 1}),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("page")));
  EXPECT_EQ(*backend->CommittedLength(session), 0);
  FORETOKEN_ASSERT_OK(backend->Close(hog));
  FORETOKEN_EXPECT_OK(backend->Commit(session, {0, 1}));
  FORETOKEN_ASSERT_OK(backend->Close(session));
  EXPECT_EQ(backend->kv_usage().pages_free, 2);
}

TEST(CudaBackendMemoryTest, TheDefaultHoldsManyContextsAndNoMore) {
  CudaOptions options;
  const auto weights =
      ModelWeights::Random(TinyConfig(), WeightType::kBFloat16, 7);
  options.kv_cache_bytes = 0;
  const auto backend = TryTwinBackend(**weights, options);
  FORETOKEN_ASSERT_OK(backend);
  EXPECT_EQ((*backend)->kv_usage().pages_total,
            CudaOptions::kDefaultContexts * 10);  // of 300 positions
}

TEST(CudaBackendMemoryTest, ASessionThatMustFitIsAskedFor) {
  const auto weights =
      ModelWeights::Random(TinyConfig(), WeightType::kBFloat16, 7);
  CudaOptions options;
  const auto min_pages = [&](int64_t tokens) {
    options.kv_cache_tokens = tokens;
    int64_t asked = -1;
    EXPECT_THAT(MakeCudaBackend(
                    **weights,
                    [&](const DeviceShape&, const DeviceOptions& device)
                        -> absl::StatusOr<DeviceEnginePtr> {
                      asked = device.min_pages;
                      return absl::UnavailableError("seen");
                    },
                    options),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("seen")));
    return asked;
  };
  EXPECT_EQ(min_pages(0), 0);
  EXPECT_EQ(min_pages(32), 1);
  EXPECT_EQ(min_pages(33), 2);
  EXPECT_EQ(min_pages(int64_t{1} << 60), 10);  // 300 positions
  options.kv_cache_tokens = -1;
  EXPECT_THAT(TryTwinBackend(**weights, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("kv_cache_tokens -1")));
}

TEST(CudaBackendMemoryTest, TruncationsThatAreRefusedAndPagesThatComeBack) {
  ExpectTruncateErrorsAndPages(*MakeTwinBackend(TinyConfig(), TwinOptions()));
}

TEST(CudaBackendOptionsTest, BadOnesAreNamed) {
  const auto weights =
      ModelWeights::Random(TinyConfig(), WeightType::kBFloat16, 7);
  CudaOptions options = TwinOptions();
  options.max_rows = 0;
  EXPECT_THAT(TryTwinBackend(**weights, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_rows 0, want 1..")));
  options = TwinOptions();
  options.max_sessions = 0;
  EXPECT_THAT(TryTwinBackend(**weights, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_sessions 0")));
}

TEST(CudaBackendFingerprintTest, TellsTypeConfigAndWeightsApart) {
  const auto fingerprint = [](const ModelConfig& config, WeightType type) {
    return MakeTwinBackend(config, TwinOptions(), nullptr, type)
        ->numerics_fingerprint();
  };
  const ModelConfig config = TinyConfig();
  ModelConfig other = config;
  other.rope_theta = 500000.0f;
  const std::string bf16 = fingerprint(config, WeightType::kBFloat16);
  EXPECT_THAT(bf16, HasSubstr("cuda;twin;kernel=1;precision=bf16;block=32;"));
  EXPECT_EQ(bf16, fingerprint(config, WeightType::kBFloat16));
  EXPECT_NE(bf16, fingerprint(other, WeightType::kBFloat16));
  EXPECT_THAT(
      bf16, HasSubstr(absl::StrCat(";rotary=", MakeRotaryTable(config).Digest(),
                                   ";weights=")));
  RotaryTable table = MakeRotaryTable(config);
  table.sines.back() = std::nextafter(table.sines.back(), 2.0f);
  EXPECT_NE(table.Digest(), MakeRotaryTable(config).Digest());
  EXPECT_THAT(fingerprint(config, WeightType::kFloat16),
              HasSubstr("precision=fp16"));
  EXPECT_THAT(fingerprint(config, WeightType::kFloat32),
              HasSubstr("precision=bf16"));
}

// Weights that are one tensor's NaN away from good ones.
class SpoiltWeights : public ModelWeights {
 public:
  explicit SpoiltWeights(const ModelConfig& config)
      : base_(*ModelWeights::Random(config, WeightType::kFloat32, 7)),
        nans_(config.d_model, std::numeric_limits<float>::quiet_NaN()) {
    norm_ = base_->final_norm();
    norm_.data = reinterpret_cast<const uint8_t*>(nans_.data());
  }
  const ModelConfig& config() const override { return base_->config(); }
  const WeightTensor& embedding() const override { return base_->embedding(); }
  const WeightTensor& output() const override { return base_->output(); }
  const WeightTensor& final_norm() const override { return norm_; }
  absl::Span<const LayerWeights> layers() const override {
    return base_->layers();
  }
  const Sha256Digest& digest() const override { return base_->digest(); }

 private:
  const std::unique_ptr<ModelWeights> base_;
  const std::vector<float> nans_;
  WeightTensor norm_;
};

TEST(CudaBackendNumbersTest, ARowWithoutANumberIsDataLoss) {
  const SpoiltWeights weights(TinyConfig());
  const auto backend = TryTwinBackend(weights, TwinOptions());
  FORETOKEN_ASSERT_OK(backend);
  PassSession pass;
  pass.session = (*backend)->Open("", {})->session;
  const std::vector<TokenId> tokens = {1, 2};
  const std::vector<int32_t> parents = {-1, 0};
  pass.tokens = tokens;
  pass.parents = parents;
  pass.outputs = RowOutputs::kLastRow;
  PassResult result;
  EXPECT_THAT((*backend)->Forward({pass}, result),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("logits of row 1 are not numbers")));
  EXPECT_TRUE(result.outputs.empty());
}

TEST(CudaBackendStatesTest, StatesAreWhatTheHeadReads) {
  ModelConfig config = TinyConfig();
  config.mlp_bias = true;
  const auto weights = ModelWeights::Random(config, WeightType::kBFloat16, 7);
  FORETOKEN_ASSERT_OK(weights);
  const auto backend = TryTwinBackend(**weights, TwinOptions());
  FORETOKEN_ASSERT_OK(backend);
  std::mt19937 random(16);
  ExpectStatesAreWhatTheHeadReads(**backend, **weights, random);
  ExpectStatesRefuseOtherRows(**backend);
}

}  // namespace
}  // namespace foretoken
