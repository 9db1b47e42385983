#include "common/drafting/crest/crest_index.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>

#include "common/base/file.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/crest_samples.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::AddAll;
using ::foretoken::testing::CrestSample;
using ::foretoken::testing::MakeCrestSample;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::_;
using ::testing::HasSubstr;

std::string WriteSnapshot(const TempDir& dir, const CrestSample& sample) {
  const std::string path = dir.File("x.crest");
  auto writer = SnapshotWriter::Create(path, sample.meta, sample.table);
  EXPECT_THAT(writer, testing::IsOk());
  FORETOKEN_EXPECT_OK(AddAll(sample, **writer));
  FORETOKEN_EXPECT_OK((*writer)->Publish(sample.meta));
  return path;
}

TEST(CrestIndexTest, FindsTheLongestStoredSuffix) {
  const CrestSample sample = MakeCrestSample(1, 3000, 200);
  TempDir dir;
  const auto index = CrestIndex::Open(WriteSnapshot(dir, sample));
  FORETOKEN_ASSERT_OK(index);
  std::map<std::vector<TokenId>, size_t> stored;
  for (size_t i = 0; i < sample.ngrams.size(); ++i) {
    stored[sample.ngrams[i]] = i;
  }
  std::mt19937 random(2);
  CrestTree got;
  int found[4] = {};
  for (int i = 0; i < 20'000; ++i) {
    std::vector<TokenId> context(random() % 6);
    for (TokenId& token : context) {
      // Also tokens outside the vocabulary: they are nowhere.
      token = static_cast<TokenId>(random() % 203) - 1;
    }
    int want = 0;
    for (int n = std::min<int>(3, context.size()); n >= 1 && want == 0; --n) {
      if (stored.count({context.end() - n, context.end()}) > 0) want = n;
    }
    ASSERT_EQ(index->Lookup(context, got), want);
    ++found[want];
    if (want == 0) {
      ASSERT_EQ(got.size(), 0);
      continue;
    }
    RecordView view;
    CrestTree tree;
    const std::string& record =
        sample.records[stored[{context.end() - want, context.end()}]].second;
    FORETOKEN_ASSERT_OK(ParseRecord(
        {reinterpret_cast<const uint8_t*>(record.data()), record.size()},
        sample.table, view, tree));
    ASSERT_EQ(got, tree);
  }
  EXPECT_GT(found[0], 0);
  EXPECT_GT(found[1], 0);
  EXPECT_GT(found[2], 0);
}

TEST(CrestIndexTest, RefusesASnapshotCutAnywhere) {
  TempDir dir;
  const std::string path = WriteSnapshot(dir, MakeCrestSample(3, 4, 40));
  const std::string bytes = *ReadFile(path);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string cut = dir.Write("cut", bytes.substr(0, length));
    EXPECT_THAT(CrestIndex::Open(cut),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(cut)))
        << length;
  }
  EXPECT_THAT(CrestIndex::Open(dir.Write("long", bytes + "x")),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
}

TEST(CrestIndexTest, RefusesASnapshotWithAnyByteChanged) {
  TempDir dir;
  const std::string path = WriteSnapshot(dir, MakeCrestSample(4, 4, 40));
  const std::string bytes = *ReadFile(path);
  FORETOKEN_ASSERT_OK(CrestIndex::Open(path));
  std::mt19937 random(5);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << random() % 8));
    EXPECT_THAT(CrestIndex::Open(dir.Write("flipped", flipped)),
                StatusIs(absl::StatusCode::kInvalidArgument, _))
        << at;
  }
}

TEST(CrestIndexTest, ReadsTheMetaOfAWholeSnapshotAlone) {
  const CrestSample sample = MakeCrestSample(6, 40, 300);
  TempDir dir;
  const std::string path = WriteSnapshot(dir, sample);
  const auto meta = CrestIndex::ReadMeta(path);
  FORETOKEN_ASSERT_OK(meta);
  EXPECT_EQ(meta->entries, sample.meta.entries);
  const uint64_t bytes = std::filesystem::file_size(path);
  for (const uint64_t kept : {uint64_t{0}, uint64_t{100}, bytes - 1}) {
    std::filesystem::resize_file(path, kept);
    EXPECT_THAT(CrestIndex::ReadMeta(path),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path)));
    WriteSnapshot(dir, sample);
  }
}

