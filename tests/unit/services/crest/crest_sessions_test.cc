#include "services/crest/core/crest_sessions.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/core/snapshot_origin.h"
#include "tests/support/crest_samples.h"
#include "tests/support/draft_caller.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::CrestSample;
using ::foretoken::testing::DraftCaller;
using ::foretoken::testing::StatusIs;
using ::testing::_;

class Observer final : public DatastoreObserver, public LookupObserver {
 public:
  void OnSwitch(const std::string&, const VersionInfo&) override {}
  void OnFailedLoad(const std::string&) override {}
  void OnStateChange(const std::string&, bool) override {}
  void LookedUpInMemory(int n, absl::Duration) override { found += n > 0; }
  void LookedUpInPostgres(int, bool, absl::Duration) override {}
  void LookupFailed() override { ++failed; }

  int found = 0;
  int failed = 0;
};

class CrestSessionsTest : public ::testing::Test {
 protected:
  CrestSessionsTest() {
    const std::string path = dir_.File("x.crest");
    auto writer = SnapshotWriter::Create(path, sample_.meta, sample_.table);
    FORETOKEN_EXPECT_OK(writer);
    FORETOKEN_EXPECT_OK(testing::AddAll(sample_, **writer));
    FORETOKEN_EXPECT_OK((*writer)->Publish(sample_.meta));
    index_ = std::make_unique<CrestIndex>(*CrestIndex::Open(path));
    std::vector<NamedOrigin> origins;
    origins.push_back(
        {"text", std::make_unique<SnapshotOrigin>(path, uint64_t{1} << 30), true});
    datastores_ = *Datastores::Create(std::move(origins), {}, observer_);
    sessions_ = std::make_unique<CrestSessions>(*datastores_, observer_);
  }
  absl::StatusOr<std::unique_ptr<DraftCaller>> Open(
      const std::string& mode, std::vector<TokenId> tokens) {
    DraftOpen open;
    open.mode = *Mode::Parse(mode);
    open.tokens = std::move(tokens);
    return DraftCaller::Open(*sessions_, std::move(open));
  }

  testing::TempDir dir_;
  const CrestSample sample_ = testing::MakeCrestSample(3, 200, 60);
  Observer observer_;
  std::unique_ptr<CrestIndex> index_;
  std::unique_ptr<Datastores> datastores_;
  std::unique_ptr<CrestSessions> sessions_;
};

TEST_F(CrestSessionsTest, DraftsTheTreeOfTheLongestStoredEndOfTheText) {
  for (const auto& ngram : sample_.ngrams) {
    auto session = Open("crest:datastore=text", {1, 2});
    FORETOKEN_ASSERT_OK(session);
    CrestTree want;
    std::vector<TokenId> text = {1, 2};
    text.insert(text.end(), ngram.begin(), ngram.end());
    ASSERT_GT(index_->Lookup(text, want), 0);
    DraftRound round;
    round.committed = ngram;
    round.length = static_cast<int64_t>(text.size());
    round.max_nodes = 8;
    DraftAnswer answer;
    FORETOKEN_ASSERT_OK((*session)->Round(round, answer));
    EXPECT_EQ(answer.length, round.length);
    ASSERT_EQ(answer.tree.size(), std::min(8, want.size()));
    for (int i = 0; i < answer.tree.size(); ++i) {
      EXPECT_EQ(answer.tree.tokens[i], want.tokens[i]);
      EXPECT_EQ(answer.tree.parents[i], want.parents[i]);
      EXPECT_FLOAT_EQ(answer.tree.probs[i],
                      static_cast<float>(want.counts[i]) / want.matches);
    }
  }
  EXPECT_EQ(observer_.found, static_cast<int>(sample_.ngrams.size()));
}

TEST_F(CrestSessionsTest, ARoundWithoutADraftOnlyCommits) {
  auto session = Open("crest", {5});
  FORETOKEN_ASSERT_OK(session);
  DraftRound round;
  round.committed = {6};
  round.length = 2;
  DraftAnswer answer;
  FORETOKEN_ASSERT_OK((*session)->Round(round, answer));
  EXPECT_EQ(answer.length, 2);
  EXPECT_EQ(answer.tree.size(), 0);
  EXPECT_EQ(observer_.found + observer_.failed, 0);
}

TEST_F(CrestSessionsTest, AnEmptyDatastoreDraftsNothing) {
  // A snapshot that is not there yet, and is not required at start.
  std::vector<NamedOrigin> origins;
  origins.push_back({"text", std::make_unique<SnapshotOrigin>(
                                 dir_.File("none.crest"), uint64_t{1} << 30)});
  datastores_ = *Datastores::Create(std::move(origins), {}, observer_);
  sessions_ = std::make_unique<CrestSessions>(*datastores_, observer_);
  auto session = Open("crest", {5});
  FORETOKEN_ASSERT_OK(session);
  const Datastore& datastore = **datastores_->Find("text");
  ASSERT_TRUE(testing::Eventually([&] { return datastore.state().ok(); }));
  DraftRound round;
  round.committed = sample_.ngrams[0];
  round.length = 1 + static_cast<int64_t>(round.committed.size());
  round.max_nodes = 8;
  DraftAnswer answer;
  FORETOKEN_ASSERT_OK((*session)->Round(round, answer));
  EXPECT_EQ(answer.length, round.length);
  EXPECT_EQ(answer.tree.size(), 0);
  EXPECT_EQ(observer_.found + observer_.failed, 0);
}

TEST_F(CrestSessionsTest, WhatItCannotDraftFromIsRefused) {
  EXPECT_THAT(Open("crest:datastore=code", {1}),
              StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(Open("ngram_trie", {1}),
              StatusIs(absl::StatusCode::kUnimplemented, _));
  DraftOpen open;
  open.mode = *Mode::Parse("crest");
  open.tokenizer_fingerprint = std::string(32, 'x');
  auto session = DraftCaller::Open(*sessions_, open);
  FORETOKEN_ASSERT_OK(session);
  DraftRound round;
  round.max_nodes = 8;
  DraftAnswer answer;
  EXPECT_THAT((*session)->Round(round, answer),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_EQ(observer_.failed, 1);
}

}  // namespace
}  // namespace foretoken::crest
