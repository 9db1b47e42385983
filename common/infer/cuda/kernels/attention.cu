// A warp takes 16 queries of one kv head (the heads of its group, of one row
// after another) through a span of chunks of a session's context. The warps of a thread
// block have neighbouring tasks of one session; they copy the keys and values of
// all of them together, each unit once, and each leaves out what none of its
// own rows reads.
#include <algorithm>

#include "common/infer/cuda/kernels/attention.h"
#include "common/infer/cuda/kernels/attention_warp.cuh"

namespace foretoken::device {
namespace {

constexpr int kMergeWarps = 4;

// Tasks that a thread block takes together: neighbours of one session and slab.
struct Together {
  int first = 0, count = 0;
  int first_row = 0, rows = 0;  // of the session
};

__device__ __forceinline__ bool InSlab(const AttentionParams& p,
                                       const AttentionTask& task) {
  return task.global_query >= p.first_query &&
         task.global_query - p.first_query < p.slab_queries;
}

// From task `first` of the slab on, before task `end`.
__device__ __forceinline__ Together TakeTogether(const AttentionParams& p,
                                                 int first, int end) {
  const AttentionTask& task = p.pass->task()[first];
  const int queries = p.pass->session()[task.session].rows * p.group;
  Together together;
  together.first = first;
  together.first_row = task.first_query / p.group;
  for (int t = first; t < end; ++t) {
    const AttentionTask& next = p.pass->task()[t];
    if (next.session != task.session || !InSlab(p, next)) break;
    const int end_query = min(next.first_query + kTaskQueries, queries);
    const int rows = (end_query - 1) / p.group - together.first_row + 1;
    if (rows > kTogetherRows) break;
    together.rows = rows;
    ++together.count;
  }
  return together;
}

// Rows, blocks and the lane's queries of the warp's task, if it has one; false
// if the chunks have none of the blocks.
__device__ __forceinline__ bool Start(const AttentionParams& p,
                                      const Together& together,
                                      const AttentionTask& task, bool has_task,
                                      int chunk, int end_chunk, int lane,
                                      Walker* walker, Softmax* state) {
  const DeviceSession& session = p.pass->session()[task.session];
  const int page_count = session.page_count;
  walker->pass = p.pass;
  walker->pages = page_count;
  walker->page_end = session.page_begin + page_count;
  if (lane < together.rows) {
    const DeviceRow& row =
        p.pass->row()[session.first_row + together.first_row + lane];
    walker->tile_begin = row.tile_begin;
    walker->tile_count = row.tile_count;
    walker->last_keys = row.last_keys;
  }
  const int most = __reduce_max_sync(kAllLanes, walker->tile_count);
  walker->block = ChunkBegin(chunk) - page_count - 1;
  walker->end = min(ChunkBegin(end_chunk) - page_count, most);
  const int end_query =
      has_task
          ? min(task.first_query + kTaskQueries, session.rows * p.group)
          : 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = task.first_query + ScoreQuery(lane, 2 * h);
    const int row = query < end_query ? query / p.group - together.first_row
                                      : Softmax::kNoRow;
    state->rows |= row << 8 * h;
  }
  state->Begin();
  return walker->block + 1 < walker->end;
}

template <typename Shape>
__device__ __forceinline__ void StorePartial(
    const AttentionParams& p, const AttentionTask& task, const Walker& walker,
    const Softmax& state, int kv_head, int chunk, int lane,
    const float (&out)[Shape::kUnits][4]) {
  const int begin =
      ChunkBegin(chunk) - p.pass->session()[task.session].page_count;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = state.row(h);
    const int end = __shfl_sync(kAllLanes, walker.tile_count, row);
    if (row == Softmax::kNoRow || end <= begin) continue;
    const int64_t at =
        PartialAt(task.global_query - p.first_query + ScoreQuery(lane, 2 * h),
                  kv_head, chunk, p.kv.kv_heads, p.chunks);
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

// The lane's two queries of a task; nullptr: there is none.
template <typename Shape>
__device__ __forceinline__ void FindQueries(const AttentionParams& p,
                                            const AttentionTask& task,
                                            const Softmax& state, int kv_head,
                                            int lane,
                                            const float* (&queries)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = task.global_query + ScoreQuery(lane, 2 * h);
    queries[h] = state.row(h) == Softmax::kNoRow
                     ? nullptr
                     : p.queries + (int64_t{query / p.group} * p.heads +
                                    kv_head * p.group + query % p.group) *
                                       Shape::kDim;
  }
}

// The warps' tasks, read anew where they are needed. `shared`: of the block.
template <typename T, typename Shape>
__device__ __forceinline__ void RunTasks(const AttentionParams& p,
                                         const Together& together, int kv_head,
                                         int chunk, int end_chunk, int warp,
                                         int lane, char* shared) {
  const bool has_task = warp < together.count;
  const int t = together.first + (has_task ? warp : 0);
  Walker walker;
  Softmax state;
  if (!Start(p, together, p.pass->task()[t], has_task, chunk, end_chunk, lane,
             &walker, &state)) {
    return;
  }
  uint4* fragments =
      reinterpret_cast<uint4*>(shared + Shape::kStages * Shape::kStageBytes +
                               warp * Shape::kQueryBytes);
  const uint32_t ring = SharedAddress(shared);
  // The next units, each in its stage; the first is the one at work. Pages are
  // there already, tiles have rows of this pass.
  constexpr int kAhead = Shape::kStages - 1;
  Unit units[kAhead];
  bool waited = false;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    units[i] = walker.Next();
    if (units[i].members != 0) {
      if (units[i].tile >= 0 && !waited) {
        WaitForPreviousKernels();
        waited = true;
      }
      LoadUnit<T, Shape>(p, walker, units[i], kv_head, lane,
                         ring + i * Shape::kStageBytes);
    }
    CommitCopies();
  }
  if (!waited) WaitForPreviousKernels();
  const float* queries[2];
  FindQueries<Shape>(p, p.pass->task()[t], state, kv_head, lane, queries);
  RoundQueries<T, Shape>(queries, lane, fragments);

