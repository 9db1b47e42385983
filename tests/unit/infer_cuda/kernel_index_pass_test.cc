// A pass in one piece of memory, its checks, and the tiers of its graphs.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "common/infer/cuda/kernels/pass_layout.h"
#include "common/infer/cuda/kernels/pass_tier.h"

namespace foretoken::device {
namespace {

template <typename T>
DeviceSpan<T> Span(const std::vector<T>& values) {
  return {values.data(), static_cast<int32_t>(values.size())};
}

// Two sessions: three rows after a page and two keys; one row alone.
struct TestPass {
  TestPass() {
    shape.d_model = shape.d_ff = 64;
    shape.layers = 1;
    shape.heads = 6;
    shape.kv_heads = 2;
    shape.head_dim = 32;
    shape.vocab = 100;
    shape.max_positions = 256;
    options.max_rows = 8;
    options.max_sessions = 4;
    EXPECT_TRUE(EngineShape::Create(shape, options, &engine).ok());
    rows = {{1, 34, 0, 0, 1, 3, -1, 0},
            {2, 35, 0, 1, 1, 4, 0, 1},
            {3, 35, 0, 2, 1, 4, 0, -1},
            {4, 0, 1, 3, 1, 1, -1, 2}};
    sessions = {{0, 1, 0, 3, 0, 2, 0}, {1, 0, 3, 1, 2, 0, -1}};
    pages = {2};
    row_tiles = {0, 0, 1, 2};
    tiles.resize(3);
    for (DeviceTile& tile : tiles) {
      for (int32_t& slot : tile.slots) slot = -1;
      tile.slots[0] = 96;
    }
    outputs = {{0, 35, 0, 1, 0, 0}, {1, 36, 0, 0, 0, 1}, {3, 1, 0, 0, 0, 0}};
    samplings.resize(1);
    samplings[0].count_begin = 1;
    samplings[0].counts = 2;
    samplings[0].biases = 1;
    counts = {{7, 1}, {8, 2}, {9, 0}};
    biases = {{5, 1.0f}};
    commit_slots = {64, 65};
  }

  DevicePass Get() const {
    DevicePass pass;
    pass.rows = Span(rows);
    pass.sessions = Span(sessions);
    pass.pages = Span(pages);
    pass.row_tiles = Span(row_tiles);
    pass.tiles = Span(tiles);
    pass.outputs = Span(outputs);
    pass.samplings = Span(samplings);
    pass.counts = Span(counts);
    pass.biases = Span(biases);
    pass.commit_slots = Span(commit_slots);
    return pass;
  }
  DeviceStatus Check() const { return CheckPass(Get(), engine, 3); }

