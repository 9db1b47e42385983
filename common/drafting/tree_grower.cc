#include "common/drafting/tree_grower.h"

#include <algorithm>
#include <bit>

namespace foretoken {
namespace {

// Exponent and the top three bits of the fraction: monotone in the probability.
// 2^-32 is class 0; 1.0 would be class 256 and counts in 255.
constexpr uint32_t kLowestBits = (127u - 32u) << 3;

int ClassOf(float probability) {
  const uint32_t bits = std::bit_cast<uint32_t>(probability) >> 20;
  return static_cast<int>(std::clamp(bits, kLowestBits, kLowestBits + 255u) -
                          kLowestBits);
}

float LowerBound(int probability_class) {
  return std::bit_cast<float>(
      (static_cast<uint32_t>(probability_class) + kLowestBits) << 20);
}

}  // namespace

void TreeGrower::Admit(float probability) {
  const int c = ClassOf(probability);
  ++class_counts_[c];
  if (c < bar_class_) return;
  ++above_;
  // Raise the bar as long as enough candidates lie above its class.
  while (above_ - class_counts_[bar_class_] >= max_nodes_) {
    above_ -= class_counts_[bar_class_];
    ++bar_class_;
    bar_ = std::max(bar_, LowerBound(bar_class_));
  }
}

void TreeGrower::Expand(const NextTokenModel& model, const Cursor& cursor,
                        float probability, int32_t node) {
  // A child enters the tree if probability * its own >= bar_.
  model.Predict(cursor, bar_ / probability, candidates_);
  for (const Candidates::Candidate& candidate : candidates_.all()) {
    // Boosted shares can sum to more than one.
    const float path = probability * std::min(candidate.probability, 1.0f);
    if (path < bar_) continue;
    Admit(path);
    heap_.push_back({path, node, candidate.token, arrivals_++, candidate.part});
    std::push_heap(heap_.begin(), heap_.end());
  }
}

void TreeGrower::Grow(const NextTokenModel& model, const Cursor& root,
                      int max_nodes, float price, DraftTree& tree) {
  tree.Clear();
  if (max_nodes <= 0) return;
  max_nodes_ = max_nodes;
  bar_ = std::max(price, LowerBound(0));
  arrivals_ = 0;
  bar_class_ = 0;
  above_ = 0;
  class_counts_.fill(0);
  heap_.clear();
  cursors_.resize(std::max(cursors_.size(), static_cast<size_t>(max_nodes)));
  Expand(model, root, 1.0f, kRootParent);
  while (tree.size() < max_nodes && !heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Waiting best = heap_.back();
    heap_.pop_back();
    const int32_t node = tree.Add(best.token, best.parent, best.probability);
    tree.parts.push_back(best.part);
    // Children are at most as likely as their parent.
    if (best.probability <= bar_ || tree.size() == max_nodes) continue;
    const Cursor& parent =
        best.parent == kRootParent ? root : cursors_[best.parent];
    model.Advance(parent, best.token, cursors_[node]);
    Expand(model, cursors_[node], best.probability, node);
  }
}

}  // namespace foretoken
