// The index arithmetic of the matrix product against the fragments that the PTX
// ISA defines, and against plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "common/infer/cuda/device_engine.h"
#include "common/infer/cuda/kernels/device_status.h"
#include "common/infer/cuda/kernels/engine_shape.h"
#include "common/infer/cuda/kernels/gemm_index.h"

namespace foretoken::device {
namespace {

using ::testing::Each;
using ::testing::Eq;

// Row and column of element `i` (0..7) of a lane's A fragment, and row (k) and
// column of element `i` (0..3) of its B fragment, as the PTX ISA has them for
// mma.m16n8k16.
int ARow(int lane, int i) { return lane / 4 + (i / 2 % 2 == 1 ? 8 : 0); }
int AColumn(int lane, int i) { return lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8); }
int BRow(int lane, int i) { return lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8); }
int BColumn(int lane, int /*i*/) { return lane / 4; }

TEST(KernelIndexGemmTest, EveryWeightHasOnePlaceAndPlacesFillTheMatrix) {
  constexpr int kFeatures = 256, kK = 384;
  std::vector<int> times(kFeatures * kK, 0);
  for (int f = 0; f < kFeatures; ++f) {
    for (int k = 0; k < kK; ++k) ++times[PackedWeight(f, k, kK)];
  }
  EXPECT_THAT(times, Each(Eq(1)));
}

TEST(KernelIndexGemmTest, AStageOfAFeatureBlockIsOnePiece) {
  constexpr int kK = 256;
  for (int f = 128; f < 256; ++f) {
    for (int k = 64; k < 128; ++k) {
      const int64_t stage = (1 * (kK / 32) + 64 / 32) * int64_t{128 * 32};
      const int64_t at = PackedWeight(f, k, kK);
      EXPECT_GE(at, stage);
      EXPECT_LT(at, stage + 128 * 64);
    }
  }
}

// One block of 32 k as a warp reads it: two instructions whose fragments come
// out of 16-byte reads of weights and activations. Each product's k must be the
// same on both sides, each of the 32 once, and rows and features where the
// accumulator says.
TEST(KernelIndexGemmTest, FragmentsOfWeightsAndActivationsMeetAtTheSameK) {
  constexpr int kK = 128, kRows = 256;
  for (int k_block = 0; k_block < kK / 32; ++k_block) {
    for (int tile = 0; tile < kGemmFeatureTiles; ++tile) {
      std::vector<std::set<int>> used(16 * 8);
      for (int k_tile = 0; k_tile < 2; ++k_tile) {
        int a_feature[16][16], a_k[16][16], b_row[16][8], b_k[16][8];
        for (int lane = 0; lane < 32; ++lane) {
          const int64_t fragment =
              (int64_t{k_block} * kGemmFeatureTiles + tile) * 2 + k_tile;
          for (int i = 0; i < 8; ++i) {
            const int64_t at = (fragment * 32 + lane) * 8 + i;
            for (int f = tile * 16; f < tile * 16 + 16; ++f) {
              for (int k = k_block * 32; k < k_block * 32 + 32; ++k) {
                if (PackedWeight(f, k, kK) != at) continue;
                a_feature[ARow(lane, i)][AColumn(lane, i)] = f;
                a_k[ARow(lane, i)][AColumn(lane, i)] = k;
              }
            }
          }
          // Register j of ldmatrix.x4 has the lane's two elements of the row
          // whose address lane 8 j + its row gave; the instruction gets
          // registers 0, 1 or 2, 3 of them.
          for (int i = 0; i < 4; ++i) {
            const int place =
                ActivationPlace((k_tile * 2 + i / 2) * 8 + lane / 4) / 2;
            const int64_t at =
                int64_t{k_block} * kRows * 32 + place + lane % 4 * 2 + i % 2;
            for (int r = 0; r < 8; ++r) {
              for (int k = k_block * 32; k < k_block * 32 + 32; ++k) {
                if (ActivationAt(r, k, kRows) != at) continue;
                b_row[BRow(lane, i)][BColumn(lane, i)] = r;
                b_k[BRow(lane, i)][BColumn(lane, i)] = k;
              }
            }
          }
        }
        for (int m = 0; m < 16; ++m) {
          for (int n = 0; n < 8; ++n) {
            for (int k = 0; k < 16; ++k) {
              ASSERT_EQ(a_k[m][k], b_k[k][n]);
              ASSERT_EQ(a_feature[m][k], tile * 16 + m);
              ASSERT_EQ(b_row[k][n], n);
              ASSERT_TRUE(used[m * 8 + n].insert(a_k[m][k]).second);
            }
          }
        }
      }
      for (const auto& of_output : used) ASSERT_EQ(of_output.size(), 32u);
    }
  }
}

