// The index arithmetic of attention: chunks, KV memory, what a warp keeps in
// shared memory, and how lanes share a block of keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "common/infer/cuda/kernels/attention_index.h"
#include "common/infer/cuda/kernels/engine_shape.h"
#include "common/infer/cuda/kernels/gemm_index.h"

namespace foretoken::device {
namespace {

using ::testing::Each;
using ::testing::Eq;

TEST(KernelIndexAttentionTest, ChunksFollowEachOtherFromPositionZero) {
  EXPECT_EQ(ChunkBegin(0), 0);
  constexpr int kBlocks = (1 << 24) / kDevicePageTokens;
  int chunk = 0;
  for (int block = 0; block < kBlocks; ++block) {
    if (block == ChunkBegin(chunk + 1)) ++chunk;
    ASSERT_EQ(ChunkOfBlock(block), chunk) << block;
    ASSERT_LT(block, ChunkBegin(chunk + 1));
  }
  EXPECT_EQ(ChunkCount(1), 1);
  EXPECT_EQ(ChunkCount(16), 4);     // 512 positions
  EXPECT_EQ(ChunkCount(256), 48);   // 8,192
  EXPECT_EQ(ChunkCount(4096), 112);  // 131,072
}

TEST(KernelIndexAttentionTest, EveryVectorOfKvHasOnePlace) {
  const KvShape kv = {3, 2, 32};
  std::set<int64_t> seen;
  for (int layer = 0; layer < 2; ++layer) {
    for (int slot = 0; slot < 3 * kDevicePageTokens; ++slot) {
      for (int head = 0; head < 2; ++head) {
        const int64_t at = KvAt(kv, layer, slot, head);
        ASSERT_EQ(at % 32, 0);
        ASSERT_LT(at, int64_t{2} * 3 * 2 * 32 * 32);
        ASSERT_TRUE(seen.insert(at).second);
      }
    }
  }
}

TEST(KernelIndexAttentionTest, KvPlacesDoNotOverflow) {
  const KvShape kv = {60'000'000, 8, 128};
  const int64_t at =
      KvAt(kv, 79, int64_t{60'000'000} * kDevicePageTokens - 1, 7);
  EXPECT_EQ(at, int64_t{80} * 60'000'000 * 8 * 32 * 128 - 128);
}

class SharedBlockTest : public ::testing::TestWithParam<int> {};

TEST_P(SharedBlockTest, UnitsOfABlockHaveOnePlaceEachInsideIt) {
  const int dim = GetParam();
  const int size = 32 * RowUnits(dim);
  std::set<int> seen;
  for (int row = 0; row < 32; ++row) {
    for (int unit = 0; unit < dim / 8; ++unit) {
      const int at = UnitAt(row, unit, dim);
      ASSERT_GE(at, 0);
      ASSERT_LT(at, size);
      ASSERT_TRUE(seen.insert(at).second);
    }
  }
}

// Eight lanes at a time move 16 bytes each; they take 32 banks of 4 bytes once
// if their units differ modulo 8.
TEST_P(SharedBlockTest, ReadsDoNotMeetInABank) {
  const int dim = GetParam();
  for (int kb = 0; kb < dim / 32; ++kb) {
    for (int n = 0; n < 4; ++n) {
      for (int phase = 0; phase < 4; ++phase) {
        std::set<int> banks;
        for (int lane = phase * 8; lane < phase * 8 + 8; ++lane) {
          banks.insert(UnitAt(n * 8 + lane / 4, kb * 4 + lane % 4, dim) % 8);
        }
        ASSERT_EQ(banks.size(), 8u) << "K";
      }
    }
  }
  for (int unit = 0; unit < dim / 8; unit += 2) {
    for (int tile = 0; tile < 2; ++tile) {
      for (int phase = 0; phase < 4; ++phase) {
        std::set<int> banks;
        for (int lane = phase * 8; lane < phase * 8 + 8; ++lane) {
          banks.insert(
              UnitAt(ValueRow(lane, tile), ValueUnit(lane, unit), dim) % 8);
        }
        ASSERT_EQ(banks.size(), 8u) << "V";
      }
    }
  }
}

TEST_P(SharedBlockTest, AWarpsCopiesCoverABlockOnce) {
  const int units = GetParam() / 8;
  std::vector<int> times(32 * units, 0);
  for (int i = 0; i < units; ++i) {
    for (int lane = 0; lane < 32; ++lane) {
      const int index = i * 32 + lane;
      ASSERT_LT(index / units, 32);
      ++times[index / units * units + index % units];
    }
  }
  EXPECT_THAT(times, Each(Eq(1)));
}

TEST_P(SharedBlockTest, PlacesOfALaneAndConstantsAreThoseOfTheUnits) {
  const int dim = GetParam();
  for (int lane = 0; lane < 32; ++lane) {
    for (int kb = 0; kb < dim / 32; ++kb) {
      for (int n = 0; n < 4; ++n) {
        ASSERT_EQ(KeyPlace(lane, kb % 2, dim) + KeyOffset(n, kb, dim),
                  UnitAt(n * 8 + lane / 4, kb * 4 + lane % 4, dim));
      }
    }
    for (int unit = 0; unit < dim / 8; unit += 2) {
      for (int tile = 0; tile < 2; ++tile) {
        ASSERT_EQ(
            ValuePlace(lane, unit % 8, dim) + ValueOffset(tile, unit, dim),
            UnitAt(ValueRow(lane, tile), ValueUnit(lane, unit), dim));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, SharedBlockTest,
                         ::testing::Values(32, 64, 96, 128, 256));

TEST(KernelIndexAttentionTest, HeadDimsHaveAKernelThatHoldsThem) {
  for (int dim = 2; dim <= kMaxHeadDim; dim += 2) {
    const int padded = PaddedHeadDim(dim);
    ASSERT_GE(padded, dim);
    ASSERT_TRUE(padded == 32 || padded == 64 || padded == 96 || padded == 128 ||
                padded == 256);
  }
}

// A fragment of a query (A) and of keys (B, read as 16 bytes of a key's row)
// must meet at the same dimension.
TEST(KernelIndexAttentionTest, QueriesAndKeysMeetAtTheSameDimension) {
  for (int tile = 0; tile < 2; ++tile) {
    int a_dim[16][16], b_dim[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      for (int reg = 0; reg < 4; ++reg) {
        for (int j = 0; j < 2; ++j) {
          const int row = lane / 4 + (reg % 2 == 1 ? 8 : 0);
          const int column = lane % 4 * 2 + j + (reg < 2 ? 0 : 8);
          EXPECT_EQ(lane / 4 + FragmentUpper(reg) * 8, row);
          a_dim[row][column] = lane % 4 * 8 + FragmentElement(tile, reg) + j;
        }
      }
      for (int i = 0; i < 4; ++i) {
        const int k = lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8);
        b_dim[k][lane / 4] = lane % 4 * 8 + tile * 4 + i;
      }
    }
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < 16; ++k) {
        for (int n = 0; n < 8; ++n) ASSERT_EQ(a_dim[row][k], b_dim[k][n]);
      }
    }
  }
}

// Scores leave as accumulators and come back as fragments of weights: register
// `reg` of key tile kt takes accumulators of tile 2 kt + reg / 2.
TEST(KernelIndexAttentionTest, WeightsComeBackForTheirOwnKeyAndQuery) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int kt = 0; kt < 2; ++kt) {
      for (int reg = 0; reg < 4; ++reg) {
        for (int j = 0; j < 2; ++j) {
          const int n = kt * 2 + reg / 2;
          const int i = FragmentUpper(reg) * 2 + j;
          EXPECT_EQ(ScoreQuery(lane, i), lane / 4 + (reg % 2 == 1 ? 8 : 0));
          EXPECT_EQ(ScoreKey(lane, n, i),
                    kt * 16 + lane % 4 * 2 + j + (reg < 2 ? 0 : 8));
        }
      }
    }
  }
}

