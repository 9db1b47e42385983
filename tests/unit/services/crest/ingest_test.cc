// A datastore from documents, within its limits.
#include "services/crest/core/ingest.h"

#include <filesystem>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/core/snapshot_origin.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::_;
using ::testing::HasSubstr;

class IngestTest : public ::testing::Test {
 protected:
  IngestTest()
      : tokenizer_(*Tokenizer::Load(
            dir_.Write("tokenizer.json", testing::TinyTokenizerJson()))),
        origin_(dir_.File("x.crest"), uint64_t{1} << 30) {
    std::filesystem::create_directory(dir_.File("work"));
    limits_.folder = dir_.File("work");
  }

  int FilesLeft() const {
    int files = 0;
    for (const auto& unused :
         std::filesystem::recursive_directory_iterator(limits_.folder)) {
      static_cast<void>(unused);
      ++files;
    }
    return files;
  }
  static bool Never() { return false; }

  TempDir dir_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  IngestLimits limits_;
  SnapshotOrigin origin_;
};

TEST_F(IngestTest, BuildsAndPublishesWhatItWasGiven) {
  {
    auto ingest = Ingest::Begin(limits_, 2, 100);
    FORETOKEN_ASSERT_OK(ingest);
    for (int i = 0; i < 20; ++i) {
      FORETOKEN_ASSERT_OK((*ingest)->Add("the hen in the inn\n\"\xc3\xa9\" "));
    }
    FORETOKEN_ASSERT_OK((*ingest)->Add(""));
    const auto result = (*ingest)->Finish(*tokenizer_, origin_, Never);
    FORETOKEN_ASSERT_OK(result);
    EXPECT_EQ(result->documents, 20);
    EXPECT_GT(result->tokens, 100);
    const auto now = origin_.Current();
    FORETOKEN_ASSERT_OK(now);
    EXPECT_EQ(now->version, result->version);
    EXPECT_EQ(now->meta.max_n, 2u);
    EXPECT_EQ(now->meta.tokenizer_fingerprint, tokenizer_->fingerprint());
    FORETOKEN_EXPECT_OK(origin_.Load(*now));
  }
  EXPECT_EQ(FilesLeft(), 0);
}

TEST_F(IngestTest, EveryLimitIsKeptByName) {
  limits_.documents = 3;
  limits_.bytes = 100;
  limits_.document_bytes = 60;
  auto ingest = Ingest::Begin(limits_, 0, 0);
  FORETOKEN_ASSERT_OK(ingest);
  EXPECT_THAT((*ingest)->Add(std::string(61, 'a')),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("more than 60 bytes in a document")));
  FORETOKEN_ASSERT_OK((*ingest)->Add(std::string(60, 'a')));
  EXPECT_THAT((*ingest)->Add(std::string(41, 'a')),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("more than 100 bytes")));
  FORETOKEN_ASSERT_OK((*ingest)->Add("a"));
  FORETOKEN_ASSERT_OK((*ingest)->Add("a"));
  EXPECT_THAT((*ingest)->Add("a"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("more than 3 documents")));
}

TEST_F(IngestTest, BadSettingsAndEmptyTextAreRefused) {
  EXPECT_THAT(Ingest::Begin(limits_, 9, 0),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("config.max_n: 9")));
  EXPECT_THAT(Ingest::Begin(limits_, 0, -1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("config.top: -1")));
  auto ingest = Ingest::Begin(limits_, 0, 0);
  FORETOKEN_ASSERT_OK(ingest);
  EXPECT_THAT(
      (*ingest)->Finish(*tokenizer_, origin_, Never),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no document")));
  limits_.folder = dir_.File("missing");
  EXPECT_THAT(Ingest::Begin(limits_, 0, 0),
              StatusIs(absl::StatusCode::kUnavailable, _));
}

TEST_F(IngestTest, CancelledAtAnyPointItLeavesNothing) {
  // It is asked at the start, at the sink, at each record and at the end. The
  // first run counts the questions; the others answer each of them with yes.
  int questions = 0;
  const auto run = [&](const TempDir& target, int yes_at) {
    SnapshotOrigin origin(target.File("x.crest"), uint64_t{1} << 30);
    auto ingest = Ingest::Begin(limits_, 2, 4);
    FORETOKEN_CHECK(ingest.ok());
    for (int i = 0; i < 5; ++i) {
      FORETOKEN_CHECK((*ingest)->Add("the hen in the inn").ok());
    }
    questions = 0;
    return (*ingest)
        ->Finish(*tokenizer_, origin, [&] { return questions++ == yes_at; })
        .status();
  };
  FORETOKEN_ASSERT_OK(run(TempDir(), -1));
  const int all = questions;
  ASSERT_GT(all, 5);
  for (int yes_at = 0; yes_at < all; ++yes_at) {
    const TempDir target;
    EXPECT_THAT(run(target, yes_at), StatusIs(absl::StatusCode::kCancelled, _));
    EXPECT_TRUE(std::filesystem::is_empty(target.path())) << yes_at;
    EXPECT_EQ(FilesLeft(), 0);
  }
}

}  // namespace
}  // namespace foretoken::crest
