#include "common/drafting/draft_session.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace foretoken {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Notes its calls: the committed tokens, and -1 for an observed tree.
class NotingDrafter final : public Drafter {
 public:
  void StartRequest(absl::Span<const TokenId>) override {}
  void Commit(absl::Span<const TokenId> tokens) override {
    calls.emplace_back(tokens.begin(), tokens.end());
  }
  void Observe(const VerifiedTree&) override { calls.push_back({-1}); }
  bool reads_candidates() const override { return reads; }
  void Draft(int, DraftTree&) override {}

  bool reads = true;
  std::vector<std::vector<TokenId>> calls;
};

DraftRound RoundOf(std::vector<TokenId> committed) {
  DraftRound round;
  round.committed = std::move(committed);
  round.verified.tree = TokenTree::Create({3, 4}, {-1, 0}).value();
  round.verified.path = {0, 1};
  round.verified.candidates =
      CandidateRows::Of({{{3, 0.0f}}, {{4, 0.0f}}, {{5, 0.0f}}});
  return round;
}

TEST(CommitRoundTest, TheTreeIsObservedAfterTheTokensThatItGave) {
  NotingDrafter drafter;
  CommitRound(RoundOf({3, 4, 5}), drafter);
  EXPECT_THAT(drafter.calls,
              ElementsAre(ElementsAre(3, 4, 5), ElementsAre(-1)));
}

TEST(CommitRoundTest, TokensOfEarlierRoundsAreCommittedApart) {
  NotingDrafter drafter;
  CommitRound(RoundOf({8, 9, 3, 4, 5}), drafter);
  EXPECT_THAT(
      drafter.calls,
      ElementsAre(ElementsAre(8, 9), ElementsAre(3, 4, 5), ElementsAre(-1)));
}

TEST(CommitRoundTest, ATreeThatDoesNotFitTheTokensIsIgnored) {
  NotingDrafter drafter;
  CommitRound(RoundOf({3, 4}), drafter);
  EXPECT_THAT(drafter.calls, ElementsAre(ElementsAre(3, 4)));
  drafter.calls.clear();
  CommitRound(DraftRound(), drafter);
  EXPECT_THAT(drafter.calls, IsEmpty());
}

TEST(CommitRoundTest, ADrafterThatDoesNotReadCandidatesGetsTokensOnly) {
  NotingDrafter drafter;
  drafter.reads = false;
  CommitRound(RoundOf({3, 4, 5}), drafter);
  EXPECT_THAT(drafter.calls, ElementsAre(ElementsAre(3, 4, 5)));
}

}  // namespace
}  // namespace foretoken
