#include "common/infer/cpu/kv_store.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// Column `slot` of a transposed block of keys, or of scales.
template <typename T>
void PutKey(const uint8_t* from, int64_t size, int64_t slot, uint8_t* keys) {
  const T* source = reinterpret_cast<const T*>(from);
  T* out = reinterpret_cast<T*>(keys) + slot;
  // Keys are transposed, [head_dim][32], so that one query value meets 32 keys
  // in consecutive lanes.
  for (int64_t d = 0; d < size; ++d) out[d * kAttendKeys] = source[d];
}

}  // namespace

int64_t KvStore::PageBytes(const CpuModel& model, KvType type) {
  const KvLayout layout = {type, model.head_dim_padded()};
  return int64_t{2} * model.config().n_layers * model.config().n_kv_heads *
         kAttendKeys * layout.head_bytes();
}

absl::StatusOr<KvStore> KvStore::Create(const CpuModel& model, KvType type,
                                        int64_t pages, int32_t max_rows) {
  static_assert(kAttendKeys == kKvPageTokens);
  KvStore store;
  store.layers_ = model.config().n_layers;
  store.kv_heads_ = model.config().n_kv_heads;
  store.head_dim_ = model.config().head_dim;
  store.layout_ = {type, model.head_dim_padded()};
  store.head_bytes_ = store.layout_.head_bytes();
  store.keys_bytes_ = store.head_bytes_ * kAttendKeys;
  store.block_bytes_ = 2 * store.keys_bytes_;
  store.max_rows_ = max_rows;
  FORETOKEN_ASSIGN_OR_RETURN(
      store.pages_, HugeBuffer::Allocate(pages * PageBytes(model, type)));
  // KV of the rows of a pass, layer by layer, until a commit says which of them
  // are text.
  FORETOKEN_ASSIGN_OR_RETURN(
      store.scratch_,
      HugeBuffer::Allocate(store.layers_ * max_rows * 2 * store.kv_heads_ *
                           store.head_bytes_));
  return store;
}

uint8_t* KvStore::ScratchKeys(int32_t layer, int64_t row) const {
  return scratch_.data() +
         (layer * max_rows_ + row) * 2 * kv_heads_ * head_bytes_;
}

uint8_t* KvStore::ScratchValues(int32_t layer, int64_t row) const {
  return ScratchKeys(layer, row) + kv_heads_ * head_bytes_;
}

absl::Status KvStore::PrepareTiles(const PassPlan& plan) {
  const int64_t want = static_cast<int64_t>(plan.tiles.size());
  // Kept from pass to pass; a pass with more tiles than any before is rare.
  if (want <= tile_capacity_) return absl::OkStatus();
  // There is at most one tile a row, so this grows to max_rows and stops.
  const int64_t capacity =
      std::min(max_rows_, std::max(want, 2 * tile_capacity_));
  FORETOKEN_ASSIGN_OR_RETURN(
      tiles_, HugeBuffer::Allocate(capacity * kv_heads_ * block_bytes_));
  tile_capacity_ = capacity;
  return absl::OkStatus();
}

void KvStore::PutRow(int32_t layer, int64_t row, int32_t kv_head, int64_t slot,
                     uint8_t* block) const {
  const uint8_t* key = ScratchKeys(layer, row) + kv_head * head_bytes_;
  const uint8_t* value = ScratchValues(layer, row) + kv_head * head_bytes_;
  uint8_t* values = block + keys_bytes_;
  switch (layout_.type) {
    case KvType::kBFloat16:
      PutKey<uint16_t>(key, head_dim_, slot, block);
      break;
    case KvType::kFloat32:
      PutKey<uint32_t>(key, head_dim_, slot, block);
      break;
    case KvType::kInt8:
      PutKey<uint8_t>(key, head_dim_, slot, block);
      PutKey<uint32_t>(key + layout_.plain_bytes(), layout_.scales(), slot,
                       block + scales_offset());
      PutKey<uint32_t>(value + layout_.plain_bytes(), layout_.scales(), slot,
                       values + scales_offset());
      break;
  }
  // Values stay rows, [32][n]: they are added weighted, whole row by whole row.
  std::memcpy(values + slot * layout_.plain_bytes(), value,
              layout_.plain_bytes());
}

void KvStore::GatherTile(const PassPlan& plan, int32_t tile, int32_t layer,
                         int32_t kv_head) const {
  const PlanTile& source = plan.tiles[tile];
  uint8_t* block = TileBlock(tile, kv_head);
  int64_t slot = source.committed;
  if (slot > 0) {
    // Keys are copied whole, since their slots are interleaved; slots after the
    // committed ones are overwritten below or not read.
    const uint8_t* page = PageBlock(source.page, layer, kv_head);
    std::memcpy(block, page, keys_bytes_);
    std::memcpy(block + keys_bytes_, page + keys_bytes_,
                slot * layout_.plain_bytes());
    const int64_t scales = keys_bytes_ + scales_offset();
    std::memcpy(block + scales, page + scales, block_bytes_ - scales);
  }
  for (const int32_t row : source.rows) {
    PutRow(layer, row, kv_head, slot++, block);
  }
}

void KvStore::Commit(absl::Span<const int32_t> rows, int64_t begin,
                     absl::Span<const int32_t> page_table,
                     ThreadPool& pool) const {
  const auto copy = [&](int64_t i) {
    const int32_t layer = static_cast<int32_t>(i / kv_heads_);
    const int32_t kv_head = static_cast<int32_t>(i % kv_heads_);
    int64_t position = begin;
    // Positions follow each other, wherever the rows were in the tree.
    for (const int32_t row : rows) {
      PutRow(layer, row, kv_head, position % kAttendKeys,
             PageBlock(page_table[position / kAttendKeys], layer, kv_head));
      ++position;
    }
  };
  pool.ParallelFor(layers_ * kv_heads_, copy);
}

void KvStore::CopyPage(int32_t from, int32_t to) const {
  std::memcpy(PageBlock(to, 0, 0), PageBlock(from, 0, 0),
              layers_ * kv_heads_ * block_bytes_);
}

}  // namespace foretoken
