#include "common/spec/tree_mask.h"

#include <algorithm>

#include "common/base/check.h"

namespace foretoken {

void TreeMask::Assign(absl::Span<const int32_t> parents) {
  size_ = static_cast<int>(parents.size());
  words_ = (size_ + 63) / 64;
  const size_t stride = static_cast<size_t>(words_);
  bits_.assign(parents.size() * stride, 0);
  for (int node = 0; node < size_; ++node) {
    FORETOKEN_CHECK(parents[node] >= kRootParent && parents[node] < node);
    uint64_t* own = bits_.data() + node * stride;
    if (parents[node] != kRootParent) {
      std::copy_n(bits_.data() + parents[node] * stride, stride, own);
    }
    own[node / 64] |= uint64_t{1} << (node % 64);
  }
}

int TreeMask::Depth(int node) const {
  int depth = 0;
  for (const uint64_t word : Words(node)) depth += __builtin_popcountll(word);
  return depth;
}

}  // namespace foretoken
