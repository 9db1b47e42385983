#include "common/drafting/window_trie.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace foretoken {
namespace {

constexpr TokenId kBorder = -1;
constexpr uint32_t kNoOffset = 0;  // the arena's first word is unused
constexpr size_t kMinRing = 16;
constexpr size_t kMinRoot = 32;
// Live blocks take at most 5 entries of 3 words a token, a third of their room
// unused; above this much the arena is full of holes.
constexpr size_t kArenaWordsPerToken = 30;
constexpr size_t kMinArena = 1024;
// Entries of more equals than this are swapped rather than shifted: order of
// recency among many equals is worth less than the moves.
constexpr uint32_t kMaxShift = 12;

// Entries per block: 1, 2, 3, 4, 6, 8, 12, 16, ... Half-octave steps bound the
// unused room to a third.
constexpr std::array<uint16_t, 32> kCapacity = [] {
  std::array<uint16_t, 32> capacity{};
  capacity[0] = 0;
  capacity[1] = 1;
  capacity[2] = 2;
  capacity[3] = 3;
  for (size_t i = 4; i < capacity.size(); ++i) {
    const uint32_t twice = uint32_t{capacity[i - 2]} * 2;
    capacity[i] = static_cast<uint16_t>(twice > 65535 ? 65535 : twice);
  }
  return capacity;
}();
constexpr uint32_t kMaxEntries = 65535;

size_t RoundUpToPowerOfTwo(size_t n) {
  size_t power = kMinRing;
  while (power < n) power *= 2;
  return power;
}

size_t HashToken(TokenId token) {
  return (static_cast<uint32_t>(token) * 2654435769u) >> 7;
}

int FindToken(const uint32_t* tokens, uint32_t size, uint32_t token) {
  uint32_t i = 0;
  // Blocks of eight without an early exit become vector compares.
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

// Growing by a quarter keeps the bytes a token bounded.
template <typename T>
void ReserveMore(std::vector<T>& items, size_t more) {
  if (items.size() + more > items.capacity()) {
    items.reserve(items.size() + more + items.size() / 4);
  }
}

void SwapEntries(uint32_t* entries, uint32_t capacity, uint32_t a, uint32_t b) {
  std::swap(entries[a], entries[b]);
  std::swap(entries[capacity + a], entries[capacity + b]);
  std::swap(entries[2 * capacity + a], entries[2 * capacity + b]);
}

}  // namespace

int WindowTrie::Continuations::Find(TokenId token) const {
  return FindToken(tokens, size, static_cast<uint32_t>(token));
}

WindowTrie::WindowTrie(size_t window_tokens)
    : ring_limit_(RoundUpToPowerOfTwo(window_tokens)) {
  Clear();
}

void WindowTrie::Clear() {
  // Fresh vectors: one long request must not weigh on all after it.
  ring_ = std::vector<int32_t>(kMinRing, kBorder);
  ring_mask_ = kMinRing - 1;
  end_ = 0;
  size_ = 0;
  ++version_;
  open_.fill(kNoContext);
  blocks_ = std::vector<Block>(1);
  free_blocks_ = std::vector<Context>();
  arena_ = std::vector<uint32_t>(1, 0);
  free_words_.assign(kCapacity.size(), kNoOffset);
  root_ = std::vector<RootSlot>(kMinRoot);
  root_size_ = 0;
}

WindowTrie::Continuations WindowTrie::Of(Context context) const {
  const Block& block = blocks_[context];
  const uint32_t capacity = kCapacity[block.size_class];
  const uint32_t* entries = arena_.data() + block.offset;
  return {entries,    entries + capacity, entries + 2 * capacity,
          block.size, block.total,        block.latest};
}

// --- Appending and evicting --------------------------------------------------

void WindowTrie::Append(TokenId token) {
  AppendSlot(token);
  std::array<Context, kDepth> next{};
  next[1] = CountRoot(token);
  for (int length = 1; length < kDepth; ++length) {
    if (open_[length] == kNoContext) break;
    const bool deepest = length + 1 == kDepth;
    const uint32_t link = Count(open_[length], token, deepest);
    if (!deepest) next[length + 1] = link;
  }
  open_ = next;
}

void WindowTrie::EndSequence() {
  if (open_[1] == kNoContext) return;  // nothing since the last border
  AppendSlot(kBorder);
  open_.fill(kNoContext);
}

void WindowTrie::AppendSlot(TokenId token) {
  if (size_ == ring_limit_) EvictOldest();
  if (size_ == ring_.size()) {
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
  ++version_;
  const TokenId token = TokenAt(first);
  if (token == kBorder) return;
  Context context = Root(token);
  // Walk down first: a context may go only after what hangs on it.
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
  for (int length = deepest; length >= 1; --length) {
    Uncount(path[length], TokenAt(first + static_cast<uint32_t>(length)),
            length + 1 == kDepth);
  }
  UncountRoot(token);
}

uint32_t WindowTrie::Count(Context context, TokenId token, bool deepest) {
  Block* block = &blocks_[context];
  ++block->total;
  block->latest = static_cast<uint32_t>(token);
  uint32_t capacity = kCapacity[block->size_class];
  uint32_t* entries = arena_.data() + block->offset;
  const int found =
      FindToken(entries, block->size, static_cast<uint32_t>(token));
  uint32_t index = static_cast<uint32_t>(found);
  if (found < 0) {
    if (block->size == kMaxEntries) return deepest ? kNoPosition : kNoContext;
    const uint32_t link = deepest ? 0 : NewBlock();
    block = &blocks_[context];
    if (block->size == capacity) Grow(*block);
    capacity = kCapacity[block->size_class];
    entries = arena_.data() + block->offset;
    index = block->size++;
    entries[index] = static_cast<uint32_t>(token);
    entries[capacity + index] = 0;
    entries[2 * capacity + index] = link;
  }
  ++entries[capacity + index];
  if (deepest) entries[2 * capacity + index] = end_;
  const uint32_t link = entries[2 * capacity + index];
  MoveForward(entries, capacity, index);
  return link;
}

WindowTrie::Context WindowTrie::Uncount(Context context, TokenId token,
                                        bool deepest) {
  Block& block = blocks_[context];
  const uint32_t capacity = kCapacity[block.size_class];
  uint32_t* entries = arena_.data() + block.offset;
  const int found =
      FindToken(entries, block.size, static_cast<uint32_t>(token));
  if (found < 0) return kNoContext;
  --block.total;
  const uint32_t index = static_cast<uint32_t>(found);
  if (--entries[capacity + index] == 0) {
    RemoveEntry(block, index, deepest);
    return kNoContext;
  }
  const Context link = entries[2 * capacity + index];
  MoveBack(entries, capacity, block.size, index);
  return link;
}

void WindowTrie::RemoveEntry(Block& block, uint32_t index, bool deepest) {
  const uint32_t capacity = kCapacity[block.size_class];
  uint32_t* entries = arena_.data() + block.offset;
  if (!deepest) FreeBlock(entries[2 * capacity + index]);
  // The order must hold: swap up to the end of the equals, then drop the last.
  for (uint32_t i = index; i + 1 < block.size; ++i) {
    SwapEntries(entries, capacity, i, i + 1);
  }
  --block.size;
}

// Entry `index` has grown: move it before all entries of its count or less.
void WindowTrie::MoveForward(uint32_t* entries, uint32_t capacity,
                             uint32_t index) {
  const uint32_t* counts = entries + capacity;
  const uint32_t count = counts[index];
  uint32_t shifted = 0;
  while (index > 0 && counts[index - 1] <= count && shifted < kMaxShift) {
    SwapEntries(entries, capacity, index, index - 1);
    --index;
    ++shifted;
  }
  if (index == 0 || counts[index - 1] >= count) return;
  // Many smaller ones before it: jump to the first of them.
  const uint32_t* first = std::partition_point(
      counts, counts + index, [count](uint32_t c) { return c >= count; });
  SwapEntries(entries, capacity, index, static_cast<uint32_t>(first - counts));
}

// Entry `index` has shrunk: move it behind all entries of a greater count.
void WindowTrie::MoveBack(uint32_t* entries, uint32_t capacity, uint32_t size,
                          uint32_t index) {
  const uint32_t* counts = entries + capacity;
  const uint32_t count = counts[index];
  if (index + 1 >= size || counts[index + 1] <= count) return;
  const uint32_t* last =
      std::partition_point(counts + index + 1, counts + size,
                           [count](uint32_t c) { return c > count; });
  SwapEntries(entries, capacity, index,
              static_cast<uint32_t>(last - counts) - 1);
}

// --- Memory
// --------------------------------------------------------------------

WindowTrie::Context WindowTrie::NewBlock() {
  if (!free_blocks_.empty()) {
    const Context context = free_blocks_.back();
    free_blocks_.pop_back();
    return context;
  }
  ReserveMore(blocks_, 1);
  blocks_.push_back(Block{});
  return static_cast<Context>(blocks_.size() - 1);
}

void WindowTrie::FreeBlock(Context context) {
  Block& block = blocks_[context];
  if (block.size_class != 0) {
    arena_[block.offset] = free_words_[block.size_class];
    free_words_[block.size_class] = block.offset;
  }
  block = Block{};
  free_blocks_.push_back(context);
}

uint32_t WindowTrie::AllocateWords(int size_class) {
  uint32_t& head = free_words_[size_class];
  if (head != kNoOffset) {
    const uint32_t offset = head;
    head = arena_[offset];
    return offset;
  }
  const size_t words = size_t{3} * kCapacity[size_class];
  if (arena_.size() + words > kMinArena + size_ * kArenaWordsPerToken) {
    Compact();
  }
  const uint32_t offset = static_cast<uint32_t>(arena_.size());
  ReserveMore(arena_, words);
  arena_.resize(arena_.size() + words);
  return offset;
}

// Copies what lives together. Blocks of a size that the text no longer needs
// would else be kept for ever; so many must have gone for the limit to be
// reached again that this is O(1) for each token.
void WindowTrie::Compact() {
  std::vector<uint32_t> old(1, 0);
  old.swap(arena_);
  size_t words = 1;
  for (const Block& block : blocks_) {
    words += size_t{3} * kCapacity[block.size_class];
  }
  arena_.reserve(words + words / 4);
  for (Block& block : blocks_) {
    const auto first = old.begin() + block.offset;
    const auto end = first + 3 * kCapacity[block.size_class];
    block.offset = static_cast<uint32_t>(arena_.size());
    arena_.insert(arena_.end(), first, end);
  }
  std::fill(free_words_.begin(), free_words_.end(), kNoOffset);
}

void WindowTrie::Grow(Block& block) {
  const uint32_t old_capacity = kCapacity[block.size_class];
  const int size_class = block.size_class + 1;
  const uint32_t offset = AllocateWords(size_class);
  const uint32_t capacity = kCapacity[size_class];
  const uint32_t* from = arena_.data() + block.offset;
  uint32_t* to = arena_.data() + offset;
  for (int column = 0; column < 3; ++column) {
    std::copy_n(from + column * old_capacity, block.size,
                to + column * capacity);
  }
  if (block.size_class != 0) {
    arena_[block.offset] = free_words_[block.size_class];
    free_words_[block.size_class] = block.offset;
  }
  block.offset = offset;
  block.size_class = static_cast<uint16_t>(size_class);
}

size_t WindowTrie::MemoryBytes() const {
  return ring_.capacity() * sizeof(int32_t) +
         blocks_.capacity() * sizeof(Block) +
         free_blocks_.capacity() * sizeof(Context) +
         arena_.capacity() * sizeof(uint32_t) +
         root_.capacity() * sizeof(RootSlot);
}

// --- Root: token -> context of that one token
// ------------------------------------

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

WindowTrie::Context WindowTrie::UncountRoot(TokenId token) {
  size_t hole = RootIndex(token);
  if (root_[hole].token == kBorder) return kNoContext;
  if (--root_[hole].count != 0) return root_[hole].context;
  FreeBlock(root_[hole].context);
  --root_size_;
  // Close the gap, so that no probe sequence is cut (Knuth 6.4, algorithm R).
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
  return kNoContext;
}

void WindowTrie::GrowRoot() {
  std::vector<RootSlot> old(root_.size() * 2);
  old.swap(root_);
  for (const RootSlot& slot : old) {
    if (slot.token != kBorder) root_[RootIndex(slot.token)] = slot;
  }
}

}  // namespace foretoken
