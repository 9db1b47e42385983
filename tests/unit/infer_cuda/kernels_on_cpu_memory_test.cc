// The GPU module where graphs or memory cannot be had, by its own source on a
// CPU (tests/support/cuda_on_cpu).
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/cuda_on_cpu/graphs.h"
#include "tests/support/cuda_on_cpu/machine.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/infer_cuda/kernels_backend.h"

namespace foretoken {
namespace {

using namespace ::foretoken::testing;  // NOLINT: helpers of kernels_backend.h
using ::testing::HasSubstr;

TEST(KernelsOnCpuMemoryTest, WithoutGraphsThatCannotBeHadAPassIsTheSame) {
  const std::vector<TokenId> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  const auto plain = MakeKernels(TinyConfig(), SmallOptions(false));
  const std::vector<Bits> want = RunChain(*plain, tokens);
  const auto same = [&](Backend& backend) {
    const std::vector<Bits> got = RunChain(backend, tokens);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(SameBits(got[i], want[i])) << "row " << i;
    }
  };
  const auto backend = MakeKernels(TinyConfig(), SmallOptions());
  // With early starts and without, of both sizes.
  cuda_on_cpu::FailGraphInstantiations(4);
  const int launches = cuda_on_cpu::GraphLaunches();
  for (int n = 0; n < 3; ++n) same(*backend);
  EXPECT_EQ(cuda_on_cpu::Graphs(), 0);
  EXPECT_EQ(cuda_on_cpu::GraphLaunches(), launches);
  cuda_on_cpu::FailGraphInstantiations(0);

  // One failure costs that graph its early starts and nothing else.
  const auto other = MakeKernels(TinyConfig(), SmallOptions());
  cuda_on_cpu::FailGraphInstantiations(1);
  same(*other);
  EXPECT_EQ(cuda_on_cpu::Graphs(), 2);
  same(*other);
  EXPECT_EQ(cuda_on_cpu::GraphLaunches(), launches + 2);
  // No memory to run one: all are given back, and made anew after a while.
  cuda_on_cpu::FailGraphLaunches(1);
  same(*other);
  EXPECT_EQ(cuda_on_cpu::Graphs(), 0);
  for (int passes = 2; passes < 32; passes += 2) same(*other);
  EXPECT_EQ(cuda_on_cpu::Graphs(), 0);
  same(*other);
  same(*other);
  EXPECT_EQ(cuda_on_cpu::Graphs(), 2);
}

TEST(KernelsOnCpuMemoryTest, AllMemoryComesBackAlsoAfterARefusal) {
  const auto weights =
      ModelWeights::Random(TinyConfig(), WeightType::kBFloat16, 7);
  FORETOKEN_ASSERT_OK(weights);
  ASSERT_EQ(cuda_on_cpu::DeviceAllocations(), 0);
  for (int n = 0;; ++n) {
    cuda_on_cpu::FailAllocationAfter(n);
    const auto backend = MakeCudaBackend(**weights, MakeEngine, SmallOptions());
    cuda_on_cpu::FailAllocationAfter(-1);
    if (backend.ok()) {
      EXPECT_GT(n, 10);
      break;
    }
    EXPECT_THAT(backend, StatusIs(absl::StatusCode::kResourceExhausted,
                                  HasSubstr("memory")));
    EXPECT_EQ(cuda_on_cpu::DeviceAllocations(), 0) << n;
  }
  EXPECT_EQ(cuda_on_cpu::DeviceAllocations(), 0);
}

TEST(KernelsOnCpuMemoryTest, TheModuleSaysWhichInterfaceItHas) {
  EXPECT_EQ(ForetokenDeviceAbi(), kDeviceAbi);
}

}  // namespace
}  // namespace foretoken
