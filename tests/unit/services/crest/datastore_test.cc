// Versions that change under look-ups: snapshots replaced, loads that fail.
#include "services/crest/core/datastore.h"

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/core/datastores.h"
#include "services/crest/core/snapshot_origin.h"
#include "tests/support/crest_samples.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::crest {
namespace {

using ::foretoken::testing::AddAll;
using ::foretoken::testing::CrestSample;
using ::foretoken::testing::Eventually;
using ::foretoken::testing::MakeCrestSample;
using ::foretoken::testing::StatusIs;
using ::foretoken::testing::TempDir;
using ::testing::_;
using ::testing::HasSubstr;

class CountingObserver final : public DatastoreObserver {
 public:
  void OnSwitch(const std::string&, const VersionInfo&) override { ++switches; }
  void OnFailedLoad(const std::string&) override { ++failed_loads; }
  void OnStateChange(const std::string&, bool now) override { ready = now; }

  std::atomic<int> switches = 0;
  std::atomic<int> failed_loads = 0;
  std::atomic<bool> ready = false;
};

class DatastoreTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kInMemory = uint64_t{1} << 30;

  DatastoreTest() { options_.watch_interval = absl::Milliseconds(2); }

  std::string path() const { return dir_.File("x.crest"); }
  // As a builder would: whole, under its name at once.
  void WriteSnapshot(const CrestSample& sample) const {
    auto writer = SnapshotWriter::Create(path(), sample.meta, sample.table);
    FORETOKEN_ASSERT_OK(writer);
    FORETOKEN_ASSERT_OK(AddAll(sample, **writer));
    FORETOKEN_ASSERT_OK((*writer)->Publish(sample.meta));
  }
  std::unique_ptr<Datastore> Open(uint64_t index_memory = kInMemory) {
    return std::make_unique<Datastore>(
        "x", std::make_unique<SnapshotOrigin>(path(), index_memory), options_,
        observer_);
  }
  static void AwaitVersion(const Datastore& store, const CrestSample& sample) {
    const int64_t version = SnapshotVersion(sample.meta);
    EXPECT_TRUE(Eventually([&] {
      const auto current = store.current();
      return current != nullptr && current->info.version == version;
    }));
  }
  static void Await(const std::atomic<int>& counter, int least) {
    EXPECT_TRUE(Eventually([&] { return counter >= least; }));
  }

  TempDir dir_;
  DatastoreOptions options_;
  CountingObserver observer_;
};

TEST_F(DatastoreTest, ServesTheSnapshotFromMemoryOrItsFile) {
  const CrestSample sample = MakeCrestSample(1, 300, 60);
  WriteSnapshot(sample);
  const auto want_index = CrestIndex::Open(path());
  FORETOKEN_ASSERT_OK(want_index);
  for (const uint64_t memory : {kInMemory, uint64_t{0}}) {
    const auto store = Open(memory);
    FORETOKEN_ASSERT_OK(store->LoadNow());
    FORETOKEN_EXPECT_OK(store->state());
    const auto served = store->current();
    ASSERT_NE(served, nullptr);
    EXPECT_EQ(served->info.version, SnapshotVersion(sample.meta));
    CrestTree got;
    CrestTree want;
    for (const auto& ngram : sample.ngrams) {
      ASSERT_EQ(served->index->Lookup(ngram, got),
                want_index->Lookup(ngram, want));
      ASSERT_EQ(got, want);
    }
  }
}

TEST_F(DatastoreTest, SwitchesUnderLookupsAndNeverMixes) {
  // Versions of the same n-grams with other trees.
  std::vector<CrestSample> samples;
  std::vector<CrestIndex> indexes;
  std::map<int64_t, const CrestIndex*> by_version;
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    samples.push_back(MakeCrestSample(seed, 200, 20));
    const CrestSample& sample = samples.back();
    indexes.push_back(
        *CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined()));
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    by_version[SnapshotVersion(samples[i].meta)] = &indexes[i];
  }
  WriteSnapshot(samples[0]);
  const auto store = Open();
  FORETOKEN_ASSERT_OK(store->LoadNow());
  store->Watch();

  std::atomic<bool> stop = false;
  std::atomic<int64_t> wrong = 0;
  std::atomic<int> lookups = 0;
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      std::mt19937 random(reader);
      CrestTree got;
      CrestTree want;
      while (!stop) {
        const std::vector<TokenId> context = {
            static_cast<TokenId>(random() % 20),
            static_cast<TokenId>(random() % 20)};
        const auto served = store->current();
        const int n = served->index->Lookup(context, got);
        const CrestIndex& index = *by_version.at(served->info.version);
        wrong += n != index.Lookup(context, want) || !(got == want);
        ++lookups;
      }
    });
  }
  for (const CrestSample& sample : samples) {
    WriteSnapshot(sample);
    AwaitVersion(*store, sample);
    Await(lookups, lookups + 100);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
  Await(observer_.switches, 6);
  EXPECT_EQ(observer_.switches, 6);
}