  DeviceShape shape;
  DeviceOptions options;
  EngineShape engine;
  std::vector<DeviceRow> rows;
  std::vector<DeviceSession> sessions;
  std::vector<int32_t> pages, row_tiles, commit_slots;
  std::vector<DeviceTile> tiles;
  std::vector<DeviceOutput> outputs;
  std::vector<DeviceSampling> samplings;
  std::vector<DeviceCount> counts;
  std::vector<DeviceBias> biases;
};

TEST(KernelIndexPassTest, APassComesOutOfItsBufferAsItWentIn) {
  const TestPass test;
  ASSERT_TRUE(test.Check().ok()) << test.Check().message;
  const DevicePass pass = test.Get();
  const PassLayout layout(pass, test.engine);
  std::vector<uint64_t> buffer((layout.bytes + 7) / 8, 0xabababababababab);
  layout.Write(pass, test.engine, buffer.data());
  const auto* header = reinterpret_cast<const PassHeader*>(buffer.data());

  EXPECT_EQ(header->rows, 4);
  EXPECT_EQ(header->queries, 12);
  EXPECT_EQ(header->row()[1].position, 35);
  EXPECT_EQ(header->session()[0].page_count, 1);
  EXPECT_EQ(header->page()[0], 2);
  EXPECT_EQ(header->row_tile()[2], 1);
  EXPECT_EQ(header->tile()[2].slots[0], 96);
  EXPECT_EQ(header->output()[2].row, 3);
  EXPECT_EQ(header->sampling()[0].counts, 2);
  EXPECT_EQ(header->count()[2].token, 9);
  EXPECT_EQ(header->bias()[0].token, 5);
  EXPECT_EQ(header->commit_slot()[1], 65);
  // Group of 3: nine queries and three.
  ASSERT_EQ(header->tasks, 2);
  EXPECT_EQ(header->task()[0].first_query, 0);
  EXPECT_EQ(header->task()[1].session, 1);
  EXPECT_EQ(header->task()[1].global_query, 9);
  // Saved logits: counts of the path, bans, counts and bias of the session.
  EXPECT_EQ(header->saved()[0], 0);
  EXPECT_EQ(header->saved()[1], 1 + 2 + 1);
  EXPECT_EQ(header->saved()[2], 4 + 1 + 2 + 1);
  EXPECT_EQ(layout.saved_logits, 8);
  EXPECT_EQ(layout.header.chunks, 1);
}

TEST(KernelIndexPassTest, CommitSlotsThatNoSessionHasAreLeftOut) {
  TestPass test;
  test.commit_slots = {64, 65, 66, 67};
  test.sessions[0].commit_begin = 1;
  test.sessions[0].commit_count = 1;
  test.sessions[1].commit_begin = 3;
  test.sessions[1].commit_count = 1;
  ASSERT_TRUE(test.Check().ok());
  const PassLayout layout(test.Get(), test.engine);
  std::vector<uint64_t> buffer((layout.bytes + 7) / 8);
  layout.Write(test.Get(), test.engine, buffer.data());
  const auto* header = reinterpret_cast<const PassHeader*>(buffer.data());
  EXPECT_EQ(header->commits, 2);
  EXPECT_EQ(header->session()[1].commit_begin, 1);
  EXPECT_EQ(header->commit_slot()[0], 65);
  EXPECT_EQ(header->commit_slot()[1], 67);
}

TEST(KernelIndexPassTest, ArraysLieInsideTheBufferAlignedAndApart) {
  const TestPass test;
  const PassLayout layout(test.Get(), test.engine);
  const PassHeader& h = layout.header;
  const int64_t places[] = {h.rows_at,         h.sessions_at, h.pages_at,
                            h.row_tiles_at,    h.tiles_at,    h.outputs_at,
                            h.samplings_at,    h.counts_at,   h.biases_at,
                            h.commit_slots_at, h.tasks_at,    h.saved_at};
  int64_t last = sizeof(PassHeader) - 1;
  for (const int64_t place : places) {
    EXPECT_EQ(place % 16, 0);
    EXPECT_GT(place, last);
    EXPECT_LT(place, layout.bytes);
    last = place;
  }
}

TEST(KernelIndexPassTest, AnEmptyPassHasALayout) {
  const TestPass test;
  const DevicePass pass;
  ASSERT_TRUE(CheckPass(pass, test.engine, 3).ok());
  const PassLayout layout(pass, test.engine);
  EXPECT_EQ(layout.header.tasks, 0);
  EXPECT_GE(layout.bytes, static_cast<int64_t>(sizeof(PassHeader)));
}

TEST(KernelIndexPassTest, WhatPointsOutsideIsRefused) {
  const auto refused = [](auto change) {
    TestPass test;
    change(test);
    const DeviceStatus status = test.Check();
    EXPECT_EQ(status.code, 3) << status.message;
  };
  refused([](TestPass& t) { t.rows[0].token = 100; });
  refused([](TestPass& t) { t.rows[0].position = 256; });
  refused([](TestPass& t) { t.rows[1].session = 2; });
  refused([](TestPass& t) { t.rows[1].session = 1; });
  refused([](TestPass& t) { t.rows[1].parent = 1; });
  refused([](TestPass& t) { t.rows[3].parent = 0; });  // another session's
  refused([](TestPass& t) { t.rows[1].tile_begin = 4; });
  refused([](TestPass& t) { t.rows[1].tile_count = 0; });
  refused([](TestPass& t) { t.rows[1].last_keys = 33; });
  refused([](TestPass& t) { t.rows[2].output = 0; });
  refused([](TestPass& t) { t.sessions[0].page_count = 2; });
  refused([](TestPass& t) { t.sessions[0].rows = 4; });
  refused([](TestPass& t) { t.sessions[0].commit_count = 3; });
  refused([](TestPass& t) {
    t.sessions[1].commit_begin = 0;
    t.sessions[1].commit_count = 1;
  });
  refused([](TestPass& t) { t.sessions[0].sampling = 1; });
  refused([](TestPass& t) { t.pages[0] = 3; });
  refused([](TestPass& t) { t.row_tiles[0] = 3; });
  refused([](TestPass& t) { t.tiles[1].slots[5] = 100; });
  refused([](TestPass& t) { t.tiles[1].slots[5] = -2; });
  refused([](TestPass& t) { t.outputs[0].counts = 4; });
  refused([](TestPass& t) { t.outputs[1].row = 0; });
  refused([](TestPass& t) { t.samplings[0].biases = 2; });
  refused([](TestPass& t) { t.counts[0].token = -1; });
  refused([](TestPass& t) { t.biases[0].token = 100; });
  refused([](TestPass& t) { t.commit_slots[0] = 96; });  // scratch
}

// What a server's passes can be, at most, and what one session's decoding is:
// rounds of 1 to 65 rows and a context that grows to 8,192.
TEST(KernelIndexPassTest, PassesHaveFewTiers) {
  const auto count = [](int most_rows, bool all_outputs, int group) {
    std::set<PassSizes> tiers;
    for (int rows = 1; rows <= most_rows; ++rows) {
      for (int outputs = all_outputs ? rows : 0; outputs <= rows; ++outputs) {
        for (int chunks = 1; chunks <= 32; ++chunks) {
          // With all outputs, the pass is one session's, and so are its tasks.
          const int most = std::min(TaskCount(rows, group), kWideTasks);
          for (int tasks = all_outputs ? most : 1; tasks <= most; ++tasks) {
            tiers.insert(TierOf({rows, outputs, chunks, tasks}, 32));
          }
        }
      }
    }
    return tiers.size();
  };
  EXPECT_EQ(count(65, true, 4), 54u);
  EXPECT_EQ(count(kLastRowTier, false, 4), 912u);
  for (const int group : {1, 3, 7, 16, 32}) {
    EXPECT_LE(count(65, true, group), 66u) << group;
    EXPECT_LE(count(kLastRowTier, false, group), 1026u) << group;
  }
}

TEST(KernelIndexPassTest, TiersHoldWhatTheyAreFor) {
  for (int n = 0; n <= kLastRowTier; ++n) {
    EXPECT_GE(RowTier(n), n);
    EXPECT_EQ(RowTier(RowTier(n)), RowTier(n));
  }
  for (int rows = 1; rows <= kLastRowTier; ++rows) {
    const int row_tier = RowTier(rows);
    for (int n = 0; n <= rows; ++n) {
      const int tier = OutputTier(n, row_tier);
      ASSERT_GE(tier, n);
      ASSERT_LE(tier, row_tier);
      ASSERT_EQ(OutputTier(tier, row_tier), tier);
    }
    EXPECT_EQ(OutputTier(0, row_tier), 0);
    EXPECT_EQ(OutputTier(1, row_tier), 1);
  }
  const PassSizes sizes = {33, 5, 40, 2};
  const PassSizes tier = TierOf(sizes, 60);
  EXPECT_EQ(tier.rows, 48);
  EXPECT_EQ(tier.outputs, 8);
  EXPECT_EQ(tier.chunks, 60);
  EXPECT_EQ(tier.session_tasks, 2);
  EXPECT_FALSE(HasTier({321, 0, 1, 1}));
}

}  // namespace
}  // namespace foretoken::device
