#include "common/speculation/tree_builder.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace foretoken {
namespace {

uint64_t ChildKey(int32_t parent, TokenId token) {
  // Parent in the high half, -1 included as 0xffffffff: the pair of 32-bit
  // values is the key, so different children never collide.
  return static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32 |
         static_cast<uint32_t>(token);
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

void TreeBuilder::Add(int proposer, const DraftTree& tree,
                      absl::Span<const float> probs, bool probes) {
  FORETOKEN_CHECK(proposer >= 0 && proposer <= kMaxProposer);
  FORETOKEN_CHECK(probs.empty() || probs.size() == tree.tokens.size());
  merged_.resize(tree.tokens.size());
  capped_.resize(tree.tokens.size());
  for (size_t i = 0; i < merged_.size(); ++i) {
    const int32_t own_parent = tree.parents[i];
    // A child cannot be likelier than its parent; drafters that estimate each
    // node alone may say otherwise. The cap keeps KeepLikeliest's invariant.
    const float limit = own_parent == kRootParent ? 1.0f : capped_[own_parent];
    capped_[i] = probs.empty() ? 0.0f : std::min(limit, probs[i]);
    const int32_t parent =
        own_parent == kRootParent ? kRootParent : merged_[own_parent];
    // Equal paths of different drafters become one node: the tree is a trie,
    // and each of its rows is verified once.
    const auto [child, fresh] =
        children_.try_emplace(ChildKey(parent, tree.tokens[i]), size());
    merged_[i] = child->second;
    const DrafterId part =
        tree.parts.empty() ? DrafterId::kTarget : tree.parts[i];
    if (fresh) {
      nodes_.push_back(
          {tree.tokens[i], parent, 0, proposer, part, capped_[i], probes});
    }
    // Also for a fresh node, which then finds its own values and only adds
    // itself to the proposers.
    Propose(nodes_[merged_[i]], proposer, part, capped_[i], probes);
  }
}

void TreeBuilder::KeepLikeliest(size_t count, bool in_order) {
  // Parents have at least their children's estimate and a smaller index, so
  // that every prefix of this order is a tree.
  const auto likelier = [this](int32_t a, int32_t b) {
    return nodes_[a].prob != nodes_[b].prob ? nodes_[a].prob > nodes_[b].prob
                                            : a < b;
  };
  // nth_element is linear; only a price needs the order among those that are
  // kept.
  if (count < drafts_.size()) {
    std::nth_element(drafts_.begin(), drafts_.begin() + count, drafts_.end(),
                     likelier);
    drafts_.resize(count);
  }
  if (in_order) std::sort(drafts_.begin(), drafts_.end(), likelier);
}

TokenTree TreeBuilder::Build(int max_draft_nodes, int max_nodes,
                             const Price& price) {
  FORETOKEN_CHECK(max_draft_nodes >= 0 && max_nodes >= 0);
  drafts_.clear();
  probes_.clear();
  for (int32_t index = 0; index < size(); ++index) {
    (nodes_[index].probe ? probes_ : drafts_).push_back(index);
  }
  const size_t fit =
      std::min<size_t>({drafts_.size(), static_cast<size_t>(max_draft_nodes),
                        static_cast<size_t>(max_nodes)});
  // Without a price all nodes that fit are kept, and whole trees need no order
  // at all.
  const bool priced = price != nullptr && fit > 0;
  const bool whole = fit == drafts_.size();
  if (priced || !whole) KeepLikeliest(fit, priced);
  if (priced) {
    priced_.clear();
    for (const int32_t index : drafts_) priced_.push_back(nodes_[index].prob);
    const int worth = price(priced_);
    // The price may ask for more than there is, which keeps everything.
    FORETOKEN_CHECK(worth >= 0);
    if (static_cast<size_t>(worth) < fit) drafts_.resize(worth);
  }
  // Back to the order of arrival, in which parents come first.
  if (priced || !whole) std::sort(drafts_.begin(), drafts_.end());

  // Parents are added before their children, since a parent's index in nodes_
  // is smaller; `row_of_` is then known when a child asks.
  DraftTree tree;
  const size_t most =
      std::min(static_cast<size_t>(max_nodes), drafts_.size() + probes_.size());
  tree.tokens.reserve(most);
  tree.parents.reserve(most);
  tree.probs.reserve(most);
  tree.parts.reserve(most);
  tree.proposers.reserve(most);
  tree.credited.reserve(most);
  row_of_.assign(nodes_.size(), -1);
  const auto take = [&](int32_t index) {
    const Node& node = nodes_[index];
    const int32_t parent =
        node.parent == kRootParent ? kRootParent : row_of_[node.parent];
    // Skip a probe whose parent did not fit.
    if (node.parent != kRootParent && parent < 0) return;
    row_of_[index] = tree.Add(node.token, parent, node.prob);
    tree.parts.push_back(node.part);
    tree.proposers.push_back(node.proposers);
    tree.credited.push_back(node.credited);
  };
  for (const int32_t index : drafts_) take(index);
  const int draft_nodes = tree.size();
  for (const int32_t index : probes_) {
    // Probes come last and take only what drafts leave.
    if (tree.size() == max_nodes) break;
    take(index);
  }
  std::vector<bool> probe;
  // No probe was taken: empty means that all are draft nodes.
  if (tree.size() > draft_nodes) {
    probe.assign(tree.tokens.size(), true);
    std::fill_n(probe.begin(), draft_nodes, false);
  }
  return TokenTree::FromValid(std::move(tree), std::move(probe));
}

void TreeBuilder::Clear() {
  nodes_.clear();
  children_.clear();
}

}  // namespace foretoken
