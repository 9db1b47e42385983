// KvStore: memory of K and V: committed pages, scratch rows of the current
// pass, and the tiles that join the two for attention.
//
// A page holds for each layer and kv head one attention block: keys transposed,
// [head_dim][32], then values, [32][head_dim]; in int8 each followed by its
// scales, [blocks][32]. A scratch row holds K and V of its heads, a KvLayout
// each, rounded or quantised already: moving a row into a page or a tile
// changes no bit, so a key is the same from wherever it is read.
//
// Owned by one thread, but for the calls marked otherwise.
#ifndef FORETOKEN_COMMON_INFER_CPU_KV_STORE_H_
#define FORETOKEN_COMMON_INFER_CPU_KV_STORE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/huge_buffer.h"
#include "common/base/thread_pool.h"
#include "common/infer/cpu/cpu_model.h"
#include "common/infer/cpu/kv_type.h"
#include "common/infer/kv_cache.h"
#include "common/infer/pass_plan.h"

namespace foretoken {

class KvStore {
 public:
  static absl::StatusOr<KvStore> Create(const CpuModel& model, KvType type,
                                        int64_t pages, int32_t max_rows);
  static int64_t PageBytes(const CpuModel& model, KvType type);

  const KvLayout& layout() const { return layout_; }
  // Bytes of all layers, without the unused part of a page.
  int64_t bytes_per_token() const {
    return layers_ * kv_heads_ * 2 * head_bytes_;
  }

  // Any thread, different rows: scratch of one row, [n_kv_heads][head_dim].
  uint8_t* ScratchKeys(int32_t layer, int64_t row) const;
  uint8_t* ScratchValues(int32_t layer, int64_t row) const;

  // Any thread: the block of a page or tile.
  const uint8_t* PageKeys(int32_t page, int32_t layer, int32_t kv_head) const {
    return PageBlock(page, layer, kv_head);
  }
  const uint8_t* TileKeys(int32_t tile, int32_t kv_head) const {
    return TileBlock(tile, kv_head);
  }
  // Values follow their keys by this many bytes.
  int64_t values_offset() const { return keys_bytes_; }
  // The scales of keys, or of values, follow them by this many bytes.
  int64_t scales_offset() const { return layout_.plain_bytes() * kAttendKeys; }

  // Makes room for the plan's tiles.
  absl::Status PrepareTiles(const PassPlan& plan);
  // Any thread, different (tile, kv_head): fills one for `layer`.
  void GatherTile(const PassPlan& plan, int32_t tile, int32_t layer,
                  int32_t kv_head) const;

  // Moves scratch rows into the slots of positions begin, begin + 1, ...
  void Commit(absl::Span<const int32_t> rows, int64_t begin,
              absl::Span<const int32_t> page_table, ThreadPool& pool) const;

  void CopyPage(int32_t from, int32_t to) const;

 private:
  uint8_t* PageBlock(int64_t page, int64_t layer, int64_t kv_head) const {
    return pages_.data() +
           ((page * layers_ + layer) * kv_heads_ + kv_head) * block_bytes_;
  }
  uint8_t* TileBlock(int64_t tile, int64_t kv_head) const {
    return tiles_.data() + (tile * kv_heads_ + kv_head) * block_bytes_;
  }
  // Copies one head of one scratch row into a slot of a block.
  void PutRow(int32_t layer, int64_t row, int32_t kv_head, int64_t slot,
              uint8_t* block) const;

  int64_t layers_ = 0;
  int64_t kv_heads_ = 0;
  int64_t head_dim_ = 0;
  KvLayout layout_;
  int64_t head_bytes_ = 0;   // one head of one row
  int64_t keys_bytes_ = 0;   // of a block
  int64_t block_bytes_ = 0;  // keys and values
  int64_t max_rows_ = 0;
  int64_t tile_capacity_ = 0;
  HugeBuffer pages_;
  HugeBuffer scratch_;  // [layer][row][K, V][kv_head][head_bytes]
  HugeBuffer tiles_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_KV_STORE_H_
