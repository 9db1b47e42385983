// Count trie over a sliding window of tokens: the continuations of each short
// context of a request (prompt and output) or of a scope's earlier outputs, and
// the latest occurrence of each longer context.
//
// Representation: a *context* of L tokens, 1 <= L < depth, has a block of
// continuations (token, count, link), most frequent first; among equals, the
// latest first. The link of a continuation is the longer context it leads to
// or, at full depth, the position of its latest occurrence: long copies are
// followed through the text and need no deep nodes.
//
// A context lists at most kMaxContinuations. If it is full, a new continuation
// replaces the least frequent, oldest one and everything below it. Until then
// counts are exact; afterwards they may be lower, never higher, than in the
// window. total is the sum of the listed counts.
//
// Bounds: the window holds at most W = window_tokens tokens, and a token that
// enters a full window evicts the oldest. Every entry counts at least one
// occurrence in the window that was counted after the entry was created (when
// the last of them leaves, all the entry's counts have been subtracted). An
// occurrence supports one entry per context length, so there are at most 5 W
// entries and, including the one-token contexts, 5 W contexts. A block has room
// for at most twice its entries (it also shrinks), and the arena is compacted
// when it exceeds that by a fifth. In bytes per token: arena 36 words, 144;
// contexts 60; look-up of the first token 24; ring 4; 232 in total, see
// MaxBytes. Compaction temporarily needs a second arena. Each token costs
// O(depth * kMaxContinuations), amortised over the entries that it created.
//
// Contexts are stable while version() does not change.
//
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_DRAFTING_WINDOW_TRIE_H_
#define FORETOKEN_COMMON_DRAFTING_WINDOW_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/types.h"

namespace foretoken {

class WindowTrie {
 public:
  // Maximum n-gram length. Contexts of 1..kDepth-1 tokens have counts; an
  // occurrence of kDepth tokens has a position.
  static constexpr int kDepth = 6;
  // Maximum number of continuations of a context; drafting reads fewer
  // (fused_tuning.h).
  static constexpr uint32_t kMaxContinuations = 512;

  using Context = uint32_t;
  static constexpr Context kNoContext = 0;
  static constexpr uint32_t kNoPosition = ~uint32_t{0};

  // Continuations of one context; valid until the next change.
  struct Continuations {
    const uint32_t* tokens = nullptr;
    const uint32_t* counts = nullptr;
    const uint32_t* links = nullptr;  // Context, or position at full depth
    uint32_t size = 0;
    uint32_t total = 0;  // sum of counts

    // Returns the index of `token`, or -1.
    int Find(TokenId token) const {
      if (size > 4) return FindInMany(token);
      for (uint32_t i = 0; i < size; ++i) {
        if (tokens[i] == static_cast<uint32_t>(token)) {
          return static_cast<int>(i);
        }
      }
      return -1;
    }

    int FindInMany(TokenId token) const;
  };

  // `window_tokens` is rounded up to a power of two, at least 16.
  explicit WindowTrie(size_t window_tokens);

  // Appends a token. Returns the end position of the previous occurrence of the
  // last kDepth tokens, this one included; kNoPosition if there is none.
  uint32_t Append(TokenId token);
  // Ends the sequence: no context spans the border to the next token.
  void EndSequence();
  void Clear();

  // Returns the context of `token` alone.
  Context Root(TokenId token) const;
  Continuations Of(Context context) const {
    const Block& block = blocks_[context];
    const uint32_t capacity = kCapacity[block.size_class];
    const uint32_t* entries = arena_.data() + block.offset;
    return {entries, entries + capacity, entries + 2 * capacity, block.size,
            block.total};
  }
  // The context of the last `length` tokens of the open sequence, 1 <= length <
  // kDepth; kNoContext if the sequence is shorter or the context was evicted.
  Context Open(int length) const { return open_[length]; }

  // Position of the newest token; position p + 1 follows p in the text. A
  // position is readable until a whole window of tokens has followed it.
  uint32_t end_position() const { return end_; }
  bool Holds(uint32_t position) const {
    return end_ - position < size_;  // modulo 2^32
  }
  // The token at a held position; -1 at the end of a sequence.
  TokenId TokenAt(uint32_t position) const {
    return ring_[position & ring_mask_];
  }

  uint64_t version() const { return version_; }
  size_t size() const { return size_; }  // tokens held, borders included
  size_t MemoryBytes() const;
  // Upper bound of MemoryBytes for any text: under 300 bytes per token for
  // windows of 512 tokens or more.
  size_t MaxBytes() const { return ring_limit_ * 232 + 32768; }

 private:
  // Entries per block. Each value is at most twice the one two steps before.
  static constexpr std::array<uint16_t, 19> kCapacity{0,
                                                      1,
                                                      2,
                                                      3,
                                                      4,
                                                      6,
                                                      8,
                                                      12,
                                                      16,
                                                      24,
                                                      32,
                                                      48,
                                                      64,
                                                      96,
                                                      128,
                                                      192,
                                                      256,
                                                      384,
                                                      kMaxContinuations};
  struct Block {
    uint32_t offset = 0;  // of the entries in arena_, in words; or next_free
    uint32_t total = 0;
    uint16_t size = 0;
    uint16_t size_class = 0;
  };
  struct RootSlot {
    int32_t token = -1;
    Context context = kNoContext;
    uint32_t count = 0;
  };

  void AppendSlot(TokenId token);
  void EvictOldest();
  // Counts `token` after the context of `length` tokens. Returns the context
  // that it leads to or, at full depth, the position of its previous
  // occurrence.
  uint32_t Count(Context context, TokenId token, int length);
  // Undoes one Count, if its entry still exists.
  void Uncount(Context context, TokenId token, int length);
  void RemoveEntry(Context context, uint32_t index, int length);
  void Resize(Block& block, int size_class);
  Context NewBlock();
  // Frees a context of `length` tokens and everything below it.
  void FreeSubtree(Context context, int length);
  uint32_t AllocateWords(int size_class);
  void FreeWords(const Block& block);
  size_t ArenaLimit(size_t tokens) const;
  void Compact();
  Context CountRoot(TokenId token);
  void UncountRoot(TokenId token);
  size_t RootIndex(TokenId token) const;
  void GrowRoot();

  std::vector<int32_t> ring_;
  size_t ring_limit_;
  uint32_t ring_mask_ = 0;
  uint32_t end_ = 0;
  size_t size_ = 0;
  uint64_t version_ = 0;
  std::array<Context, kDepth> open_{};

  std::vector<Block> blocks_;        // [0] is unused: kNoContext
  Context free_block_ = kNoContext;  // chained by `offset`
  std::vector<uint32_t> arena_;
  std::vector<uint32_t> free_words_;  // head of each size class, 0: none
  std::vector<RootSlot> root_;        // open addressing, a power of two
  size_t root_size_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_WINDOW_TRIE_H_
