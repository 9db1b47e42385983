#include "common/text/bpe.h"

#include <algorithm>
#include <bit>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr size_t kMinSlots = 16;
// Buffers for more symbols than this are freed after use.
constexpr size_t kManySymbols = 1 << 16;
// A scan over all pairs is faster than a heap up to here (words have 5 to 10
// symbols).
constexpr size_t kFewSymbols = 32;
constexpr uint32_t kGone = UINT32_MAX;  // no symbol: merged away, or the start

uint64_t Key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
         static_cast<uint32_t>(right);
}

}  // namespace

BpeMerges::BpeMerges(size_t expected_pairs) {
  // At most half full, so that linear probing stays short and always ends.
  Grow(std::bit_ceil(std::max(kMinSlots, 2 * expected_pairs)));
}

size_t BpeMerges::Home(uint64_t key) const {
  // Fibonacci hashing: the high bits of the product are well mixed.
  return static_cast<size_t>(
      ((key ^ (key >> 29)) * uint64_t{0x9E3779B97F4A7C15}) >> shift_);
}

void BpeMerges::Grow(size_t capacity) {
  std::vector<Slot> old(capacity);
  old.swap(slots_);
  shift_ = 64 - std::countr_zero(capacity);
  size_ = 0;
  for (const Slot& slot : old) {
    if (slot.key != kEmpty) {
      Add(static_cast<int32_t>(slot.key >> 32), static_cast<int32_t>(slot.key),
          slot.merge);
    }
  }
}

void BpeMerges::Add(int32_t left, int32_t right, Merge merge) {
  // Non-negative ids keep the key below kEmpty.
  FORETOKEN_CHECK(left >= 0 && right >= 0 && merge.rank != Merge::kNone);
  const uint64_t key = Key(left, right);
  size_t at = Home(key);
  while (slots_[at].key != kEmpty && slots_[at].key != key) {
    at = (at + 1) & (slots_.size() - 1);
  }
  if (slots_[at].key == kEmpty) ++size_;
  slots_[at] = {key, merge};
  if (2 * size_ > slots_.size()) Grow(2 * slots_.size());
}

BpeMerges::Merge BpeMerges::Find(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return {};
  const uint64_t key = Key(left, right);
  size_t at = Home(key);
  while (slots_[at].key != key) {
    if (slots_[at].key == kEmpty) return {};
    at = (at + 1) & (slots_.size() - 1);
  }
  return slots_[at].merge;
}

void BpeMerges::Apply(std::vector<BpeSymbol>& symbols, Scratch& scratch) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kFewSymbols) {
    ApplyToFew(symbols, scratch);
  } else {
    ApplyToMany(symbols, scratch);
  }
}

void BpeMerges::ApplyToFew(std::vector<BpeSymbol>& symbols,
                           Scratch& scratch) const {
  std::vector<Merge>& pairs = scratch.pairs_;  // pairs[i]: symbols i and i + 1
  pairs.resize(symbols.size() - 1);
  for (size_t i = 0; i < pairs.size(); ++i) {
    pairs[i] = Find(symbols[i].id, symbols[i + 1].id);
  }
  scratch.work_ += pairs.size();
  while (!pairs.empty()) {
    // Ranks are compared with <, so the leftmost of equal pairs wins.
    size_t best = 0;
    for (size_t i = 1; i < pairs.size(); ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == Merge::kNone) return;
    symbols[best].id = pairs[best].merged;
    // Only the two pairs next to the merged symbol change.
    symbols.erase(symbols.begin() + best + 1);
    pairs.erase(pairs.begin() + best);
    if (best > 0) {
      pairs[best - 1] = Find(symbols[best - 1].id, symbols[best].id);
    }
    if (best < pairs.size()) {
      pairs[best] = Find(symbols[best].id, symbols[best + 1].id);
    }
    scratch.work_ += 2;
  }
}

void BpeMerges::ApplyToMany(std::vector<BpeSymbol>& symbols,
                            Scratch& scratch) const {
  using Candidate = Scratch::Candidate;
  // Heap order: lowest rank first, then leftmost; the same order as in
  // ApplyToFew.
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t>& next = scratch.next_;
  std::vector<uint32_t>& previous = scratch.previous_;
  std::vector<Candidate>& heap = scratch.heap_;
  next.resize(count);
  previous.resize(count);
  heap.clear();
  // Every merge takes one entry out and adds at most two: a large heap never
  // has to be copied to grow, and its memory is used only as far as it fills.
  heap.reserve(size_t{2} * count);
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i == 0 ? kGone : i - 1;
  }
  // Entries are not removed from the heap when a neighbour merges. `end` is the
  // symbol after the pair when the entry was made: the entry is still valid if
  // its two symbols are adjacent and the right one still ends there.
  const auto consider = [&](uint32_t left, uint32_t right) {
    ++scratch.work_;
    const Merge merge = Find(symbols[left].id, symbols[right].id);
    if (merge.rank == Merge::kNone) return false;
    heap.push_back({merge.rank, left, right, next[right], merge.merged});
    return true;
  };
  for (uint32_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate top = heap.back();
    heap.pop_back();
    ++scratch.work_;
    const bool stands =
        next[top.left] == top.right && next[top.right] == top.end;
    if (!stands) continue;
    symbols[top.left].id = top.merged;
    next[top.left] = top.end;
    next[top.right] = kGone;
    if (top.end != count) previous[top.end] = top.left;
    if (previous[top.left] != kGone && consider(previous[top.left], top.left)) {
      std::push_heap(heap.begin(), heap.end(), later);
    }
    if (top.end != count && consider(top.left, top.end)) {
      std::push_heap(heap.begin(), heap.end(), later);
    }
  }
  // Compact: follow the links of the symbols that are left.
  size_t kept = 0;
  for (uint32_t i = 0; i != count; i = next[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
  if (count > kManySymbols) {
    std::vector<Candidate>().swap(heap);
    std::vector<uint32_t>().swap(next);
    std::vector<uint32_t>().swap(previous);
  }
}

}  // namespace foretoken