TEST_F(DatastoreTest, AnOldVersionLivesAsLongAsSomebodyHoldsIt) {
  const CrestSample first = MakeCrestSample(1, 100, 60);
  const CrestSample second = MakeCrestSample(2, 100, 60);
  WriteSnapshot(first);
  const auto store = Open();
  FORETOKEN_ASSERT_OK(store->LoadNow());
  store->Watch();
  const auto old = store->current();
  std::weak_ptr<const ServedVersion> old_too = old;
  WriteSnapshot(second);
  AwaitVersion(*store, second);
  CrestTree tree;
  EXPECT_EQ(old->index->Lookup(first.ngrams[0], tree),
            static_cast<int>(first.ngrams[0].size()));
  EXPECT_EQ(old->info.version, SnapshotVersion(first.meta));
}

TEST_F(DatastoreTest, ADamagedHeaderIsReportedEveryTime) {
  WriteSnapshot(MakeCrestSample(1, 100, 60));
  SnapshotOrigin origin(path(), kInMemory);
  FORETOKEN_ASSERT_OK(origin.Current());
  auto bytes = ReadFile(path());
  FORETOKEN_ASSERT_OK(bytes);
  (*bytes)[0] ^= 1;
  dir_.Write("x.crest", *bytes);
  EXPECT_FALSE(origin.Current().ok());
  EXPECT_FALSE(origin.Current().ok());
}

TEST_F(DatastoreTest, ADamagedOrMissingFileLeavesTheOldVersionServing) {
  const CrestSample first = MakeCrestSample(1, 100, 60);
  WriteSnapshot(first);
  const auto store = Open();
  FORETOKEN_ASSERT_OK(store->LoadNow());
  store->Watch();
  // In place, as cp would: cut short, and with one byte changed.
  const CrestSample second = MakeCrestSample(2, 100, 60);
  const TempDir other;
  {
    auto writer =
        SnapshotWriter::Create(other.File("y"), second.meta, second.table);
    FORETOKEN_ASSERT_OK(writer);
    FORETOKEN_ASSERT_OK(AddAll(second, **writer));
    FORETOKEN_ASSERT_OK((*writer)->Publish(second.meta));
  }
  const auto bytes = ReadFile(other.File("y"));
  FORETOKEN_ASSERT_OK(bytes);
  dir_.Write("x.crest", bytes->substr(0, bytes->size() - 1));
  Await(observer_.failed_loads, 1);
  std::string flipped = *bytes;
  flipped[flipped.size() - 5] ^= 1;
  dir_.Write("x.crest", flipped);
  Await(observer_.failed_loads, 3);
  EXPECT_EQ(store->current()->info.version, SnapshotVersion(first.meta));
  FORETOKEN_EXPECT_OK(store->state());
  std::filesystem::remove(path());
  store->Poke();
  CrestTree tree;
  EXPECT_GT(store->current()->index->Lookup(first.ngrams[0], tree), 0);
  dir_.Write("x.crest", *bytes);
  AwaitVersion(*store, second);
  Await(observer_.switches, 2);
  EXPECT_EQ(observer_.switches, 2);
}

