// The matrix product: a thread block takes 128 features, a tile of rows and one
// group of K, and streams its weights once, from memory through a ring of
// stages in shared memory to the matrix units.
//
// Bytes in flight are what a product of few rows lives by: each thread block
// asks for all but one of its stages ahead (README.md, "Bytes in flight"), and
// for the first of them before the kernels ahead are done.
#include <cstddef>
#include <iterator>
#include <utility>

#include "common/infer/cuda/kernels/device_math.cuh"
#include "common/infer/cuda/kernels/gemm.h"
#include "common/infer/cuda/kernels/gemm_dispatch.cuh"
#include "common/infer/cuda/kernels/gemm_epilogue.cuh"
#include "common/infer/cuda/kernels/gemm_index.h"
#include "common/infer/cuda/kernels/gemm_wide.h"

namespace foretoken::device {
namespace {

// The most dynamic shared memory of a thread block of any GPU that runs this
// machine code or compiles this PTX. Deep tilings are left out where no GPU
// chooses them, shallow ones are for all.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kMostSharedBytes = 163 << 10;
#else
constexpr int kMostSharedBytes = 227 << 10;
#endif

}  // namespace

// (In no unnamed namespace: nvcc would warn of members that no kernel uses
// where a GPU does not choose the tiling.)
template <GemmTiling kTiling>
struct Tile {
  static constexpr int kFeatureTiles = kTiling.feature_tiles;
  static constexpr int kRowTiles = kTiling.row_tiles;
  static constexpr int kStages = kTiling.stages;
  static constexpr int kStepK = kTiling.step_k;
  static constexpr int kFeatureWarps = kGemmFeatureTiles / kFeatureTiles;
  static constexpr int kThreads = kTiling.threads();
  static constexpr int kRows = kTiling.rows();
  static constexpr int kKBlocks = kStepK / kGemmKBlock;
  static constexpr int kWeightBytes = kTiling.weight_bytes();
  static constexpr int kStageBytes = kTiling.stage_bytes();
  static constexpr int kSharedBytes = kTiling.shared_bytes();
  // Thread blocks that a multiprocessor of 228 KiB shall hold.
  static constexpr int kResident =
      ResidentBlocks(kSharedBytes) < 2 ? ResidentBlocks(kSharedBytes) : 2;
  // Units of 16 bytes of a block of 32 k of the rows, and of a stage.
  static constexpr int kBlockUnits = kRows * 4;
  static constexpr int kRowUnits = kBlockUnits * kKBlocks;
  static constexpr bool kCompiled =
      kSharedBytes <= kGemmShallowBytes ||
      kGemmTilings[ChooseGemmTiling(kRows, kMostSharedBytes)] == kTiling;
  // Weights after those in shared memory that are asked for into L2.
  static constexpr int kL2Bytes = kTiling.bytes_ahead() < kGemmBytesAhead
                                      ? kGemmBytesAhead - kTiling.bytes_ahead()
                                      : 0;
  static_assert(kGemmKStep % kStepK == 0 && kStepK % kGemmKBlock == 0);
  static_assert(kWeightBytes % (16 * kThreads) == 0);
  static_assert(kResident >= 1);
  // A thread's units of one stage are apart by constants (CopyRows).
  static_assert(kKBlocks == 1 || kThreads % kBlockUnits == 0 ||
                kBlockUnits % kThreads == 0);
};

namespace {

// `from`, `to`: the thread's first unit of a stage's weights, which lie in one
// piece, in the order in which they are read.
template <typename Shape>
__device__ __forceinline__ void CopyWeights(const char* from, uint32_t to) {
#pragma unroll
  for (int i = 0; i < Shape::kWeightBytes; i += 16 * Shape::kThreads) {
    CopyAsync<true>(to + i, from + i);
  }
}

// The same of its rows; `block_bytes`: from one block of k to the next.
template <typename Shape>
__device__ __forceinline__ void CopyRows(const char* from, int64_t block_bytes,
                                         uint32_t to) {
#pragma unroll
  for (int first = 0; first < Shape::kRowUnits; first += Shape::kThreads) {
    if (first + Shape::kThreads > Shape::kRowUnits &&
        static_cast<int>(threadIdx.x) >= Shape::kRowUnits - first) {
      continue;
    }
    CopyAsync<false>(to + first * 16,
                     from + first / Shape::kBlockUnits * block_bytes +
                         first % Shape::kBlockUnits * 16);
  }
}

template <typename T, typename Shape>
__device__ __forceinline__ void MultiplyStage(
    const char* stage, int feature_warp, int row_warp, int lane,
    float (&sums)[Shape::kFeatureTiles][Shape::kRowTiles][4]) {
  const uint4* weights = reinterpret_cast<const uint4*>(stage);
  const uint32_t rows = SharedAddress(stage) + Shape::kWeightBytes +
                        row_warp * Shape::kRowTiles * kEightRowsBytes +
                        ActivationPlace(lane);
#pragma unroll
  for (int kb = 0; kb < Shape::kKBlocks; ++kb) {
    uint32_t x[Shape::kRowTiles][4];
#pragma unroll
    for (int n = 0; n < Shape::kRowTiles; ++n) {
      LoadMatrices(x[n],
                   rows + (kb * (Shape::kRows / 8) + n) * kEightRowsBytes);
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
        Mma<T>(sums[m][n], low, x[n][0], x[n][1]);
      }
#pragma unroll
      for (int n = 0; n < Shape::kRowTiles; ++n) {
        Mma<T>(sums[m][n], high, x[n][2], x[n][3]);
      }
    }
  }
}

// Everything about a lane's outputs but its first place is the same for all
// lanes: n * 8 + AccumulatorRow(0, i) rows further, and so on.
template <typename T, typename Shape, GemmEpilogue kEpilogue>
__device__ __forceinline__ void Store(
    const GemmParams& p, int64_t first_row, int64_t rows, int feature_warp,
    int row_warp, int lane,
    const float (&sums)[Shape::kFeatureTiles][Shape::kRowTiles][4]) {
  const int64_t row =
      first_row + row_warp * Shape::kRowTiles * 8 + AccumulatorRow(lane, 0);
  const int left = static_cast<int>(min(rows - row, int64_t{Shape::kRows}));
  const int64_t tile = int64_t{blockIdx.y} * kGemmFeatureTiles +
                       feature_warp * Shape::kFeatureTiles;
  if constexpr (kEpilogue == GemmEpilogue::kSwiGlu) {
    // A warp's features lie in one block of 32 k of the activations.
    static_assert(4 % Shape::kFeatureTiles == 0);
    const int64_t feature = tile * 8 + AccumulatorFeature(lane, 0);
    const int unit = static_cast<int>(tile % 4);  // of the first tile
    T* out = static_cast<T*>(p.out) +
             ActivationRowAt(row, feature, p.padded_rows) + feature % 8;
#pragma unroll
    for (int n = 0; n < Shape::kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = n * 8 + AccumulatorRow(0, i);
        if (r >= left) continue;
#pragma unroll
        for (int m = 0; m < Shape::kFeatureTiles; ++m) {
          out[r * kGemmKBlock +
              ActivationUnit(AccumulatorRow(lane, 0), unit + m) * 8] =
              SwiGlu<T>(p, feature + m * 8, sums[m][n][i], sums[m][n][i + 2]);
        }
      }
    }
  } else {
    const int64_t group = kEpilogue == GemmEpilogue::kPartial ? blockIdx.z : 0;
    float* out = static_cast<float*>(p.out) +
                 (group * p.padded_rows + row) * p.features + tile * 16 +
                 AccumulatorFeature(lane, 0);
#pragma unroll
    for (int n = 0; n < Shape::kRowTiles; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (n * 8 + AccumulatorRow(0, j) < left) {
          float* of_row = out + AccumulatorRow(0, j) * p.features;
#pragma unroll
          for (int m = 0; m < Shape::kFeatureTiles; ++m) {
            of_row[m * 16] = sums[m][n][j];
            of_row[m * 16 + AccumulatorFeature(0, 2)] = sums[m][n][j + 2];
          }
        }
      }
      out += 8 * p.features;
    }
  }
}

