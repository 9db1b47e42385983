#include "common/speculation/tree_builder.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

struct Proposal {
  int proposer = 0;
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
  std::vector<float> probs;
  std::vector<int32_t> probes;  // ascending, with all their descendants
  std::vector<DrafterId> parts = {};
};

// Adds the draft nodes, then the probes with the path to each.
template <typename Builder>
void Add(Builder& builder, const Proposal& proposal) {
  DraftTree drafts, probes;
  std::vector<float> draft_probs;
  std::vector<int32_t> index;  // among the drafts
  for (size_t i = 0; i < proposal.tokens.size(); ++i) {
    index.push_back(drafts.size());
    if (std::binary_search(proposal.probes.begin(), proposal.probes.end(),
                           static_cast<int32_t>(i))) {
      continue;
    }
    const int32_t parent = proposal.parents[i];
    drafts.Add(proposal.tokens[i], parent < 0 ? parent : index[parent], 0.0f);
    if (!proposal.probs.empty()) draft_probs.push_back(proposal.probs[i]);
    if (!proposal.parts.empty()) drafts.parts.push_back(proposal.parts[i]);
  }
  builder.Add(proposal.proposer, drafts, draft_probs, /*probes=*/false);
  if (proposal.probes.empty()) return;
  probes.tokens = proposal.tokens;
  probes.parents = proposal.parents;
  probes.parts = proposal.parts;
  builder.Add(proposal.proposer, probes, proposal.probs, /*probes=*/true);
}

TEST(TreeBuilderTest, EqualPathsOfTwoDraftersAreOneRow) {
  TreeBuilder builder;
  Add(builder, {1, {11, 12}, {-1, 0}, {0.5f, 0.2f}, {}});
  Add(builder,
      {4, {21, 11, 12, 13}, {-1, -1, 1, 2}, {0.1f, 0.4f, 0.3f, 0.05f}, {}});

  const TokenTree merged = builder.Build(64, 320);

  EXPECT_THAT(merged.tokens(), ElementsAre(11, 12, 21, 13));
  EXPECT_THAT(merged.parents(), ElementsAre(-1, 0, -1, 1));
  EXPECT_THAT(merged.proposers(),
              ElementsAre(0b10010, 0b10010, 0b10000, 0b10000));
  // The higher estimate is the row's, and its drafter is credited.
  EXPECT_THAT(merged.credited(), ElementsAre(1, 4, 4, 4));
  EXPECT_THAT(merged.probs(), ElementsAre(0.5f, 0.3f, 0.1f, 0.05f));
  EXPECT_EQ(merged.draft_nodes(), 4);
}

TEST(TreeBuilderTest, ARowHasThePartOfTheDrafterThatIsCredited) {
  TreeBuilder builder;
  const Proposal chain = {0, {11, 12}, {-1, 0}, {0.5f, 0.1f}, {}};
  const Proposal fused = {4,
                          {11, 12, 13},
                          {-1, 0, 1},
                          {0.4f, 0.3f, 0.2f},
                          {},
                          {DrafterId::kFusedPrior, DrafterId::kFusedRequest,
                           DrafterId::kFusedHistory}};
  Add(builder, chain);
  Add(builder, fused);

  const TokenTree merged = builder.Build(64, 320);

  EXPECT_THAT(merged.credited(), ElementsAre(0, 4, 4));
  EXPECT_THAT(merged.parts(),
              ElementsAre(DrafterId::kTarget, DrafterId::kFusedRequest,
                          DrafterId::kFusedHistory));
}

TEST(TreeBuilderTest, ATieGoesToTheDrafterThatComesFirstInTheOrderOfModes) {
  TreeBuilder builder;
  Add(builder, {5, {7}, {-1}, {0.5f}, {}});
  Add(builder, {2, {7}, {-1}, {0.5f}, {}});
  Add(builder, {3, {7}, {-1}, {0.5f}, {}});
  EXPECT_THAT(builder.Build(1, 1).credited(), ElementsAre(2));
}

