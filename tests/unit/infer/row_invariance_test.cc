// Row invariance of the CPU backend, on tiny random models and every
// instruction set of this machine. Every comparison of logits is bitwise.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cpu/cpu_isa.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/invariance_contract.h"
#include "tests/unit/infer/states_contract.h"
#include "tests/unit/infer/tiny_backend.h"
#include "tests/unit/infer/truncate_contract.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h

struct Case {
  CpuIsa isa;
  Precision precision;
  WeightType type = WeightType::kFloat32;
  int head_dim = 32;  // of a quantised model
  std::optional<KvType> kv_type = std::nullopt;
};

// Rows of whole blocks of every quantised type, more than one chunk of a strip;
// or, with other heads than those of 32, of Q8_0.
ModelConfig QuantisedConfig(int head_dim) {
  ModelConfig config = TinyConfig();
  config.d_model = 256;
  config.n_heads = 8;
  config.head_dim = head_dim;
  config.d_ff = 512;
  return config;
}

class RowInvarianceTest : public ::testing::TestWithParam<Case> {
 protected:
  static ModelConfig CaseConfig() {
    if (GetParam().type != WeightType::kFloat32) {
      return QuantisedConfig(GetParam().head_dim);
    }
    ModelConfig config = TinyConfig();
    // Three and a half blocks of KV scales, padding included.
    if (GetParam().kv_type == KvType::kInt8) config.head_dim = 106;
    return config;
  }
  static std::unique_ptr<Backend> MakeBackend(const ModelConfig& config,
                                              const CpuOptions& options) {
    return testing::MakeBackend(config, options, GetParam().type);
  }
  CpuOptions CaseOptions(int threads) const {
    CpuOptions options = Options(threads);
    options.isa = GetParam().isa;
    options.precision = GetParam().precision;
    options.kv_type = GetParam().kv_type;
    return options;
  }
};

// Whichever rows are asked for, each has the token and the logits, bit for bit,
// that it has where all are asked for.
TEST_P(RowInvarianceTest, ListedOutputRowsEqualThoseOfAllRows) {
  std::mt19937 random(12);
  const auto backend = MakeBackend(CaseConfig(), CaseOptions(2));
  for (int trial = 0; trial < 12; ++trial) {
    constexpr int kSessions = 3;
    std::vector<SessionId> ids;
    std::vector<std::vector<TokenId>> tokens;
    std::vector<std::vector<int32_t>> parents;
    std::vector<std::vector<int32_t>> listed;
    std::vector<PassSession> pass(kSessions);
    for (int s = 0; s < kSessions; ++s) {
      ids.push_back(backend->Open("", {})->session);
      // More than one chunk of logits, now and then.
      const int rows = 1 + static_cast<int>(random() % 60);
      tokens.push_back(RandomTokens(rows, CaseConfig(), random));
      parents.push_back(RandomParents(rows, trial % 3, random));
      auto& wanted = listed.emplace_back();
      for (int32_t row = 0; row < rows; ++row) {
        if (random() % 3 == 0) wanted.push_back(row);
      }
    }
    for (int s = 0; s < kSessions; ++s) {
      pass[s].session = ids[s];
      pass[s].tokens = tokens[s];
      pass[s].parents = parents[s];
    }
    PassResult all;
    FORETOKEN_ASSERT_OK(backend->Forward(pass, all));
    std::vector<std::vector<Bits>> want(kSessions);
    for (int s = 0; s < kSessions; ++s) {
      for (const int32_t row : listed[s]) {
        want[s].push_back(RowLogits(*backend, ids[s], row));
      }
      pass[s].outputs = RowOutputs::kListedRows;
      pass[s].output_rows = listed[s];
    }
    PassResult some;
    FORETOKEN_ASSERT_OK(backend->Forward(pass, some));
    for (int s = 0; s < kSessions; ++s) {
      ASSERT_EQ(some.outputs[s].size(), listed[s].size());
      for (size_t i = 0; i < listed[s].size(); ++i) {
        EXPECT_EQ(some.outputs[s][i].token, all.outputs[s][listed[s][i]].token);
        EXPECT_TRUE(
            SameBits(RowLogits(*backend, ids[s], listed[s][i]), want[s][i]));
      }
      FORETOKEN_ASSERT_OK(backend->Close(ids[s]));
    }
  }
}

TEST_P(RowInvarianceTest, TreesOfManySessionsEqualOneTokenAtATime) {
  const auto reference = MakeBackend(CaseConfig(), CaseOptions(1));
  OneByOne one_by_one(*reference);
  std::mt19937 random(11);
  for (const int threads : {1, 2, 3}) {
    const auto backend = MakeBackend(CaseConfig(), CaseOptions(threads));
    for (const int mates : {1, 3, 16}) {
      SCOPED_TRACE(::testing::Message() << threads << " threads");
      ExpectBatchMatesChangeNothing(*backend, one_by_one, mates, random);
    }
  }
}

