// The matrix product: a thread block takes 128 features, a tile of rows and one
// group of K, and streams its weights once, from memory through a ring of
// stages in shared memory to the matrix units.
//
// Bytes in flight are what a product of few rows lives by: each thread block
// asks for all but one of its stages ahead (5 x 16 KiB of weights where the
// tile is narrow, two thread blocks on a multiprocessor, so about 20 MiB on
// 132), several times what a latency near one microsecond wants at 4.3 TB/s.
// The first stages of weights are asked for before the kernels ahead are done.
#include "common/infer/cuda/kernels/device_math.cuh"
#include "common/infer/cuda/kernels/gemm.h"
#include "common/infer/cuda/kernels/gemm_index.h"

namespace foretoken::device {
namespace {

// kFeatureTiles: mma tiles of 16 features of a warp. kRowTiles: of 8 rows.
// kRowWarps: warps side by side over rows. kStepK: k of a stage.
template <int kFeatureTiles_, int kRowTiles_, int kRowWarps_, int kStepK_,
          int kStages_>
struct Tile {
  static constexpr int kFeatureTiles = kFeatureTiles_;
  static constexpr int kRowTiles = kRowTiles_;
  static constexpr int kRowWarps = kRowWarps_;
  static constexpr int kStepK = kStepK_;
  static constexpr int kStages = kStages_;
  static constexpr int kFeatureWarps = kGemmFeatureTiles / kFeatureTiles;
  static constexpr int kThreads = 32 * kFeatureWarps * kRowWarps;
  static constexpr int kRows = 8 * kRowTiles * kRowWarps;
  static constexpr int kKBlocks = kStepK / kGemmKBlock;
  static constexpr int kWeightBytes = kGemmFeatures * kStepK * 2;
  static constexpr int kRowBytes = kRows * kStepK * 2;
  static constexpr int kStageBytes = kWeightBytes + kRowBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  // Shared memory lets this many thread blocks onto one multiprocessor.
  static constexpr int kResident = 227 * 1024 / (kSharedBytes + 1024);
  static_assert(kGemmKStep % kStepK == 0 && kStepK % kGemmKBlock == 0);
  static_assert(kWeightBytes % (16 * kThreads) == 0);
  static_assert(kGemmRowPad % kRows == 0 && kResident >= 1);
};

using Tile8 = Tile<2, 1, 1, 64, 6>;
using Tile16 = Tile<2, 2, 1, 64, 6>;
using Tile32 = Tile<2, 4, 1, 64, 5>;
using Tile64 = Tile<4, 8, 1, 32, 4>;
using Tile128 = Tile<4, 8, 2, 32, 5>;
using Tile256 = Tile<4, 8, 4, 32, 6>;

template <typename T>
__device__ __forceinline__ const char* WeightStage(const GemmParams& p,
                                                   int64_t k_block) {
  const int64_t first = (blockIdx.y * (p.k / kGemmKBlock) + k_block) *
                        kGemmFeatures * kGemmKBlock;
  return static_cast<const char*>(p.weights) + first * sizeof(T);
}

// A stage's weights lie in one piece, in the order in which they are read.
template <typename T, typename Shape>
__device__ __forceinline__ void CopyWeights(const GemmParams& p,
                                            int64_t k_block, uint32_t stage) {
  const char* from = WeightStage<T>(p, k_block) + threadIdx.x * 16;
  const uint32_t to = stage + threadIdx.x * 16;
#pragma unroll
  for (int i = 0; i < Shape::kWeightBytes; i += 16 * Shape::kThreads) {
    CopyAsync<true>(to + i, from + i);
  }
}

template <typename T, typename Shape>
__device__ __forceinline__ void CopyRows(const GemmParams& p, int64_t k_block,
                                         int64_t first_row, uint32_t stage) {
  constexpr int kUnits = Shape::kRows * 4;  // of 16 bytes, of a block of k
  const T* x = static_cast<const T*>(p.x);
#pragma unroll
  for (int kb = 0; kb < Shape::kKBlocks; ++kb) {
    const T* from = x + ActivationAt(first_row, (k_block + kb) * kGemmKBlock,
                                     p.padded_rows);
    const uint32_t to = stage + Shape::kWeightBytes + kb * kUnits * 16;
    for (int i = threadIdx.x; i < kUnits; i += Shape::kThreads) {
      CopyAsync<false>(to + i * 16, from + i * 8);
    }
  }
}

template <typename T, typename Shape>
__device__ __forceinline__ void MultiplyStage(
    const char* stage, int feature_warp, int row_warp, int lane,
    float (&sums)[Shape::kFeatureTiles][Shape::kRowTiles][4]) {
  const uint4* weights = reinterpret_cast<const uint4*>(stage);
  const uint4* rows =
      reinterpret_cast<const uint4*>(stage + Shape::kWeightBytes);
#pragma unroll
  for (int kb = 0; kb < Shape::kKBlocks; ++kb) {
    uint4 x[Shape::kRowTiles];
#pragma unroll
    for (int n = 0; n < Shape::kRowTiles; ++n) {
      x[n] =
          rows[(kb * Shape::kRows + (row_warp * Shape::kRowTiles + n) * 8) * 4 +
               lane];
    }
#pragma unroll
    for (int m = 0; m < Shape::kFeatureTiles; ++m) {
      const int fragment =
          (kb * kGemmFeatureTiles + feature_warp * Shape::kFeatureTiles + m) *
          2;
      const uint4 low = weights[fragment * 32 + lane];
      const uint4 high = weights[(fragment + 1) * 32 + lane];
#pragma unroll
      for (int n = 0; n < Shape::kRowTiles; ++n) {
        Mma<T>(sums[m][n], low, x[n].x, x[n].y);
      }
#pragma unroll
      for (int n = 0; n < Shape::kRowTiles; ++n) {
        Mma<T>(sums[m][n], high, x[n].z, x[n].w);
      }
    }
  }
}

// `gate`, `up`: sums; `feature`: of the feed-forward.
template <typename T>
__device__ __forceinline__ T SwiGlu(const GemmParams& p, int64_t feature,
                                    float gate, float up) {
  if (p.gate_bias != nullptr) {
    gate = gate + p.gate_bias[feature];
    up = up + p.up_bias[feature];
  }
  return Round<T>(gate / (1.0f + expf(-gate)) * up);
}

template <typename T, typename Shape, GemmEpilogue kEpilogue>
__device__ __forceinline__ void Store(
    const GemmParams& p, int64_t first_row, int64_t rows, int feature_warp,
    int row_warp, int lane,
    const float (&sums)[Shape::kFeatureTiles][Shape::kRowTiles][4]) {
#pragma unroll
  for (int m = 0; m < Shape::kFeatureTiles; ++m) {
    const int64_t tile = int64_t{blockIdx.y} * kGemmFeatureTiles +
                         feature_warp * Shape::kFeatureTiles + m;
#pragma unroll
    for (int n = 0; n < Shape::kRowTiles; ++n) {
      const int64_t tile_row =
          first_row + (row_warp * Shape::kRowTiles + n) * 8;
      if constexpr (kEpilogue == GemmEpilogue::kSwiGlu) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int64_t row = tile_row + AccumulatorRow(lane, i);
          const int64_t feature = tile * 8 + AccumulatorFeature(lane, i);
          if (row >= rows) continue;
          static_cast<T*>(p.out)[ActivationAt(row, feature, p.padded_rows)] =
              SwiGlu<T>(p, feature, sums[m][n][i], sums[m][n][i + 2]);
        }
      } else {
        const int64_t group =
            kEpilogue == GemmEpilogue::kPartial ? blockIdx.z : 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t row = tile_row + AccumulatorRow(lane, i);
          const int64_t feature = tile * 16 + AccumulatorFeature(lane, i);
          if (row >= rows) continue;
          static_cast<float*>(
              p.out)[(group * p.padded_rows + row) * p.features + feature] =
              sums[m][n][i];
        }
      }
    }
  }
}

