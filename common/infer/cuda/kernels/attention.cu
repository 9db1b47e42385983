// One warp takes 16 queries of one kv head (the heads of its group, of one row
// after another) through one chunk of a session's context. It depends on no
// other warp: the four of a thread block have neighbouring queries of the same
// chunk and so find each other's K and V in L1.
#include "common/infer/cuda/kernels/attention.h"
#include "common/infer/cuda/kernels/attention_warp.cuh"

namespace foretoken::device {
namespace {

constexpr int kMergeWarps = 4;

// Rows, blocks and the lane's queries; false if the chunk has none of them.
__device__ __forceinline__ bool Start(const AttentionParams& p,
                                      const AttentionTask& task, int chunk,
                                      int lane, Walker* walker,
                                      Softmax* state) {
  walker->pass = p.pass;
  walker->session = p.pass->session()[task.session];
  const int first_row = task.first_query / p.group;
  const int queries = walker->session.rows * p.group;
  const int end_query = min(task.first_query + kTaskQueries, queries);
  walker->rows = (end_query - 1) / p.group - first_row + 1;
  if (lane < walker->rows) {
    const DeviceRow& row =
        p.pass->row()[walker->session.first_row + first_row + lane];
    walker->tile_begin = row.tile_begin;
    walker->tile_count = row.tile_count;
    walker->last_keys = row.last_keys;
  }
  const int most = __reduce_max_sync(kAllLanes, walker->tile_count);
  walker->block = ChunkBegin(chunk) - 1;
  walker->end = min(ChunkBegin(chunk + 1), walker->session.page_count + most);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = task.first_query + ScoreQuery(lane, 2 * h);
    state->row[h] = query < end_query ? query / p.group - first_row : 31;
    state->tile_count[h] =
        __shfl_sync(kAllLanes, walker->tile_count, state->row[h]);
    state->last_keys[h] =
        __shfl_sync(kAllLanes, walker->last_keys, state->row[h]);
    state->largest[h] = -__int_as_float(0x7f800000);
    state->sum[h] = 0.0f;
  }
  return walker->block + 1 < walker->end;
}

template <typename Shape>
__device__ __forceinline__ void StorePartial(
    const AttentionParams& p, const AttentionTask& task, const Walker& walker,
    const Softmax& state, int kv_head, int chunk, int lane,
    const float (&out)[Shape::kUnits][4]) {
  const int slab_first = p.pass->task()[p.first_task].global_query;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int blocks = walker.session.page_count + state.tile_count[h];
    if (state.row[h] == 31 || blocks <= ChunkBegin(chunk)) continue;
    const int64_t at =
        PartialAt(task.global_query - slab_first + ScoreQuery(lane, 2 * h),
                  kv_head, chunk, p.kv.kv_heads, p.max_chunks);
    float* values = p.partial_values + at * Shape::kDim;
#pragma unroll
    for (int u = 0; u < Shape::kUnits; ++u) {
      *reinterpret_cast<float2*>(values + u * 8 + lane % 4 * 2) =
          make_float2(out[u][2 * h], out[u][2 * h + 1]);
    }
    if (lane % 4 == 0) {
      p.partial_sums[at] = make_float2(state.largest[h], state.sum[h]);
    }
  }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kWarps * 32, Shape::kResident)
    AttentionKernel(const AttentionParams p) {
  char* const shared = DynamicShared();
  AllowNextKernel();
  WaitForPreviousKernels();
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int kv_head = blockIdx.y;
  const int chunk = blockIdx.z;
  const int in_slab = blockIdx.x * Shape::kWarps + warp;
  // (No barrier of the thread block follows: a warp may leave.)
  if (in_slab >= p.slab_tasks || p.first_task + in_slab >= p.pass->tasks) {
    return;
  }
  const AttentionTask task = p.pass->task()[p.first_task + in_slab];
  Walker walker;
  Softmax state;
  if (!Start(p, task, chunk, lane, &walker, &state)) return;

  char* own = shared + warp * Shape::kWarpBytes;
  uint4* fragments =
      reinterpret_cast<uint4*>(own + kStages * 2 * Shape::kBlockBytes);
  const uint32_t ring = SharedAddress(own);
  Unit unit, next;
  bool more = walker.Next(lane, &unit);
  if (more) LoadUnit<T, Shape>(p, walker, unit, kv_head, lane, ring);
  CommitCopies();

  const float* queries[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = task.global_query + ScoreQuery(lane, 2 * h);
    queries[h] = state.row[h] == 31
                     ? nullptr
                     : p.queries + (int64_t{query / p.group} * p.heads +
                                    kv_head * p.group + query % p.group) *
                                       Shape::kDim;
  }
  SplitQueries<T, Shape>(queries, lane, fragments);

  float out[Shape::kUnits][4] = {};
  for (int stage = 0; more; stage ^= 1) {
    more = walker.Next(lane, &next);
    if (more) {
      LoadUnit<T, Shape>(p, walker, next, kv_head, lane,
                         ring + (stage ^ 1) * 2 * Shape::kBlockBytes);
    }
    CommitCopies();
    WaitCopies<1>();
    __syncwarp();
    int keys[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool reads = (unit.members >> state.row[h] & 1) != 0;
      const bool last =
          unit.block - walker.session.page_count == state.tile_count[h] - 1;
      keys[h] = !reads ? 0 : last ? state.last_keys[h] : kKeys;
    }
    const uint32_t block = stage * 2 * Shape::kBlockBytes;
    float scores[kKeyTiles][4] = {};
    Scores<T, Shape>(fragments, reinterpret_cast<const uint4*>(own + block),
                     lane, scores);
    float scale[2];
    Weigh(lane, keys, scores, state, scale);
    uint4 high[kValueTiles], low[kValueTiles];
    SplitWeights<T>(scores, high, low);
    AddValues<T, Shape>(ring + block + Shape::kBlockBytes, lane, keys, scale,
                        high, low, out);
    // All lanes are done with this stage before it is filled again.
    __syncwarp();
    unit = next;
  }
  StorePartial<Shape>(p, task, walker, state, kv_head, chunk, lane, out);
}

