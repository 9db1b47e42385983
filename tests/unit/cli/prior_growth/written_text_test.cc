#include "common/base/json.h"
#include "tools/cli/prior_growth/written_text.h"

#include <string>
#include <vector>

#include "common/drafting/json_rows.h"
#include "common/drafting/ngram_counts.h"
#include "gmock/gmock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(WrittenTextTest, CutsWhatExceedsItsTokens) {
  WrittenText written(/*max_tokens=*/3);
  written.Add({0, "", "", {1, 2}});
  EXPECT_FALSE(written.full());
  written.Add({1, "", "", {3, 4}});
  EXPECT_TRUE(written.full());
  written.Add({2, "", "", {5}});
  EXPECT_EQ(written.outputs(), 2);
  EXPECT_EQ(written.tokens(), 3);
  EXPECT_THAT(written.TakeCorpus(),
              ElementsAre(1, 2, kDocumentBorder, 3, kDocumentBorder));
  EXPECT_THAT(written.TakeCorpus(), IsEmpty());
}

TEST(WrittenTextTest, LeavesOutEmptyOutputs) {
  WrittenText written(10);
  written.Add({0, "p", "", {}});
  EXPECT_EQ(written.outputs(), 0);
  EXPECT_THAT(written.TakeCorpus(), IsEmpty());
}

TEST(WrittenTextTest, WritesRowsThatAreACorpus) {
  testing::TempDir dir;
  const std::string path = dir.Write("rows", "an older file\n");
  WrittenText written(10);
  FORETOKEN_ASSERT_OK(written.WriteRows(path));
  written.Add({4, "ask", "say \"it\"", {1, 2}});
  written.Add({5, "", "more", {3}});
  // Before Finish: a killed process leaves its rows.
  std::vector<Json> rows;
  FORETOKEN_ASSERT_OK(ForEachJsonRow(path, [&](const Json& row) {
    rows.push_back(row);
    return absl::OkStatus();
  }));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0], (Json{{"id", "written/4"},
                           {"prompt", "ask"},
                           {"output", "say \"it\""},
                           {"tokens", 2}}));
  EXPECT_FALSE(rows[1].contains("prompt"));
  FORETOKEN_EXPECT_OK(written.Finish());
}

TEST(WrittenTextTest, NamesAFileOfRowsThatCannotBeWritten) {
  testing::TempDir dir;
  WrittenText written(10);
  EXPECT_TRUE(
      absl::IsPermissionDenied(written.WriteRows(dir.File("missing/rows"))));
  FORETOKEN_EXPECT_OK(written.Finish());
}

}  // namespace
}  // namespace foretoken::cli