TEST_F(DatastoreTest, AVersionOfAnotherTokenizerIsRefused) {
  const CrestSample first = MakeCrestSample(1, 100, 60);
  CrestSample foreign = MakeCrestSample(2, 100, 60);
  foreign.meta.tokenizer_fingerprint[0] = 7;
  WriteSnapshot(first);
  {
    const auto store = Open();
    FORETOKEN_ASSERT_OK(store->LoadNow());
    store->Watch();
    WriteSnapshot(foreign);
    Await(observer_.failed_loads, 1);
    EXPECT_EQ(store->current()->info.version, SnapshotVersion(first.meta));
  }
  options_.tokenizer = first.meta.tokenizer_fingerprint;
  EXPECT_THAT(Open()->LoadNow(),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

// An origin of which a test says what is published.
class TestOrigin final : public VersionOrigin {
 public:
  absl::StatusOr<VersionInfo> Current() override { return published; }
  absl::StatusOr<std::unique_ptr<ServedVersion>> Load(
      const VersionInfo& version) override {
    if (!loads.ok()) return loads;
    auto served = std::make_unique<ServedVersion>();
    served->info = version;
    const CrestSample sample = MakeCrestSample(1, 100, 60);
    served->index = std::make_unique<const CrestIndex>(
        *CrestIndex::FromRecords(sample.meta, sample.table, sample.Joined()));
    return served;
  }
  absl::StatusOr<std::vector<VersionInfo>> List() override { return Refused(); }
  absl::StatusOr<int64_t> Switch(int64_t) override { return Refused(); }
  absl::StatusOr<std::unique_ptr<DatastoreSink>> NewVersion(
      const CrestMeta&, const TokenTable&) override {
    return Refused();
  }

  absl::StatusOr<VersionInfo> published = absl::NotFoundError("none");
  absl::Status loads;

 private:
  static absl::Status Refused() { return absl::UnimplementedError("a test"); }
};

class EmptyDatastoreTest : public ::testing::Test {
 protected:
  CountingObserver observer_;
  TestOrigin* const origin_ = new TestOrigin;
  Datastore store_{"x", std::unique_ptr<VersionOrigin>(origin_), {}, observer_};
};

TEST_F(EmptyDatastoreTest, IsReadyOnceItsOriginSaysThatNothingIsPublished) {
  EXPECT_THAT(store_.Serving(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("\"x\" serves nothing yet")));
  EXPECT_THAT(store_.LoadNow(), StatusIs(absl::StatusCode::kNotFound, _));
  FORETOKEN_EXPECT_OK(store_.state());
  EXPECT_TRUE(observer_.ready);
  const auto served = store_.Serving();
  FORETOKEN_ASSERT_OK(served);
  EXPECT_EQ(*served, nullptr);
  EXPECT_EQ(observer_.switches + observer_.failed_loads, 0);
}

TEST_F(EmptyDatastoreTest, IsNotReadyWhileItsOriginDoesNotAnswer) {
  EXPECT_FALSE(store_.LoadNow().ok());
  origin_->published = absl::UnavailableError("PostgreSQL is down");
  EXPECT_FALSE(store_.LoadNow().ok());
  EXPECT_FALSE(observer_.ready);
  EXPECT_THAT(store_.Serving(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is down")));
}

TEST_F(EmptyDatastoreTest, AVersionThatDoesNotLoadIsNoEmptyDatastore) {
  EXPECT_FALSE(store_.LoadNow().ok());
  origin_->published =
      VersionInfo{7, true, 0, MakeCrestSample(1, 100, 60).meta};
  origin_->loads = absl::NotFoundError("its rows are gone");
  EXPECT_FALSE(store_.LoadNow().ok());
  EXPECT_FALSE(observer_.ready);
  EXPECT_FALSE(store_.Serving().ok());
  EXPECT_EQ(observer_.failed_loads, 1);
}

TEST_F(EmptyDatastoreTest, ServesTheFirstVersionAndKeepsItIfAllAreDropped) {
  EXPECT_FALSE(store_.LoadNow().ok());
  origin_->published =
      VersionInfo{7, true, 0, MakeCrestSample(1, 100, 60).meta};
  FORETOKEN_ASSERT_OK(store_.LoadNow());
  EXPECT_EQ((*store_.Serving())->info.version, 7);
  origin_->published = absl::NotFoundError("none");
  EXPECT_FALSE(store_.LoadNow().ok());
  FORETOKEN_EXPECT_OK(store_.state());
  EXPECT_EQ((*store_.Serving())->info.version, 7);
}

TEST_F(DatastoreTest, StartsEmptyAndServesOnceThereIsAVersion) {
  const auto store = Open();
  store->Watch();
  EXPECT_EQ(store->current(), nullptr);
  const CrestSample sample = MakeCrestSample(1, 100, 60);
  WriteSnapshot(sample);
  AwaitVersion(*store, sample);
  FORETOKEN_EXPECT_OK(store->state());
}

TEST_F(DatastoreTest, NamesAreOfTheConfigurationAndTheFirstIsTheDefault) {
  WriteSnapshot(MakeCrestSample(1, 100, 60));
  std::vector<NamedOrigin> origins;
  for (const char* name : {"chat", "code"}) {
    origins.push_back(
        {name, std::make_unique<SnapshotOrigin>(path(), kInMemory), true});
  }
  const auto stores =
      Datastores::Create(std::move(origins), options_, observer_);
  FORETOKEN_ASSERT_OK(stores);
  EXPECT_EQ((*(*stores)->Find("code"))->name(), "code");
  EXPECT_EQ((*(*stores)->Find(""))->name(), "chat");
  EXPECT_THAT((*stores)->Find("/etc/passwd"),
              StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_TRUE((*stores)->AnyReady());
}

TEST_F(DatastoreTest, AnOriginThatMustLoadAtStartFailsByName) {
  std::vector<NamedOrigin> origins;
  origins.push_back(
      {"chat", std::make_unique<SnapshotOrigin>(path(), kInMemory), true});
  EXPECT_THAT(
      Datastores::Create(std::move(origins), options_, observer_),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("datastore \"chat\"")));
}

TEST_F(DatastoreTest, ASnapshotHasOneVersionToSwitchTo) {
  const CrestSample sample = MakeCrestSample(1, 100, 60);
  WriteSnapshot(sample);
  SnapshotOrigin origin(path(), kInMemory);
  const auto list = origin.List();
  FORETOKEN_ASSERT_OK(list);
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ((*list)[0].version, SnapshotVersion(sample.meta));
  EXPECT_EQ(*origin.Switch((*list)[0].version), (*list)[0].version);
  EXPECT_THAT(origin.Switch(1),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

}  // namespace
}  // namespace foretoken::crest