template <typename T, typename Shape, GemmEpilogue kEpilogue>
__device__ __forceinline__ void RunTile(const GemmParams& p, char* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int feature_warp = warp % Shape::kFeatureWarps;
  const int row_warp = warp / Shape::kFeatureWarps;
  const int64_t first_row = int64_t{blockIdx.x} * Shape::kRows;

  constexpr int kStagesOfStep = kGemmKStep / Shape::kStepK;
  constexpr int kAhead = Shape::kStages - 1;
  const int64_t steps = p.k / kGemmKStep;
  const int begin = GroupBegin(steps, p.groups, blockIdx.z) * kStagesOfStep;
  const int stages =
      GroupBegin(steps, p.groups, blockIdx.z + 1) * kStagesOfStep - begin;
  const uint32_t ring = SharedAddress(shared) + thread * 16;

  const int64_t stages_of_k = p.k / Shape::kStepK;
  const char* block_weights =
      static_cast<const char*>(p.weights) +
      (blockIdx.y * stages_of_k + begin) * Shape::kWeightBytes;
  const char* weights = block_weights + thread * 16;
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    if (s >= stages) break;
    CopyWeights<Shape>(weights + s * Shape::kWeightBytes,
                       ring + s * Shape::kStageBytes);
  }
  if constexpr (Shape::kL2Bytes > 0) {
    const int end = min(kAhead * Shape::kWeightBytes + Shape::kL2Bytes,
                        stages * Shape::kWeightBytes);
    for (int at = kAhead * Shape::kWeightBytes + thread * kL2LineBytes;
         at < end; at += Shape::kThreads * kL2LineBytes) {
      PrefetchToL2(block_weights + at);
    }
  }
  const int64_t rows = *p.rows;
  WaitForPreviousKernels();
  if (first_row >= rows) {
    CommitCopies();
    WaitCopies<0>();
    return;
  }
  const int64_t block_bytes = p.padded_rows * kGemmKBlock * sizeof(T);
  const int64_t stage_bytes = Shape::kKBlocks * block_bytes;
  const char* from_rows = static_cast<const char*>(p.x) + begin * stage_bytes +
                          first_row * kGemmKBlock * sizeof(T) +
                          thread / Shape::kBlockUnits * block_bytes +
                          thread % Shape::kBlockUnits * 16;
  // One group of copies a stage, empty past the end, so that counting groups
  // counts stages. (The first holds the weights of all stages above.)
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    if (s < stages) {
      CopyRows<Shape>(from_rows, block_bytes,
                      ring + s * Shape::kStageBytes + Shape::kWeightBytes);
      from_rows += stage_bytes;
    }
    CommitCopies();
  }
  weights += kAhead * Shape::kWeightBytes;

  float sums[Shape::kFeatureTiles][Shape::kRowTiles][4] = {};
  // Places of the stage that is read and of the one that is filled, which was
  // read before it.
  uint32_t read = 0, fill = kAhead * Shape::kStageBytes;
  for (int left = stages; left > 0; --left) {
    WaitCopies<Shape::kStages - 2>();
    // Every thread's copies of this stage have arrived and no thread still
    // reads the previous stage, whose slot is filled next.
    __syncthreads();
    if (left > kAhead) {
      CopyWeights<Shape>(weights, ring + fill);
      CopyRows<Shape>(from_rows, block_bytes,
                      ring + fill + Shape::kWeightBytes);
      weights += Shape::kWeightBytes;
      from_rows += stage_bytes;
    }
    CommitCopies();
    MultiplyStage<T, Shape>(shared + read, feature_warp, row_warp, lane, sums);
    fill = read;
    read += Shape::kStageBytes;
    if (read == Shape::kSharedBytes) read = 0;
  }
  Store<T, Shape, kEpilogue>(p, first_row, rows, feature_warp, row_warp, lane,
                             sums);
}

