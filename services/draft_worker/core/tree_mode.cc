#include "services/draft_worker/core/tree_mode.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/base/token_range.h"
#include "common/sampling/position_noise.h"

namespace foretoken::draft_worker {
namespace {

// Chance that the token after an accepted node is among those read after it,
// before the session has shown its own, and how many reads that counts as.
constexpr float kHitPrior = 0.75f;
constexpr float kHitPriorReads = 8.0f;
// At this many reads, the earlier ones count half.
constexpr float kReadMemory = 128.0f;

// Nodes read in one pass besides the likeliest. More of them are rarely worth a
// row, and the tree stays of a size that a linear search is right for.
constexpr size_t kMaxReads = 8;
// Hinted nodes read in the first pass, and the least estimate of one.
constexpr size_t kMaxHintReads = 16;
constexpr float kLeastHint = 0.1f;
// Guessed nodes read in one pass, and the least chance of one.
constexpr size_t kMaxGuesses = 16;
constexpr double kLeastGuess = 0.1;

// Other tokens than the drawn one with a smaller chance never pay for a row.
constexpr float kLeastAlternative = 0.02f;

}  // namespace

TreeMode::TreeMode(const ModeLimits& limits)
    : DraftMode(limits.max_rows, limits) {
  FORETOKEN_CHECK(limits.max_rows >= 1);
}

size_t TreeMode::Find(size_t parent, TokenId token) const {
  // Children come after their parents.
  for (size_t i = parent + 1; i < nodes_.size(); ++i) {
    if (nodes_[i].parent == parent && nodes_[i].token == token) return i;
  }
  return nodes_.size();
}

// Learning from a round -------------------------------------------------------

void TreeMode::Observe(const Observation& observation) {
  if (!observation.follows_draft || nodes_.empty()) return;
  size_t at = kRoot;
  for (const TokenId token : observation.committed) {
    if (!nodes_[at].read) return;
    size_t next = nodes_.size();
    for (size_t i = at + 1; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.parent != at || node.path == 0.0f) continue;
      // All children of a node that was read are evidence, not only the one
      // that was right.
      calibration_.Note(node.drawn, node.claim, node.token == token);
      if (node.token == token) next = i;
    }
    const bool hit = next < nodes_.size();
    if (reads_ >= kReadMemory) {
      reads_ /= 2;
      hits_ /= 2;
    }
    reads_ += 1.0f;
    hits_ += hit ? 1.0f : 0.0f;
    if (!hit) return;
    at = next;
  }
}

// Drafting --------------------------------------------------------------------

void TreeMode::Begin(absl::Span<const TokenId> text, const DraftRoom& room) {
  DraftMode::Begin(text, room);
  text_length_ = static_cast<int64_t>(text.size());
  nodes_.assign(1, Node());
  nodes_[kRoot].path = 1.0f;
  kept_.clear();
  copy_.Begin(text);
  CountHints();
  Plan();
}

void TreeMode::TakeHints(const DraftTree& hints) {
  FORETOKEN_CHECK(!nodes_[kRoot].read);
  nodes_.resize(1);  // without guesses, which Plan makes again
  std::vector<size_t> node_of(hints.tokens.size(), kRoot);
  for (size_t i = 0; i < hints.tokens.size(); ++i) {
    const int32_t parent = hints.parents[i];
    const bool known_parent = parent == kRootParent || node_of[parent] != kRoot;
    const TokenId token = hints.tokens[i];
    // The draft model has no row for a token that it does not know.
    if (!known_parent || !InVocabulary(token, limits_.vocab_limit)) continue;
    Node node;
    node.token = token;
    node.parent = parent == kRootParent ? kRoot : node_of[parent];
    node.depth = nodes_[node.parent].depth + 1;
    node.hint = i < hints.probs.size() ? hints.probs[i] : 0.0f;
    node.ends = EndsText(token);
    node_of[i] = nodes_.size();
    nodes_.push_back(node);
  }
  CountHints();
  Plan();
}

void TreeMode::CountHints() {
  std::vector<float> hints;
  for (size_t i = kRoot + 1; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    const Node& parent = nodes_[node.parent];
    node.left_out =
        parent.left_out || (parent.read && node.path == 0.0f && node.hint > 0);
    if (node.hint > 0.0f && !node.left_out) hints.push_back(node.hint);
  }
  // Prices rise with the number of nodes, so the hints that pay are the
  // likeliest ones.
  std::sort(hints.begin(), hints.end(), std::greater<float>());
  hinted_ = 0;
  while (hinted_ < hints.size() &&
         hints[hinted_] > room_.prices.Node(hinted_)) {
    ++hinted_;
  }
  least_hint_ =
      hinted_ > 0 ? hints[hinted_ - 1] : std::numeric_limits<float>::infinity();
}

