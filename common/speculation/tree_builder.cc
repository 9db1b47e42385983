#include "common/speculation/tree_builder.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace foretoken {
namespace {

uint64_t ChildKey(int32_t parent, TokenId token) {
  return static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32 |
         static_cast<uint32_t>(token);
}

std::vector<bool> ProbeFlags(const ProposedTree& proposed) {
  std::vector<bool> probe(proposed.tokens.size(), false);
  for (const int32_t node : proposed.probes) probe[node] = true;
  return probe;
}

}  // namespace

void TreeBuilder::Propose(Node& node, int proposer, DrafterId part, float prob,
                          bool probe) {
  // The lower-numbered proposer wins a tie; a draft's estimate replaces a
  // probe's.
  const bool better =
      prob > node.prob || (prob == node.prob && proposer < node.credited);
  if (node.probe != probe ? node.probe : better) {
    node.credited = proposer;
    node.part = part;
    node.prob = prob;
  }
  node.proposers |= ProposerSet{1} << proposer;
  node.probe = node.probe && probe;
}

void TreeBuilder::Add(const ProposedTree& proposed) {
  FORETOKEN_CHECK(proposed.proposer >= 0 && proposed.proposer <= kMaxProposer);
  const std::vector<bool> probe = ProbeFlags(proposed);
  std::vector<int32_t> nodes(proposed.tokens.size());
  std::vector<float> probs(proposed.tokens.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t own_parent = proposed.parents[i];
    const float limit = own_parent == kRootParent ? 1.0f : probs[own_parent];
    probs[i] =
        proposed.probs.empty() ? 0.0f : std::min(limit, proposed.probs[i]);
    const int32_t parent =
        own_parent == kRootParent ? kRootParent : nodes[own_parent];
    const auto [child, fresh] =
        children_.try_emplace(ChildKey(parent, proposed.tokens[i]), size());
    nodes[i] = child->second;
    const DrafterId part =
        proposed.parts.empty() ? DrafterId::kTarget : proposed.parts[i];
    if (fresh) {
      nodes_.push_back({proposed.tokens[i], parent, 0, proposed.proposer, part,
                        probs[i], probe[i]});
    }
    Propose(nodes_[nodes[i]], proposed.proposer, part, probs[i], probe[i]);
  }
}

MergedTree TreeBuilder::Build(int max_draft_nodes, int max_nodes) const {
  FORETOKEN_CHECK(max_draft_nodes >= 0 && max_nodes >= 0);
  std::vector<int32_t> drafts, probes;
  for (int32_t index = 0; index < size(); ++index) {
    (nodes_[index].probe ? probes : drafts).push_back(index);
  }
  const size_t kept =
      std::min<size_t>({drafts.size(), static_cast<size_t>(max_draft_nodes),
                        static_cast<size_t>(max_nodes)});
  if (kept < drafts.size()) {
    // Parents have at least their children's estimate and a smaller index, so
    // that every prefix of this order is a tree.
    std::nth_element(drafts.begin(), drafts.begin() + kept, drafts.end(),
                     [&](int32_t a, int32_t b) {
                       return nodes_[a].prob != nodes_[b].prob
                                  ? nodes_[a].prob > nodes_[b].prob
                                  : a < b;
                     });
    drafts.resize(kept);
    std::sort(drafts.begin(), drafts.end());
  }

  MergedTree merged;
  std::vector<int32_t> row_of(nodes_.size(), -1);
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
  const auto take = [&](int32_t index) {
    const Node& node = nodes_[index];
    const int32_t parent =
        node.parent == kRootParent ? kRootParent : row_of[node.parent];
    // Skip a probe whose parent did not fit.
    if (node.parent != kRootParent && parent < 0) return;
    row_of[index] = static_cast<int32_t>(tokens.size());
    tokens.push_back(node.token);
    parents.push_back(parent);
    merged.proposers.push_back(node.proposers);
    merged.credited.push_back(node.credited);
    merged.parts.push_back(node.part);
    merged.probs.push_back(node.prob);
  };
  for (const int32_t index : drafts) take(index);
  merged.draft_nodes = static_cast<int>(tokens.size());
  for (const int32_t index : probes) {
    if (tokens.size() == static_cast<size_t>(max_nodes)) break;
    take(index);
  }
  absl::StatusOr<TokenTree> tree =
      TokenTree::Create(std::move(tokens), std::move(parents));
  FORETOKEN_CHECK(tree.ok());
  merged.tree = *std::move(tree);
  return merged;
}

void TreeBuilder::Clear() {
  nodes_.clear();
  children_.clear();
}

}  // namespace foretoken
