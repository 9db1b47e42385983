#include "common/drafting/window_trie.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace foretoken {
namespace {

constexpr TokenId kBorder = -1;
constexpr uint32_t kNoOffset = 0;  // the arena's first word is unused
constexpr size_t kMinRing = 16;
constexpr size_t kMinRoot = 32;
// Live blocks take at most 5 entries of 3 words per token, and at least half of
// their room is used: 30 words. An arena above this limit is mostly holes.
constexpr size_t kArenaWordsPerToken = 36;
constexpr size_t kMinArena = 4096;
constexpr size_t kBlocksPerToken = WindowTrie::kDepth - 1;

// While a block grows, both its old and its new room are allocated.
static_assert(2 * 3 * size_t{WindowTrie::kMaxContinuations} < kMinArena);

size_t HashToken(TokenId token) {
  return (static_cast<uint32_t>(token) * 2654435769u) >> 7;
}

int FindToken(const uint32_t* tokens, uint32_t size, uint32_t token) {
  uint32_t i = 0;
  // Blocks of eight without an early exit compile to vector compares.
  for (; i + 8 <= size; i += 8) {
    uint32_t any = 0;
    for (uint32_t j = 0; j < 8; ++j) any |= tokens[i + j] == token;
    if (any != 0) break;
  }
  for (; i < size; ++i) {
    if (tokens[i] == token) return static_cast<int>(i);
  }
  return -1;
}

// Growing by a quarter bounds the bytes per token even before the limit does.
template <typename T>
void ReserveMore(std::vector<T>& items, size_t more, size_t limit) {
  const size_t needed = items.size() + more;
  if (needed > items.capacity()) {
    items.reserve(std::max(needed, std::min(needed + needed / 4, limit)));
  }
}

// Moves entry `index` to `target`; the entries in between shift by one.
void MoveEntry(uint32_t* entries, uint32_t capacity, uint32_t index,
               uint32_t target) {
  // Three columns of `capacity` words: tokens, counts, links.
  for (uint32_t column = 0; column < 3; ++column, entries += capacity) {
    const uint32_t moved = entries[index];
    if (target < index) {
      std::memmove(entries + target + 1, entries + target,
                   (index - target) * sizeof(uint32_t));
    } else {
      std::memmove(entries + index, entries + index + 1,
                   (target - index) * sizeof(uint32_t));
    }
    entries[target] = moved;
  }
}

// The count of entry `index` grew: move it before all entries of an equal or
// smaller count.
void MoveForward(uint32_t* entries, uint32_t capacity, uint32_t index) {
  const uint32_t* counts = entries + capacity;
  const uint32_t count = counts[index];
  if (index == 0 || counts[index - 1] > count) return;
  const uint32_t target = static_cast<uint32_t>(
      std::partition_point(counts, counts + index,
                           [count](uint32_t c) { return c > count; }) -
      counts);
  if (target != index) MoveEntry(entries, capacity, index, target);
}

// The count of entry `index` shrank: move it after all entries of a greater
// count.
void MoveBack(uint32_t* entries, uint32_t capacity, uint32_t size,
              uint32_t index) {
  const uint32_t* counts = entries + capacity;
  const uint32_t count = counts[index];
  if (index + 1 == size || counts[index + 1] <= count) return;
  const uint32_t target = static_cast<uint32_t>(
      std::partition_point(counts + index + 1, counts + size,
                           [count](uint32_t c) { return c > count; }) -
      counts - 1);
  if (target != index) MoveEntry(entries, capacity, index, target);
}

}  // namespace

int WindowTrie::Continuations::FindInMany(TokenId token) const {
  return FindToken(tokens, size, static_cast<uint32_t>(token));
}

WindowTrie::WindowTrie(size_t window_tokens)
    : ring_limit_(std::bit_ceil(std::max(window_tokens, kMinRing))) {
  Clear();
}