TEST(TreeBuilderTest, RowsKeepTheirProposersWhereOthersDoNotFit) {
  TreeBuilder builder;
  Add(builder, {1, {11, 12}, {-1, 0}, {0.5f, 0.2f}, {}});
  Add(builder, {4, {21, 11, 13}, {-1, -1, 1}, {0.1f, 0.4f, 0.3f}, {}});

  const TokenTree merged = builder.Build(/*max_draft_nodes=*/2, 320);

  // 12 at 0.2 did not fit, nor 21 at 0.1.
  EXPECT_THAT(merged.tokens(), ElementsAre(11, 13));
  EXPECT_THAT(merged.parents(), ElementsAre(-1, 0));
  EXPECT_THAT(merged.proposers(), ElementsAre(0b10010, 0b10000));
}

TEST(TreeBuilderTest, ThePriceSeesWhatFitsAndCutsIt) {
  TreeBuilder builder;
  Add(builder, {1, {11, 12, 13}, {-1, 0, -1}, {0.5f, 0.2f, 0.7f}, {}});
  Add(builder, {2, {12, 14}, {-1, 0}, {}, {0, 1}});
  std::vector<float> seen;
  const auto one = [&](absl::Span<const float> probs) {
    seen.assign(probs.begin(), probs.end());
    return 1;
  };

  EXPECT_THAT(builder.Build(/*max_draft_nodes=*/2, 320, one).tokens(),
              ElementsAre(13, 12, 14));

  EXPECT_THAT(seen, ElementsAre(0.7f, 0.5f));
  // Without draft nodes there is nothing to price.
  seen.clear();
  builder.Build(/*max_draft_nodes=*/0, 320, one);
  EXPECT_THAT(seen, IsEmpty());
}

TEST(TreeBuilderTest, ADraftWinsOverAProbe) {
  TreeBuilder builder;
  // A window: 5 - 6 - 7, all probes, whatever their estimates say.
  Add(builder, {2, {5, 6, 7}, {-1, 0, 1}, {0.9f, 0.9f, 0.9f}, {0, 1, 2}});
  Add(builder, {4, {5, 8}, {-1, 0}, {0.3f, 0.1f}, {}});

  const TokenTree merged = builder.Build(64, 320);

  EXPECT_EQ(merged.draft_nodes(), 2);
  EXPECT_THAT(merged.tokens(), ElementsAre(5, 8, 6, 7));
  EXPECT_THAT(merged.parents(), ElementsAre(-1, 0, 0, 2));
  EXPECT_THAT(merged.proposers(), ElementsAre(0b10100, 0b10000, 0b100, 0b100));
  EXPECT_THAT(merged.credited(), ElementsAre(4, 4, 2, 2));
  EXPECT_EQ(merged.probs()[0], 0.3f);  // the draft's, not the probe's
}

TEST(TreeBuilderTest, AProbeAfterADraftTakesNoCredit) {
  TreeBuilder builder;
  Add(builder, {4, {5}, {-1}, {0.3f}, {}});
  Add(builder, {1, {5}, {-1}, {0.9f}, {0}});
  const TokenTree merged = builder.Build(64, 320);
  EXPECT_EQ(merged.draft_nodes(), 1);
  EXPECT_THAT(merged.credited(), ElementsAre(4));
  EXPECT_EQ(merged.probs()[0], 0.3f);
}

TEST(TreeBuilderTest, ProbesGoFirstWhereSpaceIsShort) {
  TreeBuilder builder;
  Add(builder, {2, {5, 6, 7}, {-1, 0, 1}, {}, {0, 1, 2}});
  Add(builder, {4, {8, 9}, {-1, 0}, {0.3f, 0.2f}, {}});
  const TokenTree merged = builder.Build(/*max_draft_nodes=*/64, 3);
  EXPECT_EQ(merged.draft_nodes(), 2);
  EXPECT_THAT(merged.tokens(), ElementsAre(8, 9, 5));
}

TEST(TreeBuilderTest, AProbeBelowADraftThatDidNotFitGoesWithIt) {
  TreeBuilder builder;
  Add(builder, {2, {5, 6, 7}, {-1, 0, -1}, {0.1f, 0.1f, 0.5f}, {1}});
  const TokenTree merged = builder.Build(/*max_draft_nodes=*/1, 320);
  EXPECT_THAT(merged.tokens(), ElementsAre(7));
  EXPECT_THAT(merged.parents(), ElementsAre(-1));
}