TEST(KernelIndexAttentionTest, ValueFragmentsAreTheKeysAndUnitsAskedFor) {
  for (int unit = 0; unit < 4; unit += 2) {
    for (int tile = 0; tile < 2; ++tile) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        for (int r = 0; r < 8; ++r) {
          const int lane = matrix * 8 + r;
          EXPECT_EQ(ValueRow(lane, tile), tile * 16 + matrix % 2 * 8 + r);
          EXPECT_EQ(ValueUnit(lane, unit), unit + matrix / 2);
        }
      }
    }
  }
}

TEST(KernelIndexAttentionTest, TasksCoverEveryQueryAndSpanAtMostSixteenRows) {
  for (const int group : {1, 2, 3, 4, 7, 8, 16, 24, 40}) {
    for (const int rows : {1, 2, 3, 8, 17, 64, 320}) {
      int next = 0;
      for (int t = 0; t < TaskCount(rows, group); ++t) {
        const int first = t * kTaskQueries;
        const int end = std::min(first + kTaskQueries, rows * group);
        ASSERT_EQ(first, next);
        ASSERT_LT(first, end);
        ASSERT_LE((end - 1) / group - first / group + 1, 16);
        next = end;
      }
      ASSERT_EQ(next, rows * group);
    }
  }
}

