// The matrix product's own source on a CPU: every tiling, of every device, has
// the same sums to the bit.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "common/infer/cuda/kernels/gemm.h"
#include "common/infer/cuda/kernels/gemm_index.h"
#include "gtest/gtest.h"

namespace foretoken::device {
namespace {

constexpr int kSmall = 99 << 10, kAmpere = 163 << 10, kHopper = 227 << 10;
// (An odd number of blocks of 128 features.)
constexpr int64_t kFeatures = 384, kK = 512, kPadded = 512;

// Device memory of `count` elements of T.
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, count * sizeof(T)), cudaSuccess);
  }
  ~Buffer() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  Buffer(const Buffer&) = delete;
  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> Copy() const { return {data(), data() + count_}; }

 private:
  const int64_t count_;
  void* data_ = nullptr;
};

class KernelsOnCpuGemmTest : public ::testing::TestWithParam<GemmEpilogue> {
 protected:
  KernelsOnCpuGemmTest() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&launcher_.stream, 0), cudaSuccess);
    std::mt19937 random(3);
    // bf16 numbers around 1 of both signs.
    const auto fill = [&](const Buffer<uint16_t>& buffer, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        buffer.data()[i] = static_cast<uint16_t>((random() & 0x81ff) ^ 0x3e00);
      }
    };
    fill(weights_, kFeatures * kK);
    fill(x_, kPadded * kK);
  }
  ~KernelsOnCpuGemmTest() override {
    EXPECT_EQ(cudaStreamDestroy(launcher_.stream), cudaSuccess);
  }

  // Element [row][feature] (partial sums: [group][row][feature]) of a product.
  std::vector<uint32_t> Run(int rows, int groups, const DeviceLimits& device) {
    const bool activations = GetParam() == GemmEpilogue::kSwiGlu;
    const int64_t out_features = activations ? kFeatures / 2 : kFeatures;
    // (Room for 32-bit sums serves activations of 16 bits, too.)
    Buffer<uint32_t> out(groups * kPadded * kFeatures);
    *count_.data() = rows;
    GemmParams params;
    params.weights = weights_.data();
    params.x = x_.data();
    params.out = out.data();
    params.rows = count_.data();
    params.padded_rows = kPadded;
    params.features = kFeatures;
    params.k = kK;
    params.groups = groups;
    EXPECT_EQ(PrepareGemm(device), cudaSuccess);
    EXPECT_EQ(LaunchGemm(GetParam(), DeviceType::kBFloat16, params, rows,
                         device, launcher_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(launcher_.stream), cudaSuccess);
    std::vector<uint32_t> values;
    for (int group = 0; group < groups; ++group) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t feature = 0; feature < out_features; ++feature) {
          uint32_t value = 0;
          if (activations) {
            uint16_t bits;
            std::memcpy(&bits,
                        reinterpret_cast<const char*>(out.data()) +
                            2 * ActivationAt(row, feature, kPadded),
                        2);
            value = bits;
          } else {
            value = out.data()[(group * kPadded + row) * kFeatures + feature];
          }
          values.push_back(value);
        }
      }
    }
    return values;
  }

  Launcher launcher_;
  const Buffer<uint16_t> weights_{kFeatures * kK}, x_{kPadded * kK};
  const Buffer<int32_t> count_{16};
};

TEST_P(KernelsOnCpuGemmTest, EveryTilingHasTheSameSums) {
  const int groups = GetParam() == GemmEpilogue::kPartial ? 2 : 1;
  constexpr int kMost = 300;
  const std::vector<uint32_t> all = Run(kMost, groups, {kHopper, false});
  const size_t of_group = all.size() / groups, of_row = of_group / kMost;
  std::set<int> tilings = {ChooseGemmTiling(kMost, kHopper)};
  for (const int shared : {kHopper, kAmpere, kSmall}) {
    for (const int rows : {1, 8, 9, 17, 33, 64, 65, 72, 73, 250}) {
      if (!tilings.insert(ChooseGemmTiling(rows, shared)).second) continue;
      const std::vector<uint32_t> some = Run(rows, groups, {shared, false});
      ASSERT_EQ(some.size(), groups * rows * of_row);
      for (int group = 0; group < groups; ++group) {
        ASSERT_EQ(std::memcmp(&some[group * rows * of_row],
                              &all[group * of_group], rows * of_row * 4),
                  0)
            << rows << " rows, " << shared << " bytes, group " << group;
      }
    }
  }
  EXPECT_EQ(tilings.size(), std::size(kGemmTilings));
  for (const int rows : {33, 65, 100, 150, 250, kMost}) {
    const std::vector<uint32_t> wide = Run(rows, groups, {kHopper, true, 1000});
    for (int group = 0; group < groups; ++group) {
      ASSERT_EQ(std::memcmp(&wide[group * rows * of_row],
                            &all[group * of_group], rows * of_row * 4),
                0)
          << rows << " rows by warpgroups, group " << group;
    }
  }
  if (groups == 1) return;
  // Nine thread blocks of all groups fill three turns of three.
  const DeviceLimits small = {kHopper, true, 3};
  MatrixShape matrix;
  matrix.features = kFeatures;
  matrix.groups = groups;
  ASSERT_EQ(GroupsWritten(matrix, 65, small), groups);
  ASSERT_EQ(GroupsWritten(matrix, kMost, {kHopper, false, 3}), groups);
  ASSERT_EQ(GroupsWritten(matrix, kMost, small), 1);
  const std::vector<uint32_t> added = Run(kMost, groups, small);
  for (size_t i = 0; i < of_group; ++i) {
    float sum = 0.0f, first, second;
    std::memcpy(&first, &all[i], sizeof(first));
    std::memcpy(&second, &all[of_group + i], sizeof(second));
    std::memcpy(&sum, &added[i], sizeof(sum));
    ASSERT_EQ(sum, first + second) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Epilogues, KernelsOnCpuGemmTest,
                         ::testing::Values(GemmEpilogue::kPartial,
                                           GemmEpilogue::kSwiGlu,
                                           GemmEpilogue::kLogits));

}  // namespace
}  // namespace foretoken::device
