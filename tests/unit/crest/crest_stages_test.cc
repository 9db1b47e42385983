// The stages of building a datastore, each by itself.
#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "common/drafting/crest_build/ngram_runs.h"
#include "common/drafting/crest_build/ngram_select.h"
#include "common/drafting/crest_build/token_file.h"
#include "common/drafting/crest_build/tree_builder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::HasSubstr;
using Ngram = std::vector<TokenId>;

// The external paths: many runs, several merges, keys of one to three words.
TEST(NgramCountTest, EqualsAMapWithLittleMemory) {
  std::mt19937 random(9);
  for (const auto& [vocabulary, max_n] : std::vector<std::pair<int, int>>{
           {30, 4}, {30, 8}, {100'000, 2}, {100'000, 8}}) {
    TempDir dir;
    auto file = SpillFile::Create(dir.File("tokens"));
    FORETOKEN_ASSERT_OK(file);
    TokenFileWriter writer(**file, vocabulary);
    std::map<Ngram, uint64_t> want;
    for (int d = 0; d < 400; ++d) {
      Ngram document(random() % 300);
      for (TokenId& token : document) {
        // Skewed, and up to the last token of the vocabulary.
        token = static_cast<TokenId>(vocabulary - 1 -
                                     random() % (1 + random() % 30));
      }
      FORETOKEN_ASSERT_OK(writer.AddDocument(document));
      for (size_t at = 0; at < document.size(); ++at) {
        for (int n = 1; n <= max_n && at + n <= document.size(); ++n) {
          const auto begin = document.begin() + static_cast<int64_t>(at);
          ++want[{begin, begin + n}];
        }
      }
    }
    FORETOKEN_ASSERT_OK(writer.Finish());

    const KeyLayout layout{TokenBytesFor(vocabulary), max_n};
    StageOptions options;
    options.layout = layout;
    options.top = 100;
    options.memory_bytes = 0;
    ThreadPool pool(2);
    auto runs_file = SpillFile::Create(dir.File("runs"));
    auto merged = SpillFile::Create(dir.File("merged"));
    auto candidates = SpillFile::Create(dir.File("candidates"));
    auto selected = SpillFile::Create(dir.File("selected"));
    Progress progress("test", 0, "tokens", false);
    const auto runs = WriteNgramRuns(TokenFile(**file, layout.token_bytes),
                                     options, pool, **runs_file, progress);
    FORETOKEN_ASSERT_OK(runs);
    ASSERT_GE(runs->size(), 3u);  // so that a fan-in of two needs levels
    const auto selection =
        SelectNgrams(**runs_file, *runs, writer.unigrams(), options, pool,
                     **merged, **candidates, **selected, progress);
    FORETOKEN_ASSERT_OK(selection);

    // By count, then by tokens, as the header promises.
    uint64_t expected = 0;
    std::map<Ngram, uint64_t> top;
    for (int n = 1; n <= max_n; ++n) {
      std::vector<std::pair<Ngram, uint64_t>> level;
      uint64_t occurrences = 0;
      for (const auto& [ngram, count] : want) {
        if (static_cast<int>(ngram.size()) != n) continue;
        level.push_back({ngram, count});
        occurrences += count;
      }
      EXPECT_EQ(selection->levels[n - 1].distinct, level.size());
      EXPECT_EQ(selection->levels[n - 1].occurrences, occurrences);
      std::stable_sort(
          level.begin(), level.end(),
          [](const auto& a, const auto& b) { return a.second > b.second; });
      for (size_t i = 0; i < std::min<size_t>(100, level.size()); ++i) {
        if (level[i].second < 2) break;
        top.insert(level[i]);
        ++expected;
      }
    }
    EXPECT_EQ(selection->selected, expected);
    std::map<Ngram, uint64_t> got;
    WithKeyWords(layout, [&]<int W>() {
      std::vector<SelectedNgram<W>> list(selection->selected);
      FORETOKEN_EXPECT_OK((*selected)->Read(
          0, list.data(), list.size() * sizeof(SelectedNgram<W>)));
      for (const auto& entry : list) {
        Ngram tokens(kMaxCrestN);
        tokens.resize(layout.Tokens(entry.key, tokens.data()));
        got[tokens] = entry.count;
      }
    });
    EXPECT_TRUE(got == top) << vocabulary << " " << max_n;
  }
}

TEST(BuildTreesTest, SaysHowMuchMemoryTheMatchesOfOneNgramTake) {
  TempDir dir;
  auto file = SpillFile::Create(dir.File("tokens"));
  auto selected = SpillFile::Create(dir.File("selected"));
  auto trees = SpillFile::Create(dir.File("trees"));
  FORETOKEN_ASSERT_OK(trees);
  TokenFileWriter writer(**file, 10);
  FORETOKEN_ASSERT_OK(writer.AddDocument(Ngram(100'000, 7)));
  FORETOKEN_ASSERT_OK(writer.Finish());
  const KeyLayout layout{TokenBytesFor(10), 1};
  SelectedNgram<1> ngram{{}, 100'000};
  ngram.key.words[0] = uint64_t{8} << 48;  // token 7, stored in two bytes
  FORETOKEN_ASSERT_OK((*selected)->Append(&ngram, sizeof(ngram)));
  const TokenTable table = *TokenTable::Create({7}, 10);
  ThreadPool pool(2);
  StageOptions options;
  options.layout = layout;
  options.max_matches = 1'000'000;
  options.progress = false;
  const auto build = [&](uint64_t memory_bytes) {
    options.memory_bytes = memory_bytes;
    return BuildTrees(TokenFile(**file, layout.token_bytes), **selected, 1,
                      options, table, 10, pool, **trees);
  };
  // 100,000 continuations of 10 tokens of 2 bytes, and their order twice.
  EXPECT_THAT(build(4 << 20),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       ::testing::AllOf(HasSubstr("the matches of one n-gram"),
                                        HasSubstr("bytes more"))));
  const auto totals = build(8 << 20);
  FORETOKEN_ASSERT_OK(totals);
  EXPECT_EQ(totals->entries, 1u);
  EXPECT_EQ(totals->levels[0].least_count, 100'000u);
  options.max_matches = 1000;
  FORETOKEN_EXPECT_OK(build(4 << 20));
}

}  // namespace
}  // namespace foretoken
