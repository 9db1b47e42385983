#include "common/speculation/tree_builder.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Owns what a ProposedTree borrows.
struct Proposal {
  int proposer = 0;
  std::vector<TokenId> tokens;
  std::vector<int32_t> parents;
  std::vector<float> probs;
  std::vector<int32_t> probes;

  ProposedTree View() const {
    return {proposer, tokens, parents, probs, probes};
  }
};

void Add(TreeBuilder& builder, const Proposal& proposal) {
  builder.Add(proposal.View());
}

TEST(TreeBuilderTest, EqualPathsOfTwoDraftersAreOneRow) {
  TreeBuilder builder;
  Add(builder, {1, {11, 12}, {-1, 0}, {0.5f, 0.2f}, {}});
  Add(builder,
      {4, {21, 11, 12, 13}, {-1, -1, 1, 2}, {0.1f, 0.4f, 0.3f, 0.05f}, {}});

  const MergedTree merged = builder.Build(64, 320);

  EXPECT_THAT(merged.tree.tokens(), ElementsAre(11, 12, 21, 13));
  EXPECT_THAT(merged.tree.parents(), ElementsAre(-1, 0, -1, 1));
  EXPECT_THAT(merged.proposers,
              ElementsAre(0b10010, 0b10010, 0b10000, 0b10000));
  // The higher estimate is the row's, and its drafter is credited.
  EXPECT_THAT(merged.credited, ElementsAre(1, 4, 4, 4));
  EXPECT_THAT(merged.probs, ElementsAre(0.5f, 0.3f, 0.1f, 0.05f));
  EXPECT_EQ(merged.draft_nodes, 4);
}

TEST(TreeBuilderTest, ARowHasThePartOfTheDrafterThatIsCredited) {
  TreeBuilder builder;
  const Proposal chain = {0, {11, 12}, {-1, 0}, {0.5f, 0.1f}, {}};
  const Proposal fused = {4, {11, 12, 13}, {-1, 0, 1}, {0.4f, 0.3f, 0.2f}, {}};
  const std::vector<DrafterId> parts = {DrafterId::kFusedPrior,
                                        DrafterId::kFusedRequest,
                                        DrafterId::kFusedHistory};
  ProposedTree proposed = fused.View();
  proposed.parts = parts;
  Add(builder, chain);
  builder.Add(proposed);

  const MergedTree merged = builder.Build(64, 320);

  EXPECT_THAT(merged.credited, ElementsAre(0, 4, 4));
  EXPECT_THAT(merged.parts,
              ElementsAre(DrafterId::kTarget, DrafterId::kFusedRequest,
                          DrafterId::kFusedHistory));
}

TEST(TreeBuilderTest, ATieGoesToTheDrafterThatComesFirstInTheOrderOfModes) {
  TreeBuilder builder;
  Add(builder, {5, {7}, {-1}, {0.5f}, {}});
  Add(builder, {2, {7}, {-1}, {0.5f}, {}});
  Add(builder, {3, {7}, {-1}, {0.5f}, {}});
  EXPECT_THAT(builder.Build(1, 1).credited, ElementsAre(2));
}

TEST(TreeBuilderTest, RowsKeepTheirProposersWhereOthersDoNotFit) {
  TreeBuilder builder;
  Add(builder, {1, {11, 12}, {-1, 0}, {0.5f, 0.2f}, {}});
  Add(builder, {4, {21, 11, 13}, {-1, -1, 1}, {0.1f, 0.4f, 0.3f}, {}});

  const MergedTree merged = builder.Build(/*max_draft_nodes=*/2, 320);

  // 12 at 0.2 did not fit, nor 21 at 0.1.
  EXPECT_THAT(merged.tree.tokens(), ElementsAre(11, 13));
  EXPECT_THAT(merged.tree.parents(), ElementsAre(-1, 0));
  EXPECT_THAT(merged.proposers, ElementsAre(0b10010, 0b10000));
}

TEST(TreeBuilderTest, ADraftWinsOverAProbe) {
  TreeBuilder builder;
  // A window: 5 - 6 - 7, all probes, whatever their estimates say.
  Add(builder, {2, {5, 6, 7}, {-1, 0, 1}, {0.9f, 0.9f, 0.9f}, {0, 1, 2}});
  Add(builder, {4, {5, 8}, {-1, 0}, {0.3f, 0.1f}, {}});

  const MergedTree merged = builder.Build(64, 320);

  EXPECT_EQ(merged.draft_nodes, 2);
  EXPECT_THAT(merged.tree.tokens(), ElementsAre(5, 8, 6, 7));
  EXPECT_THAT(merged.tree.parents(), ElementsAre(-1, 0, 0, 2));
  EXPECT_THAT(merged.proposers, ElementsAre(0b10100, 0b10000, 0b100, 0b100));
  EXPECT_THAT(merged.credited, ElementsAre(4, 4, 2, 2));
  EXPECT_EQ(merged.probs[0], 0.3f);  // the draft's, not the probe's
}

