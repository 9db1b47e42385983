// Where attention's numbers lie: KV memory, chunks of a context, tiles in
// shared memory, the tasks of a pass.
//
// A block is kDevicePageTokens (32) positions. A chunk is a run of blocks whose
// bounds depend on the position alone: 4 blocks each up to position 4,096, then
// 16 chunks to every doubling of the context, so that one row of a long context
// uses many multiprocessors and the partial results stay few. In a chunk the
// blocks are merged ascending, then the chunks, whichever kernel does it.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_ATTENTION_INDEX_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_ATTENTION_INDEX_H_

#include <cstdint>

#include "common/infer/cuda/device_engine.h"
#include "common/infer/cuda/kernels/device_support.h"
#include "common/sampling/fixed_math.h"

namespace foretoken::device {

inline constexpr int kChunkBlocks = 4;
inline constexpr int kEvenChunks = 32;  // chunks of kChunkBlocks
inline constexpr int kDoublingChunks = 16;
// Queries of one warp: heads that share a kv head, of one row after another.
inline constexpr int kTaskQueries = 16;
inline constexpr int kMaxHeadDim = 256;

// Tasks (AttentionTask) of a session's rows.
FORETOKEN_HOST_DEVICE constexpr int TaskCount(int64_t rows, int group) {
  return static_cast<int>((rows * group + kTaskQueries - 1) / kTaskQueries);
}

FORETOKEN_HOST_DEVICE inline int FloorLog2(uint32_t n) {  // n >= 1
#if defined(__CUDA_ARCH__)
  return 31 - __clz(static_cast<int>(n));
#else
  return 31 - __builtin_clz(n);
#endif
}

// First block of a chunk.
FORETOKEN_HOST_DEVICE inline int ChunkBegin(int chunk) {
  if (chunk <= kEvenChunks) return chunk * kChunkBlocks;
  const int level = (chunk - kEvenChunks) / kDoublingChunks;
  const int base = kEvenChunks * kChunkBlocks << level;
  return base +
         (chunk - kEvenChunks) % kDoublingChunks * (base / kDoublingChunks);
}

FORETOKEN_HOST_DEVICE inline int ChunkOfBlock(int block) {
  constexpr int kEven = kEvenChunks * kChunkBlocks;
  if (block < kEven) return block / kChunkBlocks;
  const int level = FloorLog2(static_cast<uint32_t>(block / kEven));
  const int base = kEven << level;
  return kEvenChunks + level * kDoublingChunks +
         (block - base) / (base / kDoublingChunks);
}

// Chunks that hold blocks 0..blocks-1; blocks >= 1.
FORETOKEN_HOST_DEVICE inline int ChunkCount(int blocks) {
  return ChunkOfBlock(blocks - 1) + 1;
}

// The vectors of one slot are padded to a length that has a kernel.
FORETOKEN_HOST_DEVICE inline int PaddedHeadDim(int head_dim) {
  return head_dim <= 32    ? 32
         : head_dim <= 64  ? 64
         : head_dim <= 96  ? 96
         : head_dim <= 128 ? 128
                           : 256;
}

// First element of a slot's vector in K or V memory of `total_pages` (scratch
// included): by layer, page, kv head, token.
struct KvShape {
  int64_t total_pages = 0;
  int kv_heads = 0;
  int padded_head_dim = 0;
};

// K and V, all layers, by KvAt; `first_scratch_slot` is row 0 of the pass.
struct KvMemory : KvShape {
  void* keys = nullptr;
  void* values = nullptr;
  int64_t first_scratch_slot = 0;
};

FORETOKEN_HOST_DEVICE inline int64_t KvAt(const KvShape& kv, int layer,
                                          int64_t slot, int kv_head) {
  const int64_t page = slot / kDevicePageTokens;
  const int64_t token = slot % kDevicePageTokens;
  return (((layer * kv.total_pages + page) * kv.kv_heads + kv_head) *
              kDevicePageTokens +
          token) *
         kv.padded_head_dim;
}

// A K or V block in shared memory: 32 rows of keys, in units of 16 bytes
// (8 elements). Rows are a multiple of eight units long, and a unit's place is
// shuffled by its row, so that neither the reads of K (two rows x four units at
// a time) nor those of V (eight rows x one unit) meet in a bank.
FORETOKEN_HOST_DEVICE inline int RowUnits(int padded_head_dim) {
  return (padded_head_dim / 8 + 7) / 8 * 8;
}
FORETOKEN_HOST_DEVICE inline int UnitAt(int row, int unit,
                                        int padded_head_dim) {
  const int shuffle = (row & 1) << 2 | (row >> 1 & 3);
  return row * RowUnits(padded_head_dim) + (unit ^ shuffle);
}

// How attention's thread blocks are built; every choice has the same sums.
// Neighbouring tasks of a session are in the warps of a block, which copy the
// keys and values of all of them once.
struct AttentionTiling {
  int warps = 1;
  int stages = 2;  // units of keys and values in shared memory
  friend constexpr bool operator==(const AttentionTiling&,
                                   const AttentionTiling&) = default;
};

// Bytes of a unit's keys (or values), of a warp's queries, of a thread block.
constexpr int AttentionUnitBytes(int padded_head_dim) {
  return kDevicePageTokens * ((padded_head_dim / 8 + 7) / 8 * 8) * 16;
}
constexpr int AttentionQueryBytes(int padded_head_dim) {
  return (padded_head_dim / 32) * 2 * 32 * 16;
}
constexpr int AttentionSharedBytes(const AttentionTiling& tiling,
                                   int padded_head_dim) {
  return tiling.stages * 2 * AttentionUnitBytes(padded_head_dim) +
         tiling.warps * AttentionQueryBytes(padded_head_dim);
}

// A warp of a wide block without a task only copies, so blocks are as wide as
// the pass's sessions have tasks: one, two, more. (A verifier's batch is many
// sessions of one or two.)
constexpr AttentionTiling WideAttention(int padded_head_dim) {
  return padded_head_dim <= 128 ? AttentionTiling{4, 4} : AttentionTiling{2, 2};
}
constexpr AttentionTiling PairAttention(int padded_head_dim) {
  return {2, padded_head_dim <= 128 ? 3 : 2};
}
constexpr AttentionTiling NarrowAttention(int padded_head_dim) {
  return {1, padded_head_dim <= 128 ? 4 : 2};
}

// Tasks of a session from which on blocks are wide; more are the same to them.
inline constexpr int kWideTasks = 3;

// `session_tasks`: the most tasks of a session. `shared_bytes`: what a thread
// block of the device can have (99 KiB or more).
constexpr AttentionTiling ChooseAttentionTiling(int session_tasks,
                                                int padded_head_dim,
                                                int shared_bytes) {
  const AttentionTiling tiling =
      session_tasks >= kWideTasks ? WideAttention(padded_head_dim)
      : session_tasks == 2        ? PairAttention(padded_head_dim)
                                  : NarrowAttention(padded_head_dim);
  return AttentionSharedBytes(tiling, padded_head_dim) <= shared_bytes
             ? tiling
             : NarrowAttention(padded_head_dim);
}

// Thread blocks for which a multiprocessor of 228 KiB shall have registers.
constexpr int AttentionResident(const AttentionTiling& tiling,
                                int padded_head_dim) {
  const int most = tiling.warps == 1       ? 32
                   : tiling.warps == 2     ? 4
                   : padded_head_dim <= 64 ? 3
                                           : 2;
  const int fit = ResidentBlocks(AttentionSharedBytes(tiling, padded_head_dim));
  return fit < most ? fit : most;
}

// Register `reg` (0..3) of an A fragment (16 queries x 16) holds two neighbours
// of query g, or of g + 8 where FragmentUpper says so. In a block of 32
// dimensions the lane holds eight neighbours, from dimension 8 t of the block;
// FragmentElement is the pair of those that mma `tile` (0, 1) of the block
// takes: the permutation that K's 16-byte reads give (gemm_index.h).
FORETOKEN_HOST_DEVICE inline constexpr int FragmentUpper(int reg) {
  return reg % 2;
}
FORETOKEN_HOST_DEVICE inline constexpr int FragmentElement(int tile, int reg) {
  return tile * 4 + reg / 2 * 2;
}

// The row and unit whose address a lane gives to ldmatrix.x4.trans to get V's
// fragments (B: 16 keys x 8 dimensions) of two neighbouring units: registers 0
// and 1 are the lower and upper eight keys of `unit`, 2 and 3 of unit + 1.
FORETOKEN_HOST_DEVICE inline int ValueRow(int lane, int key_tile) {
  return key_tile * 16 + (lane >> 3 & 1) * 8 + (lane & 7);
}
FORETOKEN_HOST_DEVICE inline int ValueUnit(int lane, int unit) {
  return unit + (lane >> 4);
}

// Places of a lane's reads (UnitAt) with the lane's share apart, so that a
// kernel keeps two and four numbers and adds constants: of K, unit
// kb * 4 + lane % 4 of row n * 8 + lane / 4, KeyPlace(lane, kb % 2) +
// KeyOffset(n, kb); of V, what ValueRow and ValueUnit name, ValuePlace(lane,
// unit % 8) + ValueOffset(key_tile, unit).
FORETOKEN_HOST_DEVICE inline int KeyPlace(int lane, int odd,
                                          int padded_head_dim) {
  return UnitAt(lane / 4, odd * 4 + lane % 4, padded_head_dim);
}
FORETOKEN_HOST_DEVICE inline int KeyOffset(int n, int kb, int padded_head_dim) {
  return n * 8 * RowUnits(padded_head_dim) + kb / 2 * 8;
}
FORETOKEN_HOST_DEVICE inline int ValuePlace(int lane, int unit,
                                            int padded_head_dim) {
  return UnitAt(ValueRow(lane, 0), ValueUnit(lane, unit), padded_head_dim);
}
FORETOKEN_HOST_DEVICE inline int ValueOffset(int key_tile, int unit,
                                             int padded_head_dim) {
  return key_tile * 16 * RowUnits(padded_head_dim) + unit / 8 * 8;
}

// Key of a block that score accumulator `i` (0..3) of tile `n` (0..3) is for,
// and the query (0..15).
FORETOKEN_HOST_DEVICE inline int ScoreKey(int lane, int n, int i) {
  return n * 8 + lane % 4 * 2 + i % 2;
}
FORETOKEN_HOST_DEVICE inline int ScoreQuery(int lane, int i) {
  return lane / 4 + i / 2 * 8;
}

// Tasks that the warps of a block take together have at most this many rows: a
// lane of every warp holds one.
inline constexpr int kTogetherRows = 32;

// Work of one warp: kTaskQueries queries of one kv head, or what is left of the
// session's. Query q of a session is head q % group of its row q / group.
struct AttentionTask {
  int32_t session = 0;
  int32_t first_query = 0;   // of the session
  int32_t global_query = 0;  // the same, counted through all sessions
};

// A slab is a run of queries whose partial results fit in memory at once: the
// tasks that begin in [first, first + queries). Its last task may reach up to
// kSlabMargin queries further.
inline constexpr int kSlabMargin = kTaskQueries - 1;

// First query (through all sessions) of the task that holds `query`, where the
// queries of its session begin at `session_query`.
FORETOKEN_HOST_DEVICE inline int TaskBegin(int query, int session_query) {
  return session_query + (query - session_query) / kTaskQueries * kTaskQueries;
}

// Element of the partial results: one vector of padded_head_dim for each query
// of a slab, kv head and chunk of the pass; the same index without dimensions
// for the (maximum, sum) pairs.
FORETOKEN_HOST_DEVICE inline int64_t PartialAt(int64_t slab_query, int kv_head,
                                               int chunk, int kv_heads,
                                               int chunks) {
  return (slab_query * kv_heads + kv_head) * chunks + chunk;
}

// How many chunks a thread block takes one after the other. `blocks`: thread
// blocks of each chunk, of which the device runs `places` at a time. A block
// has to find its rows before its first chunk, which takes it about as long as
// a chunk does; so the fewest turns of the device are sought, weighed by that.
inline int AttentionSpan(int64_t blocks, int chunks, int64_t places) {
  int best = 1;
  int64_t least = 0;
  for (int span = 1; span <= chunks; ++span) {
    const int64_t turns =
        (blocks * ((chunks + span - 1) / span) + places - 1) / places;
    const int64_t cost = turns * (1 + span);
    if (span == 1 || cost < least) least = cost, best = span;
  }
  return best;
}

// Enough warps of attention, over all kv heads and chunks, to fill 132
// multiprocessors. One holds three narrow blocks (3 warps), four pairs or two
// wide blocks (8 warps).
inline constexpr int kAttentionWarps = 2048;
// Thread blocks of the grid at most; each takes every n-th piece of work.
inline constexpr int kMostAttentionBlocks = 8192;

// How many warps share the tasks of one kv head and chunk in a pass of at most
// `rows` rows; a warp takes every n-th task, so any number is right. One for
// each task there may be (a session's last is not full), as long as the grid
// is small; never fewer than one session's tasks.
inline int AttentionTaskWarps(int rows, int group, int kv_heads, int chunks) {
  const int least = TaskCount(rows, group);
  const int most = rows * TaskCount(1, group);
  const int fill = kAttentionWarps / (kv_heads * chunks);
  return fill < least ? least : fill < most ? fill : most;
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_ATTENTION_INDEX_H_
