// TreeGrower: grows a draft tree best first, always adding the node whose whole
// path is most likely to be accepted.
//
// A node's path probability is its contribution to the expected accept length,
// so the N nodes chosen form the best tree of that size under the model. If
// verifying one more row has a cost, the price is the path probability below
// which a node does not pay.
//
// Owned by one thread. Reuses its buffers, so that growing does not allocate in
// the steady state.
#ifndef FORETOKEN_COMMON_DRAFTING_TREE_GROWER_H_
#define FORETOKEN_COMMON_DRAFTING_TREE_GROWER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "common/drafting/next_token_model.h"
#include "common/speculation/draft_tree.h"

namespace foretoken {

class TreeGrower {
 public:
  // Replaces `tree` with at most max_nodes nodes below `root`, each of path
  // probability `price` or more.
  void Grow(const NextTokenModel& model, const Cursor& root, int max_nodes,
            float price, DraftTree& tree);

 private:
  struct Waiting {
    float probability;  // of the whole path
    int32_t parent;
    TokenId token;
    uint32_t order;  // order of arrival; ties are first in, first out
    DrafterId part;  // source of most of the token's probability

    bool operator<(const Waiting& other) const {
      return probability != other.probability ? probability < other.probability
                                              : order > other.order;
    }
  };

  void Expand(const NextTokenModel& model, const Cursor& cursor,
              float probability, int32_t node);
  // Counts one more candidate and raises bar_ to a probability that the best
  // max_nodes_ candidates so far are sure to reach.
  void Admit(float probability);

  // Candidates by probability: eight classes per octave over 2^-32..1.
  static constexpr int kClasses = 256;

  int max_nodes_ = 0;
  float bar_ = 0;  // candidates below it cannot enter the tree
  uint32_t arrivals_ = 0;
  int bar_class_ = 0;
  int above_ = 0;  // candidates in bar_class_ and above
  std::array<int, kClasses> class_counts_{};
  std::vector<Waiting> heap_;
  std::vector<Cursor> cursors_;  // by node
  Candidates candidates_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_TREE_GROWER_H_