template <typename T, typename Shape, GemmEpilogue kEpilogue>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    GemmKernel(const GemmParams p) {
  char* const shared = DynamicShared();
  AllowNextKernel();
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int feature_warp = warp % Shape::kFeatureWarps;
  const int row_warp = warp / Shape::kFeatureWarps;
  const int64_t first_row = int64_t{blockIdx.x} * Shape::kRows;

  constexpr int kStagesOfStep = kGemmKStep / Shape::kStepK;
  const int64_t steps = p.k / kGemmKStep;
  const int begin =
      static_cast<int>(GroupBegin(steps, p.groups, blockIdx.z)) * kStagesOfStep;
  const int end =
      static_cast<int>(GroupBegin(steps, p.groups, blockIdx.z + 1)) *
      kStagesOfStep;
  const uint32_t ring = SharedAddress(shared);
  const auto slot = [&](int stage) {
    return static_cast<uint32_t>((stage - begin) % Shape::kStages *
                                 Shape::kStageBytes);
  };

  for (int s = begin; s < begin + Shape::kStages - 1 && s < end; ++s) {
    CopyWeights<T, Shape>(p, int64_t{s} * Shape::kKBlocks, ring + slot(s));
  }
  WaitForPreviousKernels();
  const int64_t rows = *p.rows;
  if (first_row >= rows) {
    CommitCopies();
    WaitCopies<0>();
    return;
  }
  // One group of copies a stage, empty past the end, so that counting groups
  // counts stages. (The first holds the weights of all stages above.)
  for (int s = begin; s < begin + Shape::kStages - 1; ++s) {
    if (s < end) {
      CopyRows<T, Shape>(p, int64_t{s} * Shape::kKBlocks, first_row,
                         ring + slot(s));
    }
    CommitCopies();
  }

  float sums[Shape::kFeatureTiles][Shape::kRowTiles][4] = {};
  for (int s = begin; s < end; ++s) {
    WaitCopies<Shape::kStages - 2>();
    // Every thread's copies of this stage have arrived and no thread still
    // reads the previous stage, whose slot is filled next.
    __syncthreads();
    const int next = s + Shape::kStages - 1;
    if (next < end) {
      CopyWeights<T, Shape>(p, int64_t{next} * Shape::kKBlocks,
                            ring + slot(next));
      CopyRows<T, Shape>(p, int64_t{next} * Shape::kKBlocks, first_row,
                         ring + slot(next));
    }
    CommitCopies();
    MultiplyStage<T, Shape>(shared + slot(s), feature_warp, row_warp, lane,
                            sums);
  }
  Store<T, Shape, kEpilogue>(p, first_row, rows, feature_warp, row_warp, lane,
                             sums);
}

