// Where each number of a matrix product lies: packed weights, activations,
// groups of K. Shared by the kernels, what packs and fills, and the tests.
//
// The product is out[row][feature] = sum over k of x[row][k] * w[feature][k],
// by mma.m16n8k16, or by wgmma.m64nNk16 where a GPU has it, with the weights as
// A (16 features x 16 k) and the activations as B (16 k x 8 rows). Weights are
// stored as fragments: a lane reads its 16 bytes of one, a warp 512 in a row.
// Activations are stored in blocks of 32 k, 64 bytes a row. The four units of
// 16 bytes of a row are permuted by the row number, in wgmma's 64-byte swizzle,
// so that a tile of rows can be copied as it is and wgmma and ldmatrix read it
// without bank conflicts.
//
// One order for each output: K is cut into groups (GemmGroups, a function of
// the matrix alone); in a group the blocks of 16 k are added ascending by the
// instruction, one accumulator per output; the sums of the groups are added in
// ascending order by the kernel that reads them. No tile over rows or features
// changes it.
//
// Lane numbers: g = lane / 4, t = lane % 4 (PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type"). Thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_INDEX_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_INDEX_H_

#include <cstdint>

#include "common/infer/cuda/kernels/device_support.h"
#include "common/sampling/fixed_math.h"

namespace foretoken::device {

inline constexpr int kGemmFeatures = 128;  // of a thread block, and the padding
inline constexpr int kGemmKBlock = 32;     // k that lie together
inline constexpr int kGemmKStep = 64;      // groups of K are whole steps
inline constexpr int kGemmKPad = 128;      // K is padded to this
inline constexpr int kGemmMaxGroups = 8;
inline constexpr int kGemmFeatureTiles = kGemmFeatures / 16;
// Bytes of eight rows of one block of 32 k of the activations.
inline constexpr int kEightRowsBytes = 8 * kGemmKBlock * 2;
// Activation buffers have room for a multiple of this many rows: the largest
// tile of rows, so that no tile reads past them.
inline constexpr int kGemmRowPad = 256;

FORETOKEN_HOST_DEVICE constexpr int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

FORETOKEN_HOST_DEVICE inline int64_t PaddedFeatures(int64_t features) {
  return RoundUp(features, kGemmFeatures);
}
FORETOKEN_HOST_DEVICE inline int64_t PaddedK(int64_t k) {
  return RoundUp(k, kGemmKPad);
}

// Element of the packed weights that holds w[feature][k].
FORETOKEN_HOST_DEVICE inline int64_t PackedWeight(int64_t feature, int64_t k,
                                                  int64_t padded_k) {
  const int64_t feature_block = feature / kGemmFeatures;
  const int64_t k_block = k / kGemmKBlock;
  const int tile = static_cast<int>(feature % kGemmFeatures) / 16;
  const int r = static_cast<int>(feature % 16);
  const int k_tile = static_cast<int>(k % kGemmKBlock) / 16;  // which mma
  const int column = static_cast<int>(k % 16);
  const int upper_k = column / 8;
  const int lane = r % 8 * 4 + column % 8 / 2;
  const int reg = r / 8 + 2 * upper_k;
  const int64_t fragment =
      ((feature_block * (padded_k / kGemmKBlock) + k_block) *
           kGemmFeatureTiles +
       tile) *
          2 +
      k_tile;
  return (fragment * 32 + lane) * 8 + reg * 2 + column % 2;
}

// Place of unit `unit` (0..3) among a row's units of a block of 32 k.
FORETOKEN_HOST_DEVICE inline int ActivationUnit(int row, int unit) {
  return unit ^ (row >> 1 & 3);
}

// First element of the row's block of 32 k that holds k.
FORETOKEN_HOST_DEVICE inline int64_t ActivationRowAt(int64_t row, int64_t k,
                                                     int64_t padded_rows) {
  return (k / kGemmKBlock * padded_rows + row) * kGemmKBlock;
}

// Element of an activation buffer of `padded_rows` that holds x[row][k].
// Eight k from a multiple of eight on lie together.
FORETOKEN_HOST_DEVICE inline int64_t ActivationAt(int64_t row, int64_t k,
                                                  int64_t padded_rows) {
  const int unit = ActivationUnit(static_cast<int>(row & 7),
                                  static_cast<int>(k % kGemmKBlock) / 8);
  return ActivationRowAt(row, k, padded_rows) + unit * 8 + k % 8;
}

// Byte of a block of eight rows x 32 k whose address a lane gives to
// ldmatrix.x4 to get B's fragments: registers 0 and 1 are the lower and upper
// eight k of the block's first 16, 2 and 3 of its second.
FORETOKEN_HOST_DEVICE inline int ActivationPlace(int lane) {
  return lane % 8 * 64 + ActivationUnit(lane % 8, lane / 8) * 16;
}

// Gate and up features alternate by eight, so that one lane's accumulator holds
// both of a pair: rows g and g + 8 of a tile.
FORETOKEN_HOST_DEVICE inline int64_t GateFeature(int64_t feature) {
  return feature / 8 * 16 + feature % 8;
}
FORETOKEN_HOST_DEVICE inline int64_t UpFeature(int64_t feature) {
  return GateFeature(feature) + 8;
}

// Feature of the packed matrix that row `row` of a tensor becomes: a plain
// tensor's (mode 0) begin at `first`; 1 is gate, 2 up.
FORETOKEN_HOST_DEVICE inline int64_t PackedFeature(int mode, int64_t first,
                                                   int64_t row) {
  return mode == 1   ? GateFeature(row)
         : mode == 2 ? UpFeature(row)
                     : first + row;
}

// Groups of K, each summed by thread blocks of its own. A narrow matrix has few
// blocks of features, so it is cut until there are about two thread blocks for
// each of 132 multiprocessors, which all stream at once; a group has at least
// four steps. Depends on the matrix alone: part of the numerics.
FORETOKEN_HOST_DEVICE inline int GemmGroups(int64_t padded_features,
                                            int64_t padded_k) {
  const int64_t blocks = padded_features / kGemmFeatures;
  const int64_t steps = padded_k / kGemmKStep;
  int64_t groups = 264 / blocks;
  if (groups > kGemmMaxGroups) groups = kGemmMaxGroups;
  if (groups > steps / 4) groups = steps / 4;
  return groups < 1 ? 1 : static_cast<int>(groups);
}

// First step of group `group` of `groups`; the end of the last is `steps`. (32
// bits hold the product: k is below 2^28.)
FORETOKEN_HOST_DEVICE inline int GroupBegin(int64_t steps, int groups,
                                            int group) {
  return static_cast<int>(static_cast<uint32_t>(steps) *
                          static_cast<uint32_t>(group) /
                          static_cast<uint32_t>(groups));
}

// Which row and feature of a thread block's tile accumulator `i` (0..3) of a
// lane belongs to, inside one mma tile of 16 features x 8 rows.
FORETOKEN_HOST_DEVICE inline int AccumulatorFeature(int lane, int i) {
  return lane / 4 + i / 2 * 8;
}
FORETOKEN_HOST_DEVICE inline int AccumulatorRow(int lane, int i) {
  return lane % 4 * 2 + i % 2;
}

// How a thread block's tile of 128 features and some rows is cut, and how far
// ahead it asks for weights. Every tiling has the same sums.
struct GemmTiling {
  int feature_tiles = 0;  // mma tiles of 16 features, of a warp
  int row_tiles = 0;      // of 8 rows, of a warp
  int row_warps = 0;      // warps side by side over rows
  int step_k = 0;         // k of a stage
  int stages = 0;         // in shared memory

