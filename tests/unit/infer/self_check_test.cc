#include "common/infer/self_check.h"

#include <cstring>
#include <limits>
#include <string>

#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/model_weights.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/infer/tiny_checkpoint.h"

namespace foretoken {
namespace {

using ::foretoken::testing::FakeBackend;
using ::foretoken::testing::FakeBackendOptions;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::foretoken::testing::TinyCheckpoint;
using ::testing::HasSubstr;

TEST(SelfCheckTest, OneBadTokenIsNotTheModels) {
  FakeBackendOptions options;
  for (const TokenId poison : {-1, 0, 16, 49}) {
    options.poison = poison;
    FakeBackend backend(options);
    FORETOKEN_EXPECT_OK(CheckLogits(backend));
    EXPECT_EQ(backend.kv_usage().sessions, 0);
  }
  options.broken_from = 1;
  FakeBackend broken(options);
  EXPECT_THAT(CheckLogits(broken),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not finite")));
  EXPECT_EQ(broken.kv_usage().sessions, 0);
}

TEST(SelfCheckTest, WithoutRoomForTheCheckNothingIsFound) {
  FakeBackendOptions options;
  options.broken_from = 1;
  options.max_sessions = 1;
  FakeBackend backend(options);
  const TokenId prompt[] = {1};
  FORETOKEN_ASSERT_OK(backend.Open("", prompt));
  FORETOKEN_EXPECT_OK(CheckLogits(backend));
}

// One NaN in any tensor that every row is multiplied with.
TEST(SelfCheckTest, ATensorWithNanIsFound) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::string tensor :
       {"", "model.layers.1.mlp.up_proj.weight",
        "model.layers.0.self_attn.v_proj.weight", "model.norm.weight"}) {
    SCOPED_TRACE(tensor);
    TinyCheckpoint checkpoint;
    if (!tensor.empty()) {
      std::memcpy(checkpoint.Find(tensor).data.data(), &nan, sizeof(nan));
    }
    const TempDir dir;
    checkpoint.Write(dir);
    auto weights = ModelWeights::Load(dir.path());
    FORETOKEN_ASSERT_OK(weights);
    CpuOptions options;
    options.threads = 1;
    options.max_rows = 8;
    options.kv_cache_bytes = 1 << 20;
    const auto backend = MakeCpuBackend(*std::move(weights), options);
    FORETOKEN_ASSERT_OK(backend);
    EXPECT_EQ(CheckLogits(**backend).ok(), tensor.empty());
  }
}

}  // namespace
}  // namespace foretoken
