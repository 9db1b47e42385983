// Row invariance, sessions and errors of the CPU backend, on tiny random
// models. Every comparison of logits is bitwise.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cpu/cpu_isa.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

// Head size off the vector width, grouped heads, several attention blocks.
ModelConfig TinyConfig() {
  ModelConfig config;
  config.d_model = 48;
  config.n_layers = 2;
  config.n_heads = 6;
  config.n_kv_heads = 2;
  config.head_dim = 10;
  config.d_ff = 72;
  config.vocab_size = 203;
  config.max_positions = 300;
  return config;
}

std::unique_ptr<Backend> MakeBackend(const ModelConfig& config,
                                     const CpuOptions& options,
                                     WeightType type = WeightType::kFloat32) {
  auto weights = ModelWeights::Random(config, type, 7);
  EXPECT_THAT(weights, IsOk());
  auto backend = MakeCpuBackend(*std::move(weights), options);
  EXPECT_THAT(backend, IsOk());
  return *std::move(backend);
}

CpuOptions Options(int threads = 1) {
  CpuOptions options;
  options.threads = threads;
  options.max_rows = 192;
  options.kv_cache_bytes = int64_t{16} << 20;
  return options;
}

std::vector<TokenId> RandomTokens(int count, const ModelConfig& config,
                                  std::mt19937& random) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = random() % config.vocab_size;
  return tokens;
}

// Parents of a random tree of `rows` rows: shape 0 is a chain, 1 a star, else
// anything.
std::vector<int32_t> RandomParents(int rows, int shape, std::mt19937& random) {
  std::vector<int32_t> parents(rows);
  for (int r = 0; r < rows; ++r) {
    const int32_t any = static_cast<int32_t>(random() % (r + 1)) - 1;
    parents[r] = shape == 0 ? r - 1 : shape == 1 ? -1 : any;
  }
  return parents;
}

std::vector<int32_t> Chain(int rows) {
  std::vector<int32_t> parents(rows);
  for (int r = 0; r < rows; ++r) parents[r] = r - 1;
  return parents;
}

using Bits = std::vector<float>;

Bits RowLogits(Backend& backend, SessionId session, int32_t row) {
  const auto logits = backend.Logits(session, row);
  EXPECT_THAT(logits, IsOk());
  return Bits(logits->begin(), logits->end());
}

bool SameBits(const Bits& a, const Bits& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs `tokens` as one chain after the session's context and commits them.
void Append(Backend& backend, SessionId session,
            const std::vector<TokenId>& tokens) {
  PassSession pass;
  pass.session = session;
  pass.tokens = tokens;
  const std::vector<int32_t> parents = Chain(tokens.size());
  pass.parents = parents;
  pass.outputs = RowOutputs::kNone;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend.Forward({pass}, result));
  std::vector<int32_t> rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  FORETOKEN_ASSERT_OK(backend.Commit(session, rows));
}

// The logits after the last of `path`, decoded one token at a time by a fresh
// session of its own that shares nothing. Remembers every prefix it has seen.
class OneByOne {
 public:
  explicit OneByOne(Backend& backend) : backend_(backend) {}

  const Bits& Logits(const std::vector<TokenId>& path) {
    const auto found = known_.find(path);
    if (found != known_.end()) return found->second;
    const auto opened = backend_.Open("", path);
    EXPECT_THAT(opened, IsOk());
    std::vector<TokenId> prefix;
    for (const TokenId token : path) {
      prefix.push_back(token);
      PassSession pass;
      pass.session = opened->session;
      const std::vector<TokenId> tokens = {token};
      const std::vector<int32_t> parents = {kRootParent};
      pass.tokens = tokens;
      pass.parents = parents;
      PassResult result;
      EXPECT_THAT(backend_.Forward({pass}, result), IsOk());
      if (known_.find(prefix) == known_.end()) {
        known_[prefix] = RowLogits(backend_, opened->session, 0);
      }
      EXPECT_THAT(backend_.Commit(opened->session, {0}), IsOk());
    }
    EXPECT_THAT(backend_.Close(opened->session), IsOk());
    return known_[path];
  }