  constexpr int rows() const { return 8 * row_tiles * row_warps; }
  constexpr int threads() const {
    return 32 * (kGemmFeatureTiles / feature_tiles) * row_warps;
  }
  constexpr int weight_bytes() const { return kGemmFeatures * step_k * 2; }
  constexpr int stage_bytes() const {
    return weight_bytes() + rows() * step_k * 2;
  }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
  // Weights that a thread block has under way: all stages but the one at work.
  constexpr int bytes_ahead() const { return (stages - 1) * weight_bytes(); }

  friend constexpr bool operator==(const GemmTiling&,
                                   const GemmTiling&) = default;
};

// Up to 72 rows there are a deep and a shallow tiling each; 64 draft nodes and
// their root are 65 rows. Narrow tiles are 4 warps of 32 features, wider ones
// warps of 64 features x 64 (72) rows.
inline constexpr int kGemmNarrowSizes = 5;
inline constexpr GemmTiling kGemmTilings[] = {
    {2, 1, 1, 64, 6}, {2, 2, 1, 64, 6}, {2, 4, 1, 64, 5},
    {4, 8, 1, 32, 8}, {4, 9, 1, 32, 8},  // deep
    {2, 1, 1, 32, 5}, {2, 2, 1, 32, 5}, {2, 4, 1, 32, 4},
    {4, 8, 1, 32, 4}, {4, 9, 1, 32, 3},  // shallow
    {4, 8, 2, 32, 6}, {4, 8, 4, 32, 6},
};
// Two shallow blocks fit a multiprocessor of any device.
inline constexpr int kGemmShallowBytes = 49 << 10;
inline constexpr int kGemmTile128 = 2 * kGemmNarrowSizes;
inline constexpr int kGemmTile256 = kGemmTile128 + 1;

// Weights that a block asks for, in shared memory or else in L2, before the
// kernels ahead of it are done: what the narrowest tile has under way.
inline constexpr int kGemmBytesAhead = kGemmTilings[0].bytes_ahead();

// Index into kGemmTilings for a product over `rows`, on a device whose thread
// blocks can have `shared_bytes` (99 KiB or more) of dynamic shared memory and
// whose multiprocessors have 1 KiB more. Deep where a multiprocessor holds two
// thread blocks: about as many as GemmGroups makes for each.
constexpr int ChooseGemmTiling(int rows, int shared_bytes) {
  for (int i = 0; i < kGemmNarrowSizes; ++i) {
    if (rows > kGemmTilings[i].rows()) continue;
    const int two = 2 * (kGemmTilings[i].shared_bytes() + 1024);
    return two <= shared_bytes + 1024 ? i : i + kGemmNarrowSizes;
  }
  // 128 rows a tile where 256 would leave more than half a tile empty.
  const int empty = static_cast<int>(RoundUp(rows, 256)) - rows;
  const bool fits = kGemmTilings[kGemmTile256].shared_bytes() <= shared_bytes;
  return fits && empty < 128 ? kGemmTile256 : kGemmTile128;
}

// A tile of features x rows by wgmma: warpgroups of 64 features each, and one
// that copies. A stage of its ring is 64 k.
struct WideGemmTiling {
  int blocks = 1;  // of 128 features
  int rows = 0;
  int stages = 0;
  int resident = 1;    // thread blocks that a multiprocessor shall hold
  bool whole = false;  // all groups of K, one after the other, and their sum

