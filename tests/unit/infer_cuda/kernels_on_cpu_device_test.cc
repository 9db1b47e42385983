// What the module makes of GPUs of different compute capabilities, over its own
// source on the CPU.
#include <cstdlib>
#include <string>
#include <vector>

#include "common/infer/cuda/kernels/device_support.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/cuda_on_cpu/device.h"
#include "tests/support/cuda_on_cpu/graphs.h"
#include "tests/support/cuda_on_cpu/machine.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer_cuda/kernels_backend.h"

namespace foretoken {
namespace {

using ::foretoken::device::ModuleCode;
using ::foretoken::testing::Bits;
using ::foretoken::testing::MakeEngine;
using ::foretoken::testing::MakeKernels;
using ::foretoken::testing::RunChain;
using ::foretoken::testing::SmallOptions;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TinyConfig;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr cuda_on_cpu::Device kTuring = {7, 5, 64 * 1024};
constexpr cuda_on_cpu::Device kA100 = {8, 0, 163 * 1024};
constexpr cuda_on_cpu::Device kRtx3090 = {8, 6, 99 * 1024};
constexpr cuda_on_cpu::Device kOrin = {8, 7, 163 * 1024};
constexpr cuda_on_cpu::Device kHopper = {9, 0, 227 * 1024};
constexpr cuda_on_cpu::Device kBlackwell = {10, 0, 227 * 1024};

class KernelsOnDevicesTest : public ::testing::Test {
 protected:
  ~KernelsOnDevicesTest() override {
    cuda_on_cpu::SetDevice(cuda_on_cpu::Device());
  }

