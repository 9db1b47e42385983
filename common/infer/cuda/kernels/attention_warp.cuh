// The steps of attention (attention.cu): a block's units of keys, a warp's
// queries and weights as fragments, scores, softmax and values.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_ATTENTION_WARP_CUH_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_ATTENTION_WARP_CUH_

#include "common/infer/cuda/kernels/attention.h"
#include "common/infer/cuda/kernels/device_math.cuh"
#include "common/infer/cuda/kernels/gemm_index.h"

namespace foretoken::device {

constexpr int kKeys = kDevicePageTokens;
constexpr int kKeyTiles = kKeys / 8;     // of scores
constexpr int kValueTiles = kKeys / 16;  // of weights

template <int kDim_, AttentionTiling kTiling>
struct Head {
  static constexpr int kDim = kDim_;
  static constexpr int kUnits = kDim / 8;  // of 16 bytes in a vector
  static constexpr int kQueryBlocks = kDim / 32;
  static constexpr int kWarps = kTiling.warps;
  static constexpr int kStages = kTiling.stages;
  static constexpr int kBlockBytes = AttentionUnitBytes(kDim);
  static constexpr int kStageBytes = 2 * kBlockBytes;
  static constexpr int kQueryBytes = AttentionQueryBytes(kDim);
  static constexpr int kSharedBytes = AttentionSharedBytes(kTiling, kDim);
  static constexpr int kResident = AttentionResident(kTiling, kDim);
  static_assert(kKeys == 32 && kUnits % 2 == 0 && kResident >= 1);
  static_assert(kUnits % kWarps == 0);
};

// Keys that some of the block's rows read together: a page, or a tile.
struct Unit {
  int block = 0;         // after the session's pages; below 0: a page
  int tile = -1;         // -1: a page
  uint32_t members = 0;  // bit r: row r; 0: there is no unit
};

// The rows of the tasks that a thread block takes together, and where it stands
// in their blocks of keys, which count from the first after the session's pages.
// Every warp walks alike; everything but what is marked is the same in all
// lanes. (Registers are short: an accumulator of the widest heads takes half of
// them.)
struct Walker {
  const PassHeader* pass;
  int pages = 0;     // of the session
  int page_end = 0;  // of it, in the pass's pages
  int block = 0, end = 0;
  uint32_t pending = 0;  // rows that still have to read the present block
  // The tiles of row `lane`; kNoTiles: there is no such row.
  static constexpr int kNoTiles = -(1 << 24);
  int tile_begin = 0, tile_count = kNoTiles, last_keys = 0;
  int tile = -1;  // row `lane`'s, present

  // Answers no unit after the last, however often it is asked.
  __device__ __forceinline__ Unit Next() {
    Unit unit;
    while (pending == 0) {
      if (block + 1 >= end) return unit;
      ++block;
      const bool reads = block < tile_count;
      tile = reads && block >= 0 ? pass->row_tile()[tile_begin + block] : -1;
      pending = __ballot_sync(kAllLanes, reads);
    }
    unit.block = block;
    unit.tile = __shfl_sync(kAllLanes, tile, __ffs(pending) - 1);
    unit.members = __ballot_sync(kAllLanes, tile == unit.tile) & pending;
    pending &= ~unit.members;
    return unit;
  }

  // Keys of the unit that row `row` reads; of no row none.
  __device__ __forceinline__ int KeysOf(const Unit& unit, int row) const {
    const bool reads = row < kTogetherRows && (unit.members >> row & 1) != 0;
    const bool is_last =
        unit.block == __shfl_sync(kAllLanes, tile_count, row) - 1;
    const int last = __shfl_sync(kAllLanes, last_keys, row);
    return !reads ? 0 : is_last ? last : kKeys;
  }
};

// The lane's two queries: g and g + 8 of the warp's.
struct Softmax {
  static constexpr int kNoRow = kTogetherRows;
  int rows = 0;  // a byte each; kNoRow: there is no such query
  float largest[2], sum[2];

  __device__ __forceinline__ void Begin() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = -__int_as_float(0x7f800000);
      sum[h] = 0.0f;
    }
  }
  __device__ __forceinline__ int row(int h) const {
    return rows >> 8 * h & 0xff;
  }
};

// A warp's share of a unit.
template <typename T, typename Shape>
__device__ __forceinline__ void LoadUnit(const AttentionParams& p,
                                         const Walker& walker, const Unit& unit,
                                         int kv_head, int lane,
                                         uint32_t stage) {
  // Lane i knows where key i lies.
  const int slot =
      unit.tile < 0
          ? p.pass->page()[walker.page_end + unit.block] * kKeys + lane
          : p.pass->tile()[unit.tile].slots[lane];
  const long long place =
      slot < 0 ? -1
               : static_cast<long long>(KvAt(p.kv, p.layer, slot, kv_head));
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 4
  for (int i = 0; i < Shape::kUnits / Shape::kWarps; ++i) {
    const int index = (i * Shape::kWarps + warp) * 32 + lane;
    const int key = index / Shape::kUnits;
    const int u = index % Shape::kUnits;
    const long long from = __shfl_sync(kAllLanes, place, key);
    const bool copy = from >= 0;
    const int64_t element = copy ? from + u * 8 : 0;
    const uint32_t to = stage + UnitAt(key, u, Shape::kDim) * 16;
    CopyAsyncOrZero(to, static_cast<const T*>(p.kv.keys) + element, copy);
    CopyAsyncOrZero(to + Shape::kBlockBytes,
                    static_cast<const T*>(p.kv.values) + element, copy);
  }
}