void TreeMode::Resume(const DraftRoom& room) {
  DraftMode::Resume(room);
  CountHints();
  Plan();
}

bool TreeMode::done() const {
  return plan_.empty() || (nodes_[kRoot].read && !(gain_ > room_.prices.pass));
}

void TreeMode::LayOut(int32_t root, int32_t kept, PassRows& rows) {
  FORETOKEN_CHECK(static_cast<size_t>(kept) <= shared_ && !plan_.empty());
  std::vector<bool> needed(nodes_.size(), false);
  for (const size_t planned : plan_) {
    // Ancestors of planned nodes need rows as well: they are the context of
    // theirs.
    for (size_t at = planned; at != kRoot && !needed[at];
         at = nodes_[at].parent) {
      needed[at] = true;
    }
  }
  kept_ = PathTo(plan_.back());
  kept_.resize(kept);
  for (const size_t node : kept_) needed[node] = false;
  for (Node& node : nodes_) node.row = -1;
  nodes_[kRoot].row = root;
  // Kept nodes have KV already; what hangs on them hangs on the last row of the
  // text.
  for (const size_t node : kept_) nodes_[node].row = root;
  for (const size_t planned : plan_) nodes_[planned].planned = true;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (needed[i]) node.row = rows.Add(node.token, nodes_[node.parent].row);
    if (std::exchange(node.planned, false)) {
      FORETOKEN_CHECK(node.row != kRootParent);
      rows.outputs.push_back(node.row);
    }
  }
}

void TreeMode::Take(absl::Span<const SampledToken> outputs) {
  for (const size_t node : plan_) {
    // The draft model does not expect a hinted node whose path is unknown now.
    if (node == kRoot || nodes_[node].path > 0.0f) {
      Read(node, outputs[nodes_[node].row]);
    }
  }
  CountHints();
  Plan();
}

float TreeMode::Weight(size_t at, TokenId token, float logprob) const {
  float exponent = logprob;
  // The target draws with the same noise (a Gumbel maximum keyed by position
  // and token): the token that wins under the draft model's logits plus that
  // noise is the likeliest to win under the target's.
  if (limits_.temperature > 0.0f) {
    exponent += limits_.temperature *
                GumbelNoise(limits_.seed, text_length_ + nodes_[at].depth,
                            static_cast<uint32_t>(token));
  }
  const float weight = std::exp(exponent);
  return std::isfinite(weight) ? weight : 0.0f;
}

void TreeMode::Read(size_t at, const SampledToken& output) {
  nodes_[at].read = true;
  for (size_t i = at + 1; i < nodes_.size(); ++i) {
    if (nodes_[i].parent != at || nodes_[i].match == 0) continue;
    copy_.Note(nodes_[i].match, nodes_[i].token == output.token);
  }
  float total = Weight(at, output.token, output.logprob);
  // What all tokens that are not listed have together.
  float rest = 1.0f - std::exp(output.logprob);
  std::vector<std::pair<TokenId, float>> others;
  for (const TokenLogprob& other : output.top_logprobs) {
    if (other.token == output.token || other.token < 0) continue;
    others.emplace_back(other.token, Weight(at, other.token, other.logprob));
    total += others.back().second;
    rest -= std::exp(other.logprob);
  }
  const float drawn = Weight(at, output.token, output.logprob);
  // Never zero, which would be divided by.
  total = std::fmax(total + std::fmax(rest, 0.0f), 1e-9f);
  Propose(at, output.token, /*drawn=*/true, drawn / total);
  for (const auto& [token, weight] : others) {
    const float claim = weight / total;
    if (claim >= kLeastAlternative && !EndsText(token)) {
      Propose(at, token, /*drawn=*/false, claim);
    }
  }
}

void TreeMode::Propose(size_t parent, TokenId token, bool drawn, float claim) {
  if (!InVocabulary(token, limits_.vocab_limit)) return;
  size_t at = Find(parent, token);
  if (at == nodes_.size()) {
    Node node;
    node.token = token;
    node.parent = parent;
    node.depth = nodes_[parent].depth + 1;
    node.ends = EndsText(token);
    nodes_.push_back(node);
  }
  Node& node = nodes_[at];
  node.drawn = drawn;
  node.claim = std::clamp(claim, ClaimCalibration::kLeast, 1.0f);
  // Zero for a node under an unknown path; such nodes are no candidates.
  node.path = nodes_[parent].path * calibration_.Corrected(drawn, node.claim);
}

// What is worth its time ------------------------------------------------------

void TreeMode::Rank(std::vector<size_t>& nodes) const {
  nodes.clear();
  for (size_t i = kRoot + 1; i < nodes_.size(); ++i) {
    if (nodes_[i].path > 0.0f) nodes.push_back(i);
  }
  std::sort(nodes.begin(), nodes.end(), [this](size_t a, size_t b) {
    if (nodes_[a].path != nodes_[b].path) {
      return nodes_[a].path > nodes_[b].path;
    }
    return a < b;
  });
}