  static constexpr int kStepK = 64;
  // Two warpgroups compute a block of 128 features.
  static constexpr int kWarpsOfBlock = 8;
  constexpr int threads() const { return 32 * (kWarpsOfBlock * blocks + 4); }
  // Registers of a thread of those that copy, and of the others, where a thread
  // block has a multiprocessor for itself; else all have the same.
  static constexpr int kProducerRegisters = 24;
  constexpr int consumer_registers() const { return blocks == 1 ? 240 : 112; }
  // Stages whose products are under way while the next one's weights are read:
  // that takes registers for both.
  constexpr int pending() const { return resident == 1 && blocks == 1 ? 1 : 0; }
  static constexpr int kBlockBytes = kGemmFeatures * kStepK * 2;  // of weights
  constexpr int stage_bytes() const {
    return blocks * kBlockBytes + rows * kStepK * 2;
  }
  // The stages are followed by two barriers of eight bytes each.
  constexpr int shared_bytes() const { return stages * (stage_bytes() + 16); }
  friend constexpr bool operator==(const WideGemmTiling&,
                                   const WideGemmTiling&) = default;
};

// 256 features for 128 rows, which are read half as often and leave no
// multiprocessor with a second turn; for fewer rows two thread blocks side by
// side were faster (README.md, "Measured").
inline constexpr WideGemmTiling kWideGemmTilings[] = {
    {1, 64, 4, 2}, {1, 72, 4, 2}, {2, 128, 4},
    {1, 192, 5},   {1, 256, 4},   {1, 128, 6, 1, true}};
inline constexpr int kWholeGemmTiling = 5;  // two sums a row leave room for 128
// From this many rows on: fewer take about as long as reading the weights.
inline constexpr int kWideGemmRows = 33;

// Index into kWideGemmTilings: the narrowest with as few tiles as the widest
// needs.
constexpr int ChooseWideGemmTiling(int rows) {
  const auto tiles = [rows](int of) { return (rows + of - 1) / of; };
  int i = 0;
  while (tiles(kWideGemmTilings[i].rows) > tiles(256)) ++i;
  return i;
}

// Whether a product of that many groups over `rows` adds them itself: where its
// thread blocks, without those of the groups, still fill the multiprocessors in
// whole turns.
constexpr bool AddsGroups(int rows, int64_t features, int groups,
                          int multiprocessors) {
  constexpr int kLeastPercent = 85;
  const int of_tile = kWideGemmTilings[kWholeGemmTiling].rows;
  const int64_t blocks =
      (rows + of_tile - 1) / of_tile * (features / kGemmFeatures);
  const int64_t turns = (blocks + multiprocessors - 1) / multiprocessors;
  return groups > 1 && rows > 256 &&
         100 * blocks >= kLeastPercent * turns * multiprocessors;
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_GEMM_INDEX_H_
