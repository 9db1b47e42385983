// Count trie over a sliding window of tokens: what followed each short context
// of a request (prompt and output) or of a scope's earlier outputs, and where
// the latest occurrence of each longer context stands.
//
// Representation: a context of L tokens, 1 <= L < depth, is a *context*: a
// block of its continuations (token, count, link), most frequent first, the
// latest before its equals. The link of a continuation is the longer context
// it leads to, or, at full depth, the position of its latest occurrence, so
// that a long copy is followed through the text and needs no deep nodes.
//
// Bounded: the window holds at most `window_tokens` tokens; a token that
// enters a full window evicts the oldest one in O(depth) and returns its
// memory. At most depth - 1 continuations a token exist; with everything
// around them a token costs less than 300 bytes, whatever the text.
//
// Contexts are stable until the next Append, EndSequence or Clear that evicts:
// compare version() before a kept one is used again.
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
  // Longest stored n-gram. Contexts of 1 .. kDepth-1 tokens have counts; an
  // occurrence of kDepth tokens has a position.
  static constexpr int kDepth = 6;

  using Context = uint32_t;
  static constexpr Context kNoContext = 0;
  static constexpr uint32_t kNoPosition = ~uint32_t{0};

  // Continuations of one context; the pointers live until the next change.
  struct Continuations {
    const uint32_t* tokens = nullptr;
    const uint32_t* counts = nullptr;
    const uint32_t* links = nullptr;  // Context, or position at full depth
    uint32_t size = 0;
    uint32_t total = 0;   // sum of counts
    uint32_t latest = 0;  // the token that followed most recently

    // Index of `token`, or -1.
    int Find(TokenId token) const;
  };

  // `window_tokens` is rounded up to a power of two, at least 16.
  explicit WindowTrie(size_t window_tokens);

  void Append(TokenId token);
  // The next token starts a new sequence: no context spans the border.
  void EndSequence();
  void Clear();

  // The context of `token` alone.
  Context Root(TokenId token) const;
  // Occurrences of `token` in the window.
  uint32_t RootCount(TokenId token) const {
    return root_[RootIndex(token)].count;
  }
  Continuations Of(Context context) const;
  // The context of the last `length` tokens of the open sequence, 1 <= length
  // < kDepth; kNoContext where the sequence is shorter.
  Context Open(int length) const { return open_[length]; }

  // Position of the newest token; position p + 1 follows p in the text. A
  // position stays readable while fewer than window_tokens() came after it.
  uint32_t end_position() const { return end_; }
  bool Holds(uint32_t position) const {
    return end_ - position < size_;  // modulo 2^32
  }
  // The token at a position that Holds; -1 where a sequence ended.
  TokenId TokenAt(uint32_t position) const {
    return ring_[position & ring_mask_];
  }

  uint64_t version() const { return version_; }
  size_t size() const { return size_; }  // tokens held, borders included
  size_t window_tokens() const { return ring_mask_ + 1; }
  size_t MemoryBytes() const;

 private:
  struct Block {
    uint32_t offset = 0;  // of the entries in arena_, in words
    uint32_t total = 0;
    uint32_t latest = 0;
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
  // Counts `token` after `context`; the context or position it leads to.
  uint32_t Count(Context context, TokenId token, bool deepest);
  // Undoes one Count; the link it had, kNoContext when the entry is gone.
  Context Uncount(Context context, TokenId token, bool deepest);
  void RemoveEntry(Block& block, uint32_t index, bool deepest);
  void Grow(Block& block);
  Context NewBlock();
  void FreeBlock(Context context);
  uint32_t AllocateWords(int size_class);
  void Compact();
  Context CountRoot(TokenId token);
  Context UncountRoot(TokenId token);
  size_t RootIndex(TokenId token) const;
  void GrowRoot();
  void MoveForward(uint32_t* entries, uint32_t capacity, uint32_t index);
  void MoveBack(uint32_t* entries, uint32_t capacity, uint32_t size,
                uint32_t index);

  std::vector<int32_t> ring_;
  size_t ring_limit_;
  uint32_t ring_mask_ = 0;
  uint32_t end_ = 0;
  size_t size_ = 0;
  uint64_t version_ = 0;
  std::array<Context, kDepth> open_{};

  std::vector<Block> blocks_;  // [0] is unused: kNoContext
  std::vector<Context> free_blocks_;
  std::vector<uint32_t> arena_;
  std::vector<uint32_t> free_words_;  // head of each size class, 0: none
  std::vector<RootSlot> root_;        // open addressing, a power of two
  size_t root_size_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_WINDOW_TRIE_H_