// DESIGN: a window of width W and n-gram size N is W(N-1)-1 probe rows.
TEST(TreeBuilderTest, ALookaheadWindowKeepsItsShapeBesideADraft) {
  constexpr int kWidth = 15, kN = 5;
  Proposal window{2, {}, {}, {}, {}};
  const auto add = [&](int32_t parent) {
    const int32_t node = static_cast<int32_t>(window.tokens.size());
    window.tokens.push_back(100 + node);
    window.parents.push_back(parent);
    window.probes.push_back(node);
    return node;
  };
  std::vector<int32_t> level0 = {-1};
  for (int i = 1; i < kWidth; ++i) level0.push_back(add(level0.back()));
  for (const int32_t top : level0) {
    for (int depth = 0, at = top; depth < kN - 2; ++depth) at = add(at);
  }
  TreeBuilder builder;
  Add(builder, window);
  Add(builder, {4, {100, 7}, {-1, 0}, {0.9f, 0.5f}, {}});
  const TokenTree merged = builder.Build(64, 320);
  EXPECT_EQ(merged.draft_nodes(), 2);
  // One probe of the window is the draft's first node as well.
  EXPECT_EQ(merged.size(), kWidth * (kN - 1) - 1 + 1);
}

TEST(TreeBuilderTest, ClearForgets) {
  TreeBuilder builder;
  Add(builder, {1, {5}, {-1}, {}, {}});
  builder.Clear();
  EXPECT_THAT(builder.Build(64, 320).tokens(), IsEmpty());
}

// Definition of a merge: a build of all that fits, whose estimates are priced,
// then a second one of as many nodes as are worth it.
class ReferenceBuilder {
 public:
  void Add(int proposer, const DraftTree& tree, absl::Span<const float> probs,
           bool probes) {
    std::vector<int32_t> nodes;
    std::vector<float> capped;
    for (int i = 0; i < tree.size(); ++i) {
      const int32_t parent = tree.parents[i];
      const float prob = probs.empty() ? 0.0f
                         : parent < 0  ? std::min(1.0f, probs[i])
                                       : std::min(capped[parent], probs[i]);
      const std::pair<int32_t, TokenId> key = {
          parent < 0 ? kRootParent : nodes[parent], tree.tokens[i]};
      const DrafterId part =
          tree.parts.empty() ? DrafterId::kTarget : tree.parts[i];
      const auto [child, fresh] =
          children_.try_emplace(key, static_cast<int32_t>(nodes_.size()));
      if (fresh) {
        nodes_.push_back(
            {key.second, key.first, 0, proposer, part, prob, probes});
      }
      nodes.push_back(child->second);
      capped.push_back(prob);
      Node& node = nodes_[child->second];
      const bool better =
          prob > node.prob || (prob == node.prob && proposer < node.credited);
      if (node.probe != probes ? node.probe : better) {
        node.credited = proposer;
        node.part = part;
        node.prob = prob;
      }
      node.proposers |= ProposerSet{1} << proposer;
      node.probe = node.probe && probes;
    }
  }

  struct Result {
    std::vector<TokenId> tokens;
    std::vector<int32_t> parents;
    std::vector<ProposerSet> proposers;
    std::vector<int> credited;
    std::vector<DrafterId> parts;
    std::vector<float> probs;
    int draft_nodes = 0;
  };

  Result Merge(int max_draft_nodes, int max_nodes,
               const TreeBuilder::Price& price) const {
    Result result = Build(max_draft_nodes, max_nodes);
    if (price == nullptr || result.draft_nodes == 0) return result;
    std::vector<float> probs(result.probs.begin(),
                             result.probs.begin() + result.draft_nodes);
    std::sort(probs.begin(), probs.end(), std::greater<>());
    const int worth = price(probs);
    if (worth >= result.draft_nodes) return result;
    return Build(worth, max_nodes);
  }

 private:
  struct Node {
    TokenId token;
    int32_t parent;
    ProposerSet proposers;
    int credited;
    DrafterId part;
    float prob;
    bool probe;
  };

