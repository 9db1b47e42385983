#include "services/orchestrator/core/round/tree_merger.h"

#include <vector>

#include "common/base/check.h"
#include "common/base/token_range.h"

namespace foretoken::orchestrator {
namespace {

bool IsTree(const DraftTree& tree) {
  const size_t size = tree.tokens.size();
  if (tree.parents.size() != size || tree.probs.size() != size ||
      (!tree.parts.empty() && tree.parts.size() != size)) {
    return false;
  }
  for (size_t i = 0; i < size; ++i) {
    const int32_t parent = tree.parents[i];
    if (parent < kRootParent || parent >= static_cast<int64_t>(i)) return false;
  }
  return true;
}

}  // namespace

bool KeepUsable(int32_t vocab_size, int64_t max_depth, int32_t max_nodes,
                DraftTree& tree) {
  if (!IsTree(tree)) {
    tree.Clear();
    return false;
  }
  // New index (-1: dropped) and depth of every node seen so far.
  std::vector<int32_t> kept(tree.size(), -1);
  std::vector<int64_t> depth(tree.size(), 0);
  int32_t size = 0;
  for (int32_t i = 0; i < tree.size() && size < max_nodes; ++i) {
    // Stops at max_nodes: parents precede children, so every prefix is a tree.
    const int32_t parent = tree.parents[i];
    const bool at_root = parent == kRootParent;
    depth[i] = at_root ? 1 : depth[parent] + 1;
    const TokenId token = tree.tokens[i];
    if (!InVocabulary(token, vocab_size) || depth[i] > max_depth) continue;
    if (!at_root && kept[parent] < 0) continue;
    const float prob = tree.probs[i];
    tree.tokens[size] = token;
    tree.parents[size] = at_root ? kRootParent : kept[parent];
    // The comparison also rejects NaN.
    tree.probs[size] = prob >= 0.0f && prob <= 1.0f ? prob : 0.0f;
    if (!tree.parts.empty()) tree.parts[size] = tree.parts[i];
    kept[i] = size++;
  }
  tree.tokens.resize(size);
  tree.parents.resize(size);
  tree.probs.resize(size);
  if (!tree.parts.empty()) tree.parts.resize(size);
  return true;
}

TokenTree TreeMerger::Merge(absl::Span<const Answer> answers,
                            const Price& price) {
  FORETOKEN_CHECK(answers.size() <= static_cast<size_t>(kMaxProposer) + 1);
  builder_.Clear();
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].tree == nullptr) continue;
    builder_.Add(static_cast<int>(i), *answers[i].tree, answers[i].probs);
  }
  // Windows come after all drafts, so that the order of draft nodes does not
  // depend on them.
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].window == nullptr) continue;
    builder_.Add(static_cast<int>(i), *answers[i].window, {}, /*probes=*/true);
  }
  return builder_.Build(limits_.max_draft_nodes, limits_.max_rows, price);
}

}  // namespace foretoken::orchestrator