 private:
  Backend& backend_;
  std::map<std::vector<TokenId>, Bits> known_;
};

std::vector<TokenId> PathTo(const std::vector<TokenId>& context,
                            const std::vector<TokenId>& tokens,
                            const std::vector<int32_t>& parents, int32_t row) {
  std::vector<TokenId> path;
  for (int32_t r = row; r >= 0; r = parents[r]) path.push_back(tokens[r]);
  path.insert(path.end(), context.rbegin(), context.rend());
  std::reverse(path.begin(), path.end());
  return path;
}

struct Case {
  CpuIsa isa;
  Precision precision;
};

class RowInvarianceTest : public ::testing::TestWithParam<Case> {
 protected:
  CpuOptions CaseOptions(int threads) const {
    CpuOptions options = Options(threads);
    options.isa = GetParam().isa;
    options.precision = GetParam().precision;
    return options;
  }
};

TEST_P(RowInvarianceTest, TreesOfManySessionsEqualOneTokenAtATime) {
  const ModelConfig config = TinyConfig();
  const auto reference = MakeBackend(config, CaseOptions(1));
  OneByOne one_by_one(*reference);
  std::mt19937 random(11);
  for (const int threads : {1, 2, 3}) {
    const auto backend = MakeBackend(config, CaseOptions(threads));
    for (const int mates : {1, 3, 16}) {
      std::vector<std::vector<TokenId>> contexts, tokens;
      std::vector<std::vector<int32_t>> parents;
      std::vector<PassSession> pass(mates);
      for (int s = 0; s < mates; ++s) {
        const auto opened = backend->Open("", {});
        FORETOKEN_ASSERT_OK(opened);
        pass[s].session = opened->session;
        contexts.push_back(RandomTokens(random() % 70, config, random));
        const int rows = mates == 1 ? 64 : 1 + random() % 10;
        tokens.push_back(RandomTokens(rows, config, random));
        parents.push_back(RandomParents(rows, s % 3 == 0 ? 2 : s % 3, random));
        if (!contexts[s].empty()) {
          Append(*backend, pass[s].session, contexts[s]);
        }
      }
      for (int s = 0; s < mates; ++s) {
        pass[s].tokens = tokens[s];
        pass[s].parents = parents[s];
      }
      PassResult result;
      FORETOKEN_ASSERT_OK(backend->Forward(pass, result));
      for (int s = 0; s < mates; ++s) {
        for (size_t r = 0; r < tokens[s].size(); ++r) {
          const Bits& want =
              one_by_one.Logits(PathTo(contexts[s], tokens[s], parents[s], r));
          ASSERT_TRUE(SameBits(RowLogits(*backend, pass[s].session, r), want))
              << threads << " threads, session " << s << " of " << mates
              << ", row " << r;
          ASSERT_EQ(result.outputs[s][r].token,
                    std::max_element(want.begin(), want.end()) - want.begin());
        }
        FORETOKEN_ASSERT_OK(backend->Close(pass[s].session));
      }
      EXPECT_EQ(backend->kv_usage().pages_free,
                backend->kv_usage().pages_total);
    }
  }
}

TEST_P(RowInvarianceTest, EveryRowCountGivesTheSameRows) {
  const ModelConfig config = TinyConfig();
  const auto backend = MakeBackend(config, CaseOptions(2));
  const auto reference = MakeBackend(config, CaseOptions(1));
  OneByOne one_by_one(*reference);
  std::mt19937 random(12);
  const std::vector<TokenId> tokens = RandomTokens(64, config, random);
  for (int rows = 1; rows <= 64; ++rows) {
    const std::vector<int32_t> parents = RandomParents(rows, rows % 3, random);
    const auto opened = backend->Open("", {});
    FORETOKEN_ASSERT_OK(opened);
    PassSession pass;
    pass.session = opened->session;
    pass.tokens = absl::MakeConstSpan(tokens).first(rows);
    pass.parents = parents;
    PassResult result;
    FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
    for (int r = 0; r < rows; ++r) {
      ASSERT_TRUE(SameBits(RowLogits(*backend, opened->session, r),
                           one_by_one.Logits(PathTo({}, tokens, parents, r))))
          << rows << " rows, row " << r;
    }
    FORETOKEN_ASSERT_OK(backend->Close(opened->session));
  }
}

