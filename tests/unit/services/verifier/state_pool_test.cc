#include "services/verifier/core/state_pool.h"

#include <cmath>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace foretoken::verifier {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::FloatEq;

TEST(StatePoolTest, TheMeanHasLengthOne) {
  StatePool pool(Pooling::kMean, 2);
  pool.Add({1.0f, 2.0f, 3.0f, 4.0f});  // two tokens
  pool.Add({2.0f, 2.0f});
  // The mean is (2, 8/3), in the direction of (3, 4).
  const auto mean = pool.Finish();
  ASSERT_THAT(mean, IsOk());
  EXPECT_THAT(*mean, ElementsAre(FloatEq(0.6f), FloatEq(0.8f)));
}

TEST(StatePoolTest, TheLastStateHasLengthOne) {
  StatePool pool(Pooling::kLast, 2);
  pool.Add({7.0f, 1.0f, 5.0f, 5.0f});
  pool.Add({1.0f, 9.0f, -3.0f, 4.0f});
  const auto last = pool.Finish();
  ASSERT_THAT(last, IsOk());
  EXPECT_THAT(*last, ElementsAre(FloatEq(-0.6f), FloatEq(0.8f)));
}

TEST(StatePoolTest, ChunksOfAnySizeGiveTheSameBits) {
  constexpr int32_t kWidth = 3, kTokens = 100;
  std::vector<float> states(kTokens * kWidth);
  for (size_t i = 0; i < states.size(); ++i) {
    states[i] = std::sin(static_cast<float>(i)) * (i % 7 == 0 ? 1e4f : 1e-3f);
  }
  StatePool whole(Pooling::kMean, kWidth);
  whole.Add(states);
  const auto want = whole.Finish();
  ASSERT_THAT(want, IsOk());
  for (const size_t chunk : {1, 7, 64, 99}) {
    StatePool pool(Pooling::kMean, kWidth);
    for (size_t begin = 0; begin < states.size(); begin += chunk * kWidth) {
      pool.Add(absl::MakeConstSpan(states).subspan(begin, chunk * kWidth));
    }
    const auto got = pool.Finish();
    ASSERT_THAT(got, IsOk());
    EXPECT_EQ(*got, *want) << chunk;
  }
}

TEST(StatePoolTest, StatesWithoutADirectionAreDataLoss) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0f, infinity, -infinity, std::nanf("")}) {
    for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
      StatePool pool(pooling, 2);
      pool.Add({0.0f, bad});
      EXPECT_THAT(pool.Finish(),
                  StatusIs(absl::StatusCode::kDataLoss, ::testing::_))
          << bad;
    }
  }
}

}  // namespace
}  // namespace foretoken::verifier
