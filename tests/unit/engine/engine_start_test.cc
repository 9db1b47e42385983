#include "common/engine/start/engine_start.h"

#include <memory>
#include <vector>

#include "common/config/flags.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/status_matchers.h"

namespace foretoken {
namespace {

using ::foretoken::testing::FakeBackend;
using ::foretoken::testing::FakeBackendOptions;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

absl::Status ParseHangFlags(EngineLoopOptions& loop,
                            std::vector<const char*> arguments) {
  Flags flags("foretoken-engine", "Runs an engine.");
  AddHangFlags(flags, loop);
  arguments.insert(arguments.begin(), "foretoken-engine");
  return flags.Parse(static_cast<int>(arguments.size()), arguments.data());
}

TEST(EngineStartTest, HangFlagsReachTheLoop) {
  EngineLoopOptions loop;
  FORETOKEN_ASSERT_OK(
      ParseHangFlags(loop, {"--hang-timeout=3s", "--hang-exit=5m"}));
  EXPECT_EQ(loop.hang_timeout, absl::Seconds(3));
  EXPECT_EQ(loop.hang_exit, absl::Minutes(5));
  FORETOKEN_EXPECT_OK(ParseHangFlags(loop, {"--hang-exit=0s"}));
  EXPECT_EQ(loop.hang_exit, absl::ZeroDuration());
  EXPECT_THAT(ParseHangFlags(loop, {"--hang-timeout=0s"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--hang-timeout")));
}

TEST(EngineStartTest, StartsTheBackendThatItsOptionsName) {
  BackendOptions options;
  options.random_model =
      "d_model=32,layers=1,heads=2,kv_heads=1,d_ff=32,vocab=64";
  options.threads = 1;
  const auto backend = StartBackend(options, "model tiny");
  FORETOKEN_ASSERT_OK(backend);
  EXPECT_EQ((*backend)->config().vocab_size, 64);
  options.random_model = "d_model=x";
  EXPECT_THAT(StartBackend(options, "model tiny"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
}

TEST(EngineStartTest, TheLongestPassIsEstimatedForTheMostRows) {
  FakeBackend backend{FakeBackendOptions()};
  EngineLoopOptions loop;
  const auto timing = TimePasses(backend, /*rows=*/16, absl::Hours(1),
                                 /*most_rows=*/4096, loop);
  FORETOKEN_ASSERT_OK(timing);
  EXPECT_EQ(timing->points().back().rows, 16);
  EXPECT_GT(loop.longest_pass, absl::ZeroDuration());
  EXPECT_EQ(loop.longest_pass, absl::Seconds(timing->Seconds(4096)));
}

TEST(EngineStartTest, WithoutTimesTheLongestPassStaysUnknown) {
  FakeBackend backend{FakeBackendOptions()};
  backend.FailNextForward(absl::InternalError("the GPU is gone"));
  EngineLoopOptions loop;
  EXPECT_FALSE(TimePasses(backend, 16, absl::Hours(1), 4096, loop).ok());
  EXPECT_EQ(loop.longest_pass, absl::ZeroDuration());
}

}  // namespace
}  // namespace foretoken
