// Row invariance of the CUDA backend over the device's twin: every comparison
// of logits is bitwise.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer/invariance_contract.h"
#include "tests/unit/infer/states_contract.h"
#include "tests/unit/infer/tiny_backend.h"
#include "tests/unit/infer/truncate_contract.h"
#include "tests/unit/infer_cuda/twin_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of tiny_backend.h

class TwinInvarianceTest : public ::testing::Test {
 protected:
  const ModelConfig config_ = TinyConfig();
  const std::unique_ptr<Backend> reference_ =
      MakeTwinBackend(config_, TwinOptions());
  OneByOne one_by_one_{*reference_};
  std::mt19937 random_{21};
};

TEST_F(TwinInvarianceTest, EveryRowCountAndShapeGivesTheSameRows) {
  const auto backend = MakeTwinBackend(config_, TwinOptions());
  // A chain of 40 and the same children at every one of its rows, so that
  // there are few paths however many rows.
  const std::vector<TokenId> some = RandomTokens(43, config_, random_);
  for (const int rows : {1, 2, 3, 8, 17, 64, 320}) {
    std::vector<TokenId> tokens(rows);
    std::vector<int32_t> parents = Chain(rows);
    for (int r = 0; r < rows; ++r) {
      tokens[r] = r < 40 ? some[r] : some[40 + r % 3];
      if (r >= 40) parents[r] = (r * 7) % 40;
    }
    ExpectFreshTreeEqualsOneByOne(*backend, one_by_one_, {}, tokens, parents);
  }
}

// A row's siblings may stand before or after it, its cousins between it and its
// parent.
TEST_F(TwinInvarianceTest, TheOrderOfATreeChangesNothing) {
  const auto backend = MakeTwinBackend(config_, TwinOptions());
  const std::vector<TokenId> context = RandomTokens(29, config_, random_);
  const std::vector<TokenId> tokens = RandomTokens(24, config_, random_);
  for (int order = 0; order < 4; ++order) {
    const std::vector<int32_t> parents = RandomParents(24, order, random_);
    ExpectFreshTreeEqualsOneByOne(*backend, one_by_one_, context, tokens,
                                  parents);
  }
}

TEST_F(TwinInvarianceTest, BatchMatesChangeNothing) {
  const auto backend = MakeTwinBackend(config_, TwinOptions());
  for (const int mates : {1, 3, 16}) {
    ExpectBatchMatesChangeNothing(*backend, one_by_one_, mates, random_);
  }
}

// Whatever the device's walk moved ahead, the path that is committed counts:
// longer, shorter, another one, or no walk at all.
TEST_F(TwinInvarianceTest, ChunksCommitsAheadAndOtherPathsChangeNothing) {
  EngineLog log;
  const auto backend = MakeTwinBackend(config_, TwinOptions(), &log);
  const std::vector<TokenId> prompt = RandomTokens(90, config_, random_);
  for (const int chunk : {1, 5, 31, 32, 33, 90}) {
    log.commit_ahead = chunk != 33;
    const SessionId session = backend->Open("", prompt)->session;
    for (size_t begin = 0; begin < prompt.size(); begin += chunk) {
      const size_t end = std::min(begin + chunk, prompt.size());
      Append(*backend, session, {prompt.begin() + begin, prompt.begin() + end});
    }
    std::vector<TokenId> context = prompt;
    for (int round = 0; round < 12; ++round) {
      if (round % 3 != 2) {
        FORETOKEN_ASSERT_OK(backend->Reserve(session, context.size() + 8));
      }
      // The path that the model itself takes, as far as one pass can tell, and
      // others beside it.
      std::vector<TokenId> tokens = RandomTokens(1, config_, random_);
      std::vector<int32_t> parents = {-1};
      std::vector<TokenId> path = context;
      path.push_back(tokens[0]);
      for (int depth = 0; depth < 4; ++depth) {
        const Bits& logits = one_by_one_.Logits(path);
        path.push_back(static_cast<TokenId>(
            std::max_element(logits.begin(), logits.end()) - logits.begin()));
        tokens.push_back(path.back());
        parents.push_back(depth);
      }
      for (int r = 5; r < 20; ++r) {
        tokens.push_back(static_cast<TokenId>(random_() % config_.vocab_size));
        parents.push_back(static_cast<int32_t>(random_() % r));
      }
      PassSession pass;
      pass.session = session;
      pass.tokens = tokens;
      pass.parents = parents;
      PassResult result;
      FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
      const int32_t deepest = round % 4 == 0 ? 4 : round % 4 == 1 ? 2 : 19;
      std::vector<int32_t> rows;
      for (int32_t r = deepest; r >= 0; r = parents[r]) rows.push_back(r);
      std::reverse(rows.begin(), rows.end());
      const Bits last = RowLogits(*backend, session, deepest);
      FORETOKEN_ASSERT_OK(backend->Commit(session, rows));
      for (const int32_t r : rows) context.push_back(tokens[r]);
      ASSERT_TRUE(SameBits(last, one_by_one_.Logits(context)))
          << "chunk " << chunk << ", round " << round;
    }
    FORETOKEN_ASSERT_OK(backend->Close(session));
  }
}

TEST_F(TwinInvarianceTest, AReusedPrefixChangesNothing) {
  const auto backend = MakeTwinBackend(config_, TwinOptions());
  ExpectAReusedPrefixChangesNothing(*backend, one_by_one_, random_);
}

TEST_F(TwinInvarianceTest, StatesAreThoseOfEachRowsOwnPath) {
  const auto backend = MakeTwinBackend(config_, TwinOptions());
  ExpectStatesOfEachRowsOwnPath(*backend, *reference_, random_);
}

TEST_F(TwinInvarianceTest, ATruncatedSessionEqualsAFreshOne) {
  const auto backend = MakeTwinBackend(config_, TwinOptions());
  ExpectTruncateLeavesAFreshPrefix(*backend, *reference_);
}

}  // namespace
}  // namespace foretoken