// A large model's shape, as far as attention's memory goes.
EngineShape ShapeOf(int kv_heads, int group, int head_dim, int positions,
                    int64_t bytes = DeviceOptions().attention_bytes) {
  DeviceShape shape;
  shape.d_model = shape.d_ff = shape.vocab = 64;
  shape.layers = 1;
  shape.kv_heads = kv_heads;
  shape.heads = kv_heads * group;
  shape.head_dim = head_dim;
  shape.max_positions = positions;
  DeviceOptions options;
  options.attention_bytes = bytes;
  EngineShape sizes;
  EXPECT_TRUE(EngineShape::Create(shape, options, &sizes).ok());
  return sizes;
}

TEST(KernelIndexAttentionTest, SlabsArePowersOfTwoThatFitForAnyChunks) {
  for (const int kv_heads : {1, 3, 8, 32}) {
    for (const int group : {1, 3, 4, 7}) {
      for (const int head_dim : {64, 128, 256}) {
        for (const int positions : {256, 4096, 8192, 131072}) {
          for (const int64_t bytes : {int64_t{1}, int64_t{128} << 20}) {
            const EngineShape s =
                ShapeOf(kv_heads, group, head_dim, positions, bytes);
            int last = 1 << 30;
            for (int chunks = 1; chunks <= s.max_chunks; ++chunks) {
              const int slab = s.SlabQueries(chunks);
              ASSERT_GE(slab, 128);
              ASSERT_EQ(slab & (slab - 1), 0);
              ASSERT_LE(slab, last);
              ASSERT_LE(PartialAt(slab + kSlabMargin - 1, kv_heads - 1,
                                  chunks - 1, kv_heads, chunks),
                        s.partial_vectors - 1);
              last = slab;
            }
          }
        }
      }
    }
  }
}

// 8B at its full 8,192 positions: 32 sessions of 8 rows in one slab, and 512
// rows of prefill in two, in one where the context is half as long.
TEST(KernelIndexAttentionTest, ThirtyTwoSessionsOfEightRowsAreOneSlab) {
  const EngineShape s = ShapeOf(8, 4, 128, 8192);
  ASSERT_EQ(s.max_chunks, 48);
  EXPECT_GE(s.SlabQueries(48), 32 * 8 * 4);
  EXPECT_EQ(s.SlabQueries(48), 1024);
  EXPECT_EQ(s.SlabQueries(16), 2048);
  EXPECT_EQ(s.SlabQueries(1), 2048);
}