TEST(CrestIndexTest, NamesAMissingFile) {
  EXPECT_THAT(CrestIndex::Open("/no/such.crest"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such")));
}

TEST(CrestIndexTest, RefusesRecordsThatAreNotTheHeaders) {
  CrestSample sample = MakeCrestSample(6, 100);
  FORETOKEN_EXPECT_OK(
      CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined()));
  std::string fewer = sample.Joined();
  fewer.resize(fewer.size() - sample.records.back().second.size());
  EXPECT_THAT(
      CrestIndex::FromRecords(sample.meta, sample.table, fewer),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("entries 99")));
  ++sample.meta.record_digest_sum;
  EXPECT_THAT(
      CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("record checksum")));
}

TEST(CrestIndexTest, TakesRecordsInAnyOrder) {
  CrestSample sample = MakeCrestSample(7, 100);
  std::reverse(sample.records.begin(), sample.records.end());
  FORETOKEN_EXPECT_OK(
      CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined()));
}

TEST(CheckTokenizerTest, NamesBothFingerprints) {
  CrestMeta meta;
  meta.tokenizer_fingerprint.fill(0xab);
  Sha256Digest other;
  other.fill(0xcd);
  EXPECT_THAT(CheckTokenizer(meta, other),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::AllOf(HasSubstr("abab"), HasSubstr("cdcd"))));
  FORETOKEN_EXPECT_OK(CheckTokenizer(meta, meta.tokenizer_fingerprint));
}

TEST(SnapshotWriterTest, WritesOverWhatAKilledWriterLeft) {
  const CrestSample sample = MakeCrestSample(9, 20, 300);
  TempDir dir;
  dir.Write("x.crest.partial", std::string(1 << 20, 'x'));
  FORETOKEN_EXPECT_OK(CrestIndex::Open(WriteSnapshot(dir, sample)));
  EXPECT_FALSE(std::filesystem::exists(dir.File("x.crest.partial")));
}

TEST(SnapshotWriterTest, KeepsTwoWritersOfOneFileApart) {
  const CrestSample sample = MakeCrestSample(9, 20, 300);
  TempDir dir;
  const std::string path = dir.File("x.crest");
  auto one = SnapshotWriter::Create(path, sample.meta, sample.table);
  FORETOKEN_ASSERT_OK(one);
  EXPECT_THAT(SnapshotWriter::Create(path, sample.meta, sample.table),
              StatusIs(absl::StatusCode::kAborted, HasSubstr(path)));
  FORETOKEN_EXPECT_OK(AddAll(sample, **one));
  FORETOKEN_EXPECT_OK((*one)->Publish(sample.meta));
  FORETOKEN_EXPECT_OK(CrestIndex::Open(path));
}

TEST(SnapshotWriterTest, ChecksTheTargetWithoutTouchingIt) {
  TempDir dir;
  const std::string path = dir.Write("x.crest", "old");
  FORETOKEN_EXPECT_OK(SnapshotWriter::CheckTarget(path));
  EXPECT_EQ(*ReadFile(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_THAT(SnapshotWriter::CheckTarget(dir.File("none/x.crest")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(SnapshotWriter::CheckTarget(dir.path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("want a file name")));
}

TEST(SnapshotWriterTest, LeavesNothingWithoutPublish) {
  TempDir dir;
  const CrestSample sample = MakeCrestSample(8, 10);
  {
    auto writer =
        SnapshotWriter::Create(dir.File("y"), sample.meta, sample.table);
    FORETOKEN_ASSERT_OK(writer);
    FORETOKEN_ASSERT_OK(AddAll(sample, **writer));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace foretoken
