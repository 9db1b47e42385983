// MatchStore: the continuations of a group of n-grams, gathered by many threads
// at once.
//
// An n-gram with at most max_matches occurrences keeps all its continuations. A
// more frequent one keeps those with the smallest sampling keys (among equal
// keys, the smaller continuations): a buffer a quarter larger than max_matches
// is cut back whenever it is full, and its largest key becomes a limit that
// rejects most further matches without a lock.
//
// Thread-safe: Find and Offer may run in many threads; nothing else may run
// concurrently with them.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_MATCH_STORE_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_MATCH_STORE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/drafting/crest_build/ngram_key.h"
#include "common/drafting/crest_build/ngram_select.h"

namespace foretoken {

template <int W>
class MatchStore {
 public:
  // `item_bytes`: size of one continuation. `ngrams` are distinct.
  MatchStore(absl::Span<const SelectedNgram<W>> ngrams, uint32_t max_matches,
             int item_bytes)
      : max_matches_(max_matches), item_bytes_(item_bytes) {
    uint64_t items = 0;
    uint64_t keys = 0;
    entries_.reserve(ngrams.size());
    for (const SelectedNgram<W>& ngram : ngrams) {
      const uint32_t capacity = Capacity(ngram.count, max_matches);
      const bool capped = ngram.count > max_matches;
      entries_.push_back(
          {ngram.key, ngram.count, items, keys, capacity, capped});
      items += capacity;
      if (capped) keys += capacity;
    }
    items_ = std::make_unique_for_overwrite<uint8_t[]>(items * item_bytes);
    keys_ = std::make_unique_for_overwrite<uint64_t[]>(keys);
    sizes_ = std::make_unique<std::atomic<uint32_t>[]>(ngrams.size());
    limits_ = std::make_unique<std::atomic<uint64_t>[]>(ngrams.size());
    for (size_t i = 0; i < ngrams.size(); ++i) {
      sizes_[i] = 0;
      limits_[i] = UINT64_MAX;
    }
    BuildSlots();
  }

  // Memory that a thread may need in addition while it cuts back, or sorts, the
  // continuations of an n-gram with `count` occurrences.
  static uint64_t ThreadCostOf(uint64_t count, uint32_t max_matches) {
    return 2 * sizeof(uint32_t) * uint64_t{Capacity(count, max_matches)};
  }

  // Memory that an n-gram with `count` occurrences takes.
  static uint64_t CostOf(uint64_t count, uint32_t max_matches, int item_bytes) {
    const uint64_t capacity = Capacity(count, max_matches);
    const uint64_t key_bytes = count > max_matches ? capacity * 8 : 0;
    constexpr uint64_t kSlots = 4 * sizeof(uint64_t);  // at most
    return capacity * item_bytes + key_bytes + kSlots + sizeof(Entry) +
           sizeof(SelectedNgram<W>) + sizeof(uint64_t) + sizeof(uint32_t);
  }

  size_t size() const { return entries_.size(); }
  const NgramKey<W>& key(size_t entry) const { return entries_[entry].key; }
  uint64_t count(size_t entry) const { return entries_[entry].count; }

  // Returns the index of the n-gram, or -1.
  int64_t Find(const NgramKey<W>& key) const {
    const uint64_t hash = key.Hash();
    for (uint64_t slot = hash & slot_mask_; slots_[slot] != 0;
         slot = (slot + 1) & slot_mask_) {
      if (slots_[slot] >> 32 != hash >> 32) continue;
      const uint32_t entry = static_cast<uint32_t>(slots_[slot]) - 1;
      if (entries_[entry].key == key) return entry;
    }
    return -1;
  }