TEST(KernelIndexAttentionTest, EveryQueryIsMergedByTheSlabOfItsTask) {
  constexpr int kGroup = 3;
  // Rows of the sessions of a pass.
  const std::vector<int> sessions = {5, 1, 60, 1, 1, 40, 17};
  int session_query = 0, queries = 0;
  for (const int rows : sessions) queries += rows * kGroup;
  std::vector<int> times(queries, 0);
  for (const int rows : sessions) {
    for (int q = 0; q < rows * kGroup; ++q) {
      const int query = session_query + q;
      const int task = TaskBegin(query, session_query);
      EXPECT_EQ(task, session_query + q / kTaskQueries * kTaskQueries);
      for (int first = 0; first < queries; first += 128) {
        if (task < first || task - first >= 128) continue;
        ++times[query];
        EXPECT_LT(query - first, 128 + kSlabMargin);
      }
    }
    session_query += rows * kGroup;
  }
  EXPECT_THAT(times, Each(Eq(1)));
}

TEST(KernelIndexAttentionTest, AGridHasAWarpForEveryTaskOrFillsTheDevice) {
  for (const int rows : {1, 8, 32, 64, 320}) {
    for (const int group : {1, 4, 7, 20}) {
      for (const int chunks : {1, 8, 32, 64}) {
        const int warps = AttentionTaskWarps(rows, group, 8, chunks);
        EXPECT_GE(warps, TaskCount(rows, group));
        EXPECT_LE(warps, rows * TaskCount(1, group));
        if (warps < rows * TaskCount(1, group) &&
            warps > TaskCount(rows, group)) {
          EXPECT_GT((warps + 1) * 8 * chunks, kAttentionWarps);
        }
      }
    }
  }
}

TEST(KernelIndexAttentionTest, TilingsFitTheDevice) {
  constexpr int kSmall = 99 << 10, kAmpere = 163 << 10, kHopper = 227 << 10;
  for (const int dim : {32, 64, 96, 128, 256}) {
    for (const int tasks : {1, 2, kWideTasks}) {
      for (const int shared : {kSmall, kAmpere, kHopper}) {
        const AttentionTiling tiling =
            ChooseAttentionTiling(tasks, dim, shared);
        EXPECT_LE(AttentionSharedBytes(tiling, dim), shared)
            << dim << " " << tasks << " " << shared;
        EXPECT_GE(tiling.stages, 2);
      }
    }
  }
  EXPECT_EQ(ChooseAttentionTiling(1, 128, kHopper), NarrowAttention(128));
  EXPECT_EQ(ChooseAttentionTiling(2, 128, kHopper), PairAttention(128));
  EXPECT_EQ(ChooseAttentionTiling(3, 128, kHopper), WideAttention(128));
  EXPECT_EQ(ChooseAttentionTiling(9, 128, kSmall), WideAttention(128));
  EXPECT_EQ(ChooseAttentionTiling(9, 256, kSmall), WideAttention(256));
  // Three narrow blocks of 48 KiB under way each, four pairs of 32, two wide.
  EXPECT_EQ(AttentionSharedBytes(NarrowAttention(128), 128), 69'632);
  EXPECT_EQ(AttentionResident(NarrowAttention(128), 128), 3);
  EXPECT_EQ(AttentionResident(PairAttention(128), 128), 4);
  EXPECT_EQ(AttentionResident(WideAttention(128), 128), 2);
}

TEST(KernelIndexAttentionTest, PartialResultsHaveOnePlaceEach) {
  constexpr int kQueries = 40, kHeads = 3, kChunks = 5;
  std::vector<int> times(kQueries * kHeads * kChunks, 0);
  for (int q = 0; q < kQueries; ++q) {
    for (int h = 0; h < kHeads; ++h) {
      for (int c = 0; c < kChunks; ++c) {
        ++times[PartialAt(q, h, c, kHeads, kChunks)];
      }
    }
  }
  EXPECT_THAT(times, Each(Eq(1)));
}

}  // namespace
}  // namespace foretoken::device
