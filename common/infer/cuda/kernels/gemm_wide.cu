// The matrix product over many rows. Each warpgroup computes 64 features of a
// tile of rows. One thread copies the stages of 64 k into shared memory, first
// the weights and then the rows. wgmma takes the weights from registers, in the
// order in which they are stored, and the rows from shared memory.
//
// Its sums are those of mma.m16n8k16: both add 16 products and the sum in one
// step (gpu_probe compares all bits; gpu_tests every count of rows).
#include <iterator>
#include <utility>

#include "common/infer/cuda/kernels/device_math.cuh"
#include "common/infer/cuda/kernels/gemm_dispatch.cuh"
#include "common/infer/cuda/kernels/gemm_epilogue.cuh"
#include "common/infer/cuda/kernels/gemm_index.h"
#include "common/infer/cuda/kernels/gemm_wide.h"
#include "common/infer/cuda/kernels/warpgroup_instructions.cuh"

namespace foretoken::device {

template <WideGemmTiling kTiling>
struct WideTile {
  static constexpr int kFeatureBlocks = kTiling.blocks;
  static constexpr int kRows = kTiling.rows;
  static constexpr int kStages = kTiling.stages;
  static constexpr int kResident = kTiling.resident;
  static constexpr bool kWhole = kTiling.whole;
  static constexpr int kThreads = kTiling.threads();
  static constexpr int kWarpsOfBlock = WideGemmTiling::kWarpsOfBlock;
  static constexpr int kConsumerWarps = kFeatureBlocks * kWarpsOfBlock;
  static constexpr int kConsumerRegisters = kTiling.consumer_registers();
  static constexpr int kPending = kTiling.pending();
  static constexpr int kStepK = WideGemmTiling::kStepK;
  static constexpr int kKBlocks = kStepK / kGemmKBlock;
  static constexpr int kBlockBytes = WideGemmTiling::kBlockBytes;
  static constexpr int kWeightBytes = kFeatureBlocks * kBlockBytes;
  static constexpr int kRowBytes = kRows * kGemmKBlock * 2;  // of a block of k
  static constexpr int kStageBytes = kTiling.stage_bytes();
  static constexpr int kSharedBytes = kTiling.shared_bytes();
  static_assert(kGemmKStep % kStepK == 0 && kStepK % kGemmKBlock == 0);
  static_assert(kRowBytes % kEightRowsBytes == 0);
  static_assert(ResidentBlocks(kSharedBytes) >= kResident);
  static_assert(!kWhole || kPending == 1);  // Consume frees the stage itself
};

namespace {

#if FORETOKEN_WARPGROUPS

// First stage of a group of K.
template <typename Shape>
__device__ __forceinline__ int GroupStage(const GemmParams& p, int group) {
  constexpr int kStagesOfStep = kGemmKStep / Shape::kStepK;
  return GroupBegin(p.k / kGemmKStep, p.groups, group) * kStagesOfStep;
}

// Work of a thread block: one group of K, or all of them.
struct Slice {
  int first_group = 0, end_group = 0;
  int begin = 0, stages = 0;
  int64_t first_row = 0;
  int64_t first_block = 0;  // of 128 features
  int blocks = 1;           // the last thread block may have fewer
};

template <typename Shape>
__device__ __forceinline__ Slice SliceOfBlock(const GemmParams& p) {
  Slice slice;
  slice.first_group = Shape::kWhole ? 0 : blockIdx.z;
  slice.end_group = Shape::kWhole ? p.groups : blockIdx.z + 1;
  slice.begin = GroupStage<Shape>(p, slice.first_group);
  slice.stages = GroupStage<Shape>(p, slice.end_group) - slice.begin;
  slice.first_row = int64_t{blockIdx.x} * Shape::kRows;
  slice.first_block = int64_t{blockIdx.y} * Shape::kFeatureBlocks;
  slice.blocks = static_cast<int>(min(p.features / kGemmFeatures -
                                          slice.first_block,
                                      int64_t{Shape::kFeatureBlocks}));
  return slice;
}

// A ring of stages, then the barriers: a stage is full, a stage is free.
template <typename Shape>
struct Ring {
  uint32_t base = 0;
  int slot = 0;
  uint32_t parity = 0;  // of the phase that the slot is in