  Result Build(int max_draft_nodes, int max_nodes) const {
    std::vector<int32_t> drafts, probes;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      (nodes_[i].probe ? probes : drafts).push_back(static_cast<int32_t>(i));
    }
    std::stable_sort(drafts.begin(), drafts.end(), [&](int32_t a, int32_t b) {
      return nodes_[a].prob > nodes_[b].prob;
    });
    drafts.resize(
        std::min<size_t>({drafts.size(), static_cast<size_t>(max_draft_nodes),
                          static_cast<size_t>(max_nodes)}));
    std::sort(drafts.begin(), drafts.end());
    Result result;
    std::vector<int32_t> row_of(nodes_.size(), -1);
    const auto take = [&](int32_t index) {
      const Node& node = nodes_[index];
      if (node.parent >= 0 && row_of[node.parent] < 0) return;
      row_of[index] = static_cast<int32_t>(result.tokens.size());
      result.tokens.push_back(node.token);
      result.parents.push_back(node.parent < 0 ? kRootParent
                                               : row_of[node.parent]);
      result.proposers.push_back(node.proposers);
      result.credited.push_back(node.credited);
      result.parts.push_back(node.part);
      result.probs.push_back(node.prob);
    };
    for (const int32_t index : drafts) take(index);
    result.draft_nodes = static_cast<int>(result.tokens.size());
    for (const int32_t index : probes) {
      if (result.tokens.size() == static_cast<size_t>(max_nodes)) break;
      take(index);
    }
    return result;
  }

  std::vector<Node> nodes_;
  std::map<std::pair<int32_t, TokenId>, int32_t> children_;
};

// Random proposals over a small alphabet, so that many paths are equal, against
// a map from whole paths and against the reference.
class TreeBuilderPropertyTest : public ::testing::TestWithParam<int> {
 protected:
  struct Row {
    ProposerSet drafters = 0, all = 0;
    std::map<int, float> estimates;  // by drafter
  };
  using Path = std::vector<TokenId>;

  Proposal RandomProposal(int proposer) {
    Proposal proposal;
    proposal.proposer = proposer;
    const int size = static_cast<int>(random_() % 60);
    std::vector<bool> probe;
    for (int i = 0; i < size; ++i) {
      const int32_t parent = static_cast<int32_t>(random_() % (i + 1)) - 1;
      proposal.tokens.push_back(static_cast<TokenId>(random_() % 3));
      proposal.parents.push_back(parent);
      // Quantised, so that ties happen.
      const float own = static_cast<float>(random_() % 5) / 4;
      proposal.probs.push_back(own);
      probe.push_back((parent >= 0 && probe[parent]) || random_() % 8 == 0);
      if (probe.back()) proposal.probes.push_back(i);
    }
    return proposal;
  }

  void Record(const Proposal& proposal) {
    std::vector<Path> paths;
    std::vector<float> probs;
    for (size_t i = 0; i < proposal.tokens.size(); ++i) {
      const int32_t parent = proposal.parents[i];
      Path path = parent < 0 ? Path{} : paths[parent];
      path.push_back(proposal.tokens[i]);
      const float prob = parent < 0
                             ? proposal.probs[i]
                             : std::min(probs[parent], proposal.probs[i]);
      Row& row = rows_[path];
      row.all |= ProposerSet{1} << proposal.proposer;
      if (std::find(proposal.probes.begin(), proposal.probes.end(),
                    static_cast<int32_t>(i)) == proposal.probes.end()) {
        row.drafters |= ProposerSet{1} << proposal.proposer;
        float& best =
            row.estimates.try_emplace(proposal.proposer, -1.0f).first->second;
        best = std::max(best, prob);
      }
      paths.push_back(std::move(path));
      probs.push_back(prob);
    }
  }

  std::mt19937 random_{static_cast<uint32_t>(GetParam())};
  std::map<Path, Row> rows_;
};

