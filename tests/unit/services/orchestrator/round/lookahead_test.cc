#include "services/orchestrator/core/round/lookahead.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "services/orchestrator/core/round/tree_merger.h"
#include "tests/support/status_matchers.h"

namespace foretoken::orchestrator {
namespace {

using ::testing::ElementsAre;

using Tokens = std::vector<TokenId>;

// A target that says the same after the same last two tokens.
TokenId Target(const Tokens& text) {
  const size_t n = text.size();
  return (text[n - 1] * 7 + text[n - 2] * 3 + 1) % 5;
}

// Lookahead decoding written down once more, without trees: cells by (level,
// column), n-grams by first token, newest first.
class Reference {
 public:
  Reference(int window, int ngram, int pool, const Tokens& level)
      : window_(window), ngram_(ngram), pool_size_(pool), levels_({level}) {}

  // `text` ends with the last committed token.
  void Round(const Tokens& text) {
    const int deepest = static_cast<int>(levels_.size()) - 1;
    Tokens answers;
    for (int j = 0; j < Width(); ++j) {
      Tokens path = text;
      for (int i = 1; i <= j; ++i) path.push_back(levels_[0][i]);
      for (int l = 1; l <= deepest; ++l) path.push_back(levels_[l][j]);
      answers.push_back(Target(path));
    }
    if (deepest < ngram_ - 2) {
      for (Tokens& level : levels_) level.erase(level.begin());
      levels_.emplace_back(answers.begin() + 1, answers.end());
      return;
    }
    for (int j = 0; j < window_; ++j) {
      Tokens found = {j == 0 ? text.back() : levels_[0][j]};
      for (int l = 1; l <= deepest; ++l) found.push_back(levels_[l][j]);
      found.push_back(answers[j]);
      std::vector<Tokens>& kept = pool_[found[0]];
      kept.erase(std::remove(kept.begin(), kept.end(), found), kept.end());
      kept.insert(kept.begin(), found);
      if (static_cast<int>(kept.size()) > pool_size_) kept.pop_back();
    }
    levels_.erase(levels_.begin());
    levels_.push_back(answers);
  }

  int Width() const { return static_cast<int>(levels_[0].size()); }
  const std::vector<Tokens>& levels() const { return levels_; }
  std::vector<Tokens> Candidates(TokenId key) { return pool_[key]; }