  float out[Shape::kUnits][4] = {};
  uint32_t stage = 0;  // in bytes
  // Where the next chunk begins, in the walker's blocks.
  int next_chunk = ChunkBegin(chunk + 1) - walker.pages;
  while (units[0].members != 0) {
    if (units[0].block >= next_chunk) {
      StorePartial<Shape>(p, p.pass->task()[t], walker, state, kv_head, chunk,
                          lane, out);
      state.Begin();
#pragma unroll
      for (int u = 0; u < Shape::kUnits; ++u) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[u][i] = 0.0f;
      }
      ++chunk;
      next_chunk = ChunkBegin(chunk + 1) - walker.pages;
    }
    const Unit next = walker.Next();
    WaitCopies<kAhead - 1>();
    // All warps' copies of this unit are there, and all are done with the stage
    // that was read last, which is filled next.
    __syncthreads();
    if (next.members != 0) {
      const uint32_t free_stage =
          (stage == 0 ? Shape::kStages * Shape::kStageBytes : stage) -
          Shape::kStageBytes;
      LoadUnit<T, Shape>(p, walker, next, kv_head, lane, ring + free_stage);
    }
    CommitCopies();
    int keys[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      keys[h] = walker.KeysOf(units[0], state.row(h));
    }
    if (Shape::kWarps == 1 ||
        __ballot_sync(kAllLanes, keys[0] + keys[1] > 0) != 0) {
      float scores[kKeyTiles][4] = {};
      Scores<T, Shape>(fragments,
                       reinterpret_cast<const uint4*>(shared + stage), lane,
                       scores);
      float scale[2];
      Weigh(lane, keys, scores, state, scale);
      uint4 weights[kValueTiles];
      RoundWeights<T>(scores, weights);
      AddValues<T, Shape>(ring + stage + Shape::kBlockBytes, lane, keys, scale,
                          weights, out);
    }
    stage += Shape::kStageBytes;
    if (stage == Shape::kStages * Shape::kStageBytes) stage = 0;
#pragma unroll
    for (int i = 0; i + 1 < kAhead; ++i) units[i] = units[i + 1];
    units[kAhead - 1] = next;
  }
  WaitCopies<0>();
  StorePartial<Shape>(p, p.pass->task()[t], walker, state, kv_head, chunk, lane,
                      out);
}

// Thread blocks start in the order of their index, x first. The last tasks of
// the pass, whose contexts are the longest, come first, and of each the last
// chunks; the blocks for which the pass has no work come last.
template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kWarps * 32, Shape::kResident)
    AttentionKernel(const AttentionParams p) {
  char* const shared = DynamicShared();
  AllowNextKernel();
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int kv_head = blockIdx.x;
  const int chunks = p.pass->chunks;
  const int span = p.pass->span;
  const int spans = (chunks + span - 1) / span;
  const int tasks = p.pass->tasks;
  const int blocks = (tasks + Shape::kWarps - 1) / Shape::kWarps;
  for (int i = blockIdx.y; i < blocks * spans; i += gridDim.y) {
    const int begin = (blocks - 1 - i / spans) * Shape::kWarps;
    const int end = min(begin + Shape::kWarps, tasks);
    const int chunk = (spans - 1 - i % spans) * span;
    const int end_chunk = min(chunk + span, chunks);
    for (int t = begin; t < end;) {
      if (!InSlab(p, p.pass->task()[t])) {
        ++t;
        continue;
      }
      const Together together = TakeTogether(p, t, end);
      RunTasks<T, Shape>(p, together, kv_head, chunk, end_chunk, warp, lane,
                         shared);
      t += together.count;
      // Before the next tasks' units are copied over these.
      __syncthreads();
    }
  }
  // This kernel must not end before those ahead of it. One waiting block
  // ensures that; others without work make room at once.
  if (blockIdx.x + blockIdx.y == 0) WaitForPreviousKernels();
}

