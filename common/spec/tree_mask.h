// Tree mask: which nodes of a token tree a node sees, as words of bits.
//
// A node sees its ancestors and itself: its parent's bits plus its own. The
// committed context, which every node sees, is not in the mask. Masks are built
// from the parents where a pass runs and never sent.
//
// Source: SpecInfer, arXiv:2305.09781, "topology-aware causal mask".
// Thread-compatible.
#ifndef FORETOKEN_COMMON_SPEC_TREE_MASK_H_
#define FORETOKEN_COMMON_SPEC_TREE_MASK_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

class TreeMask {
 public:
  TreeMask() = default;
  explicit TreeMask(absl::Span<const int32_t> parents) { Assign(parents); }

  // As TokenTree::parents(): parents[i] in -1..i-1. Keeps its memory.
  void Assign(absl::Span<const int32_t> parents);

  int size() const { return size_; }
  int words_per_node() const { return words_; }  // ceil(size / 64)
  // Bit j % 64 of word j / 64 is set where `node` sees node j.
  absl::Span<const uint64_t> Words(int node) const {
    return absl::MakeSpan(bits_).subspan(
        static_cast<size_t>(node) * static_cast<size_t>(words_), words_);
  }
  bool Sees(int node, int other) const {
    return Words(node)[other / 64] >> (other % 64) & 1;
  }
  // Nodes on the path to `node`, itself included.
  int Depth(int node) const;

 private:
  int size_ = 0;
  int words_ = 0;
  std::vector<uint64_t> bits_;  // [size, words_per_node]
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_SPEC_TREE_MASK_H_