  __device__ __forceinline__ uint32_t stage() const {
    return base + slot * Shape::kStageBytes;
  }
  __device__ __forceinline__ uint32_t full() const {
    return base + Shape::kStages * Shape::kStageBytes + slot * 16;
  }
  __device__ __forceinline__ uint32_t free() const { return full() + 8; }
  __device__ __forceinline__ void Next() {
    if (++slot == Shape::kStages) slot = 0, parity ^= 1;
  }
};

// One thread. Weights are asked for before the kernels ahead are done.
template <typename T, typename Shape>
__device__ __forceinline__ void Produce(const GemmParams& p, const Slice& slice,
                                        uint32_t shared) {
  const int64_t of_block = p.k / Shape::kStepK * Shape::kBlockBytes;
  const char* weights = static_cast<const char*>(p.weights) +
                        slice.first_block * of_block +
                        int64_t{slice.begin} * Shape::kBlockBytes;
  const int stage_bytes =
      slice.blocks * Shape::kBlockBytes + Shape::kKBlocks * Shape::kRowBytes;
  const int64_t block_bytes = p.padded_rows * kGemmKBlock * sizeof(T);
  const char* rows = static_cast<const char*>(p.x) +
                     slice.begin * Shape::kKBlocks * block_bytes +
                     slice.first_row * kGemmKBlock * sizeof(T);
  const auto copy_weights = [&](const Ring<Shape>& ring) {
    ArriveAndExpect(ring.full(), stage_bytes);
    for (int b = 0; b < slice.blocks; ++b) {
      BulkCopy(ring.stage() + b * Shape::kBlockBytes, weights + b * of_block,
               Shape::kBlockBytes, ring.full());
    }
    weights += Shape::kBlockBytes;
  };
  const auto copy_rows = [&](const Ring<Shape>& ring) {
#pragma unroll
    for (int kb = 0; kb < Shape::kKBlocks; ++kb) {
      BulkCopy(ring.stage() + Shape::kWeightBytes + kb * Shape::kRowBytes, rows,
               Shape::kRowBytes, ring.full());
      rows += block_bytes;
    }
  };
  const int ahead = min(Shape::kStages, slice.stages);
  Ring<Shape> ring = {shared};
  for (int s = 0; s < ahead; ++s, ring.Next()) copy_weights(ring);
  const bool has_rows = slice.first_row < *p.rows;
  WaitForPreviousKernels();
  ring = {shared};
  for (int s = 0; s < ahead; ++s, ring.Next()) copy_rows(ring);
  if (!has_rows) {
    // These stages are not read, but the block must not end before its copies.
    ring = {shared};
    for (int s = 0; s < ahead; ++s, ring.Next()) WaitBarrier(ring.full(), 0);
    return;
  }
  // (`parity` is now that of the round whose readers are waited for.)
  ring = {shared};
  for (int s = ahead; s < slice.stages; ++s, ring.Next()) {
    WaitBarrier(ring.free(), ring.parity);
    copy_weights(ring);
    copy_rows(ring);
  }
}

template <typename T, typename Shape, GemmEpilogue kEpilogue>
__device__ __forceinline__ void StoreWide(const GemmParams& p,
                                          const Slice& slice, int64_t rows,
                                          int warp, int lane,
                                          const float (&sums)[Shape::kRows /
                                                              2]) {
  const int64_t row = slice.first_row + AccumulatorRow(lane, 0);
  const int left = static_cast<int>(min(rows - row, int64_t{Shape::kRows}));
  const int64_t tile = slice.first_block * kGemmFeatureTiles + warp;
  if constexpr (kEpilogue == GemmEpilogue::kSwiGlu) {
    const int64_t feature = tile * 8 + AccumulatorFeature(lane, 0);
    T* out = static_cast<T*>(p.out) +
             ActivationRowAt(row, feature, p.padded_rows) +
             ActivationUnit(AccumulatorRow(lane, 0), tile % 4) * 8 +
             feature % 8;
#pragma unroll
    for (int n = 0; n < Shape::kRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = n * 8 + AccumulatorRow(0, i);
        if (r >= left) continue;
        out[r * kGemmKBlock] =
            SwiGlu<T>(p, feature, sums[4 * n + i], sums[4 * n + i + 2]);
      }
    }
  } else {
    const int64_t group =
        kEpilogue == GemmEpilogue::kPartial && !Shape::kWhole ? blockIdx.z : 0;
    float* out = static_cast<float*>(p.out) +
                 (group * p.padded_rows + row) * p.features + tile * 16 +
                 AccumulatorFeature(lane, 0);
#pragma unroll
    for (int n = 0; n < Shape::kRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (n * 8 + AccumulatorRow(0, i) < left) {
          float* of_row = out + AccumulatorRow(0, i) * p.features;
          of_row[0] = sums[4 * n + i];
          of_row[AccumulatorFeature(0, 2)] = sums[4 * n + i + 2];
        }
      }
      out += 8 * p.features;
    }
  }
}