TEST_P(TreeBuilderPropertyTest, MergesByPathAndPrunesToTheBest) {
  TreeBuilder builder;
  std::vector<Proposal> proposals;
  for (int proposer = 0; proposer < 4; ++proposer) {
    proposals.push_back(RandomProposal(proposer));
    Record(proposals.back());
  }
  for (const Proposal& proposal : proposals) Add(builder, proposal);
  ASSERT_EQ(builder.size(), static_cast<int>(rows_.size()));

  std::vector<float> estimates;  // of all draft rows
  for (const auto& [path, row] : rows_) {
    if (row.drafters == 0) continue;
    float best = 0;
    for (const auto& [drafter, prob] : row.estimates) {
      best = std::max(best, prob);
    }
    estimates.push_back(best);
  }
  std::sort(estimates.rbegin(), estimates.rend());

  for (const int budget : {0, 1, 7, 20, 1000}) {
    const TokenTree merged = builder.Build(budget, budget + 30);
    const int kept = std::min<int>(budget, estimates.size());
    ASSERT_EQ(merged.draft_nodes(), kept);
    ASSERT_LE(merged.size(), budget + 30);

    std::set<Path> seen;
    std::vector<Path> paths;
    std::vector<float> kept_estimates;
    for (int node = 0; node < merged.size(); ++node) {
      const int32_t parent = merged.parents()[node];
      Path path = parent < 0 ? Path{} : paths[parent];
      path.push_back(merged.tokens()[node]);
      ASSERT_TRUE(seen.insert(path).second) << "equal siblings";
      const Row& row = rows_.at(path);
      EXPECT_EQ(merged.proposers()[node], row.all);
      EXPECT_EQ(node < merged.draft_nodes(), row.drafters != 0);
      if (node < merged.draft_nodes()) {
        kept_estimates.push_back(merged.probs()[node]);
        const float best = row.estimates.at(merged.credited()[node]);
        EXPECT_EQ(best, merged.probs()[node]);
        for (const auto& [drafter, prob] : row.estimates) {
          EXPECT_TRUE(prob < best ||
                      (prob == best && drafter >= merged.credited()[node]));
        }
        if (parent >= 0) {
          EXPECT_LE(merged.probs()[node], merged.probs()[parent]);
        }
      }
      paths.push_back(std::move(path));
    }
    // No choice of as many rows has a higher sum.
    std::sort(kept_estimates.rbegin(), kept_estimates.rend());
    EXPECT_THAT(kept_estimates,
                ElementsAreArray(estimates.begin(), estimates.begin() + kept));
  }
}

TEST_P(TreeBuilderPropertyTest, OneOrderedBuildGivesTheReferencesTrees) {
  TreeBuilder builder;
  for (int round = 0; round < 8; ++round) {
    builder.Clear();
    ReferenceBuilder reference;
    const int proposals = 1 + static_cast<int>(random_() % 5);
    for (int i = 0; i < proposals; ++i) {
      // In any order, and some twice.
      Proposal proposal = RandomProposal(static_cast<int>(random_() % 6));
      if (random_() % 2 == 0) {
        for (size_t node = 0; node < proposal.tokens.size(); ++node) {
          proposal.parts.push_back(static_cast<DrafterId>(random_() % 4));
        }
      }
      if (random_() % 4 == 0) proposal.probs.clear();
      Add(builder, proposal);
      Add(reference, proposal);
    }
    for (int trial = 0; trial < 12; ++trial) {
      const int max_draft_nodes = static_cast<int>(random_() % 80);
      const int max_nodes = static_cast<int>(random_() % 160);
      const int worth = static_cast<int>(random_() % 90);
      std::vector<std::vector<float>> seen;
      TreeBuilder::Price price;
      if (trial % 4 != 0) {
        price = [&](absl::Span<const float> probs) {
          seen.emplace_back(probs.begin(), probs.end());
          return worth;
        };
      }
      const ReferenceBuilder::Result want =
          reference.Merge(max_draft_nodes, max_nodes, price);
      const TokenTree got = builder.Build(max_draft_nodes, max_nodes, price);
      ASSERT_THAT(got.tokens(), ElementsAreArray(want.tokens));
      ASSERT_THAT(got.parents(), ElementsAreArray(want.parents));
      ASSERT_EQ(got.draft_nodes(), want.draft_nodes);
      ASSERT_THAT(got.proposers(), ElementsAreArray(want.proposers));
      ASSERT_THAT(got.credited(), ElementsAreArray(want.credited));
      ASSERT_THAT(got.parts(), ElementsAreArray(want.parts));
      ASSERT_THAT(got.probs(), ElementsAreArray(want.probs));
      // Both were priced by the same estimates, or neither was.
      ASSERT_EQ(seen.size() % 2, 0u);
      if (!seen.empty()) {
        ASSERT_EQ(seen[0], seen[1]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, TreeBuilderPropertyTest,
                         ::testing::Range(0, 40));

}  // namespace
}  // namespace foretoken