void WindowTrie::Clear() {
  // Fresh vectors release the memory: one long request must not weigh on later
  // ones.
  ring_ = std::vector<int32_t>(kMinRing, kBorder);
  ring_mask_ = kMinRing - 1;
  end_ = 0;
  size_ = 0;
  ++version_;
  open_.fill(kNoContext);
  blocks_ = std::vector<Block>(1);
  free_block_ = kNoContext;
  arena_ = std::vector<uint32_t>(1, 0);
  free_words_.assign(kCapacity.size(), kNoOffset);
  root_ = std::vector<RootSlot>(kMinRoot);
  root_size_ = 0;
}

// --- Appending and evicting --------------------------------------------------

uint32_t WindowTrie::Append(TokenId token) {
  // From here on the token has its position, end_, which Count stores.
  AppendSlot(token);
  std::array<Context, kDepth> next{};
  next[1] = CountRoot(token);
  uint32_t latest = kNoPosition;
  for (int length = 1; length < kDepth; ++length) {
    // Count may free contexts, including open ones.
    if (open_[length] == kNoContext) continue;
    const uint32_t link = Count(open_[length], token, length);
    if (length + 1 == kDepth) {
      latest = link;
    } else {
      next[length + 1] = link;
    }
  }
  open_ = next;
  return latest;
}

void WindowTrie::EndSequence() {
  if (open_[1] == kNoContext) return;  // nothing since the last border
  AppendSlot(kBorder);
  open_.fill(kNoContext);
}

void WindowTrie::AppendSlot(TokenId token) {
  if (size_ == ring_limit_) EvictOldest();
  if (size_ == ring_.size()) {
    // Positions keep their value; only the mask changes.
    std::vector<int32_t> bigger(ring_.size() * 2, kBorder);
    const uint32_t mask = static_cast<uint32_t>(bigger.size() - 1);
    for (uint32_t back = 0; back < size_; ++back) {
      bigger[(end_ - back) & mask] = ring_[(end_ - back) & ring_mask_];
    }
    ring_ = std::move(bigger);
    ring_mask_ = mask;
  }
  ++end_;
  ++size_;
  ring_[end_ & ring_mask_] = token;
}

void WindowTrie::EvictOldest() {
  const uint32_t first = end_ - static_cast<uint32_t>(size_) + 1;
  --size_;
  const TokenId token = TokenAt(first);
  if (token == kBorder) return;
  Context context = Root(token);
  // Walk down first: a context may be removed only after everything below it.
  std::array<Context, kDepth> path{};
  int deepest = 0;
  for (int length = 1; length < kDepth && context != kNoContext; ++length) {
    const TokenId after = TokenAt(first + static_cast<uint32_t>(length));
    if (after == kBorder || static_cast<size_t>(length) > size_) break;
    path[length] = context;
    deepest = length;
    const Continuations next = Of(context);
    const int index = next.Find(after);
    if (index < 0 || length + 1 == kDepth) break;
    context = next.links[index];
  }
  // The same window that Append counted, one context length at a time. Entries
  // that made room for others in the meantime are gone; Uncount skips those.
  for (int length = deepest; length >= 1; --length) {
    Uncount(path[length], TokenAt(first + static_cast<uint32_t>(length)),
            length);
  }
  UncountRoot(token);
}

