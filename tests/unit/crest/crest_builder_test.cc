#include "common/drafting/crest_build/crest_builder.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/thread_pool.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest/tree_select.h"
#include "common/drafting/crest_build/memory_use.h"
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
  for (uint32_t i = 0; i < 40; ++i) texts.push_back(RandomText(i, 400) + "q");
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
  size_t never_followed = 0;
  uint64_t kept = 0;
  for (int n = 1; n <= 3; ++n) {
    uint64_t distinct = 0;
    std::vector<std::pair<size_t, Ngram>> counts;
    for (const auto& [ngram, all] : continuations) {
      if (static_cast<int>(ngram.size()) != n) continue;
      ++distinct;
      if (all.size() >= 2) counts.push_back({all.size(), ngram});
    }
    std::stable_sort(counts.begin(), counts.end(),
                     [](auto& a, auto& b) { return a.first > b.first; });
    counts.resize(std::min<size_t>(counts.size(), 60));
    // What only ever ends documents is selected and then not stored.
    const size_t selected = counts.size();
    std::erase_if(counts, [&](const auto& c) {
      const std::vector<Ngram>& all = continuations[c.second];
      return std::all_of(all.begin(), all.end(),
                         [](const Ngram& next) { return next.empty(); });
    });
    never_followed += selected - counts.size();
    EXPECT_EQ(report->meta.levels[n - 1].distinct, distinct);
    EXPECT_EQ(report->meta.levels[n - 1].kept, counts.size());
    EXPECT_EQ(report->meta.levels[n - 1].least_count, counts.back().first);
    kept += counts.size();
  }
  EXPECT_GT(never_followed, 0u);
  EXPECT_EQ(report->meta.entries, kept);

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

absl::StatusOr<std::unique_ptr<DatastoreSink>> NoSink(const CrestMeta&,
                                                      const TokenTable&) {
  return absl::UnavailableError("later");
}

TEST_F(CrestBuilderTest, BeginsAnewWhereAnyFileOfAnEarlierBuildIsDamaged) {
  SetCorpus({RandomText(1, 5000)});
  FORETOKEN_ASSERT_OK(Build("whole"));
  const std::string state = options_.work_folder + "/crest-build.json";
  ASSERT_FALSE(BuildCrest(options_, *tokenizer_, NoSink).ok());
  std::vector<std::string> files = {state};
  for (const auto& entry :
       std::filesystem::directory_iterator(options_.work_folder)) {
    if (entry.path().extension() == ".crest-spill")
      files.push_back(entry.path());
  }
  ASSERT_GE(files.size(), 3u);
  for (const std::string& file : files) {
    for (const bool cut : {false, true}) {
      SCOPED_TRACE(file + (cut ? " cut" : " changed"));
      ASSERT_FALSE(BuildCrest(options_, *tokenizer_, NoSink).ok());
      std::string bytes = *ReadFile(file);
      if (cut) {
        bytes.pop_back();
      } else if (file == state) {  // another number, in sound JSON
        char& digit = bytes[bytes.find("\"entries\":") + 10];
        digit = digit == '1' ? '2' : '1';
      } else {
        bytes[bytes.size() / 2] ^= 1;
      }
      FORETOKEN_ASSERT_OK(WriteFileAtomically(file, bytes));
      const auto report = Build("again");
      FORETOKEN_ASSERT_OK(report);
      EXPECT_FALSE(report->phases[0].resumed);
      EXPECT_TRUE(*ReadFile(dir_.File("again")) ==
                  *ReadFile(dir_.File("whole")));
    }
  }
  // Sound JSON that no build ever wrote.
  for (const char* text : {"{}", "[]", "3", "{\"digest\":1,\"state\":2}"}) {
    ASSERT_FALSE(BuildCrest(options_, *tokenizer_, NoSink).ok());
    FORETOKEN_ASSERT_OK(WriteFileAtomically(state, text));
    FORETOKEN_EXPECT_OK(Build("again"));
  }
}

TEST_F(CrestBuilderTest, KeepsItsFilesToItselfAndLeavesNone) {
  SetCorpus({RandomText(1, 5000)});
  std::filesystem::create_directories(options_.work_folder);
  dir_.Write("work/crest-build.json.Xy12Ab", "half");
  dir_.Write("work/old.crest-spill", "half");
  FORETOKEN_ASSERT_OK(Build("x"));
  EXPECT_FALSE(std::filesystem::exists(options_.work_folder));
  ASSERT_FALSE(BuildCrest(options_, *tokenizer_, NoSink).ok());
  EXPECT_EQ(std::filesystem::status(options_.work_folder).permissions(),
            std::filesystem::perms::owner_all);
}

TEST_F(CrestBuilderTest, RefusesAFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  SetCorpus({RandomText(1, 5000)});
  std::filesystem::create_directories(options_.work_folder);
  ASSERT_EQ(chown(options_.work_folder.c_str(), 12345, 12345), 0);
  EXPECT_THAT(Build("x"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("belongs to user 12345")));
}

TEST_F(CrestBuilderTest, TheLineLimitIsPartOfTheBuildAndNotOfTheMemory) {
  SetCorpus({RandomText(1, 5 << 20)});
  for (const uint64_t gigabytes : {4, 16}) {
    options_.memory_bytes = gigabytes << 30;
    EXPECT_THAT(Build("x"), StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr("line over 4194304 bytes")));
  }
  SetCorpus({RandomText(1, 5000)});
  ASSERT_FALSE(BuildCrest(options_, *tokenizer_, NoSink).ok());
  options_.corpus.max_line_bytes = 8 << 20;
  const auto report = Build("x");
  FORETOKEN_ASSERT_OK(report);
  EXPECT_FALSE(report->phases[0].resumed);
  options_.memory_bytes = ResidentBytes() + (uint64_t{64} << 20);
  EXPECT_THAT(Build("x"), StatusIs(absl::StatusCode::kResourceExhausted,
                                   HasSubstr("lines of up to 8388608 bytes")));
}

TEST_F(CrestBuilderTest, LeavesThreadsIdleThatMemoryDoesNotAllow) {
  SetCorpus({RandomText(1, 50'000)});
  const auto one = Build("one");
  FORETOKEN_ASSERT_OK(one);
  EXPECT_EQ(one->threads, 1);
  options_.threads = ThreadPool::kMaxThreads;
  options_.corpus.max_line_bytes = 1 << 20;
  options_.memory_bytes = ResidentBytes() + (uint64_t{96} << 20);
  const auto few = Build("few");
  FORETOKEN_ASSERT_OK(few);
  EXPECT_LE(few->threads, 12);
  EXPECT_TRUE(*ReadFile(dir_.File("one")) == *ReadFile(dir_.File("few")));
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
                                     HasSubstr("followed by a token")));
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
                                   HasSubstr("max_n is 9, want 1..8")));
  options_.max_n = 3;
  options_.top = 0;
  EXPECT_THAT(Build("x"), StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("top is 0")));
}

}  // namespace
}  // namespace foretoken
