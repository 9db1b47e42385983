#include "common/drafting/ngram_trie.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/base/check.h"

namespace foretoken {
namespace {

constexpr int64_t kMinTokens = 1024;
constexpr size_t kMinSlots = 256;
constexpr size_t kMinText = 256;

// Load factor at most two thirds.
bool TooFull(size_t nodes, size_t slots) { return nodes * 3 > slots * 2; }

}  // namespace

NgramTrie::NgramTrie(int n, int64_t max_tokens)
    : n_(n),
      max_tokens_(static_cast<int64_t>(std::bit_ceil(
          static_cast<size_t>(std::max(max_tokens, kMinTokens))))),
      max_nodes_(max_tokens_ * kNodesPerToken),
      open_(n, kNone) {
  FORETOKEN_CHECK(n >= 2 && n <= kMaxN);
  // Leaves store 32-bit positions, node indices have 31 bits.
  FORETOKEN_CHECK(max_tokens_ <= int64_t{1} << 27);
  Clear();
}

void NgramTrie::Clear(int64_t expected_tokens) {
  const size_t expected =
      static_cast<size_t>(std::clamp<int64_t>(expected_tokens, 0, max_tokens_));
  text_ = std::vector<TokenId>(std::bit_ceil(std::max(expected, kMinText)));
  begin_ = end_ = 0;
  nodes_ = std::vector<Node>();  // releases the memory
  // Two to three nodes per token, with room for the first output tokens.
  nodes_.reserve(
      1 + std::min(2 * expected + kMinText, static_cast<size_t>(max_nodes_)));
  nodes_.push_back({-1, kNone, 0, 0, kNone, kNone, kNone});
  free_ = kNone;
  live_nodes_ = 0;
  slots_ = std::vector<int32_t>(
      std::bit_ceil(std::max(2 * expected, kMinSlots)), kNone);
}

int64_t NgramTrie::PositionOf(const Node& leaf) const {
  // Links hold the low 32 bits of a position; the window is far shorter than
  // 2^32.
  return end_ - static_cast<uint32_t>(static_cast<uint32_t>(end_) -
                                      static_cast<uint32_t>(leaf.link));
}

size_t NgramTrie::Home(int32_t parent, TokenId token) const {
  uint64_t hash = (static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32 |
                   static_cast<uint32_t>(token)) *
                  0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  return static_cast<size_t>(hash) & (slots_.size() - 1);
}

int32_t NgramTrie::Find(int32_t parent, TokenId token) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = Home(parent, token); slots_[slot] != kNone;
       slot = (slot + 1) & mask) {
    const Node& node = nodes_[slots_[slot]];
    if (node.parent == parent && node.token == token) return slots_[slot];
  }
  return kNone;
}

void NgramTrie::GrowSlots() {
  std::vector<int32_t> old(slots_.size() * 2, kNone);
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const int32_t node : old) {
    if (node == kNone) continue;
    size_t slot = Home(nodes_[node].parent, nodes_[node].token);
    while (slots_[slot] != kNone) slot = (slot + 1) & mask;
    slots_[slot] = node;
  }
}

void NgramTrie::EraseSlot(int32_t node) {
  const size_t mask = slots_.size() - 1;
  size_t hole = Home(nodes_[node].parent, nodes_[node].token);
  while (slots_[hole] != node) hole = (hole + 1) & mask;
  // Backward-shift deletion: later entries of the run move into the hole unless
  // their home lies after it. No tombstones are needed.
  for (size_t slot = (hole + 1) & mask; slots_[slot] != kNone;
       slot = (slot + 1) & mask) {
    const Node& held = nodes_[slots_[slot]];
    const size_t home = Home(held.parent, held.token);
    if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
    slots_[hole] = slots_[slot];
    hole = slot;
  }
  slots_[hole] = kNone;
}

void NgramTrie::Link(int32_t node) {
  Node& added = nodes_[node];
  Node& parent = nodes_[added.parent];
  added.prev = kNone;
  added.next = parent.link;
  if (parent.link != kNone) nodes_[parent.link].prev = node;
  parent.link = node;
}

void NgramTrie::Unlink(int32_t node) {
  const Node& gone = nodes_[node];
  if (gone.prev != kNone) {
    nodes_[gone.prev].next = gone.next;
  } else {
    nodes_[gone.parent].link = gone.next;
  }
  if (gone.next != kNone) nodes_[gone.next].prev = gone.prev;
}

