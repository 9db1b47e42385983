// The machine that the kernels run on without a GPU: it shows what a kernel
// does wrong with early starts, shared memory and the order of its blocks.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/infer/cuda/kernels/instructions.cuh"
#include "common/infer/cuda/kernels/launch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/cuda_on_cpu/device.h"

namespace foretoken::device {
namespace {

using ::testing::Each;
using ::testing::UnorderedElementsAreArray;

constexpr int kBlocks = 3, kThreads = 32, kCount = kBlocks * kThreads;

struct Params {
  const int* in = nullptr;
  int* out = nullptr;
  int value = 0;
};

int Element() { return static_cast<int>(blockIdx.x * kThreads + threadIdx.x); }

void Fill(const Params p) {
  WaitForPreviousKernels();
  p.out[Element()] = p.value;
}
void Copy(const Params p) {
  WaitForPreviousKernels();
  p.out[Element()] = p.in[Element()];
}
void ReadThenWait(const Params p) {
  const int stale = p.in[Element()];
  WaitForPreviousKernels();
  p.out[Element()] = stale;
}
void WaitInOneBlock(const Params p) {
  if (blockIdx.x == 0) WaitForPreviousKernels();
  p.out[Element()] = blockIdx.x == 0 ? p.in[Element()] : p.value;
}
void NeverWait(const Params) {}
void OnlyWait(const Params) { WaitForPreviousKernels(); }

std::vector<int> begun;
void NoteBlock(const Params) {
  if (threadIdx.x == 0) begun.push_back(static_cast<int>(blockIdx.x));
}

void CopyShared(const Params p) {
  const auto& declared = StaticShared<std::array<float, kThreads>>();
  const auto* asked = reinterpret_cast<const float*>(DynamicShared());
  p.out[Element()] =
      std::isnan(declared[threadIdx.x]) && std::isnan(asked[threadIdx.x]);
}

class MachineTest : public ::testing::Test {
 protected:
  MachineTest() {
    cuda_on_cpu::SetDevice(cuda_on_cpu::Device());
    EXPECT_EQ(cudaStreamCreateWithFlags(&launcher_.stream, 0), cudaSuccess);
    for (int** p : {&source_, &result_}) {
      EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(p), kCount * sizeof(int)),
                cudaSuccess);
    }
  }
  ~MachineTest() override {
    for (int* p : {source_, result_}) EXPECT_EQ(cudaFree(p), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(launcher_.stream), cudaSuccess);
  }

  cudaError_t Run(void (*kernel)(Params), int value = 0, int shared_bytes = 0) {
    const Params params = {source_, kernel == Fill ? source_ : result_, value};
    return launcher_.Run(kernel, dim3(kBlocks), dim3(kThreads), shared_bytes,
                         params);
  }
  std::vector<int> Wait() {
    EXPECT_EQ(cudaStreamSynchronize(launcher_.stream), cudaSuccess);
    return {result_, result_ + kCount};
  }

  // Results of many rounds: a fill with the round's number, then `kernels`.
  std::vector<std::vector<int>> Rounds(
      const std::vector<void (*)(Params)>& kernels) {
    std::vector<std::vector<int>> results;
    for (int round = 0; round < 40; ++round) {
      launcher_.first = true;
      EXPECT_EQ(Run(Fill, round), cudaSuccess);
      for (void (*kernel)(Params) : kernels) {
        EXPECT_EQ(Run(kernel, round), cudaSuccess);
      }
      results.push_back(Wait());
    }
    return results;
  }

  Launcher launcher_;
  int* source_ = nullptr;
  int* result_ = nullptr;
};

TEST_F(MachineTest, AKernelThatWaitsReadsWhatThoseAheadWrote) {
  for (const auto& kernels :
       {std::vector<void (*)(Params)>{Copy}, {OnlyWait, OnlyWait, Copy}}) {
    const auto results = Rounds(kernels);
    for (size_t round = 0; round < results.size(); ++round) {
      EXPECT_THAT(results[round], Each(static_cast<int>(round)));
    }
  }
}

// The old number is the last round's. (Where kernels stand between, an early
// block may begin after the fill and read the new one.)
TEST_F(MachineTest, AKernelThatReadsBeforeItWaitsReadsOldNumbers) {
  for (const auto& kernels : {std::vector<void (*)(Params)>{ReadThenWait},
                              {OnlyWait, OnlyWait, ReadThenWait}}) {
    const auto results = Rounds(kernels);
    int stale = 0;
    for (size_t round = 1; round < results.size(); ++round) {
      stale += std::count(results[round].begin(), results[round].end(),
                          static_cast<int>(round) - 1) > 0;
    }
    EXPECT_GT(stale, 10);
  }
}

TEST_F(MachineTest, OneBlockThatWaitsIsEnoughForTheKernel) {
  const auto results = Rounds({WaitInOneBlock});
  for (size_t round = 0; round < results.size(); ++round) {
    EXPECT_THAT(results[round], Each(static_cast<int>(round)));
  }
}

using MachineDeathTest = MachineTest;
TEST_F(MachineDeathTest, AKernelOfWhichNoBlockWaitsEndsTheProcess) {
  EXPECT_DEATH(Rounds({NeverWait}), "no block waits");
}

TEST_F(MachineTest, BlocksBeginInAnyOrder) {
  std::vector<int> ascending(kBlocks);
  std::iota(ascending.begin(), ascending.end(), 0);
  int sorted = 0;
  for (int round = 0; round < 40; ++round) {
    begun.clear();
    launcher_.first = true;
    EXPECT_EQ(Run(NoteBlock), cudaSuccess);
    Wait();
    EXPECT_THAT(begun, UnorderedElementsAreArray(ascending));
    sorted += begun == ascending;
  }
  EXPECT_LT(sorted, 30);
}

TEST_F(MachineTest, MuchSharedMemoryHasToBeAskedFor) {
  constexpr int kMuch = (48 << 10) + 16;
  EXPECT_EQ(Run(OnlyWait, 0, 48 << 10), cudaSuccess);
  EXPECT_NE(Run(OnlyWait, 0, kMuch), cudaSuccess);
  EXPECT_EQ(PrepareKernel(OnlyWait, kMuch), cudaSuccess);
  EXPECT_EQ(Run(OnlyWait, 0, kMuch), cudaSuccess);
  EXPECT_NE(Run(OnlyWait, 0, kMuch + 16), cudaSuccess);
  Wait();
}

TEST_F(MachineTest, SharedMemoryBeginsAsNaN) {
  EXPECT_EQ(Run(CopyShared, 0, kThreads * 4), cudaSuccess);
  EXPECT_THAT(Wait(), Each(1));
}

}  // namespace
}  // namespace foretoken::device