uint32_t WindowTrie::Count(Context context, TokenId token, int length) {
  const bool deepest = length + 1 == kDepth;
  const int found = Of(context).Find(token);
  // A full context: its last entry has the lowest count and is the oldest of
  // those.
  if (found < 0 && blocks_[context].size == kMaxContinuations) {
    RemoveEntry(context, kMaxContinuations - 1, length);
  }
  // NewBlock may move blocks_, and Resize arena_: take references after them.
  const uint32_t child = found >= 0 || deepest ? kNoContext : NewBlock();
  Block& block = blocks_[context];
  if (found < 0 && block.size == kCapacity[block.size_class]) {
    Resize(block, block.size_class + 1);
  }
  ++block.total;
  const uint32_t capacity = kCapacity[block.size_class];
  uint32_t* entries = arena_.data() + block.offset;
  uint32_t index = static_cast<uint32_t>(found);
  if (found < 0) {
    index = block.size++;
    entries[index] = static_cast<uint32_t>(token);
    entries[capacity + index] = 0;
    entries[2 * capacity + index] = deepest ? kNoPosition : child;
  }
  ++entries[capacity + index];
  const uint32_t link = entries[2 * capacity + index];
  if (deepest) entries[2 * capacity + index] = end_;
  MoveForward(entries, capacity, index);
  return link;
}

void WindowTrie::Uncount(Context context, TokenId token, int length) {
  const int found = Of(context).Find(token);
  if (found < 0) return;
  const uint32_t index = static_cast<uint32_t>(found);
  Block& block = blocks_[context];
  const uint32_t capacity = kCapacity[block.size_class];
  uint32_t* entries = arena_.data() + block.offset;
  // The last occurrence: the entry and everything below it go.
  if (entries[capacity + index] == 1) {
    RemoveEntry(context, index, length);
    return;
  }
  --block.total;
  --entries[capacity + index];
  MoveBack(entries, capacity, block.size, index);
}

void WindowTrie::RemoveEntry(Context context, uint32_t index, int length) {
  const Continuations list = Of(context);
  const uint32_t count = list.counts[index];
  if (length + 1 < kDepth) FreeSubtree(list.links[index], length + 1);
  Block& block = blocks_[context];
  block.total -= count;
  --block.size;
  MoveEntry(arena_.data() + block.offset, kCapacity[block.size_class], index,
            block.size);
  // Shrink by one step once the entries fit two steps down, so that growing
  // again takes as many new entries.
  const int size_class = block.size_class;
  if (block.size == 0) {
    FreeWords(block);
    block.offset = 0;
    block.size_class = 0;
  } else if (size_class >= 2 && block.size <= kCapacity[size_class - 2]) {
    Resize(block, size_class - 1);
  }
}

// --- Memory ------------------------------------------------------------------

WindowTrie::Context WindowTrie::NewBlock() {
  if (free_block_ != kNoContext) {
    const Context context = free_block_;
    free_block_ = blocks_[context].offset;
    blocks_[context] = Block{};
    return context;
  }
  ReserveMore(blocks_, 1, ring_limit_ * kBlocksPerToken + 1);
  blocks_.push_back(Block{});
  return static_cast<Context>(blocks_.size() - 1);
}

void WindowTrie::FreeSubtree(Context context, int length) {
  if (length + 1 < kDepth) {
    const Continuations list = Of(context);
    for (uint32_t i = 0; i < list.size; ++i) {
      FreeSubtree(list.links[i], length + 1);
    }
  }
  // Cursors of drafters hold contexts; the version tells them.
  ++version_;
  if (open_[length] == context) open_[length] = kNoContext;
  FreeWords(blocks_[context]);
  blocks_[context] = Block{};
  blocks_[context].offset = free_block_;
  free_block_ = context;
}

size_t WindowTrie::ArenaLimit(size_t tokens) const {
  return kMinArena + tokens * kArenaWordsPerToken;
}

uint32_t WindowTrie::AllocateWords(int size_class) {
  uint32_t& head = free_words_[size_class];
  if (head != kNoOffset) {
    const uint32_t offset = head;
    head = arena_[offset];
    return offset;
  }
  const size_t words = size_t{3} * kCapacity[size_class];
  if (arena_.size() + words > ArenaLimit(size_)) Compact();
  const uint32_t offset = static_cast<uint32_t>(arena_.size());
  ReserveMore(arena_, words, ArenaLimit(ring_limit_));
  arena_.resize(arena_.size() + words);
  return offset;
}

