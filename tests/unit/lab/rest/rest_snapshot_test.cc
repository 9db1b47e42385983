#include "tests/lab/rest/rest_snapshot.h"

#include <random>
#include <string>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/file.h"
#include "common/drafting/crest/crest_meta.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken {
namespace {

using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

std::vector<TokenId> RandomTokens(uint32_t seed, int count, int vocabulary) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % vocabulary);
  }
  return tokens;
}

class RestSnapshotTest : public ::testing::Test {
 protected:
  // Writes the snapshot and returns its bytes.
  std::string Write(absl::Span<const TokenId> tokens, uint32_t vocabulary) {
    RestMeta meta;
    meta.tokenizer_fingerprint[3] = 9;
    meta.vocab_size = vocabulary;
    meta.documents = 2;
    const auto written = WriteRestSnapshot(path_, meta, tokens);
    FORETOKEN_EXPECT_OK(written);
    if (written.ok()) written_ = *written;
    return *ReadFile(path_);
  }

  testing::TempDir dir_;
  const std::string path_ = dir_.File("x.rest");
  RestMeta written_;
};

TEST_F(RestSnapshotTest, GivesBackTheStoreThatWasWritten) {
  for (const int vocabulary : {300, 0x10000, 0x10001, 200'000}) {
    std::vector<TokenId> tokens = RandomTokens(1, 2000, vocabulary);
    tokens.back() = vocabulary - 1;
    const std::string bytes = Write(tokens, static_cast<uint32_t>(vocabulary));
    EXPECT_EQ(bytes.size(), written_.file_bytes());
    RestMeta meta;
    const auto got = DecodeRestSnapshot(bytes, meta);
    FORETOKEN_ASSERT_OK(got);
    const auto want = RestStore::Create(tokens, vocabulary);
    FORETOKEN_ASSERT_OK(want);
    EXPECT_EQ(meta.tokens, 2000u);
    EXPECT_EQ(meta.documents, 2u);
    EXPECT_EQ(meta.vocab_size, static_cast<uint32_t>(vocabulary));
    EXPECT_EQ(meta.tokenizer_fingerprint[3], 9);
    EXPECT_EQ(meta.store_bytes(), got->bytes());
    ASSERT_EQ(got->size(), want->size());
    for (int64_t i = 0; i < want->size(); ++i) {
      ASSERT_EQ(got->TokenAt(i, 0), want->TokenAt(i, 0));
      ASSERT_EQ(got->TokenAt(i, 5), want->TokenAt(i, 5));
    }
  }
}

TEST_F(RestSnapshotTest, TheVersionIsThatOfTheContents) {
  const std::vector<TokenId> tokens = RandomTokens(2, 100, 50);
  Write(tokens, 50);
  const int64_t first = RestSnapshotVersion(written_);
  Write(tokens, 50);
  EXPECT_EQ(RestSnapshotVersion(written_), first);
  EXPECT_GT(first, 0);
  Write(RandomTokens(3, 100, 50), 50);
  EXPECT_NE(RestSnapshotVersion(written_), first);
}

TEST_F(RestSnapshotTest, EveryDamageIsNoticed) {
  const std::string bytes = Write(RandomTokens(4, 60, 50), 50);
  RestMeta meta;
  FORETOKEN_ASSERT_OK(DecodeRestSnapshot(bytes, meta));
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_THAT(DecodeRestSnapshot(damaged, meta),
                StatusIs(absl::StatusCode::kInvalidArgument, _))
        << at;
    EXPECT_THAT(DecodeRestSnapshot(bytes.substr(0, at), meta),
                StatusIs(absl::StatusCode::kInvalidArgument, _))
        << at;
  }
  EXPECT_THAT(
      DecodeRestSnapshot(bytes + "x", meta),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes, want")));
  EXPECT_THAT(DecodeRestMeta(AsBytes(std::string(1000, '\0'))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not a REST snapshot of format 1")));
  EXPECT_THAT(DecodeRestMeta(AsBytes(EncodeMeta(CrestMeta()))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not a REST snapshot of format 1")));
}

TEST_F(RestSnapshotTest, WhatIsNoStoreIsNotWritten) {
  RestMeta meta;
  meta.vocab_size = 50;
  EXPECT_THAT(WriteRestSnapshot(path_, meta, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_THAT(WriteRestSnapshot(path_, meta, {50}),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_THAT(ReadFile(path_), StatusIs(absl::StatusCode::kNotFound, _));
}

}  // namespace
}  // namespace foretoken