TEST(TreeBuilderTest, AProbeAfterADraftTakesNoCredit) {
  TreeBuilder builder;
  Add(builder, {4, {5}, {-1}, {0.3f}, {}});
  Add(builder, {1, {5}, {-1}, {0.9f}, {0}});
  const MergedTree merged = builder.Build(64, 320);
  EXPECT_EQ(merged.draft_nodes, 1);
  EXPECT_THAT(merged.credited, ElementsAre(4));
  EXPECT_EQ(merged.probs[0], 0.3f);
}

TEST(TreeBuilderTest, ProbesGoFirstWhereSpaceIsShort) {
  TreeBuilder builder;
  Add(builder, {2, {5, 6, 7}, {-1, 0, 1}, {}, {0, 1, 2}});
  Add(builder, {4, {8, 9}, {-1, 0}, {0.3f, 0.2f}, {}});
  const MergedTree merged = builder.Build(/*max_draft_nodes=*/64, 3);
  EXPECT_EQ(merged.draft_nodes, 2);
  EXPECT_THAT(merged.tree.tokens(), ElementsAre(8, 9, 5));
}

TEST(TreeBuilderTest, AProbeBelowADraftThatDidNotFitGoesWithIt) {
  TreeBuilder builder;
  Add(builder, {2, {5, 6, 7}, {-1, 0, -1}, {0.1f, 0.1f, 0.5f}, {1}});
  const MergedTree merged = builder.Build(/*max_draft_nodes=*/1, 320);
  EXPECT_THAT(merged.tree.tokens(), ElementsAre(7));
  EXPECT_THAT(merged.tree.parents(), ElementsAre(-1));
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
  const MergedTree merged = builder.Build(64, 320);
  EXPECT_EQ(merged.draft_nodes, 2);
  // One probe of the window is the draft's first node as well.
  EXPECT_EQ(merged.tree.size(), kWidth * (kN - 1) - 1 + 1);
}

TEST(TreeBuilderTest, ClearForgets) {
  TreeBuilder builder;
  Add(builder, {1, {5}, {-1}, {}, {}});
  builder.Clear();
  EXPECT_THAT(builder.Build(64, 320).tree.tokens(), IsEmpty());
}

// Random proposals over a small alphabet, so that many paths are equal, against
// a map from whole paths.
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
    const MergedTree merged = builder.Build(budget, budget + 30);
    const int kept = std::min<int>(budget, estimates.size());
    ASSERT_EQ(merged.draft_nodes, kept);
    ASSERT_LE(merged.tree.size(), budget + 30);

    std::set<Path> seen;
    std::vector<Path> paths;
    std::vector<float> kept_estimates;
    for (int node = 0; node < merged.tree.size(); ++node) {
      const int32_t parent = merged.tree.parents()[node];
      Path path = parent < 0 ? Path{} : paths[parent];
      path.push_back(merged.tree.tokens()[node]);
      ASSERT_TRUE(seen.insert(path).second) << "equal siblings";
      const Row& row = rows_.at(path);
      EXPECT_EQ(merged.proposers[node], row.all);
      EXPECT_EQ(node < merged.draft_nodes, row.drafters != 0);
      if (node < merged.draft_nodes) {
        kept_estimates.push_back(merged.probs[node]);
        const float best = row.estimates.at(merged.credited[node]);
        EXPECT_EQ(best, merged.probs[node]);
        for (const auto& [drafter, prob] : row.estimates) {
          EXPECT_TRUE(prob < best ||
                      (prob == best && drafter >= merged.credited[node]));
        }
        if (parent >= 0) {
          EXPECT_LE(merged.probs[node], merged.probs[parent]);
        }
      }
      paths.push_back(std::move(path));
    }
    // No choice of as many rows has a higher sum.
    std::sort(kept_estimates.rbegin(), kept_estimates.rend());
    EXPECT_THAT(kept_estimates,
                ::testing::ElementsAreArray(estimates.begin(),
                                            estimates.begin() + kept));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, TreeBuilderPropertyTest,
                         ::testing::Range(0, 40));

}  // namespace
}  // namespace foretoken