template <typename T, typename Shape, GemmEpilogue kEpilogue>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    GemmKernel(const GemmParams p) {
  if constexpr (Shape::kCompiled) {
    AllowNextKernel();
    RunTile<T, Shape, kEpilogue>(p, DynamicShared());
  }
}

struct NarrowTiles {
  static constexpr size_t kCount = std::size(kGemmTilings);
  template <size_t kIndex>
  using Tile = device::Tile<kGemmTilings[kIndex]>;
  template <size_t kIndex>
  static constexpr bool Has(GemmEpilogue) {
    return true;
  }
};

}  // namespace

int GroupsWritten(const MatrixShape& matrix, int rows,
                  const DeviceLimits& device) {
  const bool adds =
      device.warpgroups && AddsGroups(rows, matrix.features, matrix.groups,
                                      device.multiprocessors);
  return adds ? 1 : matrix.groups;
}

cudaError_t PrepareGemm(const DeviceLimits& device) {
  if (device.warpgroups) {
    const cudaError_t error = PrepareWideGemm();
    if (error != cudaSuccess) return error;
  }
  const auto prepare =
      [&]<typename T, typename Shape, GemmEpilogue kEpilogue>() {
        return PrepareKernel(GemmKernel<T, Shape, kEpilogue>,
                             Shape::kSharedBytes);
      };
  for (const GemmEpilogue epilogue :
       {GemmEpilogue::kPartial, GemmEpilogue::kSwiGlu, GemmEpilogue::kLogits}) {
    for (const DeviceType type :
         {DeviceType::kBFloat16, DeviceType::kFloat16}) {
      for (const int rows : {8, 16, 32, 64, 72, 128, 256}) {
        const cudaError_t error = WithGemmKernel<NarrowTiles>(
            epilogue, type, ChooseGemmTiling(rows, device.shared_bytes),
            prepare);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchGemm(GemmEpilogue epilogue, DeviceType type,
                       const GemmParams& params, int rows,
                       const DeviceLimits& device, Launcher& launcher) {
  if (rows == 0) return cudaSuccess;
  if (device.warpgroups && rows >= kWideGemmRows) {
    return LaunchWideGemm(epilogue, type, params, rows, device, launcher);
  }
  const auto launch =
      [&]<typename T, typename Shape, GemmEpilogue kEpilogue>() {
        const dim3 grid(
            static_cast<unsigned>(RoundUp(rows, Shape::kRows) / Shape::kRows),
            static_cast<unsigned>(params.features / kGemmFeatures),
            static_cast<unsigned>(params.groups));
        return launcher.Run(GemmKernel<T, Shape, kEpilogue>, grid,
                            dim3(Shape::kThreads), Shape::kSharedBytes, params);
      };
  return WithGemmKernel<NarrowTiles>(epilogue, type, ChooseGemmTiling(rows, device.shared_bytes),
                    launch);
}

}  // namespace foretoken::device
