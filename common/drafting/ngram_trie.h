// N-gram trie: counts of all substrings of up to n tokens of a context; drafts
// the most frequent continuations of its last tokens.
//
// Representation: the count trie of every window of n tokens, except that a
// substring that occurs only once has no nodes below the first one. That node
// is a *leaf*: it stores the position of the occurrence, and its descendants
// are read from the text. A second occurrence pushes the leaf down one level
// per token, so that a node exists for every substring that occurs twice and
// for the first token after it. Natural text needs two to three nodes per
// token; the plain trie needs about eleven.
//
// The trie covers the last `max_tokens` tokens: a token that enters a full trie
// evicts the window at the oldest token, with at most n decrements. Text that
// needs more than kNodesPerToken nodes per token (long repeats) is covered by a
// shorter window; memory never exceeds MaxBytes().
//
// Source: Algorithm 1 of Chen et al., "Faster In-Context Learning for LLMs via
// N-Gram Trie Speculative Decoding" (EMNLP 2025). The paper inserts every
// window under each of its sub-prefixes; here each occurrence counts once. Away
// from the ends of the context, the paper thus counts a substring of up to
// n - L_p + 1 tokens L_p times, and a longer one fewer times by one a token:
// the order of continuations is the same, except that the paper ranks those in
// the deepest L_p - 1 levels of the trie lower.
//
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_COMMON_DRAFTING_NGRAM_TRIE_H_
#define FORETOKEN_COMMON_DRAFTING_NGRAM_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/draft_tree.h"
#include "common/speculation/modes.h"

namespace foretoken {

class NgramTrie {
 public:
  static constexpr int kMaxN = NgramTrieOptions::kMaxN;
  static constexpr int kNodesPerToken = 6;
  // Draft reads only the most recently seen children of a node, which bounds
  // its time. Nodes with more children are the most common tokens of long
  // contexts, which say little about the next token.
  static constexpr int kMaxChildrenSeen = 256;

  // n in 2..kMaxN; max_tokens is rounded up to a power of two, at least 1024.
  NgramTrie(int n, int64_t max_tokens);

  // Drops everything; `expected_tokens` sizes the initial allocation.
  void Clear(int64_t expected_tokens = 0);

  // Appends the next token of the context. Amortised O(n); O(1) for text
  // without repeats.
  void Insert(TokenId token);

  // Finds the longest suffix of `context` of at most `longest_match` (< n)
  // tokens that has continuations, and adds at most `max_nodes` most frequent
  // nodes below it to `tree`, which must be empty. Ties go to the shallower
  // node, then to the more recently seen one. A node's estimate is its share of
  // the counts that follow the match. Returns the length of the match, 0 for
  // none.
  int Draft(absl::Span<const TokenId> context, int longest_match, int max_nodes,
            DraftTree& tree);

  // Occurrences of `ngram` (1..n tokens) in the window.
  int64_t Count(absl::Span<const TokenId> ngram) const;

  int n() const { return n_; }
  int64_t tokens() const { return end_ - begin_; }  // in the window
  int64_t nodes() const { return live_nodes_; }     // without the root
  // Excludes Draft's scratch (at most 48 bytes per drafted node).
  size_t MemoryBytes() const;
  // Upper bound of MemoryBytes: under 300 bytes per token of max_tokens.
  size_t MaxBytes() const;

 private:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kRoot = 0;

  struct Node {
    TokenId token;
    int32_t parent;
    uint32_t count : 31;
    uint32_t is_leaf : 1;
    int32_t link;  // leaf: position of its occurrence; else first child or
                   // kNone
    int32_t next;  // siblings, most recently seen first
    int32_t prev;
  };
  // Position of a walk from the root: in a node, or further down the text of a
  // leaf. `depth` is counted from the root.
  struct Place {
    int32_t node;
    int32_t depth;
  };
  struct Candidate {
    uint64_t key;  // count, then shallowness, then order of discovery
    Place place;
    TokenId token;
    int32_t tree_parent;
  };

  TokenId TextAt(int64_t position) const {
    return text_[static_cast<size_t>(position) & (text_.size() - 1)];
  }
  // Returns false if `ngram` does not occur.
  bool Walk(absl::Span<const TokenId> ngram, Place& place) const;
  bool HasContinuation(const Place& place) const;
  // Text position after a place in a leaf, or -1 at the end of its window.
  int64_t NextInLeaf(const Place& place) const;
  void PushCandidate(uint32_t count, const Place& place, TokenId token,
                     int32_t tree_parent);
  // Pushes the continuations of `place`; returns the sum of their counts.
  uint64_t PushChildren(const Place& place, int32_t tree_parent);

  int32_t Find(int32_t parent, TokenId token) const;
  int32_t NewNode(int32_t parent, TokenId token, int depth, int64_t position);
  void RemoveNode(int32_t node);
  void MoveToFront(int32_t node);
  void Link(int32_t node);
  void Unlink(int32_t node);
  // Turns the leaf at `depth` into an inner node, with its occurrence as a
  // child.
  void PushDown(int32_t leaf, int depth);
  void EvictOldest();
  void GrowText();
  void GrowSlots();
  size_t Home(int32_t parent, TokenId token) const;
  void EraseSlot(int32_t node);
  int64_t PositionOf(const Node& leaf) const;

  const int n_;
  const int64_t max_tokens_;
  const int64_t max_nodes_;
  std::vector<TokenId> text_;  // ring, a power of two
  int64_t begin_ = 0;          // position of the oldest token held
  int64_t end_ = 0;            // one after the newest
  std::vector<Node> nodes_;    // [0] is the root
  int32_t free_ = kNone;       // freed nodes, chained by `next`
  int64_t live_nodes_ = 0;
  std::vector<int32_t> slots_;  // open addressing by (parent, token)
  // For each start of an incomplete window: the node of the window so far;
  // kNone while it is in (or below) a leaf of its own. Indexed by start modulo
  // n.
  std::vector<int32_t> open_;
  // Scratch of Draft: the best candidates, worst first; at most as many as
  // nodes are still wanted.
  std::vector<Candidate> best_;
  size_t wanted_ = 0;
  uint32_t discovered_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_NGRAM_TRIE_H_
