// REST snapshots as datastores: the drafts are those of the drafter in replay,
// whatever changes under them.
#include "tests/lab/rest_service/rest_origin.h"

#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/core/crest_sessions.h"
#include "services/crest/core/snapshot_origin.h"
#include "tests/lab/rest/rest_drafter.h"
#include "tests/lab/rest/rest_snapshot.h"
#include "tests/support/crest_samples.h"
#include "tests/support/draft_caller.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::DraftCaller;
using ::foretoken::testing::Eventually;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

constexpr int kVocabulary = 12;
constexpr uint64_t kEnough = uint64_t{1} << 30;

class Observer final : public DatastoreObserver, public LookupObserver {
 public:
  void OnSwitch(const std::string&, const VersionInfo&) override {}
  void OnFailedLoad(const std::string&) override { ++failed_loads; }
  void OnStateChange(const std::string&, bool) override {}
  void LookedUpInMemory(int n, absl::Duration) override { found += n > 0; }
  void LookedUpInPostgres(int, bool, absl::Duration) override {}
  void LookupFailed() override {}

  int found = 0;
  std::atomic<int> failed_loads = 0;
};

class RestOriginTest : public ::testing::Test {
 protected:
  RestOriginTest() { options_.watch_interval = absl::Milliseconds(2); }

  // Text that repeats itself: an order-2 chain with a few exceptions.
  static std::vector<TokenId> Text(uint32_t seed, int count) {
    std::mt19937 random(seed);
    std::vector<TokenId> tokens = {1, 2};
    while (static_cast<int>(tokens.size()) < count) {
      const auto last = static_cast<uint32_t>(tokens.back());
      const auto before = static_cast<uint32_t>(tokens[tokens.size() - 2]);
      tokens.push_back(static_cast<TokenId>(
          (random() % 5 == 0 ? random() : 5 * last + 3 * before + seed) %
          kVocabulary));
    }
    return tokens;
  }

  // Returns the version written.
  int64_t Write(const std::vector<TokenId>& tokens, uint8_t tokenizer = 0) {
    return Write(tokens, tokenizer, path_);
  }
  static int64_t Write(const std::vector<TokenId>& tokens, uint8_t tokenizer,
                       const std::string& path) {
    RestMeta meta;
    meta.tokenizer_fingerprint[0] = tokenizer;
    meta.vocab_size = kVocabulary;
    meta.documents = 1;
    const auto written = WriteRestSnapshot(path, meta, tokens);
    FORETOKEN_EXPECT_OK(written);
    return RestSnapshotVersion(*written);
  }

  absl::Status Open(uint64_t memory = kEnough) {
    sessions_ = nullptr;
    std::vector<NamedOrigin> origins;
    origins.push_back(
        {"base", std::make_unique<RestOrigin>(path_, memory), true});
    auto made = Datastores::Create(std::move(origins), options_, observer_);
    if (!made.ok()) return made.status();
    datastores_ = *std::move(made);
    sessions_ = std::make_unique<CrestSessions>(*datastores_, observer_);
    return absl::OkStatus();
  }
  int64_t Serves() const {
    return (*datastores_->Find("base"))->current()->info.version;
  }

  // Writes `rounds` rounds of random tokens: every draft of the service is that
  // of a drafter over `tokens`.
  void ExpectDraftsOf(const std::vector<TokenId>& tokens, int rounds) {
    RestDrafter want(std::make_shared<const RestStore>(
                         *RestStore::Create(tokens, kVocabulary)),
                     RestOptions());
    std::mt19937 random(5);
    DraftOpen open;
    open.mode = *Mode::Parse("crest:datastore=base");
    open.tokens = Text(8, 30);
    want.StartRequest(open.tokens);
    DraftRound round;
    round.length = static_cast<int64_t>(open.tokens.size());
    auto session = DraftCaller::Open(*sessions_, std::move(open));
    FORETOKEN_ASSERT_OK(session);
    int64_t nodes = 0;
    const int found = observer_.found;
    for (int i = 0; i < rounds; ++i) {
      // Now and then text of the store, so that long matches occur.
      round.committed.clear();
      if (random() % 3 == 0) {
        const size_t at = random() % (tokens.size() - 20);
        round.committed.assign(tokens.begin() + at, tokens.begin() + at + 20);
      } else {
        round.committed.push_back(
            static_cast<TokenId>(random() % (kVocabulary + 2)));
      }
      round.length += static_cast<int64_t>(round.committed.size());
      round.max_nodes = 1 + static_cast<int>(random() % 64);
      want.Commit(round.committed);
      DraftTree tree;
      want.Draft(round.max_nodes, tree);
      DraftAnswer answer;
      FORETOKEN_ASSERT_OK((*session)->Round(round, answer));
      ASSERT_EQ(answer.tree.tokens, tree.tokens) << i;
      ASSERT_EQ(answer.tree.parents, tree.parents) << i;
      ASSERT_EQ(answer.tree.probs, tree.probs) << i;
      nodes += tree.size();
    }
    EXPECT_GT(nodes, rounds);
    EXPECT_GT(observer_.found, found);
  }