// The 64-byte swizzle of wgmma's B: address bits 4 and 5 are exchanged by bits
// 7 and 8.
TEST(KernelIndexGemmTest, ActivationsLieAsTheSwizzleHasThem) {
  constexpr int kRows = 256;
  for (int row = 0; row < 24; ++row) {
    for (int k = 0; k < 64; ++k) {
      const int plain = (k / 32 * kRows + row) * 64 + k % 32 * 2;
      EXPECT_EQ(ActivationAt(row, k, kRows) * 2, plain ^ (plain >> 7 & 3) << 4);
    }
  }
}

TEST(KernelIndexGemmTest, AccumulatorsCoverATileOnce) {
  int times[16][8] = {};
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      ++times[AccumulatorFeature(lane, i)][AccumulatorRow(lane, i)];
    }
  }
  for (const auto& feature : times) EXPECT_THAT(feature, Each(Eq(1)));
}

TEST(KernelIndexGemmTest, GateAndUpOfAFeatureShareALanesAccumulator) {
  std::set<int64_t> seen;
  for (int f = 0; f < 200; ++f) {
    const int64_t gate = PackedFeature(1, 0, f), up = PackedFeature(2, 0, f);
    EXPECT_TRUE(seen.insert(gate).second);
    EXPECT_TRUE(seen.insert(up).second);
    EXPECT_EQ(gate / 16, up / 16);
    EXPECT_EQ(up, gate + 8);
    // The epilogue's way back: tile * 8 + row of the accumulator.
    EXPECT_EQ(gate / 16 * 8 + gate % 16, f);
  }
}

TEST(KernelIndexGemmTest, ActivationsHaveOnePlaceEach) {
  constexpr int kRows = 256, kK = 128;
  std::vector<int> times(kRows * kK, 0);
  for (int r = 0; r < kRows; ++r) {
    for (int k = 0; k < kK; ++k) ++times[ActivationAt(r, k, kRows)];
  }
  EXPECT_THAT(times, Each(Eq(1)));
}

TEST(KernelIndexGemmTest, GroupsCoverKInWholeStepsAndDependOnTheMatrixAlone) {
  for (const int features : {1, 100, 2048, 4096, 6144, 28672, 128256}) {
    for (const int k : {1, 64, 100, 576, 2048, 4096, 11008, 14336}) {
      const int64_t padded_k = PaddedK(k);
      const int64_t steps = padded_k / kGemmKStep;
      const int groups = GemmGroups(PaddedFeatures(features), padded_k);
      ASSERT_GE(groups, 1);
      ASSERT_LE(groups, kGemmMaxGroups);
      ASSERT_EQ(GroupBegin(steps, groups, 0), 0);
      ASSERT_EQ(GroupBegin(steps, groups, groups), steps);
      for (int g = 0; g < groups; ++g) {
        ASSERT_LT(GroupBegin(steps, groups, g),
                  GroupBegin(steps, groups, g + 1));
      }
    }
  }
}

// Dynamic shared memory of a thread block: 8.6, 8.9 and 12.0; 8.0; 9.0.
constexpr int kSmall = 99 << 10, kAmpere = 163 << 10, kHopper = 227 << 10;

TEST(KernelIndexGemmTest, TilesOfRowsFitBuffersAndDeviceForEveryRowCount) {
  for (const int shared : {kSmall, kAmpere, kHopper}) {
    for (int rows = 1; rows <= 4096; ++rows) {
      const GemmTiling& tiling = kGemmTilings[ChooseGemmTiling(rows, shared)];
      const int64_t tiles = RoundUp(rows, tiling.rows()) / tiling.rows();
      // No tile begins past the rows or ends past the buffer.
      ASSERT_LT((tiles - 1) * tiling.rows(), rows);
      ASSERT_LE(tiles * tiling.rows(), RoundUp(rows, kGemmRowPad));
      ASSERT_LE(tiling.shared_bytes(), shared) << rows;
    }
  }
}

