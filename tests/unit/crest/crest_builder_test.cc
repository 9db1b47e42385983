#include "common/drafting/crest_build/crest_builder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest/tree_select.h"
#include "common/drafting/crest_build/ngram_runs.h"
#include "common/drafting/crest_build/ngram_select.h"
#include "common/drafting/crest_build/token_file.h"
#include "common/text/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::HasSubstr;
using Ngram = std::vector<TokenId>;

std::string RandomText(uint32_t seed, size_t bytes) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) {
    for (int i = 1 + static_cast<int>(random() % 5); i > 0; --i) {
      text.push_back(static_cast<char>('a' + random() % 5));
    }
    text.push_back(' ');
  }
  return text;
}

class CrestBuilderTest : public ::testing::Test {
 protected:
  CrestBuilderTest() {
    tokenizer_ = *Tokenizer::Load(
        dir_.Write("tokenizer.json", testing::TinyTokenizerJson()));
    options_.work_folder = dir_.File("work");
    options_.progress = false;
    options_.memory_bytes = uint64_t{4} << 30;  // sanitizers hold a lot
  }

  void SetCorpus(const std::vector<std::string>& documents) {
    std::string lines;
    documents_.clear();
    for (const std::string& text : documents) {
      lines += DumpJson({{"text", text}}) + "\n";
      documents_.push_back(tokenizer_->Encode(text));
      if (tokenizer_->eos_token() >= 0) {
        documents_.back().push_back(tokenizer_->eos_token());
      }
    }
    options_.corpus.paths = {dir_.Write("corpus.jsonl", lines)};
  }

  absl::StatusOr<CrestBuildReport> Build(const std::string& out) {
    return BuildCrest(options_, *tokenizer_,
                      [&](const CrestMeta& meta, const TokenTable& table)
                          -> absl::StatusOr<std::unique_ptr<DatastoreSink>> {
                        return SnapshotWriter::Create(dir_.File(out), meta,
                                                      table);
                      });
  }

  TempDir dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
  CrestBuildOptions options_;
  std::vector<std::vector<TokenId>> documents_;
};

TEST_F(CrestBuilderTest, EqualsCountingByHand) {
  std::vector<std::string> texts;
  for (uint32_t i = 0; i < 40; ++i) texts.push_back(RandomText(i, 400));
  SetCorpus(texts);
  options_.max_n = 3;
  options_.top = 60;
  options_.tree_nodes = 12;
  options_.continuation = 4;
  const auto report = Build("x.crest");
  FORETOKEN_ASSERT_OK(report);
  const auto index = CrestIndex::Open(dir_.File("x.crest"));
  FORETOKEN_ASSERT_OK(index);

  std::map<Ngram, std::vector<Ngram>> continuations;
  for (const auto& document : documents_) {
    const int size = static_cast<int>(document.size());
    for (int at = 0; at < size; ++at) {
      for (int n = 1; n <= 3 && at + n <= size; ++n) {
        const auto begin = document.begin() + at;
        continuations[{begin, begin + n}].push_back(
            {begin + n, begin + std::min(n + 4, size - at)});
      }
    }
  }
  for (int n = 1; n <= 3; ++n) {
    uint64_t distinct = 0;
    std::vector<size_t> counts;
    for (const auto& [ngram, all] : continuations) {
      if (static_cast<int>(ngram.size()) != n) continue;
      ++distinct;
      if (all.size() >= 2) counts.push_back(all.size());
    }
    std::sort(counts.rbegin(), counts.rend());
    counts.resize(std::min<size_t>(counts.size(), 60));
    EXPECT_EQ(report->meta.levels[n - 1].distinct, distinct);
    EXPECT_EQ(report->meta.levels[n - 1].kept, counts.size());
    EXPECT_EQ(report->meta.levels[n - 1].least_count, counts.back());
  }

  uint64_t entries = 0;
  index->ForEach([&](absl::Span<const TokenId> ngram, const CrestTree& tree,
                     absl::Span<const uint8_t>) {
    ++entries;
    std::vector<Ngram> all = continuations[{ngram.begin(), ngram.end()}];
    EXPECT_EQ(tree.matches, all.size());
    EXPECT_GE(all.size(), report->meta.levels[ngram.size() - 1].least_count);
    std::sort(all.begin(), all.end());
    CrestTree want;
    TreeSelector().SelectBest(
        0, static_cast<int64_t>(all.size()), 4, 12,
        [&](int64_t i, int depth) {
          return depth < static_cast<int>(all[i].size()) ? all[i][depth] : -1;
        },
        want);
    EXPECT_EQ(tree, want);
  });
  EXPECT_EQ(entries, report->meta.entries);
  EXPECT_FALSE(std::filesystem::exists(options_.work_folder));
}

TEST_F(CrestBuilderTest, IsTheSameWhateverThreadsAndSample) {
  std::vector<std::string> texts;
  for (uint32_t i = 0; i < 30; ++i) texts.push_back(RandomText(i, 3000));
  SetCorpus(texts);
  options_.max_n = 4;
  options_.top = 500;
  options_.max_matches = 40;  // most n-grams are sampled
  for (const MatchSample sample :
       {MatchSample::kUniform, MatchSample::kFirst}) {
    options_.sample = sample;
    options_.threads = 1;
    FORETOKEN_ASSERT_OK(Build("one"));
    options_.threads = 4;
    FORETOKEN_ASSERT_OK(Build("four"));
    EXPECT_TRUE(*ReadFile(dir_.File("one")) == *ReadFile(dir_.File("four")));
  }
  options_.sample = MatchSample::kUniform;
  ++options_.seed;
  FORETOKEN_ASSERT_OK(Build("seed"));
  EXPECT_FALSE(*ReadFile(dir_.File("seed")) == *ReadFile(dir_.File("four")));
}

