// Sessions, errors and options of the CPU backend, on tiny random models.
#include "common/infer/cpu/cpu_backend.h"

#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/infer/cpu/cpu_isa.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/states_contract.h"
#include "tests/unit/infer/tiny_backend.h"
#include "tests/unit/infer/truncate_contract.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h
using ::testing::HasSubstr;

// One session and its pass, to be spoilt by a test.
class BackendErrorTest : public ::testing::Test {
 protected:
  BackendErrorTest() : backend_(MakeBackend(TinyConfig(), Options())) {
    session_ = backend_->Open("", {})->session;
    pass_.session = session_;
  }

  absl::Status Forward(std::vector<TokenId> tokens,
                       std::vector<int32_t> parents) {
    pass_.tokens = tokens;
    pass_.parents = parents;
    return backend_->Forward({pass_}, result_);
  }

  // Nothing is left of what failed: no page, no row to commit.
  void ExpectNothingHappened() {
    EXPECT_EQ(backend_->kv_usage().pages_free,
              backend_->kv_usage().pages_total);
    EXPECT_THAT(backend_->Commit(session_, {0}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("not in the last pass")));
    EXPECT_EQ(*backend_->CommittedLength(session_), 0);
    EXPECT_TRUE(result_.outputs.empty());
  }

  std::unique_ptr<Backend> backend_;
  SessionId session_ = -1;
  PassSession pass_;
  PassResult result_;
};

TEST_F(BackendErrorTest, ATokenOutsideTheVocabularyIsNamed) {
  EXPECT_THAT(Forward({1, 203}, {-1, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("row 1 has token 203, want 0..202")));
  EXPECT_THAT(Forward({-1}, {-1}), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("row 0 has token -1")));
  ExpectNothingHappened();
}

TEST_F(BackendErrorTest, AParentOutOfOrderIsNamed) {
  EXPECT_THAT(Forward({1, 2, 3}, {-1, 1, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("row 1 has parent 1, want -1..0")));
  EXPECT_THAT(Forward({1}, {-2}), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("parent -2")));
  ExpectNothingHappened();
}