  testing::TempDir dir_;
  const std::string path_ = dir_.File("x.rest");
  DatastoreOptions options_;
  Observer observer_;
  std::unique_ptr<Datastores> datastores_;
  std::unique_ptr<CrestSessions> sessions_;
};

TEST_F(RestOriginTest, DraftsWhatTheDrafterOfReplayDrafts) {
  const std::vector<TokenId> text = Text(1, 3000);
  const int64_t version = Write(text);
  FORETOKEN_ASSERT_OK(Open());
  EXPECT_EQ(Serves(), version);
  ExpectDraftsOf(text, 600);
}

TEST_F(RestOriginTest, APipeIsNoSnapshotAndIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(RestOrigin(path_, kEnough).Current(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("not a regular file")));
}

TEST_F(RestOriginTest, AReplacedFileIsServedAndADamagedOneIsNot) {
  Write(Text(1, 500));
  FORETOKEN_ASSERT_OK(Open());
  const std::vector<TokenId> text = Text(2, 2000);
  const int64_t version = Write(text);
  EXPECT_TRUE(Eventually([&] { return Serves() == version; }));
  ExpectDraftsOf(text, 200);

  const Datastore& store = **datastores_->Find("base");
  dir_.Write("x.rest.new", "no snapshot");
  rename((path_ + ".new").c_str(), path_.c_str());
  EXPECT_THAT(RestOrigin(path_, kEnough).Current(),
              StatusIs(absl::StatusCode::kInvalidArgument, _));
  ExpectDraftsOf(text, 20);

  // A header that does not fit the file.
  const std::vector<TokenId> next = Text(3, 400);
  const int64_t last = Write(next, 0, dir_.File("whole"));
  std::string cut = *ReadFile(dir_.File("whole"));
  cut.pop_back();
  dir_.Write("x.rest.new", cut);
  rename((path_ + ".new").c_str(), path_.c_str());
  EXPECT_TRUE(Eventually([&] { return observer_.failed_loads > 0; }));
  EXPECT_EQ(Serves(), version);
  FORETOKEN_EXPECT_OK(store.state());
  ExpectDraftsOf(text, 50);

  Write(next);
  EXPECT_TRUE(Eventually([&] { return Serves() == last; }));
}

TEST_F(RestOriginTest, WrongFilesAreRefusedAtStart) {
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound,
                               HasSubstr("\"base\": " + path_)));
  dir_.Write("x.rest", "");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("x.rest: REST header: 0 bytes")));
  const testing::CrestSample sample = testing::MakeCrestSample(1, 50, 20);
  auto writer = SnapshotWriter::Create(path_, sample.meta, sample.table);
  FORETOKEN_ASSERT_OK(writer);
  FORETOKEN_ASSERT_OK(testing::AddAll(sample, **writer));
  FORETOKEN_ASSERT_OK((*writer)->Publish(sample.meta));
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("not a REST snapshot")));
  Write(Text(1, 100));
  EXPECT_THAT(SnapshotOrigin(path_, kEnough).Current(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("x.rest: datastore header")));
  options_.tokenizer = Sha256Digest{7};
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition, _));
  Write(Text(1, 100), 7);
  FORETOKEN_EXPECT_OK(Open());
}

TEST_F(RestOriginTest, TheSmallestStoreIsServedAndALongerFileIsRefused) {
  Write({3});
  FORETOKEN_ASSERT_OK(Open());
  dir_.Write("x.rest", *ReadFile(path_) + "x");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("longer than its header says")));
}

TEST_F(RestOriginTest, AStoreLargerThanItsMemoryIsRefused) {
  const std::vector<TokenId> text = Text(1, 1000);
  Write(text);
  const uint64_t bytes = RestStore::BytesFor(text.size(), kVocabulary);
  EXPECT_THAT(Open(bytes - 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("take 6000 bytes in memory, the limit "
                                 "(--index-memory) is 5999")));
  FORETOKEN_EXPECT_OK(Open(bytes));
}

TEST_F(RestOriginTest, HasOneVersionThatABuildOfNgramsCannotReplace) {
  const int64_t version = Write(Text(1, 100));
  RestOrigin origin(path_, kEnough);
  const auto list = origin.List();
  FORETOKEN_ASSERT_OK(list);
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ(list->front().version, version);
  EXPECT_EQ(list->front().meta.corpus_tokens, 100u);
  EXPECT_TRUE(list->front().current);
  const auto same = origin.Switch(version);
  FORETOKEN_ASSERT_OK(same);
  EXPECT_EQ(*same, version);
  EXPECT_THAT(origin.Switch(version + 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(origin.NewVersion(CrestMeta(), TokenTable()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("foretoken-lab build-rest")));
}

}  // namespace
}  // namespace foretoken::crest