TEST_P(RowInvarianceTest, EveryRowCountGivesTheSameRows) {
  const ModelConfig config = CaseConfig();
  const auto backend = MakeBackend(config, CaseOptions(2));
  const auto reference = MakeBackend(config, CaseOptions(1));
  OneByOne one_by_one(*reference);
  std::mt19937 random(12);
  const std::vector<TokenId> tokens = RandomTokens(64, config, random);
  for (int rows = 1; rows <= 64; ++rows) {
    const std::vector<int32_t> parents = RandomParents(rows, rows % 3, random);
    ExpectFreshTreeEqualsOneByOne(*backend, one_by_one, {},
                                  {tokens.begin(), tokens.begin() + rows},
                                  parents);
  }
}

// Beyond what a tree has: the blocking of the matrix products changes with the
// number of rows.
TEST_P(RowInvarianceTest, ManyRowsInAPassChangeNothing) {
  ModelConfig config = CaseConfig();
  config.max_positions = 2048;
  const auto reference = MakeBackend(config, CaseOptions(1));
  OneByOne one_by_one(*reference);
  CpuOptions options = CaseOptions(2);
  options.max_rows = 2048;
  const auto backend = MakeBackend(config, options);
  std::mt19937 random(15);
  const std::vector<TokenId> tokens = RandomTokens(2048, config, random);
  for (const int rows : {257, 512, 2048}) {
    // A chain of 40 and, at every one of its rows, the same children again.
    std::vector<int32_t> parents = Chain(rows);
    std::vector<TokenId> drafts(tokens.begin(), tokens.begin() + rows);
    for (int r = 40; r < rows; ++r) {
      parents[r] = r % 40;
      drafts[r] = tokens[40 + r % 3];
    }
    ExpectFreshTreeEqualsOneByOne(*backend, one_by_one, {}, drafts, parents);
  }
}

TEST_P(RowInvarianceTest, PrefillChunksAndCommittedPathsChangeNothing) {
  const ModelConfig config = CaseConfig();
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
  const auto backend = MakeBackend(CaseConfig(), CaseOptions(2));
  const auto reference = MakeBackend(CaseConfig(), CaseOptions(1));
  OneByOne one_by_one(*reference);
  std::mt19937 random(14);
  ExpectAReusedPrefixChangesNothing(*backend, one_by_one, random);
}

TEST_P(RowInvarianceTest, StatesAreThoseOfEachRowsOwnPath) {
  const auto backend = MakeBackend(CaseConfig(), CaseOptions(2));
  const auto reference = MakeBackend(CaseConfig(), CaseOptions(1));
  std::mt19937 random(15);
  ExpectStatesOfEachRowsOwnPath(*backend, *reference, random);
}

TEST_P(RowInvarianceTest, ATruncatedSessionEqualsAFreshOne) {
  const auto backend = MakeBackend(CaseConfig(), CaseOptions(2));
  const auto reference = MakeBackend(CaseConfig(), CaseOptions(1));
  ExpectTruncateLeavesAFreshPrefix(*backend, *reference);
}

// Every quantised type on the fastest ISA; on the others the products are the
// same to the bit (quant_gemm_test.cc), so two types run them.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const CpuIsa isa : SupportedCpuIsas()) {
    cases.push_back({isa, Precision::kFloat32});
    cases.push_back({isa, Precision::kBFloat16});
    // With minima of parts and with scales of half parts.
    cases.push_back({isa, Precision::kBFloat16, WeightType::kQ4_K});
    cases.push_back({isa, Precision::kBFloat16, WeightType::kQ6_K});
    cases.push_back(
        {isa, Precision::kBFloat16, WeightType::kFloat32, 32, KvType::kInt8});
  }
  cases.push_back({SupportedCpuIsas().back(), Precision::kBFloat16,
                   WeightType::kQ4_K, 32, KvType::kInt8});
  cases.push_back({SupportedCpuIsas().back(), Precision::kFloat32,
                   WeightType::kFloat32, 32, KvType::kBFloat16});
  for (const WeightType type :
       {WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
        WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ5_K}) {
    cases.push_back({SupportedCpuIsas().back(), Precision::kBFloat16, type});
  }
  // Heads that end inside a vector and inside a block of activations.
  for (const int head_dim : {24, 80}) {
    cases.push_back({SupportedCpuIsas().back(), Precision::kBFloat16,
                     WeightType::kQ8_0, head_dim});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    EveryIsa, RowInvarianceTest, ::testing::ValuesIn(Cases()),
    [](const ::testing::TestParamInfo<Case>& param) {
      const Case& test = param.param;
      std::string name = (*SelectCpuOps(test.isa))->name;
      if (test.type != WeightType::kFloat32) {
        name += std::string("_") + WeightTypeName(test.type);
        if (test.head_dim != 32) {
          name += "_heads" + std::to_string(test.head_dim);
        }
      } else {
        name += test.precision == Precision::kBFloat16 ? "_bf16" : "_fp32";
      }
      if (test.kv_type.has_value()) {
        name +=
            std::string("_kv_") + kKvTypeNames[static_cast<int>(*test.kv_type)];
      }
      return name;
    });

}  // namespace
}  // namespace foretoken
