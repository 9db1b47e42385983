#include "services/orchestrator/core/economics/draft_estimates.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace foretoken::orchestrator {
namespace {

// A claim counts as much as this many observations.
constexpr float kClaimWeight = 8.0f;
// Old observations fade: at this many, both counts are halved.
constexpr float kMaxSeen = 512.0f;
// Acceptance probability of a node that claims nothing.
constexpr float kUnknownChance = 0.25f;
// Upper bounds of the claim classes; 0 is "claims nothing".
constexpr float kClaimBounds[] = {0.0f, 0.05f, 0.1f,  0.2f, 0.35f,
                                  0.5f, 0.7f,  0.85f, 0.95f};
// Upper bounds of the classes of a draft model's claims.
constexpr float kOpinionBounds[] = {0.3f, 0.6f, 0.85f};
// Deepest depth of each class but the last.
constexpr int64_t kDepthBounds[] = {1, 2, 3, 4, 6, 10};

// Rounds before a drafter is judged, and the weight of one round from then on.
constexpr int64_t kFirstRounds = 8;
constexpr double kRoundWeight = 1.0 / 32;
// Upper bounds of the classes of hinted tokens.
constexpr double kHintBounds[] = {0.25, 0.5, 1.0, 2.0, 4.0, 8.0};
// Time in which a drafter that is not asked gets half the way back to its best.
constexpr absl::Duration kHalfForgiven = absl::Seconds(10);
// Rounds follow each other faster.
constexpr absl::Duration kPause = absl::Seconds(5);
// Weight of the latest text in the time that reading takes.
constexpr double kTextWeight = 0.25;

template <typename T, size_t kSize>
int ClassOf(const T (&bounds)[kSize], T value) {
  return static_cast<int>(std::lower_bound(bounds, bounds + kSize, value) -
                          bounds);
}

// Claimed probability of a node given its parent; 0 if it claims nothing.
float ClaimOf(const DraftTree& tree, int32_t node) {
  const int32_t parent = tree.parents[node];
  const float above = parent == kRootParent ? 1.0f : tree.probs[parent];
  if (!(above > 0.0f) || !(tree.probs[node] > 0.0f)) return 0.0f;
  // Some drafters' claims rise below a node; no conditional probability is
  // above 1.
  return std::min(1.0f, tree.probs[node] / above);
}

struct Matched {
  int64_t depth = 0;
  int32_t node = kRootParent;  // the deepest
};

Matched Match(const DraftTree& tree, absl::Span<const TokenId> committed) {
  Matched matched;
  // Children follow their parents, and equal siblings are one node.
  for (int32_t node = 0; node < tree.size(); ++node) {
    if (matched.depth == static_cast<int64_t>(committed.size())) break;
    if (tree.parents[node] != matched.node ||
        tree.tokens[node] != committed[matched.depth]) {
      continue;
    }
    matched.node = node;
    ++matched.depth;
  }
  return matched;
}

int64_t DepthOf(const std::vector<int64_t>& depths, int32_t parent) {
  return parent == kRootParent ? 1 : depths[parent] + 1;
}

}  // namespace

int64_t MatchedDepth(const DraftTree& tree,
                     absl::Span<const TokenId> committed) {
  return Match(tree, committed).depth;
}

double ExpectedDepth(const DraftTree& tree,
                     absl::Span<const TokenId> committed) {
  const Matched matched = Match(tree, committed);
  double depth = static_cast<double>(matched.depth);
  if (matched.depth < static_cast<int64_t>(committed.size()) ||
      matched.node == kRootParent || !(tree.probs[matched.node] > 0.0f)) {
    return depth;
  }
  std::vector<bool> below(tree.size(), false);
  for (int32_t node = matched.node + 1; node < tree.size(); ++node) {
    const int32_t parent = tree.parents[node];
    below[node] =
        parent == matched.node || (parent != kRootParent && below[parent]);
    if (below[node]) depth += tree.probs[node] / tree.probs[matched.node];
  }
  return depth;
}