// Calls `use.template operator()<T, Shape, kEpilogue>()`.
template <typename T, GemmEpilogue kEpilogue, typename Use>
cudaError_t WithTile(const GemmTiling& tiling, const Use& use) {
  if (tiling.row_tiles == 1)
    return use.template operator()<T, Tile8, kEpilogue>();
  if (tiling.row_tiles == 2)
    return use.template operator()<T, Tile16, kEpilogue>();
  if (tiling.row_tiles == 4)
    return use.template operator()<T, Tile32, kEpilogue>();
  if (tiling.row_warps == 1)
    return use.template operator()<T, Tile64, kEpilogue>();
  if (tiling.row_warps == 2)
    return use.template operator()<T, Tile128, kEpilogue>();
  return use.template operator()<T, Tile256, kEpilogue>();
}

template <typename Use>
cudaError_t WithKernel(GemmEpilogue epilogue, DeviceType type,
                       const GemmTiling& tiling, const Use& use) {
  const bool bf16 = type == DeviceType::kBFloat16;
  switch (epilogue) {
    case GemmEpilogue::kPartial:
      return bf16 ? WithTile<__nv_bfloat16, GemmEpilogue::kPartial>(tiling, use)
                  : WithTile<__half, GemmEpilogue::kPartial>(tiling, use);
    case GemmEpilogue::kSwiGlu:
      return bf16 ? WithTile<__nv_bfloat16, GemmEpilogue::kSwiGlu>(tiling, use)
                  : WithTile<__half, GemmEpilogue::kSwiGlu>(tiling, use);
    case GemmEpilogue::kLogits:
      return bf16 ? WithTile<__nv_bfloat16, GemmEpilogue::kLogits>(tiling, use)
                  : WithTile<__half, GemmEpilogue::kLogits>(tiling, use);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t PrepareGemm() {
  const auto prepare =
      [&]<typename T, typename Shape, GemmEpilogue kEpilogue>() {
        return PrepareKernel(GemmKernel<T, Shape, kEpilogue>,
                             Shape::kSharedBytes);
      };
  for (const GemmEpilogue epilogue :
       {GemmEpilogue::kPartial, GemmEpilogue::kSwiGlu, GemmEpilogue::kLogits}) {
    for (const DeviceType type :
         {DeviceType::kBFloat16, DeviceType::kFloat16}) {
      for (const int rows : {8, 16, 32, 64, 128, 256}) {
        const cudaError_t error =
            WithKernel(epilogue, type, ChooseGemmTiling(rows), prepare);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchGemm(GemmEpilogue epilogue, DeviceType type,
                       const GemmParams& params, int rows, Launcher& launcher) {
  if (rows == 0) return cudaSuccess;
  const auto launch =
      [&]<typename T, typename Shape, GemmEpilogue kEpilogue>() {
        const dim3 grid(
            static_cast<unsigned>(RoundUp(rows, Shape::kRows) / Shape::kRows),
            static_cast<unsigned>(params.features / kGemmFeatures),
            static_cast<unsigned>(params.groups));
        return launcher.Run(GemmKernel<T, Shape, kEpilogue>, grid,
                            dim3(Shape::kThreads), Shape::kSharedBytes, params);
      };
  return WithKernel(epilogue, type, ChooseGemmTiling(rows), launch);
}

}  // namespace foretoken::device