TEST_F(BackendErrorTest, EmptyOrUnequalListsAndTooManyRowsAreRefused) {
  EXPECT_THAT(Forward({}, {}), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("0 tokens and 0 parents")));
  EXPECT_THAT(Forward({1, 2}, {-1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2 tokens and 1 parents")));
  EXPECT_THAT(Forward(std::vector<TokenId>(193, 1), Chain(193)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("193 rows, want at most 192")));
  ExpectNothingHappened();
}

TEST_F(BackendErrorTest, ASessionTwiceInAPassOrUnknownIsRefused) {
  const std::vector<TokenId> tokens = {1};
  const std::vector<int32_t> parents = {-1};
  pass_.tokens = tokens;
  pass_.parents = parents;
  EXPECT_THAT(backend_->Forward({pass_, pass_}, result_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("twice in one pass")));
  PassSession unknown = pass_;
  unknown.session = 4711;
  EXPECT_THAT(backend_->Forward({pass_, unknown}, result_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("4711")));
  ExpectNothingHappened();
}

TEST_F(BackendErrorTest, APositionPastTheModelsLimitIsNamed) {
  std::mt19937 random(1);
  Append(*backend_, session_, RandomTokens(150, TinyConfig(), random));
  Append(*backend_, session_, RandomTokens(148, TinyConfig(), random));
  FORETOKEN_EXPECT_OK(Forward({1, 2}, {-1, 0}));
  EXPECT_THAT(Forward({1, 2, 3}, {-1, 0, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("row 2 is at position 300, the model's limit "
                                 "is 300")));
  EXPECT_THAT(backend_->Reserve(session_, 301),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("301 tokens, the model's limit is 300")));
}

TEST_F(BackendErrorTest, OnlyAPathOfTheLastPassMayBeCommittedAndOnce) {
  FORETOKEN_ASSERT_OK(Forward({1, 2, 3}, {-1, -1, 0}));
  EXPECT_THAT(backend_->Commit(session_, {2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("commit of row 2, which is no child")));
  EXPECT_THAT(backend_->Commit(session_, {1, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("commit of row 2, which is no child")));
  EXPECT_THAT(backend_->Commit(session_, {3}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the last pass had rows 0..2")));
  EXPECT_EQ(*backend_->CommittedLength(session_), 0);
  FORETOKEN_EXPECT_OK(backend_->Commit(session_, {0, 2}));
  EXPECT_EQ(*backend_->CommittedLength(session_), 2);
  EXPECT_THAT(backend_->Commit(session_, {0}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("committed before")));
}

TEST_F(BackendErrorTest, SamplingStateMustFitTheSession) {
  SamplingState ahead({}, 1, 203);
  ahead.Append({5});
  pass_.sampling = &ahead;
  EXPECT_THAT(Forward({1}, {-1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sampling state has 1 tokens")));
  const SamplingState other_vocabulary({}, 1, 100);
  pass_.sampling = &other_vocabulary;
  EXPECT_THAT(Forward({1}, {-1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("100 tokens of vocabulary, want 203")));
  ExpectNothingHappened();
}

TEST_F(BackendErrorTest, LogitsAreThoseOfOutputRowsOnly) {
  pass_.outputs = RowOutputs::kLastRow;
  FORETOKEN_ASSERT_OK(Forward({1, 2}, {-1, 0}));
  EXPECT_EQ(result_.outputs[0].size(), 1);
  FORETOKEN_EXPECT_OK(backend_->Logits(session_, 1));
  for (const int32_t row : {-1, 0, 2}) {
    EXPECT_THAT(backend_->Logits(session_, row),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("was no output of the last pass")));
  }
}

TEST_F(BackendErrorTest, ListedOutputRowsMustAscend) {
  pass_.outputs = RowOutputs::kListedRows;
  const auto refused = [&](const std::vector<int32_t>& rows) {
    pass_.output_rows = rows;
    const absl::Status status = Forward({1, 2, 3}, {-1, 0, 1});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({3}), HasSubstr("output row 3, want 0..2"));
  EXPECT_THAT(refused({-1}), HasSubstr("output row -1, want 0..2"));
  EXPECT_THAT(refused({1, 1}), HasSubstr("output row 1, want 2..2"));
  EXPECT_THAT(refused({2, 0}), HasSubstr("output row 0, want 3..2"));
  pass_.output_rows = {};
  FORETOKEN_EXPECT_OK(Forward({1, 2, 3}, {-1, 0, 1}));
  EXPECT_EQ(result_.outputs[0].size(), 0);
}

TEST(CpuBackendTest, ACommitWithoutMemoryIsRefusedAndCanBeRepeated) {
  CpuOptions options = Options();
  options.kv_cache_bytes = 1;
  auto weights = ModelWeights::Random(TinyConfig(), WeightType::kFloat32, 7);
  const auto none = MakeCpuBackend(*std::move(weights), options);
  EXPECT_THAT(none, StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr("kv_cache_bytes 1, want at least")));

  options.kv_cache_bytes = 20'000;  // two pages in bf16
  const auto backend = MakeBackend(TinyConfig(), options);
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
  EXPECT_EQ(backend->kv_usage().sessions, 0);
}

TEST(CpuBackendTest, TruncationsThatAreRefusedAndPagesThatComeBack) {
  ExpectTruncateErrorsAndPages(*MakeBackend(TinyConfig(), Options()));
}

TEST(CpuBackendTest, BadOptionsAreNamed) {
  const auto make = [](CpuOptions options) {
    return MakeCpuBackend(
               *ModelWeights::Random(TinyConfig(), WeightType::kFloat32, 7),
               options)
        .status();
  };
  CpuOptions options = Options();
  options.threads = -1;
  EXPECT_THAT(make(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("threads -1")));
  options = Options();
  options.max_rows = 0;
  EXPECT_THAT(make(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("max_rows 0, want 1..")));
  options = Options();
  options.max_sessions = 0;
  EXPECT_THAT(make(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("max_sessions 0")));
  options = Options();
  options.kv_cache_bytes = -5;
  EXPECT_THAT(make(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("kv_cache_bytes -5")));
}

TEST(CpuBackendTest, TheFingerprintTellsPrecisionAndWeightsButNotThreads) {
  const auto fingerprint = [](const ModelConfig& config, Precision precision,
                              int threads) {
    CpuOptions options = Options(threads);
    options.precision = precision;
    return MakeBackend(config, options)->numerics_fingerprint();
  };
  const ModelConfig config = TinyConfig();
  ModelConfig deeper = config;
  deeper.n_layers = 3;
  const std::string base = fingerprint(config, Precision::kBFloat16, 1);
  EXPECT_EQ(base, fingerprint(config, Precision::kBFloat16, 3));
  EXPECT_NE(base, fingerprint(config, Precision::kFloat32, 1));
  EXPECT_NE(base, fingerprint(deeper, Precision::kBFloat16, 1));
}

TEST(CpuBackendTest, TheFingerprintTellsConfigsOfTheSameWeightsApart) {
  const auto fingerprint = [](const ModelConfig& config) {
    return MakeBackend(config, Options())->numerics_fingerprint();
  };
  const ModelConfig base = TinyConfig();
  std::vector<ModelConfig> configs(6, base);
  configs[1].rms_norm_eps = 1e-6f;
  configs[2].rope_theta = 500000.0f;
  configs[3].rope_scaling.type = RopeScaling::Type::kLinear;
  configs[3].rope_scaling.factor = 2.0f;
  configs[4].rope_scaling = configs[3].rope_scaling;
  configs[4].rope_scaling.factor = 4.0f;
  configs[5].family = ModelFamily::kMistral;
  std::set<std::string> seen;
  for (const ModelConfig& config : configs) seen.insert(fingerprint(config));
  EXPECT_EQ(seen.size(), configs.size());
  // Where a session must end is no matter of arithmetic.
  ModelConfig shorter = base;
  shorter.max_positions = 200;
  shorter.eos_tokens = {5};
  EXPECT_EQ(fingerprint(shorter), fingerprint(base));
}

TEST(CpuBackendTest, TheDefaultCacheHoldsTheTokensAskedFor) {
  CpuOptions options = Options();
  options.kv_cache_bytes = 0;
  options.kv_cache_tokens = -1;
  auto weights = ModelWeights::Random(TinyConfig(), WeightType::kFloat32, 7);
  FORETOKEN_ASSERT_OK(weights);
  EXPECT_THAT(MakeCpuBackend(*std::move(weights), options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("kv_cache_tokens -1")));
  options.kv_cache_tokens = 300;
  const auto backend = MakeBackend(TinyConfig(), options);
  const SessionId session = backend->Open("", {})->session;
  FORETOKEN_EXPECT_OK(backend->Reserve(session, 300));
}

TEST(CpuBackendTest, SamplesAlongEachRowsOwnPath) {
  const ModelConfig config = TinyConfig();
  const auto backend = MakeBackend(config, Options(2));
  const SessionId session = backend->Open("", {})->session;
  SamplingParams params;
  params.temperature = 0.9f;
  params.presence_penalty = 1.5f;
  params.seed = 99;
  SamplingState state(params, 0, config.vocab_size);
  const std::vector<TokenId> tokens = {3, 4, 5, 6};
  const std::vector<int32_t> parents = {-1, 0, 0, 2};
  PassSession pass;
  pass.session = session;
  pass.tokens = tokens;
  pass.parents = parents;
  pass.sampling = &state;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
  SamplingState::Scratch scratch;
  for (int r = 0; r < 4; ++r) {
    const Bits logits = RowLogits(*backend, session, r);
    EXPECT_EQ(
        result.outputs[0][r].token,
        state.Sample(logits, PathTo({}, tokens, parents, r), scratch).token);
  }
}

TEST(CpuBackendTest, StatesAreWhatTheHeadReads) {
  ModelConfig config = TinyConfig();
  config.mlp_bias = config.output_bias = true;
  auto weights = ModelWeights::Random(config, WeightType::kBFloat16, 7);
  FORETOKEN_ASSERT_OK(weights);
  const auto backend = MakeBackend(config, Options(2), WeightType::kBFloat16);
  std::mt19937 random(16);
  ExpectStatesAreWhatTheHeadReads(*backend, **weights, random);
  ExpectStatesRefuseOtherRows(*backend);
}

}  // namespace
}  // namespace foretoken