// One warp: one query of one kv head; its chunks ascending.
template <typename T, int kDim>
__global__ void __launch_bounds__(kMergeWarps * 32)
    MergeKernel(const AttentionParams p) {
  AllowNextKernel();
  constexpr int kOfLane = kDim / 32;
  // Chunks that are loaded together.
  constexpr int kMergeAhead = kDim <= 128 ? 8 : 4;
  const int lane = threadIdx.x % 32;
  const int slab_query = blockIdx.x * kMergeWarps + threadIdx.x / 32;
  const int kv_head = blockIdx.y;
  const int query = p.first_query + slab_query;
  const int row_index = query / p.group;
  const bool is_query = query < p.pass->queries;
  int task = 0, chunks = 0;
  if (is_query) {
    const DeviceRow& row = p.pass->row()[row_index];
    const DeviceSession& session = p.pass->session()[row.session];
    task = TaskBegin(query, session.first_row * p.group);
    chunks = ChunkCount(session.page_count + row.tile_count);
  }
  WaitForPreviousKernels();
  // At the slab's ends: queries whose task is another slab's.
  if (!is_query || task < p.first_query ||
      task - p.first_query >= p.slab_queries) {
    return;
  }
  const int64_t at = PartialAt(slab_query, kv_head, 0, p.kv.kv_heads, p.chunks);
  float largest = -__int_as_float(0x7f800000), sum = 0.0f;
  float out[kOfLane] = {};
  for (int begin = 0; begin < chunks; begin += kMergeAhead) {
    float2 part[kMergeAhead];
    float values[kMergeAhead][kOfLane];
#pragma unroll
    for (int i = 0; i < kMergeAhead; ++i) {
      if (begin + i >= chunks) break;
      const int64_t from = at + begin + i;
      part[i] = p.partial_sums[from];
#pragma unroll
      for (int j = 0; j < kOfLane; ++j) {
        values[i][j] = p.partial_values[from * kDim + lane + 32 * j];
      }
    }
#pragma unroll
    for (int i = 0; i < kMergeAhead; ++i) {
      if (begin + i >= chunks) break;
      const float both = fmaxf(largest, part[i].x);
      const float keep = exp2f(largest - both);
      const float take = exp2f(part[i].x - both);
      largest = both;
      sum = __fmaf_rn(sum, keep, part[i].y * take);
#pragma unroll
      for (int j = 0; j < kOfLane; ++j) {
        out[j] = __fmaf_rn(out[j], keep, values[i][j] * take);
      }
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

// Calls `use.template operator()<T, kDim>()`.
template <typename T, typename Use>
cudaError_t WithHead(int padded_head_dim, const Use& use) {
  switch (padded_head_dim) {
    case 32:
      return use.template operator()<T, 32>();
    case 64:
      return use.template operator()<T, 64>();
    case 96:
      return use.template operator()<T, 96>();
    case 128:
      return use.template operator()<T, 128>();
    case 256:
      return use.template operator()<T, 256>();
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

cudaError_t PrepareAttention(const DeviceLimits& device) {
  const auto prepare = [&]<typename T, int kDim>() {
    cudaError_t error = PrepareKernel(MergeKernel<T, kDim>);
    const auto attention = [&]<AttentionTiling kTiling>() {
      using Shape = Head<kDim, kTiling>;
      if (error != cudaSuccess || Shape::kSharedBytes > device.shared_bytes) {
        return;
      }
      error = PrepareKernel(AttentionKernel<T, Shape>, Shape::kSharedBytes);
    };
    attention.template operator()<NarrowAttention(kDim)>();
    attention.template operator()<PairAttention(kDim)>();
    attention.template operator()<WideAttention(kDim)>();
    return error;
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
                            int rows, const AttentionTiling& tiling,
                            Launcher& launcher) {
  const int queries = rows * params.group - params.first_query;
  if (queries <= 0) return cudaSuccess;
  const int kv_heads = params.kv.kv_heads;
  const int warps =
      AttentionTaskWarps(rows, params.group, kv_heads, params.chunks);
  const auto launch = [&]<typename T, int kDim>() {
    const auto attend = [&]<AttentionTiling kTiling>() {
      using Shape = Head<kDim, kTiling>;
      const int blocks = (warps + Shape::kWarps - 1) / Shape::kWarps;
      const dim3 grid(kv_heads, std::min(blocks * params.chunks,
                                         kMostAttentionBlocks / kv_heads));
      return launcher.Run(AttentionKernel<T, Shape>, grid,
                          dim3(Shape::kWarps * 32), Shape::kSharedBytes,
                          params);
    };
    const cudaError_t error =
        tiling == NarrowAttention(kDim)
            ? attend.template operator()<NarrowAttention(kDim)>()
        : tiling == PairAttention(kDim)
            ? attend.template operator()<PairAttention(kDim)>()
            : attend.template operator()<WideAttention(kDim)>();
    if (error != cudaSuccess) return error;
    const int merged = std::min(queries, params.slab_queries + kSlabMargin);
    const dim3 merge_grid((merged + kMergeWarps - 1) / kMergeWarps, kv_heads);
    return launcher.Run(MergeKernel<T, kDim>, merge_grid,
                        dim3(kMergeWarps * 32), 0, params);
  };
  return WithKernel(type, params.kv.padded_head_dim, launch);
}

}  // namespace foretoken::device
