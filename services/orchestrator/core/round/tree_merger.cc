#include "services/orchestrator/core/round/tree_merger.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"

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
    const int32_t parent = tree.parents[i];
    const bool at_root = parent == kRootParent;
    depth[i] = at_root ? 1 : depth[parent] + 1;
    const TokenId token = tree.tokens[i];
    if (token < 0 || token >= vocab_size || depth[i] > max_depth) continue;
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

MergedTree TreeMerger::Merge(absl::Span<const Answer> answers,
                             const Price& price) {
  FORETOKEN_CHECK(answers.size() <= static_cast<size_t>(kMaxProposer) + 1);
  builder_.Clear();
  for (size_t i = 0; i < answers.size(); ++i) {
    ProposedTree proposed;
    proposed.proposer = static_cast<int>(i);
    if (const DraftTree* tree = answers[i].tree; tree != nullptr) {
      proposed.tokens = tree->tokens;
      proposed.parents = tree->parents;
      proposed.probs = answers[i].probs;
      proposed.parts = tree->parts;
      builder_.Add(proposed);
    }
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const DraftTree* window = answers[i].window;
    if (window == nullptr) continue;
    ProposedTree proposed;
    proposed.proposer = static_cast<int>(i);
    all_.resize(window->size());
    std::iota(all_.begin(), all_.end(), 0);
    proposed.tokens = window->tokens;
    proposed.parents = window->parents;
    proposed.probes = all_;
    builder_.Add(proposed);
  }
  MergedTree merged = builder_.Build(limits_.max_draft_nodes, limits_.max_rows);
  if (price == nullptr || merged.draft_nodes == 0) return merged;
  std::vector<float> probs(merged.probs.begin(),
                           merged.probs.begin() + merged.draft_nodes);
  std::sort(probs.begin(), probs.end(), std::greater<>());
  const int worth = price(probs);
  if (worth >= merged.draft_nodes) return merged;
  return builder_.Build(worth, limits_.max_rows);
}

}  // namespace foretoken::orchestrator