  // Offers a match with its sampling key and its continuation (item_bytes).
  void Offer(size_t entry, uint64_t sample_key, const uint8_t* item) {
    const Entry& e = entries_[entry];
    if (!e.capped) {
      // Its buffer has room for every occurrence; fetch_add alone assigns
      // slots.
      const uint32_t at = sizes_[entry].fetch_add(1, std::memory_order_relaxed);
      FORETOKEN_CHECK(at < e.capacity);
      std::memcpy(Item(e, at), item, item_bytes_);
      return;
    }
    // The limit only ever decreases, so a stale value rejects too few, never
    // too many.
    if (sample_key > limits_[entry].load(std::memory_order_relaxed)) return;
    const std::lock_guard<std::mutex> lock(locks_[entry % locks_.size()]);
    if (sample_key > limits_[entry].load(std::memory_order_relaxed)) return;
    const uint32_t at = sizes_[entry].load(std::memory_order_relaxed);
    std::memcpy(Item(e, at), item, item_bytes_);
    keys_[e.first_key + at] = sample_key;
    sizes_[entry].store(at + 1, std::memory_order_relaxed);
    if (at + 1 == e.capacity) CutBack(entry);
  }

  // Returns the number of continuations kept, at most max_matches; their order
  // is unspecified.
  uint32_t Finish(size_t entry) {
    if (sizes_[entry] > max_matches_) CutBack(entry);
    return sizes_[entry];
  }
  const uint8_t* item(size_t entry, uint32_t i) const {
    return Item(entries_[entry], i);
  }

 private:
  struct Entry {
    NgramKey<W> key;
    uint64_t count;  // in the corpus
    uint64_t first_item;
    uint64_t first_key;
    uint32_t capacity;
    bool capped;
  };

  static uint32_t Capacity(uint64_t count, uint32_t max_matches) {
    if (count <= max_matches) return static_cast<uint32_t>(count);
    return max_matches + max_matches / 4 + 1;
  }

  uint8_t* Item(const Entry& e, uint32_t i) const {
    return items_.get() + (e.first_item + i) * item_bytes_;
  }

  void BuildSlots() {
    slots_.assign(std::bit_ceil(std::max<size_t>(16, 2 * entries_.size())), 0);
    slot_mask_ = slots_.size() - 1;
    for (size_t i = 0; i < entries_.size(); ++i) {
      const uint64_t hash = entries_[i].key.Hash();
      uint64_t slot = hash & slot_mask_;
      while (slots_[slot] != 0) slot = (slot + 1) & slot_mask_;
      slots_[slot] = (hash >> 32 << 32) | (i + 1);
    }
  }

  // Keeps the max_matches items with the smallest keys.
  void CutBack(size_t entry) {
    const Entry& e = entries_[entry];
    const uint32_t size = sizes_[entry].load(std::memory_order_relaxed);
    uint64_t* keys = keys_.get() + e.first_key;
    std::vector<uint32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::nth_element(order.begin(), order.begin() + max_matches_ - 1,
                     order.end(), [&](uint32_t a, uint32_t b) {
                       if (keys[a] != keys[b]) return keys[a] < keys[b];
                       return std::memcmp(Item(e, a), Item(e, b), item_bytes_) <
                              0;
                     });
    const uint64_t largest = keys[order[max_matches_ - 1]];
    // Move the kept items down; sorted order makes this safe in place.
    std::sort(order.begin(), order.begin() + max_matches_);
    for (uint32_t kept = 0; kept < max_matches_; ++kept) {
      if (order[kept] == kept) continue;
      keys[kept] = keys[order[kept]];
      std::memcpy(Item(e, kept), Item(e, order[kept]), item_bytes_);
    }
    sizes_[entry].store(max_matches_, std::memory_order_relaxed);
    limits_[entry].store(largest, std::memory_order_relaxed);
  }

  const uint32_t max_matches_;
  const int item_bytes_;
  std::vector<Entry> entries_;
  std::unique_ptr<uint8_t[]> items_;
  std::unique_ptr<uint64_t[]> keys_;  // of items of capped entries
  std::unique_ptr<std::atomic<uint32_t>[]> sizes_;
  std::unique_ptr<std::atomic<uint64_t>[]> limits_;
  std::vector<uint64_t> slots_;  // upper half of the hash << 32 | entry + 1
  uint64_t slot_mask_ = 0;
  std::array<std::mutex, 1024> locks_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_MATCH_STORE_H_