size_t DraftEstimates::CellOf(DrafterId id, int64_t depth, float claim) {
  static_assert(std::size(kDepthBounds) + 1 == kDepths);
  static_assert(std::size(kClaimBounds) + 1 == kClaims);
  return (static_cast<size_t>(id) * kDepths + ClassOf(kDepthBounds, depth)) *
             kClaims +
         ClassOf(kClaimBounds, claim);
}

float DraftEstimates::ChanceOf(DrafterId id, int64_t depth, float claim) const {
  const Cell& cell = cells_[CellOf(id, depth, claim)];
  const float start = claim > 0.0f ? claim : kUnknownChance;
  // A beta prior: the claim itself, worth kClaimWeight observations.
  return (cell.right + kClaimWeight * start) / (cell.seen + kClaimWeight);
}

size_t DraftEstimates::JointCellOf(DrafterId id, float chance,
                                   const Opinion& opinion) {
  static_assert(std::size(kOpinionBounds) + 1 == kOpinions);
  const size_t kind = opinion.kind == Opinion::kProposes ? 0 : 1;
  return ((static_cast<size_t>(id) * kClaims + ClassOf(kClaimBounds, chance)) *
              2 +
          kind) *
             kOpinions +
         ClassOf(kOpinionBounds, opinion.claim);
}

std::vector<DraftEstimates::Opinion> DraftEstimates::OpinionsOf(
    const DraftTree& tree, const DraftTree* model) {
  std::vector<Opinion> opinions(tree.size());
  if (model == nullptr || model->size() == 0) return opinions;
  constexpr int32_t kUnknown = kRootParent - 1;
  // The model's node for every node, if it has one.
  std::vector<int32_t> same(tree.size(), kUnknown);
  for (int32_t node = 0; node < tree.size(); ++node) {
    const int32_t parent = tree.parents[node];
    const int32_t at = parent == kRootParent ? kRootParent : same[parent];
    if (at == kUnknown) continue;
    Opinion& opinion = opinions[node];
    for (int32_t child = at + 1; child < model->size(); ++child) {
      if (model->parents[child] != at) continue;
      const float claim = ClaimOf(*model, child);
      if (model->tokens[child] == tree.tokens[node]) {
        same[node] = child;
        opinion = {Opinion::kProposes, claim};
        break;
      }
      opinion.kind = Opinion::kLeavesOut;
      opinion.claim = std::min(1.0f, opinion.claim + claim);
    }
  }
  return opinions;
}

float DraftEstimates::JointChanceOf(DrafterId id, float chance,
                                    const Opinion& opinion) const {
  if (opinion.kind == Opinion::kNone) return chance;
  const Cell& cell = joint_cells_[JointCellOf(id, chance, opinion)];
  // Two sources that agree are at least as sure as the surer one. Where the
  // model proposes other tokens, the node cannot have their probability.
  const float start = opinion.kind == Opinion::kProposes
                          ? std::max(chance, opinion.claim)
                          : chance * (1.0f - opinion.claim);
  return (cell.right + kClaimWeight * start) / (cell.seen + kClaimWeight);
}

void DraftEstimates::Count(bool right, Cell& cell) {
  if (cell.seen >= kMaxSeen) {
    cell.seen /= 2;
    cell.right /= 2;
  }
  cell.seen += 1.0f;
  cell.right += right ? 1.0f : 0.0f;
}

void DraftEstimates::Correct(DrafterId id, const DraftTree& tree,
                             std::vector<float>& probs,
                             const DraftTree* model) const {
  probs.resize(tree.size());
  std::vector<int64_t> depths(tree.size());
  const std::vector<Opinion> opinions = OpinionsOf(tree, model);
  absl::MutexLock lock(&mu_);
  for (int32_t node = 0; node < tree.size(); ++node) {
    const int32_t parent = tree.parents[node];
    depths[node] = DepthOf(depths, parent);
    const float chance = ChanceOf(id, depths[node], ClaimOf(tree, node));
    probs[node] = (parent == kRootParent ? 1.0f : probs[parent]) *
                  JointChanceOf(id, chance, opinions[node]);
  }
}

