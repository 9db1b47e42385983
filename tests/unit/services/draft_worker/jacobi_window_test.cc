#include "services/draft_worker/core/jacobi_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/services/draft_worker/draft_fixture.h"

namespace foretoken::draft_worker {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

// Answers by row: 100 * level + column would be for a full window; here simply
// the number of the row above 1000.
std::vector<SampledToken> Numbered(int rows) {
  std::vector<SampledToken> outputs(rows);
  for (int row = 0; row < rows; ++row) outputs[row].token = 1000 + row;
  return outputs;
}

TEST(JacobiWindowTest, FillsItsLevelsThenGivesAPhraseAColumn) {
  JacobiWindow window(/*width=*/2, /*phrase_tokens=*/4);
  window.Start(Tokens{10, 11, 12, 13});
  PassRows rows;
  Tokens phrases;

  // W+N-3 = 3 guesses behind the last token.
  rows.Add(13, kRootParent);
  EXPECT_EQ(window.depth(), 3);
  window.LayOut(0, rows);
  EXPECT_THAT(rows.tokens, ElementsAre(13, 11, 12, 13));
  EXPECT_THAT(rows.parents, ElementsAre(-1, 0, 1, 2));
  window.Take(13, Numbered(4), phrases);
  EXPECT_THAT(phrases, IsEmpty());

  // The first column is gone; under each of the others its answer.
  rows.Clear();
  rows.Add(20, kRootParent);
  window.LayOut(0, rows);
  EXPECT_THAT(rows.tokens, ElementsAre(20, 12, 13, 1001, 1002, 1003));
  EXPECT_THAT(rows.parents, ElementsAre(-1, 0, 1, 0, 1, 2));
  window.Take(20, Numbered(6), phrases);
  EXPECT_THAT(phrases, IsEmpty());

  // Full: W columns, N-1 levels.
  rows.Clear();
  rows.Add(21, kRootParent);
  window.LayOut(0, rows);
  EXPECT_THAT(rows.tokens, ElementsAre(21, 13, 1002, 1003, 1004, 1005));
  EXPECT_THAT(rows.parents, ElementsAre(-1, 0, 0, 1, 2, 3));
  window.Take(21, Numbered(6), phrases);
  EXPECT_THAT(phrases, ElementsAre(21, 1002, 1004, 1004,  //
                                   13, 1003, 1005, 1005));

  // Every level took the place of the one above it.
  rows.Clear();
  rows.Add(22, kRootParent);
  window.LayOut(0, rows);
  EXPECT_THAT(rows.tokens, ElementsAre(22, 1003, 1004, 1005, 1004, 1005));
}

TEST(JacobiWindowTest, NeverAddsMoreThanLookaheadRows) {
  for (const int width : {1, 2, 7, 20}) {
    for (const int phrase_tokens : {2, 3, 8}) {
      JacobiWindow window(width, phrase_tokens);
      window.Start(Tokens{5});
      int most = 0;
      int last = 0;
      for (int pass = 0; pass < 12; ++pass) {
        PassRows rows;
        rows.Add(5, kRootParent);
        window.LayOut(0, rows);
        last = rows.size() - 1;
        most = std::max(most, last);
        Tokens phrases;
        window.Take(5, Numbered(rows.size()), phrases);
      }
      EXPECT_EQ(most, LookaheadRows(width, phrase_tokens));
      EXPECT_EQ(last, width * (phrase_tokens - 1) - 1);
    }
  }
}

}  // namespace
}  // namespace foretoken::draft_worker
