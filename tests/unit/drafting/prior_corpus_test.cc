#include "common/drafting/prior_corpus.h"

#include <memory>
#include <vector>

#include "common/drafting/ngram_counts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/drafting/letter_tokenizer.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::vector<TokenId>> Read(const CorpusOptions& options) {
  const absl::StatusOr<std::unique_ptr<CorpusReader>> reader =
      CorpusReader::Open(options);
  if (!reader.ok()) return reader.status();
  return ReadPriorCorpus(**reader, LetterTokenizer(), [](uint64_t) {});
}

TEST(PriorCorpusTest, EveryDocumentEndsWithTheEndTokenAndABorder) {
  const TempDir dir;
  CorpusOptions options;
  options.paths = {dir.Write("rows.jsonl",
                             "{\"id\":\"a\",\"output\":\"xy\"}\n"
                             "{\"id\":\"b\",\"text\":\"z\"}\n"),
                   dir.Write("plain.txt", "w")};
  const auto corpus = Read(options);
  FORETOKEN_ASSERT_OK(corpus);
  EXPECT_THAT(*corpus,
              ElementsAre('x', 'y', LetterTokenizer::kEos, kDocumentBorder, 'z',
                          LetterTokenizer::kEos, kDocumentBorder, 'w',
                          LetterTokenizer::kEos, kDocumentBorder));
}

TEST(PriorCorpusTest, RowsOfExcludedIdsAreLeftOut) {
  const TempDir dir;
  CorpusOptions options;
  options.paths = {dir.Write("rows.jsonl",
                             "{\"id\":\"a\",\"output\":\"x\"}\n"
                             "{\"id\":\"b\",\"output\":\"y\"}\n")};
  options.exclude_id_files = {dir.Write("set.jsonl", "{\"id\":\"a\"}\n")};
  const auto corpus = Read(options);
  FORETOKEN_ASSERT_OK(corpus);
  EXPECT_THAT(*corpus,
              ElementsAre('y', LetterTokenizer::kEos, kDocumentBorder));
}

TEST(PriorCorpusTest, ErrorsNameFileAndLine) {
  const TempDir dir;
  CorpusOptions options;
  options.paths = {dir.Write("rows.jsonl", "{\"output\":\"x\"}\n{nonsense\n")};
  EXPECT_THAT(Read(options), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("rows.jsonl:2")));
}

}  // namespace
}  // namespace foretoken