void NgramTrie::MoveToFront(int32_t node) {
  // Drafts never read the root's own children, so their order does not matter.
  if (nodes_[node].prev == kNone || nodes_[node].parent == kRoot) return;
  Unlink(node);
  Link(node);
}

int32_t NgramTrie::NewNode(int32_t parent, TokenId token, int depth,
                           int64_t position) {
  // A new node has one occurrence. At depth n nothing hangs below it.
  const bool leaf = depth < n_;
  const int32_t link =
      leaf ? static_cast<int32_t>(static_cast<uint32_t>(position)) : kNone;
  const Node fresh{token, parent, 1, leaf, link, kNone, kNone};
  int32_t node = free_;
  if (node != kNone) {
    free_ = nodes_[node].next;
    nodes_[node] = fresh;
  } else {
    node = static_cast<int32_t>(nodes_.size());
    if (nodes_.size() == nodes_.capacity()) {
      nodes_.reserve(
          std::min(2 * nodes_.size(), static_cast<size_t>(max_nodes_) + 1));
    }
    nodes_.push_back(fresh);
  }
  ++live_nodes_;
  if (TooFull(live_nodes_, slots_.size())) GrowSlots();
  const size_t mask = slots_.size() - 1;
  size_t slot = Home(parent, token);
  while (slots_[slot] != kNone) slot = (slot + 1) & mask;
  slots_[slot] = node;
  Link(node);
  return node;
}

void NgramTrie::RemoveNode(int32_t node) {
  EraseSlot(node);
  Unlink(node);
  nodes_[node].next = free_;
  free_ = node;
  --live_nodes_;
}

void NgramTrie::PushDown(int32_t leaf, int depth) {
  const int64_t position = PositionOf(nodes_[leaf]);
  nodes_[leaf].is_leaf = 0;
  nodes_[leaf].link = kNone;
  // The second occurrence starts later and has `depth` tokens already, so the
  // first one has at least one token more.
  NewNode(leaf, TextAt(position + depth), depth + 1, position);
}

void NgramTrie::GrowText() {
  std::vector<TokenId> longer(text_.size() * 2);
  for (int64_t at = begin_; at < end_; ++at) {
    longer[static_cast<size_t>(at) & (longer.size() - 1)] = TextAt(at);
  }
  text_ = std::move(longer);
}

// Decrements the oldest window's path; nodes that reach zero are removed,
// deepest first. A leaf on the path belongs to this window alone.
void NgramTrie::EvictOldest() {
  std::array<int32_t, kMaxN> path;
  int length = 0;
  int32_t node = kRoot;
  for (int depth = 1; depth <= n_; ++depth) {
    node = Find(node, TextAt(begin_ + depth - 1));
    path[length++] = node;
    --nodes_[node].count;
    if (nodes_[node].is_leaf) break;
  }
  while (length > 0 && nodes_[path[length - 1]].count == 0) {
    RemoveNode(path[--length]);
  }
  ++begin_;
}

void NgramTrie::Insert(TokenId token) {
  // Each open start adds at most one node, so n free nodes suffice. Eviction
  // cannot run out of complete windows: the node limit far exceeds the need of
  // n open windows.
  while (end_ - begin_ == max_tokens_ || live_nodes_ + n_ > max_nodes_) {
    EvictOldest();
  }
  if (static_cast<size_t>(end_ - begin_) == text_.size()) GrowText();
  const int64_t position = end_++;
  text_[static_cast<size_t>(position) & (text_.size() - 1)] = token;
  // Every start of an incomplete window gets one token longer.
  for (int64_t start = std::max(begin_, position - n_ + 1); start <= position;
       ++start) {
    const int depth = static_cast<int>(position - start) + 1;
    int32_t& open = open_[start % n_];
    const int32_t parent = depth == 1 ? kRoot : open;
    if (parent == kNone) continue;  // inside its own leaf: grows with the text
    const int32_t child = Find(parent, token);
    if (child == kNone) {
      NewNode(parent, token, depth, start);
      open = kNone;
      continue;
    }
    ++nodes_[child].count;
    MoveToFront(child);
    if (nodes_[child].is_leaf) PushDown(child, depth);
    open = child;
  }
}

int64_t NgramTrie::NextInLeaf(const Place& place) const {
  const int64_t next = PositionOf(nodes_[place.node]) + place.depth;
  return place.depth < n_ && next < end_ ? next : -1;
}