// Where registers are left, a stage's products are under way
// while the next stage's weights are read; two sets of fragments alternate, as
// products read their registers until they are done. The sums of groups are
// added ascending, as the kernels do that read them apart.
template <typename T, typename Shape, GemmEpilogue kEpilogue>
__device__ __forceinline__ void Consume(const GemmParams& p, const Slice& slice,
                                        const char* shared, int warp,
                                        int lane) {
  const int64_t rows = *p.rows;
  WaitForPreviousKernels();
  if (slice.first_row >= rows) return;
  constexpr int kTilesOfK = Shape::kStepK / 16;
  constexpr int kPending = Shape::kPending;
  constexpr int kSums = Shape::kRows / 2;
  float sums[kSums] = {};
  float total[Shape::kWhole ? kSums : 1];
  Ring<Shape> ring = {SharedAddress(shared)};
  Ring<Shape> done = ring;  // the stage to be freed next
  const auto step = [&](uint4 (&a)[kTilesOfK], bool first) {
    WaitBarrier(ring.full(), ring.parity);
    const uint4* weights = reinterpret_cast<const uint4*>(
        shared + ring.slot * Shape::kStageBytes +
        warp / Shape::kWarpsOfBlock * Shape::kBlockBytes);
#pragma unroll
    for (int t = 0; t < kTilesOfK; ++t) {
      const int fragment = (t / 2 * kGemmFeatureTiles +
                            warp % Shape::kWarpsOfBlock) * 2 + t % 2;
      a[t] = weights[fragment * 32 + lane];
    }
    BeginProducts();
#pragma unroll
    for (int t = 0; t < kTilesOfK; ++t) {
      Wgmma<T, Shape::kRows>::Add(
          sums, a[t],
          DescribeRows(ring.stage() + Shape::kWeightBytes +
                       t / 2 * Shape::kRowBytes + t % 2 * 32));
    }
    CommitProducts();
    ring.Next();
    if (kPending > 0 && first) return;
    WaitProducts<kPending>();
    __syncwarp();
    if (lane == 0) Arrive(done.free());
    done.Next();
  };
  for (int group = slice.first_group; group < slice.end_group; ++group) {
    uint4 even[kTilesOfK], odd[kTilesOfK];
    int left =
        GroupStage<Shape>(p, group + 1) - GroupStage<Shape>(p, group) - 1;
    step(even, true);
    for (; left >= 2; left -= 2) {
      step(odd, false);
      step(even, false);
    }
    if (left > 0) step(odd, false);
    WaitProducts<0>();
    KeepSums(sums);
    if constexpr (Shape::kWhole) {
      __syncwarp();
      if (lane == 0) Arrive(done.free());
      done.Next();
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
        total[i] = group == 0 ? sums[i] : total[i] + sums[i];
        sums[i] = 0.0f;
      }
    }
  }
  const auto& stored = [&]() -> const float(&)[kSums] {
    if constexpr (Shape::kWhole) {
      return total;
    } else {
      return sums;
    }
  }();
  StoreWide<T, Shape, kEpilogue>(p, slice, rows, warp, lane, stored);
}