// One warp: one query of one kv head; its chunks ascending.
template <typename T, typename Shape>
__global__ void __launch_bounds__(kMergeWarps * 32)
    MergeKernel(const AttentionParams p) {
  AllowNextKernel();
  WaitForPreviousKernels();
  constexpr int kOfLane = Shape::kDim / 32;
  const int lane = threadIdx.x % 32;
  if (p.first_task >= p.pass->tasks) return;
  const int first = p.pass->task()[p.first_task].global_query;
  const int next_slab = p.first_task + p.slab_tasks;
  const int end = next_slab < p.pass->tasks
                      ? p.pass->task()[next_slab].global_query
                      : p.pass->queries;
  const int slab_query = blockIdx.x * kMergeWarps + threadIdx.x / 32;
  const int kv_head = blockIdx.y;
  const int query = first + slab_query;
  if (query >= end) return;
  const int row_index = query / p.group;
  const DeviceRow& row = p.pass->row()[row_index];
  const int chunks =
      ChunkCount(p.pass->session()[row.session].page_count + row.tile_count);
  const int64_t at =
      PartialAt(slab_query, kv_head, 0, p.kv.kv_heads, p.max_chunks);
  float largest = -__int_as_float(0x7f800000), sum = 0.0f;
  float out[kOfLane] = {};
#pragma unroll 4
  for (int c = 0; c < chunks; ++c) {
    const float2 part = p.partial_sums[at + c];
    const float* values = p.partial_values + (at + c) * Shape::kDim;
    float v[kOfLane];
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) v[j] = values[lane + 32 * j];
    const float both = fmaxf(largest, part.x);
    const float keep = exp2f(largest - both);
    const float take = exp2f(part.x - both);
    largest = both;
    sum = __fmaf_rn(sum, keep, part.y * take);
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) {
      out[j] = __fmaf_rn(out[j], keep, v[j] * take);
    }
  }
  const int64_t k = int64_t{kv_head * p.group + query % p.group} * p.head_dim;
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int d = lane + 32 * j;
    if (d < p.head_dim) {
      static_cast<T*>(p.out)[ActivationAt(row_index, k + d, p.padded_rows)] =
          Round<T>(out[j] / sum);
    }
  }
}

template <typename T, typename Use>
cudaError_t WithHead(int padded_head_dim, const Use& use) {
  switch (padded_head_dim) {
    case 32:
      return use.template operator()<T, Head<32>>();
    case 64:
      return use.template operator()<T, Head<64>>();
    case 96:
      return use.template operator()<T, Head<96>>();
    case 128:
      return use.template operator()<T, Head<128>>();
    case 256:
      return use.template operator()<T, Head<256>>();
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename Use>
cudaError_t WithKernel(DeviceType type, int padded_head_dim, const Use& use) {
  return type == DeviceType::kBFloat16
             ? WithHead<__nv_bfloat16>(padded_head_dim, use)
             : WithHead<__half>(padded_head_dim, use);
}

}  // namespace

cudaError_t PrepareAttention() {
  const auto prepare = [&]<typename T, typename Shape>() {
    const cudaError_t error =
        PrepareKernel(AttentionKernel<T, Shape>, Shape::kSharedBytes);
    return error != cudaSuccess ? error : PrepareKernel(MergeKernel<T, Shape>);
  };
  for (const DeviceType type : {DeviceType::kBFloat16, DeviceType::kFloat16}) {
    for (const int dim : {32, 64, 96, 128, 256}) {
      const cudaError_t error = WithKernel(type, dim, prepare);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

cudaError_t LaunchAttention(DeviceType type, const AttentionParams& params,
                            int tasks, int chunks, Launcher& launcher) {
  if (tasks == 0) return cudaSuccess;
  const auto launch = [&]<typename T, typename Shape>() {
    const dim3 grid((tasks + Shape::kWarps - 1) / Shape::kWarps,
                    params.kv.kv_heads, chunks);
    const cudaError_t error =
        launcher.Run(AttentionKernel<T, Shape>, grid, dim3(Shape::kWarps * 32),
                     Shape::kSharedBytes, params);
    if (error != cudaSuccess) return error;
    const dim3 merge_grid(
        (tasks * kTaskQueries + kMergeWarps - 1) / kMergeWarps,
        params.kv.kv_heads);
    return launcher.Run(MergeKernel<T, Shape>, merge_grid,
                        dim3(kMergeWarps * 32), 0, params);
  };
  return WithKernel(type, params.kv.padded_head_dim, launch);
}

}  // namespace foretoken::device