size_t TreeMode::Worth(absl::Span<const size_t> ranked) const {
  const size_t most =
      std::min(ranked.size(), static_cast<size_t>(room_.max_nodes));
  size_t best = std::min<size_t>(most, 1);
  double best_worth = -std::numeric_limits<double>::infinity();
  double worth = 0.0;
  size_t rows = hinted_;
  for (size_t i = 0; i < most; ++i) {
    // The other drafters have it anyway.
    if (IsHinted(ranked[i])) continue;
    worth +=
        static_cast<double>(nodes_[ranked[i]].path) - room_.prices.Node(rows++);
    if (worth > best_worth) {
      best_worth = worth;
      best = i + 1;
    }
  }
  // One node is always tried: by what becomes of it the session learns.
  return best_worth > 0.0 ? best : std::min<size_t>(most, 1);
}

bool TreeMode::CanRead(size_t at) const {
  const Node& node = nodes_[at];
  return !node.read && !node.ends && node.depth <= room_.max_depth;
}

void TreeMode::PlanFirst() {
  if (room_.max_depth < 0 || room_.max_nodes <= 0) return;
  std::vector<size_t> hinted;
  for (size_t i = kRoot + 1; i < nodes_.size(); ++i) {
    if (nodes_[i].hint >= kLeastHint && CanRead(i)) hinted.push_back(i);
  }
  std::sort(hinted.begin(), hinted.end(), [this](size_t a, size_t b) {
    if (nodes_[a].hint != nodes_[b].hint) {
      return nodes_[a].hint > nodes_[b].hint;
    }
    return a < b;
  });
  // The root is always read: without its output there is no draft.
  plan_.push_back(kRoot);
  const size_t most =
      std::min<size_t>(kMaxHintReads, static_cast<size_t>(limits_.max_rows));
  for (const size_t node : hinted) {
    // Estimates that rise along a path leave its nodes without their parents.
    const size_t parent = nodes_[node].parent;
    if (std::find(plan_.begin(), plan_.end(), parent) == plan_.end()) continue;
    if (plan_.size() > most) break;
    plan_.push_back(node);
  }
  PlanGuesses(kRoot, room_.prices.Node(hinted_),
              static_cast<int32_t>(plan_.size()));
  std::sort(plan_.begin(), plan_.end());
  gain_ = std::numeric_limits<double>::infinity();
}

void TreeMode::Plan() {
  plan_.clear();
  gain_ = 0.0;
  shared_ = 0;
  if (!nodes_[kRoot].read) {
    PlanFirst();
    SetChain({}, 0);
    // The first pass is always worth it.
    return;
  }
  std::vector<size_t> ranked;
  Rank(ranked);
  const size_t worth = Worth(ranked);
  const double node_price = room_.prices.Node(hinted_ + worth);
  // A full tree takes a further node in place of its least likely one only.
  const double floor =
      ranked.size() < static_cast<size_t>(room_.max_nodes)
          ? 0.0
          : static_cast<double>(
                nodes_[ranked[static_cast<size_t>(room_.max_nodes) - 1]].path);
  const double hit = static_cast<double>((hits_ + kHitPrior * kHitPriorReads) /
                                         (reads_ + kHitPriorReads));
  int32_t rows = 0;
  for (const size_t node : ranked) {
    if (plan_.size() == kMaxReads) break;
    if (!CanRead(node)) continue;
    const double gain = static_cast<double>(nodes_[node].path) * hit -
                        std::max(node_price, floor);
    if (gain <= 0.0) break;  // and so for all less likely ones
    // Tried on a copy: the node joins only if the rows that it needs pay.
    std::vector<size_t> with = plan_;
    with.push_back(node);
    size_t shared = 0;
    const int32_t rows_with = RowsOf(with, shared);
    // Where KV is short, the shared path gets rows, too.
    if (rows_with + static_cast<int32_t>(shared) > limits_.max_rows) continue;
    const double added = gain - room_.prices.row * (rows_with - rows);
    if (!plan_.empty() && added <= 0.0) continue;
    plan_.swap(with);
    gain_ += gain;
    rows = rows_with;
    shared_ = shared;
  }
  gain_ -= room_.prices.row * std::max(rows - 1, 0);
  if (!plan_.empty()) {
    gain_ += PlanGuesses(plan_.front(), std::max(node_price, floor),
                         rows + static_cast<int32_t>(shared_));
  }
  if (plan_.empty() || done()) {
    SetChain(BestPath(), 0);
  } else {
    SetChain(PathTo(plan_.front()), shared_);
  }
  std::sort(plan_.begin(), plan_.end());
}