void DraftEstimates::Learn(DrafterId id, const DraftTree& tree,
                           absl::Span<const TokenId> committed,
                           const DraftTree* model) {
  std::vector<int64_t> depths(tree.size());
  const std::vector<Opinion> opinions = OpinionsOf(tree, model);
  std::vector<bool> right(tree.size(), false);
  absl::MutexLock lock(&mu_);
  for (int32_t node = 0; node < tree.size(); ++node) {
    const int32_t parent = tree.parents[node];
    depths[node] = DepthOf(depths, parent);
    // Below a node that was rejected, nothing was tested.
    if (parent != kRootParent && !right[parent]) continue;
    if (depths[node] > static_cast<int64_t>(committed.size())) continue;
    right[node] = tree.tokens[node] == committed[depths[node] - 1];
    const float claim = ClaimOf(tree, node);
    if (opinions[node].kind != Opinion::kNone) {
      const float chance = ChanceOf(id, depths[node], claim);
      Count(right[node], joint_cells_[JointCellOf(id, chance, opinions[node])]);
    }
    Count(right[node], cells_[CellOf(id, depths[node], claim)]);
  }
}

size_t DraftEstimates::WorthOf(DrafterId id, double hinted) {
  static_assert(std::size(kHintBounds) + 1 == kHintClasses);
  return static_cast<size_t>(id) * kHintClasses + ClassOf(kHintBounds, hinted);
}

void DraftEstimates::Forgive(absl::Time now, Worth& worth) {
  if (worth.rounds == 0) return;
  const double age = absl::FDivDuration(now - worth.at, kHalfForgiven);
  const double known = std::exp2(-std::max(0.0, age));
  worth.gain = worth.most_gain + (worth.gain - worth.most_gain) * known;
  worth.wait_seconds = worth.least_wait_seconds +
                       (worth.wait_seconds - worth.least_wait_seconds) * known;
}

void DraftEstimates::NoteGain(DrafterId id, double hinted, double gain,
                              absl::Duration wait, absl::Time now) {
  absl::MutexLock lock(&mu_);
  Worth& worth = worth_[WorthOf(id, hinted)];
  // From what was believed by now: a drafter that gets another chance gets more
  // than one. One that is asked in every round is forgiven nothing.
  // Otherwise its recent, bad rounds stay in force until the next pause.
  if (now - worth.at > kPause) Forgive(now, worth);
  ++worth.rounds;
  // A plain mean at first, then a moving one.
  const double weight =
      std::max(kRoundWeight, 1.0 / static_cast<double>(worth.rounds));
  worth.gain += weight * (gain - worth.gain);
  worth.wait_seconds +=
      weight * (absl::ToDoubleSeconds(wait) - worth.wait_seconds);
  worth.at = now;
  // A mean of few rounds cannot count as the best.
  const bool first = worth.rounds <= kFirstRounds;
  if (first || worth.gain > worth.most_gain) worth.most_gain = worth.gain;
  if (first || worth.wait_seconds < worth.least_wait_seconds) {
    worth.least_wait_seconds = worth.wait_seconds;
  }
}

bool DraftEstimates::IsWorthItsTime(DrafterId id, double hinted,
                                    absl::Duration round_time,
                                    double tokens_per_round,
                                    absl::Time now) const {
  absl::MutexLock lock(&mu_);
  Worth worth = worth_[WorthOf(id, hinted)];
  if (worth.rounds < kFirstRounds) return true;
  Forgive(now, worth);
  // Without the drafter a round has `gain` fewer tokens, ends `wait` earlier.
  return worth.gain * absl::ToDoubleSeconds(round_time) >=
         worth.wait_seconds * tokens_per_round;
}

void DraftEstimates::NoteTextRead(DrafterId id, const TextRead& read) {
  if (read.tokens <= 0) return;
  const double seconds =
      absl::ToDoubleSeconds(read.time) / static_cast<double>(read.tokens);
  absl::MutexLock lock(&mu_);
  double& mean = read_seconds_[static_cast<size_t>(id)];
  mean = mean == 0.0 ? seconds : mean + (seconds - mean) * kTextWeight;
}

absl::Duration DraftEstimates::ReadTime(DrafterId id, int64_t tokens) const {
  absl::MutexLock lock(&mu_);
  return absl::Seconds(read_seconds_[static_cast<size_t>(id)] *
                       static_cast<double>(tokens));
}

}  // namespace foretoken::orchestrator
