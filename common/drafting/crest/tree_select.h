// TreeSelector: selects a token tree from sorted continuations.
//
// The sorted continuations of an n-gram implicitly form a trie: the children of
// a node are the runs of equal tokens within its range. The tree grows best
// first by count, and only the ranges that it reaches are read.
//
// Sources: CREST, arXiv:2408.04678, section 3 (most frequent branches); REST,
// arXiv:2311.08252, section 3 (cutting the draft to a sum of path lengths).
// Memory: a few dozen bytes per node of `max_nodes`, however many continuations
// there are. Owned by one thread; reuses its buffers between calls.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_TREE_SELECT_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_TREE_SELECT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/types.h"
#include "common/drafting/crest/crest_tree.h"

namespace foretoken {

class TreeSelector {
 public:
  // Fills `tree` with the `max_nodes` most frequent prefixes, at most
  // `max_depth` long, of the continuations begin..end-1. token_at(i, depth)
  // returns token `depth` (from 0) of continuation i, or a negative number past
  // its end; the continuations are sorted by it, shorter before longer. Ties in
  // count go to the shallower node, then to the lower token.
  template <typename TokenAt>
  void SelectBest(int64_t begin, int64_t end, int max_depth, int max_nodes,
                  TokenAt token_at, CrestTree& tree);

  // REST's cut: each node stands for the path to it. Drops the longest paths,
  // less frequent ones first among equals, until the lengths of the remaining
  // paths sum to at most `max_path_sum`. (Of a tree of 64 nodes, only 20 to 38
  // are left.)
  void CutToPathSum(int max_path_sum, CrestTree& tree);

 private:
  struct Candidate {
    int64_t begin;
    int64_t end;
    TokenId token;
    int32_t parent;
    int32_t depth;
    int64_t count() const { return end - begin; }
  };
  // Heap order: the best candidate is the maximum.
  struct Worse {
    bool operator()(const Candidate& a, const Candidate& b) const {
      if (a.count() != b.count()) return a.count() < b.count();
      if (a.depth != b.depth) return a.depth > b.depth;
      if (a.token != b.token) return a.token > b.token;
      return a.parent > b.parent;
    }
  };

  template <typename TokenAt>
  void PushChildren(int64_t begin, int64_t end, int32_t parent, int depth,
                    int max_nodes, TokenAt& token_at);

  std::vector<Candidate> heap_;
  std::vector<int32_t> depths_;
  std::vector<int32_t> order_;
  std::vector<int32_t> renumbered_;
};

template <typename TokenAt>
void TreeSelector::SelectBest(int64_t begin, int64_t end, int max_depth,
                              int max_nodes, TokenAt token_at,
                              CrestTree& tree) {
  tree.Clear();
  tree.matches = static_cast<uint32_t>(end - begin);
  heap_.clear();
  PushChildren(begin, end, kRootParent, 0, max_nodes, token_at);
  while (!heap_.empty() && tree.size() < max_nodes) {
    std::pop_heap(heap_.begin(), heap_.end(), Worse());
    const Candidate best = heap_.back();
    heap_.pop_back();
    const int32_t node = tree.size();
    tree.tokens.push_back(best.token);
    tree.parents.push_back(best.parent);
    tree.counts.push_back(static_cast<uint32_t>(best.count()));
    if (best.depth + 1 < max_depth && tree.size() < max_nodes) {
      PushChildren(best.begin, best.end, node, best.depth + 1, max_nodes,
                   token_at);
    }
  }
}

template <typename TokenAt>
void TreeSelector::PushChildren(int64_t begin, int64_t end, int32_t parent,
                                int depth, int max_nodes, TokenAt& token_at) {
  // Candidates beyond the best max_nodes can never be taken.
  const size_t most = 2 * static_cast<size_t>(max_nodes) + 64;
  while (begin < end) {
    const TokenId token = token_at(begin, depth);
    // Gallop past the end of the run, then bisect.
    int64_t inside = begin;
    int64_t step = 1;
    while (begin + step < end && token_at(begin + step, depth) == token) {
      inside = begin + step;
      step *= 2;
    }
    int64_t outside = std::min(begin + step, end);
    while (inside + 1 < outside) {
      const int64_t middle = inside + (outside - inside) / 2;
      (token_at(middle, depth) == token ? inside : outside) = middle;
    }
    if (token >= 0) {
      heap_.push_back({begin, outside, token, parent, depth});
      std::push_heap(heap_.begin(), heap_.end(), Worse());
      if (heap_.size() >= most) {
        std::nth_element(heap_.begin(), heap_.begin() + max_nodes, heap_.end(),
                         [](const Candidate& a, const Candidate& b) {
                           return Worse()(b, a);
                         });
        heap_.resize(static_cast<size_t>(max_nodes));
        std::make_heap(heap_.begin(), heap_.end(), Worse());
      }
    }
    begin = outside;
  }
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_TREE_SELECT_H_