double TreeMode::PlanGuesses(size_t at, double node_price, int32_t rows) {
  std::vector<TokenId> path;
  for (const size_t node : PathTo(at)) path.push_back(nodes_[node].token);
  const double above = static_cast<double>(nodes_[at].path);
  double gain = 0.0;
  double chance = 1.0;  // that the draft model draws all guesses up to here
  for (const TextCopy::Guess& guess : copy_.After(path, kMaxGuesses)) {
    chance *= static_cast<double>(copy_.Chance(guess.match));
    // A right guess saves a pass.
    if (chance < kLeastGuess || rows >= limits_.max_rows ||
        above * chance * room_.prices.pass <= room_.prices.row ||
        !InVocabulary(guess.token, limits_.vocab_limit)) {
      break;
    }
    size_t next = Find(at, guess.token);
    if (next == nodes_.size()) {
      Node node;
      node.token = guess.token;
      node.parent = at;
      node.depth = nodes_[at].depth + 1;
      node.ends = EndsText(guess.token);
      nodes_.push_back(node);
    }
    // Noted also if the node exists: Read then tells the copy whether it was
    // right.
    nodes_[next].match = guess.match;
    if (!CanRead(next)) break;
    if (std::find(plan_.begin(), plan_.end(), next) == plan_.end()) {
      plan_.push_back(next);
      ++rows;
      // One that does not pay for itself here saves a pass.
      gain += std::max(above * chance - node_price - room_.prices.row, 0.0);
    }
    at = next;
  }
  return gain;
}

int32_t TreeMode::RowsOf(absl::Span<const size_t> nodes, size_t& shared) const {
  // The path above the first node, cut where the others leave it.
  std::vector<size_t> above = PathTo(nodes[0]);
  above.pop_back();
  std::vector<bool> seen(nodes_.size(), false);
  int32_t rows = 0;
  for (const size_t node : nodes) {
    std::vector<size_t> path = PathTo(node);
    path.pop_back();
    size_t same = 0;
    while (same < std::min(above.size(), path.size()) &&
           above[same] == path[same]) {
      ++same;
    }
    above.resize(same);
    path.push_back(node);
    for (const size_t at : path) {
      if (!seen[at]) ++rows;
      seen[at] = true;
    }
  }
  shared = above.size();
  return rows - static_cast<int32_t>(shared);
}

std::vector<size_t> TreeMode::PathTo(size_t node) const {
  std::vector<size_t> path;
  for (; node != kRoot; node = nodes_[node].parent) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<size_t> TreeMode::BestPath() const {
  std::vector<size_t> path;
  for (size_t at = kRoot;;) {
    size_t best = kRoot;
    for (size_t i = at + 1; i < nodes_.size(); ++i) {
      if (nodes_[i].parent != at || nodes_[i].path == 0.0f) continue;
      // path is 0 for nodes that the model has not reached, such as guesses:
      // they are not part of the draft.
      if (best == kRoot || nodes_[i].path > nodes_[best].path) best = i;
    }
    if (best == kRoot) return path;
    path.push_back(at = best);
  }
}

// Where the draft goes on, only what all nodes of its next pass share is kept;
// where it ends, all of the path that has rows.
void TreeMode::SetChain(absl::Span<const size_t> path, size_t shared) {
  chain_.clear();
  chain_rows_.clear();
  for (const size_t node : path) chain_.push_back(nodes_[node].token);
  // Rows cannot follow kept tokens of another path.
  if (path.size() < kept_.size() ||
      !std::equal(kept_.begin(), kept_.end(), path.begin())) {
    return;
  }
  const size_t end = done() ? path.size() : shared;
  for (size_t i = kept_.size(); i < end && nodes_[path[i]].row >= 0; ++i) {
    chain_rows_.push_back(nodes_[path[i]].row);
  }
}

void TreeMode::Finish(DraftTree& tree) {
  tree.Clear();
  std::vector<size_t> ranked;
  Rank(ranked);
  const size_t worth = Worth(ranked);
  // Hints that it agrees with are in the target's tree anyway: they tell the
  // others' nodes that it agrees with from those that it leaves out.
  std::vector<bool> taken(nodes_.size(), false);
  taken[kRoot] = true;
  std::vector<int32_t> index_of(nodes_.size(), kRootParent);
  for (size_t i = 0; i < ranked.size(); ++i) {
    const size_t at = ranked[i];
    const Node& node = nodes_[at];
    // A node without its parent cannot be drafted.
    if (tree.size() == room_.max_nodes || !taken[node.parent] ||
        (i >= worth && !IsHinted(at))) {
      continue;
    }
    taken[at] = true;
    index_of[at] = tree.Add(node.token, index_of[node.parent], node.path);
  }
}

}  // namespace foretoken::draft_worker