void WindowTrie::FreeWords(const Block& block) {
  if (block.size_class == 0) return;
  arena_[block.offset] = free_words_[block.size_class];
  free_words_[block.size_class] = block.offset;
}

// Copies the live blocks. At least a sixth of the limit is free afterwards, so
// the cost is O(1) per word allocated later.
void WindowTrie::Compact() {
  std::vector<uint32_t> old(1, 0);
  old.swap(arena_);
  size_t words = 1;
  for (const Block& block : blocks_) {
    words += size_t{3} * kCapacity[block.size_class];
  }
  ReserveMore(arena_, words, ArenaLimit(ring_limit_));
  for (Block& block : blocks_) {
    if (block.size_class == 0) continue;
    const auto first = old.begin() + block.offset;
    const auto end = first + 3 * kCapacity[block.size_class];
    block.offset = static_cast<uint32_t>(arena_.size());
    arena_.insert(arena_.end(), first, end);
  }
  std::fill(free_words_.begin(), free_words_.end(), kNoOffset);
}

void WindowTrie::Resize(Block& block, int size_class) {
  // May compact, which moves the block: read its offset afterwards.
  const uint32_t offset = AllocateWords(size_class);
  const uint32_t old_capacity = kCapacity[block.size_class];
  const uint32_t capacity = kCapacity[size_class];
  const uint32_t* from = arena_.data() + block.offset;
  uint32_t* to = arena_.data() + offset;
  for (uint32_t column = 0; column < 3; ++column) {
    std::copy_n(from + column * old_capacity, block.size,
                to + column * capacity);
  }
  FreeWords(block);
  block.offset = offset;
  block.size_class = static_cast<uint16_t>(size_class);
}

size_t WindowTrie::MemoryBytes() const {
  return ring_.capacity() * sizeof(int32_t) +
         blocks_.capacity() * sizeof(Block) +
         arena_.capacity() * sizeof(uint32_t) +
         root_.capacity() * sizeof(RootSlot);
}

// --- Root: token -> its one-token context ------------------------------------

size_t WindowTrie::RootIndex(TokenId token) const {
  const size_t mask = root_.size() - 1;
  size_t index = HashToken(token) & mask;
  while (root_[index].token != token && root_[index].token != kBorder) {
    index = (index + 1) & mask;
  }
  return index;
}

WindowTrie::Context WindowTrie::Root(TokenId token) const {
  return root_[RootIndex(token)].context;
}

WindowTrie::Context WindowTrie::CountRoot(TokenId token) {
  size_t index = RootIndex(token);
  if (root_[index].token == kBorder) {
    if ((root_size_ + 1) * 4 > root_.size() * 3) {
      GrowRoot();
      index = RootIndex(token);
    }
    const Context context = NewBlock();
    root_[index] = {token, context, 0};
    ++root_size_;
  }
  ++root_[index].count;
  return root_[index].context;
}

void WindowTrie::UncountRoot(TokenId token) {
  size_t hole = RootIndex(token);
  if (--root_[hole].count != 0) return;
  FreeSubtree(root_[hole].context, 1);
  --root_size_;
  // Backward-shift deletion, so that no probe sequence breaks (Knuth 6.4,
  // algorithm R).
  const size_t mask = root_.size() - 1;
  for (size_t next = (hole + 1) & mask; root_[next].token != kBorder;
       next = (next + 1) & mask) {
    const size_t home = HashToken(root_[next].token) & mask;
    if (((next - home) & mask) >= ((next - hole) & mask)) {
      root_[hole] = root_[next];
      hole = next;
    }
  }
  root_[hole] = RootSlot{};
}

void WindowTrie::GrowRoot() {
  std::vector<RootSlot> old(root_.size() * 2);
  old.swap(root_);
  for (const RootSlot& slot : old) {
    if (slot.token != kBorder) root_[RootIndex(slot.token)] = slot;
  }
}

}  // namespace foretoken