#endif  // FORETOKEN_WARPGROUPS

template <typename T, typename Shape, GemmEpilogue kEpilogue>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    WideGemmKernel(const GemmParams p) {
#if FORETOKEN_WARPGROUPS
  AllowNextKernel();
  char* const shared = DynamicShared();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Slice slice = SliceOfBlock<Shape>(p);
  const int consumers = slice.blocks * Shape::kWarpsOfBlock;
  if (threadIdx.x == 0) {
    Ring<Shape> ring = {SharedAddress(shared)};
    for (int s = 0; s < Shape::kStages; ++s, ring.Next()) {
      InitBarrier(ring.full(), 1);
      InitBarrier(ring.free(), consumers);
    }
    ShowBarriers();
  }
  __syncthreads();
  if (warp < Shape::kConsumerWarps) {
    if constexpr (Shape::kResident == 1) {
      TakeRegisters<Shape::kConsumerRegisters>();
    }
    if (warp < consumers) {
      Consume<T, Shape, kEpilogue>(p, slice, shared, warp, lane);
    } else {
      WaitForPreviousKernels();
    }
  } else {
    if constexpr (Shape::kResident == 1) {
      KeepRegisters<WideGemmTiling::kProducerRegisters>();
    }
    if (warp == Shape::kConsumerWarps && lane == 0) {
      Produce<T, Shape>(p, slice, SharedAddress(shared));
    }
  }
#endif
}

struct WideTiles {
  static constexpr size_t kCount = std::size(kWideGemmTilings);
  template <size_t kIndex>
  using Tile = WideTile<kWideGemmTilings[kIndex]>;
  template <size_t kIndex>
  static constexpr bool Has(GemmEpilogue epilogue) {
    return !kWideGemmTilings[kIndex].whole ||
           epilogue == GemmEpilogue::kPartial;
  }
};

}  // namespace

cudaError_t PrepareWideGemm() {
  const auto prepare =
      [&]<typename T, typename Shape, GemmEpilogue kEpilogue>() {
        return PrepareKernel(WideGemmKernel<T, Shape, kEpilogue>,
                             Shape::kSharedBytes);
      };
  for (const GemmEpilogue epilogue :
       {GemmEpilogue::kPartial, GemmEpilogue::kSwiGlu, GemmEpilogue::kLogits}) {
    for (const DeviceType type :
         {DeviceType::kBFloat16, DeviceType::kFloat16}) {
      for (int i = 0; i < static_cast<int>(std::size(kWideGemmTilings)); ++i) {
        if (kWideGemmTilings[i].whole && epilogue != GemmEpilogue::kPartial) {
          continue;
        }
        const cudaError_t error = WithGemmKernel<WideTiles>(epilogue, type, i, prepare);
        if (error != cudaSuccess) return error;
      }
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchWideGemm(GemmEpilogue epilogue, DeviceType type,
                           const GemmParams& params, int rows,
                           const DeviceLimits& device, Launcher& launcher) {
  const auto launch =
      [&]<typename T, typename Shape, GemmEpilogue kEpilogue>() {
        const dim3 grid(
            static_cast<unsigned>(RoundUp(rows, Shape::kRows) / Shape::kRows),
            static_cast<unsigned>(
                (params.features / kGemmFeatures + Shape::kFeatureBlocks - 1) /
                Shape::kFeatureBlocks),
            static_cast<unsigned>(Shape::kWhole ? 1 : params.groups));
        return launcher.Run(WideGemmKernel<T, Shape, kEpilogue>, grid,
                            dim3(Shape::kThreads), Shape::kSharedBytes, params);
      };
  const bool whole = epilogue == GemmEpilogue::kPartial &&
                     AddsGroups(rows, params.features, params.groups,
                                device.multiprocessors);
  return WithGemmKernel<WideTiles>(epilogue, type,
                    whole ? kWholeGemmTiling : ChooseWideGemmTiling(rows),
                    launch);
}

}  // namespace foretoken::device