TEST_P(RowInvarianceTest, PrefillChunksAndCommittedPathsChangeNothing) {
  const ModelConfig config = TinyConfig();
  const auto backend = MakeBackend(config, CaseOptions(2));
  const auto reference = MakeBackend(config, CaseOptions(1));
  OneByOne one_by_one(*reference);
  std::mt19937 random(13);
  const std::vector<TokenId> prompt = RandomTokens(180, config, random);
  for (const int chunk : {1, 5, 31, 32, 33, 64, 100, 180}) {
    const auto opened = backend->Open("", prompt);
    FORETOKEN_ASSERT_OK(opened);
    for (size_t begin = 0; begin < prompt.size(); begin += chunk) {
      const size_t end = std::min(begin + chunk, prompt.size());
      Append(*backend, opened->session,
             {prompt.begin() + begin, prompt.begin() + end});
    }
    // Rounds of trees: a random path of each is committed.
    std::vector<TokenId> context = prompt;
    for (int round = 0; round < 4; ++round) {
      const std::vector<TokenId> tokens = RandomTokens(20, config, random);
      const std::vector<int32_t> parents = RandomParents(20, 2, random);
      PassSession pass;
      pass.session = opened->session;
      pass.tokens = tokens;
      pass.parents = parents;
      PassResult result;
      FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
      const Bits deepest = RowLogits(*backend, opened->session, 19);
      std::vector<int32_t> path;
      for (int32_t r = 19; r >= 0; r = parents[r]) path.push_back(r);
      std::reverse(path.begin(), path.end());
      FORETOKEN_ASSERT_OK(backend->Commit(opened->session, path));
      for (const int32_t r : path) context.push_back(tokens[r]);
      ASSERT_TRUE(SameBits(deepest, one_by_one.Logits(context)))
          << "chunk " << chunk << ", round " << round;
    }
    FORETOKEN_ASSERT_OK(backend->Close(opened->session));
  }
}

TEST_P(RowInvarianceTest, AReusedPrefixChangesNothing) {
  const ModelConfig config = TinyConfig();
  const auto backend = MakeBackend(config, CaseOptions(2));
  std::mt19937 random(14);
  const std::vector<TokenId> prompt = RandomTokens(150, config, random);
  const std::vector<TokenId> tokens = RandomTokens(12, config, random);
  const std::vector<int32_t> parents = RandomParents(12, 2, random);
  std::vector<Bits> first;
  for (const int64_t want_reused : {0, 128, 128}) {
    const auto opened = backend->Open("scope", prompt);
    FORETOKEN_ASSERT_OK(opened);
    ASSERT_EQ(opened->reused_tokens, want_reused);
    Append(*backend, opened->session,
           {prompt.begin() + want_reused, prompt.end()});
    PassSession pass;
    pass.session = opened->session;
    pass.tokens = tokens;
    pass.parents = parents;
    PassResult result;
    FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
    for (int r = 0; r < 12; ++r) {
      const Bits logits = RowLogits(*backend, opened->session, r);
      if (want_reused == 0) first.push_back(logits);
      ASSERT_TRUE(SameBits(logits, first[r])) << r;
    }
    FORETOKEN_ASSERT_OK(backend->Close(opened->session));
    EXPECT_EQ(backend->kv_usage().pages_free, backend->kv_usage().pages_total);
    EXPECT_EQ(backend->kv_usage().pages_cached, 4);
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const CpuIsa isa : SupportedCpuIsas()) {
    for (const Precision precision :
         {Precision::kFloat32, Precision::kBFloat16}) {
      cases.push_back({isa, precision});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    EveryIsa, RowInvarianceTest, ::testing::ValuesIn(Cases()),
    [](const ::testing::TestParamInfo<Case>& param) {
      return std::string((*SelectCpuOps(param.param.isa))->name) +
             (param.param.precision == Precision::kBFloat16 ? "_bf16"
                                                            : "_fp32");
    });

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

}  // namespace
}  // namespace foretoken