 private:
  const int window_, ngram_, pool_size_;
  std::vector<Tokens> levels_;
  std::map<TokenId, std::vector<Tokens>> pool_;
};

// All root-to-node paths of a tree.
std::set<Tokens> Paths(const DraftTree& tree) {
  std::vector<Tokens> of(tree.size());
  std::set<Tokens> paths;
  for (int32_t i = 0; i < tree.size(); ++i) {
    if (tree.parents[i] != kRootParent) of[i] = of[tree.parents[i]];
    of[i].push_back(tree.tokens[i]);
    EXPECT_TRUE(paths.insert(of[i]).second) << "equal siblings";
  }
  return paths;
}

std::set<Tokens> WindowPaths(const Reference& reference) {
  std::set<Tokens> paths;
  const auto& levels = reference.levels();
  for (int j = 0; j < reference.Width(); ++j) {
    Tokens path(levels[0].begin() + 1, levels[0].begin() + j + 1);
    if (!path.empty()) paths.insert(path);
    for (size_t l = 1; l < levels.size(); ++l) {
      path.push_back(levels[l][j]);
      paths.insert(path);
    }
  }
  return paths;
}

std::set<Tokens> CandidatePaths(const std::vector<Tokens>& candidates) {
  std::set<Tokens> paths;
  for (const Tokens& ngram : candidates) {
    for (size_t i = 2; i <= ngram.size(); ++i) {
      paths.emplace(ngram.begin() + 1, ngram.begin() + i);
    }
  }
  return paths;
}

// Verifies draft and window as the engine would; commits the agreed path.
VerifiedTree Verify(const SourceDraft& draft, Tokens& text, Tokens& committed) {
  TreeMerger merger({64, 320});
  const TokenTree merged =
      merger.Merge({{&draft.tree, draft.tree.probs, &draft.window}}, nullptr);
  VerifiedTree verified;
  verified.tree = merged;
  verified.row_tokens.push_back(Target(text));
  std::vector<Tokens> rows;
  for (int32_t i = 0; i < merged.size(); ++i) {
    const int32_t parent = merged.parents()[i];
    rows.push_back(parent == kRootParent ? text : rows[parent]);
    rows.back().push_back(merged.tokens()[i]);
    verified.row_tokens.push_back(Target(rows.back()));
  }
  int32_t at = kRootParent;
  committed = {verified.row_tokens[0]};
  for (int32_t i = 0; i < merged.draft_nodes(); ++i) {
    if (merged.parents()[i] != at || merged.tokens()[i] != committed.back()) {
      continue;
    }
    at = i;
    verified.path.push_back(i);
    committed.push_back(verified.row_tokens[i + 1]);
  }
  text.insert(text.end(), committed.begin(), committed.end());
  return verified;
}

struct Shape {
  int window, ngram, pool;
};

class LookaheadTest : public ::testing::TestWithParam<Shape> {};

TEST_P(LookaheadTest, EveryRoundHasTheReferencesWindowAndCandidates) {
  const auto [window, ngram, pool] = GetParam();
  LookaheadSource source({window, ngram, pool});
  Tokens text = {1, 4, 9, 2, 7};
  source.Start(DraftOpen(), text);

  DraftRound round;
  round.max_nodes = 1000;
  round.committed = {3};
  text.push_back(3);
  source.Ask(round, text);
  SourceDraft draft;
  ASSERT_EQ(source.Collect(absl::InfiniteFuture(), draft),
            DraftOutcome::kAnswered);
  // The first level 0 is the source's own choice.
  ASSERT_EQ(draft.window.size(), window + ngram - 3);
  Tokens level = {0};
  level.insert(level.end(), draft.window.tokens.begin(),
               draft.window.tokens.end());
  Reference reference(window, ngram, pool, level);

  int64_t accepted = 0;
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(Paths(draft.window), WindowPaths(reference)) << "round " << i;
    EXPECT_EQ(Paths(draft.tree),
              CandidatePaths(reference.Candidates(text.back())));
    reference.Round(text);
    round.verified = Verify(draft, text, round.committed);
    accepted += static_cast<int64_t>(round.committed.size()) - 1;
    source.Ask(round, text);
    source.Collect(absl::InfiniteFuture(), draft);
  }
  EXPECT_GT(accepted, 10);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LookaheadTest,
                         ::testing::Values(Shape{15, 5, 15}, Shape{1, 3, 1},
                                           Shape{4, 2, 2}, Shape{7, 4, 3}));

TEST(LookaheadOptionsTest, TheFullWindowHasTheDesignsRows) {
  EXPECT_EQ(LookaheadOptions().WindowRows(), 15 * 4 - 1);
  // One column: the first levels of the filling are the wider ones.
  EXPECT_EQ((LookaheadOptions{1, 3, 1}.WindowRows()), 1);
}

TEST(LookaheadTest, ARoundWithoutItsRowsLeavesTheWindowAsItIs) {
  LookaheadSource source({4, 3, 2});
  const std::vector<TokenId> text = {1, 2, 3};
  source.Start(DraftOpen(), text);
  DraftRound round;
  round.max_nodes = 64;
  round.committed = {5};
  source.Ask(round, text);
  SourceDraft before, after;
  source.Collect(absl::InfiniteFuture(), before);
  // A tree of another shape, and one with rows that were dropped.
  round.verified.row_tokens = {6};
  source.Ask(round, text);
  source.Collect(absl::InfiniteFuture(), after);
  EXPECT_EQ(after.window.tokens, before.window.tokens);
  round.verified.tree =
      TokenTree::Create(before.window.tokens, before.window.parents).value();
  round.verified.row_tokens.assign(before.window.size() + 1, -1);
  source.Ask(round, text);
  source.Collect(absl::InfiniteFuture(), after);
  EXPECT_EQ(after.window.tokens, before.window.tokens);
  EXPECT_THAT(after.tree.tokens, ElementsAre());
}

}  // namespace
}  // namespace foretoken::orchestrator