// The lane's fragments of the queries, to shared memory that only this lane
// reads.
template <typename T, typename Shape>
__device__ __forceinline__ void RoundQueries(const float* const (&from)[2],
                                             int lane, uint4* fragments) {
#pragma unroll
  for (int kb = 0; kb < Shape::kQueryBlocks; ++kb) {
    float x[2][8];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (from[h] != nullptr) {
          v = *reinterpret_cast<const float4*>(from[h] + kb * 32 +
                                               lane % 4 * 8 + i);
        }
        x[h][i] = v.x, x[h][i + 1] = v.y, x[h][i + 2] = v.z, x[h][i + 3] = v.w;
      }
    }
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      uint32_t rounded[4];
#pragma unroll
      for (int reg = 0; reg < 4; ++reg) {
        const float* pair = &x[FragmentUpper(reg)][FragmentElement(tile, reg)];
        rounded[reg] = PackPair(Round<T>(pair[0]), Round<T>(pair[1]));
      }
      fragments[(kb * 2 + tile) * 32 + lane] =
          make_uint4(rounded[0], rounded[1], rounded[2], rounded[3]);
    }
  }
}

template <typename T, typename Shape>
__device__ __forceinline__ void Scores(const uint4* fragments,
                                       const uint4* keys, int lane,
                                       float (&scores)[kKeyTiles][4]) {
  const uint4* const own[2] = {keys + KeyPlace(lane, 0, Shape::kDim),
                               keys + KeyPlace(lane, 1, Shape::kDim)};
#pragma unroll
  for (int kb = 0; kb < Shape::kQueryBlocks; ++kb) {
    const uint4 query0 = fragments[kb * 2 * 32 + lane];
    const uint4 query1 = fragments[(kb * 2 + 1) * 32 + lane];
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      const uint4 k = own[kb % 2][KeyOffset(n, kb, Shape::kDim)];
      Mma<T>(scores[n], query0, k.x, k.y);
      Mma<T>(scores[n], query1, k.z, k.w);
    }
  }
}

// Scores become weights; `scale` is what the sums so far shrink by. A query
// that does not read the unit (keys 0) keeps its state to the bit.
__device__ __forceinline__ void Weigh(int lane, const int (&keys)[2],
                                      float (&scores)[kKeyTiles][4],
                                      Softmax& state, float (&scale)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = state.largest[h];
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 2 * h; i < 2 * h + 2; ++i) {
        if (ScoreKey(lane, n, i) < keys[h]) {
          largest = fmaxf(largest, scores[n][i]);
        }
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    scale[h] = exp2f(state.largest[h] - largest);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 2 * h; i < 2 * h + 2; ++i) {
        scores[n][i] = ScoreKey(lane, n, i) < keys[h]
                           ? exp2f(scores[n][i] - largest)
                           : 0.0f;
        sum = sum + scores[n][i];
      }
    }
    sum = sum + __shfl_xor_sync(kAllLanes, sum, 1);
    sum = sum + __shfl_xor_sync(kAllLanes, sum, 2);
    if (keys[h] > 0) {
      state.largest[h] = largest;
      state.sum[h] = __fmaf_rn(state.sum[h], scale[h], sum);
    }
  }
}

// Weights as fragments.
template <typename T>
__device__ __forceinline__ void RoundWeights(
    const float (&weights)[kKeyTiles][4], uint4 (&rounded)[kValueTiles]) {
#pragma unroll
  for (int kt = 0; kt < kValueTiles; ++kt) {
    uint32_t r[4];
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      const float* pair = &weights[kt * 2 + reg / 2][FragmentUpper(reg) * 2];
      r[reg] = PackPair(Round<T>(pair[0]), Round<T>(pair[1]));
    }
    rounded[kt] = make_uint4(r[0], r[1], r[2], r[3]);
  }
}

// The unit's own sums are made first and then merged, so that a query that
// does not read it is left out whole.
template <typename T, typename Shape>
__device__ __forceinline__ void AddValues(uint32_t values, int lane,
                                          const int (&keys)[2],
                                          const float (&scale)[2],
                                          const uint4 (&weights)[kValueTiles],
                                          float (&out)[Shape::kUnits][4]) {
  uint32_t own[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    own[i] = values + ValuePlace(lane, 2 * i, Shape::kDim) * 16;
  }
#pragma unroll
  for (int u = 0; u < Shape::kUnits; u += 2) {
    float sums[2][4] = {};
#pragma unroll
    for (int kt = 0; kt < kValueTiles; ++kt) {
      uint32_t v[4];
      LoadMatricesTransposed(
          v, own[u % 8 / 2] + ValueOffset(kt, u, Shape::kDim) * 16);
      Mma<T>(sums[0], weights[kt], v[0], v[1]);
      Mma<T>(sums[1], weights[kt], v[2], v[3]);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (keys[i / 2] > 0) {
          out[u + j][i] = __fmaf_rn(out[u + j][i], scale[i / 2], sums[j][i]);
        }
      }
    }
  }
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_ATTENTION_WARP_CUH_