bool NgramTrie::HasContinuation(const Place& place) const {
  const Node& node = nodes_[place.node];
  return node.is_leaf ? NextInLeaf(place) >= 0 : node.link != kNone;
}

bool NgramTrie::Walk(absl::Span<const TokenId> ngram, Place& place) const {
  place = {kRoot, 0};
  for (const TokenId token : ngram) {
    if (nodes_[place.node].is_leaf) {
      const int64_t next = NextInLeaf(place);
      if (next < 0 || TextAt(next) != token) return false;
    } else {
      const int32_t child = Find(place.node, token);
      if (child == kNone) return false;
      place.node = child;
    }
    ++place.depth;
  }
  return true;
}

int64_t NgramTrie::Count(absl::Span<const TokenId> ngram) const {
  Place place;
  if (ngram.empty() || !Walk(ngram, place)) return 0;
  return nodes_[place.node].count;
}

void NgramTrie::PushCandidate(uint32_t count, const Place& place, TokenId token,
                              int32_t tree_parent) {
  // 31 bits of count, 6 of depth, 26 of order of discovery: a draft discovers
  // at most kMaxChildrenSeen nodes for each node that it takes.
  const uint64_t key = static_cast<uint64_t>(count) << 32 |
                       static_cast<uint64_t>(kMaxN - place.depth) << 26 |
                       ((uint32_t{1} << 26) - 1 - discovered_++);
  if (best_.size() >= wanted_) {
    // Enough better candidates are known already.
    if (best_.empty() || key < best_.front().key) return;
    best_.erase(best_.begin());
  }
  const auto at = std::upper_bound(
      best_.begin(), best_.end(), key,
      [](uint64_t k, const Candidate& other) { return k < other.key; });
  best_.insert(at, {key, place, token, tree_parent});
}

uint64_t NgramTrie::PushChildren(const Place& place, int32_t tree_parent) {
  const Node& node = nodes_[place.node];
  if (node.is_leaf) {
    const int64_t next = NextInLeaf(place);
    if (next < 0) return 0;
    PushCandidate(1, {place.node, place.depth + 1}, TextAt(next), tree_parent);
    return 1;
  }
  uint64_t sum = 0;
  int seen = 0;
  for (int32_t child = node.link; child != kNone && seen < kMaxChildrenSeen;
       child = nodes_[child].next, ++seen) {
    PushCandidate(nodes_[child].count, {child, place.depth + 1},
                  nodes_[child].token, tree_parent);
    sum += nodes_[child].count;
  }
  return sum;
}

int NgramTrie::Draft(absl::Span<const TokenId> context, int longest_match,
                     int max_nodes, DraftTree& tree) {
  FORETOKEN_CHECK(tree.size() == 0);
  const int longest =
      std::min<int>({longest_match, n_ - 1, static_cast<int>(context.size())});
  for (int length = longest; length >= 1; --length) {
    Place place;
    if (!Walk(context.subspan(context.size() - length), place) ||
        !HasContinuation(place)) {
      continue;
    }
    best_.clear();
    discovered_ = 0;
    wanted_ = static_cast<size_t>(max_nodes);
    const float total = static_cast<float>(PushChildren(place, kRootParent));
    // Best first: a node's children are candidates as soon as it is taken.
    // Their counts cannot exceed its own, so the tree is prefix-closed.
    while (!best_.empty() && tree.size() < max_nodes) {
      const Candidate best = best_.back();
      best_.pop_back();
      --wanted_;
      const int32_t node =
          tree.Add(best.token, best.tree_parent,
                   std::min(1.0f, static_cast<float>(best.key >> 32) / total));
      PushChildren(best.place, node);
    }
    return length;
  }
  return 0;
}

size_t NgramTrie::MemoryBytes() const {
  return text_.capacity() * sizeof(TokenId) + nodes_.capacity() * sizeof(Node) +
         slots_.capacity() * sizeof(int32_t) +
         open_.capacity() * sizeof(int32_t);
}

size_t NgramTrie::MaxBytes() const {
  const size_t nodes = static_cast<size_t>(max_nodes_) + 1;
  size_t slots = kMinSlots;
  while (TooFull(nodes, slots)) slots *= 2;
  return static_cast<size_t>(max_tokens_) * sizeof(TokenId) +
         nodes * sizeof(Node) + slots * sizeof(int32_t) +
         open_.capacity() * sizeof(int32_t);
}

}  // namespace foretoken