TEST(KernelIndexGemmTest, EveryTilingIsChosenSomewhere) {
  std::set<int> chosen;
  for (const int shared : {kSmall, kAmpere, kHopper}) {
    for (int rows = 1; rows <= 512; ++rows) {
      chosen.insert(ChooseGemmTiling(rows, shared));
    }
  }
  EXPECT_EQ(chosen.size(), std::size(kGemmTilings));
}

// 64 draft nodes and their root are one tile, on every device.
TEST(KernelIndexGemmTest, ATreeOf64NodesAndItsRootAreOneTile) {
  for (const int shared : {kSmall, kAmpere, kHopper}) {
    EXPECT_EQ(kGemmTilings[ChooseGemmTiling(64, shared)].rows(), 64);
    EXPECT_EQ(kGemmTilings[ChooseGemmTiling(65, shared)].rows(), 72);
    EXPECT_EQ(kGemmTilings[ChooseGemmTiling(73, shared)].rows(), 128);
  }
}

// A multiprocessor of a Hopper GPU streams 40 KiB or more of weights at any
// time, also where it holds one block alone up to 72 rows.
TEST(KernelIndexGemmTest, TilesOfAHopperGpuHaveEnoughWeightsUnderWay) {
  for (int rows = 1; rows <= 512; ++rows) {
    const GemmTiling& tiling = kGemmTilings[ChooseGemmTiling(rows, kHopper)];
    const int resident = ResidentBlocks(tiling.shared_bytes());
    EXPECT_EQ(resident, tiling.rows() == 256 ? 1 : 2) << rows;
    EXPECT_GE(tiling.bytes_ahead(), (rows <= 72 ? 56 : 40) << 10) << rows;
  }
  EXPECT_EQ(kGemmTilings[ChooseGemmTiling(64, kHopper)].shared_bytes(), 98'304);
  EXPECT_EQ(kGemmTilings[kGemmTile128].shared_bytes(), 98'304);
}

TEST(KernelIndexGemmTest, WideTilesFitBuffersAndHaveAsFewAsTheWidest) {
  std::set<int> chosen;
  for (int rows = 1; rows <= 4096; ++rows) {
    const int index = ChooseWideGemmTiling(rows);
    const WideGemmTiling& tiling = kWideGemmTilings[index];
    chosen.insert(index);
    const int64_t tiles = RoundUp(rows, tiling.rows) / tiling.rows;
    ASSERT_EQ(tiles, RoundUp(rows, 256) / 256) << rows;
    ASSERT_LE(tiles * tiling.rows, RoundUp(rows, kGemmRowPad)) << rows;
    ASSERT_LE(tiling.shared_bytes(), kHopper);
    ASSERT_GE(ResidentBlocks(tiling.shared_bytes()), tiling.resident);
    // Eight rows of a tile begin where the swizzle does.
    ASSERT_EQ(tiling.rows % 8, 0);
    ASSERT_EQ(tiling.stage_bytes() % 512, 0);
  }
  EXPECT_EQ(chosen.size(), std::size(kWideGemmTilings) - 1);  // all groups
  EXPECT_EQ(kWideGemmTilings[ChooseWideGemmTiling(65)].rows, 72);
  EXPECT_EQ(kWideGemmTilings[ChooseWideGemmTiling(320)].rows, 192);
}

// With the 132 multiprocessors of an H200: all products of an 8B model's layers
// that have groups, over a long prompt; over 512 rows only those with enough
// thread blocks.
TEST(KernelIndexGemmTest, GroupsAreAddedInPlaceWhereTheDeviceStaysFull) {
  EXPECT_TRUE(AddsGroups(2048, 6144, 5, 132));
  EXPECT_TRUE(AddsGroups(2048, 4096, 8, 132));
  EXPECT_TRUE(AddsGroups(512, 4096, 8, 132));
  EXPECT_FALSE(AddsGroups(512, 6144, 5, 132));
  EXPECT_FALSE(AddsGroups(256, 4096, 8, 132));
  EXPECT_FALSE(AddsGroups(2048, 28672, 1, 132));
}

TEST(KernelIndexGemmTest, TwoShallowBlocksFitAMultiprocessorOfAnyDevice) {
  for (int i = kGemmNarrowSizes; i < 2 * kGemmNarrowSizes; ++i) {
    EXPECT_LE(kGemmTilings[i].shared_bytes(), kGemmShallowBytes);
    EXPECT_LE(2 * (kGemmTilings[i].shared_bytes() + 1024), 100 << 10);
    EXPECT_EQ(kGemmTilings[i].rows(),
              kGemmTilings[i - kGemmNarrowSizes].rows());
  }
}

TEST(KernelIndexGemmTest, SizesOfALargeModelStayInside64Bits) {
  DeviceShape shape;
  shape.d_model = 8192;
  shape.layers = 80;
  shape.heads = 64;
  shape.kv_heads = 8;
  shape.head_dim = 128;
  shape.d_ff = 28672;
  shape.vocab = 128256;
  shape.max_positions = 131072;
  EngineShape sizes;
  ASSERT_TRUE(EngineShape::Create(shape, DeviceOptions(), &sizes).ok());
  EXPECT_EQ(sizes.qkv.features, 10240);
  EXPECT_EQ(sizes.gate_up.features, 57344);
  EXPECT_EQ(sizes.page_bytes(), int64_t{2} * 2 * 80 * 8 * 32 * 128);
  EXPECT_EQ(sizes.weight_bytes(),
            2 * (int64_t{80} * 8192 * (10240 + 8192 + 57344 + 28672) +
                 int64_t{128256} * 8192));
}

TEST(KernelIndexGemmTest, ShapesWithoutKernelsAreRefusedByName) {
  DeviceShape shape;
  shape.d_model = shape.d_ff = shape.vocab = 64;
  shape.layers = shape.heads = shape.kv_heads = 1;
  shape.head_dim = 64;
  shape.max_positions = 128;
  EngineShape sizes;
  ASSERT_TRUE(EngineShape::Create(shape, DeviceOptions(), &sizes).ok());
  shape.head_dim = 320;
  DeviceStatus status = EngineShape::Create(shape, DeviceOptions(), &sizes);
  EXPECT_EQ(status.code, kUnimplemented);
  EXPECT_STREQ(status.message, "head_dim 320 has no GPU kernel");
  shape.head_dim = 64;
  DeviceOptions options;
  options.max_rows = 1 << 16;
  status = EngineShape::Create(shape, options, &sizes);
  EXPECT_EQ(status.code, kInvalidArgument);
  EXPECT_STREQ(status.message, "max_rows 65536 is out of bounds");
}

TEST(KernelIndexGemmTest, KvMemoryLeavesHalfToOthersUnlessASessionNeedsIt) {
  DeviceShape model;
  model.d_model = model.d_ff = model.vocab = 64;
  model.layers = model.heads = model.kv_heads = 1;
  model.head_dim = 64;
  model.max_positions = 1 << 20;
  DeviceOptions options;
  EngineShape shape;
  ASSERT_TRUE(EngineShape::Create(model, options, &shape).ok());
  const int64_t page = shape.page_bytes(), gib = int64_t{1} << 30;
  const int64_t scratch = shape.scratch_pages;
  EXPECT_EQ(shape.DefaultPages(10 * gib, options), 5 * gib / page - scratch);
  // The reserve.
  EXPECT_EQ(shape.DefaultPages(gib + 100 * page, options), 100 - scratch);
  EXPECT_LT(shape.DefaultPages(gib, options), 1);
  options.max_pages = 1000;
  EXPECT_EQ(shape.DefaultPages(10 * gib, options), 1000);
  options.min_pages = 2000;
  EXPECT_EQ(shape.DefaultPages(10 * gib, options), 2000);
  // More than half, and what does not fit is not asked for.
  options.min_pages = 7 * gib / page;
  EXPECT_EQ(shape.DefaultPages(10 * gib, options), 7 * gib / page);
  options.min_pages = 11 * gib / page;
  EXPECT_EQ(shape.DefaultPages(10 * gib, options), 9 * gib / page - scratch);
}

}  // namespace
}  // namespace foretoken::device