  static std::string FingerprintOn(const cuda_on_cpu::Device& device) {
    cuda_on_cpu::SetDevice(device);
    return MakeKernels(TinyConfig(), SmallOptions())->numerics_fingerprint();
  }
};

TEST_F(KernelsOnDevicesTest, OlderThanEightIsRefusedInOneLine) {
  cuda_on_cpu::SetDevice(kTuring);
  const auto weights =
      ModelWeights::Random(TinyConfig(), WeightType::kBFloat16, 7);
  FORETOKEN_ASSERT_OK(weights);
  EXPECT_THAT(
      MakeCudaBackend(**weights, MakeEngine, SmallOptions()).status(),
      StatusIs(absl::StatusCode::kUnavailable,
               "cuda backend: engine: CPU has compute capability 7.5, want 8.0 "
               "or later"));
}

// UNAVAILABLE makes --backend=auto take the CPU.
TEST_F(KernelsOnDevicesTest, ADriverThatDoesNotStartIsAnError) {
  constexpr int kNoDevice = 100, kTooOld = 35, kNotReady = 802;
  const auto weights =
      ModelWeights::Random(TinyConfig(), WeightType::kBFloat16, 7);
  FORETOKEN_ASSERT_OK(weights);
  const auto start = [&](int error, int version) {
    cuda_on_cpu::SetDriver(error, version);
    absl::Status status =
        MakeCudaBackend(**weights, MakeEngine, SmallOptions()).status();
    cuda_on_cpu::SetDriver(0, 13000);
    return status;
  };
  FORETOKEN_EXPECT_OK(start(0, 13000));
  EXPECT_THAT(start(kNoDevice, 13000),
              StatusIs(absl::StatusCode::kUnavailable,
                       "cuda backend: engine: no GPU: there is none"));
  // What the runtime answers where there is no driver.
  EXPECT_THAT(start(kTooOld, 0),
              StatusIs(absl::StatusCode::kUnavailable,
                       "cuda backend: engine: no GPU: there is no driver"));
  EXPECT_THAT(start(kTooOld, 12040),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the driver is for CUDA 12.4, want ")));
  EXPECT_THAT(start(kNotReady, 13000),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the driver does not start: ")));
}

// It does not name the card: an H200 goes on with an H100's streams.
TEST_F(KernelsOnDevicesTest, TheFingerprintNamesTheCapability) {
  EXPECT_THAT(FingerprintOn(kA100), HasSubstr(";capability=8.0;"));
  EXPECT_THAT(FingerprintOn(kHopper),
              AllOf(HasSubstr(";capability=9.0;"), Not(HasSubstr("CPU"))));
}

// What the driver compiles may change with the driver.
TEST_F(KernelsOnDevicesTest, TheFingerprintNamesADriverThatCompiles) {
  EXPECT_THAT(FingerprintOn(kBlackwell), HasSubstr(";driver="));
  for (const cuda_on_cpu::Device& device : {kA100, kOrin, kHopper}) {
    EXPECT_THAT(FingerprintOn(device), Not(HasSubstr(";driver=")));
  }
}

TEST_F(KernelsOnDevicesTest, KernelsBeginEarlyFromHopperOnOnly) {
  const std::vector<TokenId> tokens = {5, 7, 11, 13, 17, 19, 23, 29};
  std::vector<std::vector<Bits>> logits;
  for (const cuda_on_cpu::Device& device : {kA100, kHopper, kBlackwell}) {
    cuda_on_cpu::SetDevice(device);
    const int before = cuda_on_cpu::EarlyStarts();
    const auto backend = MakeKernels(TinyConfig(), SmallOptions());
    logits.push_back(RunChain(*backend, tokens));
    EXPECT_EQ(cuda_on_cpu::EarlyStarts() > before, device.major >= 9);
    EXPECT_EQ(logits.back(), logits.front());
  }
}

// Whose tiles are other ones. (A launch that asks for too much fails here.)
TEST_F(KernelsOnDevicesTest, LessSharedMemoryChangesNoBit) {
  ModelConfig config = TinyConfig();
  for (const int32_t head_dim : {32, 96, 128, 256}) {
    config.head_dim = head_dim;
    // (Passes of two, one and more tasks of attention.)
    for (const int count : {12, 100}) {
      std::vector<TokenId> tokens(count);
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = static_cast<TokenId>(i * 7 % config.vocab_size);
      }
      std::vector<std::vector<Bits>> logits;
      for (const cuda_on_cpu::Device& device : {kHopper, kA100, kRtx3090}) {
        cuda_on_cpu::SetDevice(device);
        const auto backend = MakeKernels(config, SmallOptions());
        logits.push_back(RunChain(*backend, tokens));
        EXPECT_EQ(logits.back(), logits.front()) << head_dim << " " << count;
      }
    }
  }
}

TEST_F(KernelsOnDevicesTest, ADeviceThatFailsForGoodIsLost) {
  const auto backend = MakeKernels(TinyConfig(), SmallOptions());
  const std::vector<TokenId> tokens = {5};
  const std::vector<int32_t> parents = {-1};
  PassSession pass;
  pass.session = backend->Open("", {})->session;
  pass.tokens = tokens;
  pass.parents = parents;
  PassResult result;
  FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
  cuda_on_cpu::BreakDevice(true);
  EXPECT_FALSE(backend->lost());
  for (int n = 0; n < 2; ++n) {
    EXPECT_THAT(backend->Forward({pass}, result),
                StatusIs(absl::StatusCode::kUnavailable,
                         HasSubstr("the device has failed: ")));
    EXPECT_TRUE(backend->lost());
  }
  cuda_on_cpu::BreakDevice(false);
}

// FORETOKEN_CUDA_SYNC=1. A layer has nine kernels here, before the first is a
// norm.
TEST_F(KernelsOnDevicesTest, AWatchedKernelThatFailsIsNamed) {
  ASSERT_EQ(setenv("FORETOKEN_CUDA_SYNC", "1", 1), 0);
  const auto backend = MakeKernels(TinyConfig(), SmallOptions());
  ASSERT_EQ(unsetenv("FORETOKEN_CUDA_SYNC"), 0);
  const std::vector<TokenId> tokens = {5};
  const std::vector<int32_t> parents = {-1};
  PassSession pass;
  pass.session = backend->Open("", {})->session;
  pass.tokens = tokens;
  pass.parents = parents;
  PassResult result;
  const int early = cuda_on_cpu::EarlyStarts();
  const int graphs = cuda_on_cpu::GraphLaunches();
  for (int n = 0; n < 3; ++n) {
    FORETOKEN_ASSERT_OK(backend->Forward({pass}, result));
  }
  EXPECT_EQ(cuda_on_cpu::EarlyStarts(), early);
  EXPECT_EQ(cuda_on_cpu::GraphLaunches(), graphs);
  cuda_on_cpu::BreakDeviceAfter(1 + 9 + 2);
  EXPECT_THAT(backend->Forward({pass}, result),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("pass 4, layer 1, grid "),
                             HasSubstr(" bytes shared: kernel"))));
  cuda_on_cpu::BreakDevice(false);
}

// Out of memory is no loss, nor is a pass that is refused.
TEST_F(KernelsOnDevicesTest, ADeviceIsNotLostByARefusal) {
  const auto backend = MakeKernels(TinyConfig(), SmallOptions());
  PassSession pass;
  pass.session = backend->Open("", {})->session;
  const std::vector<TokenId> tokens = {5};
  const std::vector<int32_t> parents = {-1};
  pass.tokens = tokens;
  pass.parents = parents;
  PassResult result;
  cuda_on_cpu::FailAllocationAfter(0);
  EXPECT_THAT(
      backend->Forward({pass}, result),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("memory")));
  cuda_on_cpu::FailAllocationAfter(-1);
  EXPECT_FALSE(backend->lost());
  FORETOKEN_EXPECT_OK(backend->Forward({pass}, result));
}

TEST(ModuleCodeTest, MachineCodeRunsOnLaterMinorNumbersOfItsMajorOne) {
  static constexpr ModuleCode code = {{80, 89, 90}, 0};
  EXPECT_TRUE(code.HasMachineCode(80));
  EXPECT_TRUE(code.HasMachineCode(86));
  EXPECT_TRUE(code.HasMachineCode(89));
  EXPECT_TRUE(code.HasMachineCode(90));
  EXPECT_FALSE(code.HasMachineCode(100));
  EXPECT_FALSE((ModuleCode{{86}, 0}).HasMachineCode(80));
}

TEST(ModuleCodeTest, PtxRunsOnAllThatIsNewer) {
  static constexpr ModuleCode code = {{80}, 90};
  EXPECT_TRUE(code.Runs(86));
  EXPECT_TRUE(code.Runs(90));
  EXPECT_TRUE(code.Runs(120));
  EXPECT_FALSE((ModuleCode{{90}, 90}).Runs(86));
  EXPECT_FALSE((ModuleCode{{90}, 0}).Runs(120));
}

}  // namespace
}  // namespace foretoken