TEST_F(CrestBuilderTest, GoesOnAfterTheLastFinishedPhase) {
  SetCorpus({RandomText(1, 5000), RandomText(2, 5000)});
  FORETOKEN_ASSERT_OK(Build("whole"));
  const auto failed = BuildCrest(
      options_, *tokenizer_,
      [](const CrestMeta&,
         const TokenTable&) -> absl::StatusOr<std::unique_ptr<DatastoreSink>> {
        return absl::UnavailableError("no database");
      });
  EXPECT_THAT(failed, StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("no database")));
  const auto report = Build("resumed");
  FORETOKEN_ASSERT_OK(report);
  for (const auto& phase : report->phases) {
    EXPECT_EQ(phase.resumed, phase.name != "publish") << phase.name;
  }
  EXPECT_TRUE(*ReadFile(dir_.File("resumed")) == *ReadFile(dir_.File("whole")));
}

TEST_F(CrestBuilderTest, BeginsAnewWhereTheOptionsOrTheStateChanged) {
  SetCorpus({RandomText(1, 5000)});
  const auto no_sink =
      [](const CrestMeta&,
         const TokenTable&) -> absl::StatusOr<std::unique_ptr<DatastoreSink>> {
    return absl::UnavailableError("later");
  };
  ASSERT_FALSE(BuildCrest(options_, *tokenizer_, no_sink).ok());
  options_.top = 77;
  auto report = Build("other");
  FORETOKEN_ASSERT_OK(report);
  EXPECT_FALSE(report->phases[0].resumed);

  ASSERT_FALSE(BuildCrest(options_, *tokenizer_, no_sink).ok());
  dir_.Write("work/crest-build.json", "{\"key\":");
  report = Build("damaged");
  FORETOKEN_ASSERT_OK(report);
  EXPECT_FALSE(report->phases[0].resumed);
}

TEST_F(CrestBuilderTest, RefusesCorporaWithNothingToCount) {
  options_.corpus.paths = {dir_.Write("empty.jsonl", "\n\n")};
  EXPECT_THAT(Build("x"), StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("no text in 1 file")));
  SetCorpus({"a"});  // one token and the end
  EXPECT_THAT(Build("x"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no n-gram of 1..3 tokens occurs 2 times")));
  if (tokenizer_->eos_token() < 0) {  // else the end follows
    SetCorpus({"a", "a", "a"});
    EXPECT_THAT(Build("x"), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("followed by anything")));
  }
}

TEST_F(CrestBuilderTest, TakesOneTokenDocumentsAndATopBeyondAllNgrams) {
  SetCorpus({"a b", "a b", "b", "a b"});
  options_.top = 1'000'000;
  const auto report = Build("x");
  FORETOKEN_ASSERT_OK(report);
  const auto index = CrestIndex::Open(dir_.File("x"));
  FORETOKEN_ASSERT_OK(index);
  CrestTree tree;
  const std::vector<TokenId> ids = tokenizer_->Encode("a b");
  ASSERT_GE(ids.size(), 2u);
  EXPECT_EQ(index->Lookup({ids[0]}, tree), 1);
  EXPECT_EQ(tree.matches, 3u);
  EXPECT_EQ(tree.tokens[0], ids[1]);
}

TEST_F(CrestBuilderTest, OnlyOneLengthWhereAsked) {
  SetCorpus({RandomText(1, 5000)});
  options_.min_n = options_.max_n = 2;
  FORETOKEN_ASSERT_OK(Build("x"));
  const auto index = CrestIndex::Open(dir_.File("x"));
  FORETOKEN_ASSERT_OK(index);
  index->ForEach(
      [](absl::Span<const TokenId> ngram, const CrestTree&,
         absl::Span<const uint8_t>) { EXPECT_EQ(ngram.size(), 2u); });
  CrestTree tree;
  EXPECT_EQ(index->Lookup(tokenizer_->Encode("a"), tree), 0);
}

TEST_F(CrestBuilderTest, SaysHowMuchMemoryItWants) {
  SetCorpus({RandomText(1, 5000)});
  options_.memory_bytes = 1 << 20;
  EXPECT_THAT(Build("x"), StatusIs(absl::StatusCode::kResourceExhausted,
                                   HasSubstr("memory: 1048576 bytes, want")));
}

TEST_F(CrestBuilderTest, NamesOptionsOutOfRange) {
  SetCorpus({"a"});
  options_.max_n = 9;
  EXPECT_THAT(Build("x"), StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("max_n: 9, want 1..8")));
  options_.max_n = 3;
  options_.top = 0;
  EXPECT_THAT(Build("x"), StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("top: 0")));
}

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
    ThreadPool pool(2);
    auto runs_file = SpillFile::Create(dir.File("runs"));
    auto merged = SpillFile::Create(dir.File("merged"));
    auto candidates = SpillFile::Create(dir.File("candidates"));
    auto selected = SpillFile::Create(dir.File("selected"));
    Progress progress("test", 0, "tokens", false);
    const auto runs =
        WriteNgramRuns(TokenFile(**file, layout.token_bytes), layout, 1,
                       /*memory_bytes=*/0, pool, **runs_file, progress);
    FORETOKEN_ASSERT_OK(runs);
    ASSERT_GE(runs->size(), 3u);  // so that a fan-in of two needs levels
    const SelectOptions select{layout, 1, 100, 2, /*memory_bytes=*/0};
    const auto selection =
        SelectNgrams(**runs_file, *runs, writer.unigrams(), select, pool,
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

}  // namespace
}  // namespace foretoken
