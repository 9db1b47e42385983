// The crest service over real gRPC and a real PostgreSQL that is published to,
// killed and hung.
#include <signal.h>

#include <atomic>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/adapters/pg_store.h"
#include "tests/integration/crest/crest_service.h"
#include "tests/support/eventually.h"
#include "tests/support/private_postgres.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::testing {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

constexpr char kPart[] = "foretoken.v1.Crest/";

// Every process of the server stops, as under a hung disk, until this goes.
class HungPostgres {
 public:
  explicit HungPostgres(const PrivatePostgres& server) {
    const std::string url = server.url();
    const size_t from = url.find('=') + 1;
    const std::string folder = url.substr(from, url.find(' ') - from);
    std::ifstream pid_file(folder + "/data/postmaster.pid");
    pid_t postmaster = 0;
    pid_file >> postmaster;
    FORETOKEN_CHECK(postmaster > 1);
    FORETOKEN_CHECK(kill(postmaster, SIGSTOP) == 0);
    processes_.push_back(postmaster);
    const std::string pid = std::to_string(postmaster);
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    for (pid_t child = 0; children >> child;) {
      kill(child, SIGSTOP);
      processes_.push_back(child);
    }
  }
  ~HungPostgres() {
    for (const pid_t process : processes_) kill(process, SIGCONT);
  }
  HungPostgres(const HungPostgres&) = delete;
  HungPostgres& operator=(const HungPostgres&) = delete;

 private:
  std::vector<pid_t> processes_;
};

class CrestPostgresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PrivatePostgres::Installed()) {
      GTEST_SKIP() << "PostgreSQL is not installed on this machine";
    }
    postgres_ = std::make_unique<PrivatePostgres>();
  }

  // One datastore, "chat", in memory or asked in PostgreSQL.
  crest::CrestService Options(bool in_memory) const {
    crest::CrestService options;
    options.datastores = {"chat=postgres"};
    options.postgres.url = postgres_->url();
    options.postgres.index_memory = in_memory ? uint64_t{1} << 30 : 0;
    // A machine under load may take its time over a statement.
    options.postgres.lookup_timeout = absl::Seconds(2);
    return options;
  }
  int64_t Publish(const CrestSample& sample) const {
    auto store = crest::PgStore::Connect(postgres_->url());
    FORETOKEN_CHECK(store.ok());
    auto sink =
        crest::PgStore::NewVersion(*std::move(store), "chat", sample.table);
    FORETOKEN_CHECK(sink.ok());
    FORETOKEN_CHECK(AddAll(sample, **sink).ok());
    FORETOKEN_CHECK((*sink)->Publish(sample.meta).ok());
    auto reader = crest::PgStore::Connect(postgres_->url());
    return (*reader)->Current("chat")->version;
  }
  static bool AwaitVersion(const TestCrest& service, int64_t version) {
    return Eventually([&] {
      const auto answer = LookUp(service, LookupRequest({}));
      return answer.ok() && answer->version() == version;
    });
  }
  // A look-up that is not in the cache yet.
  v1::CrestLookupRequest Fresh() {
    return LookupRequest({fresh_++ % 20000, fresh_++ % 20000});
  }

  std::unique_ptr<PrivatePostgres> postgres_;
  TokenId fresh_ = 0;
};

TEST_F(CrestPostgresTest, MemoryAndPostgresAnswerAlike) {
  const CrestSample sample = MakeCrestSample(1, 2000, 100);
  const CrestIndex index = IndexOf(sample);
  const int64_t version = Publish(sample);
  for (const bool in_memory : {true, false}) {
    const auto service = StartCrest(Options(in_memory));
    ASSERT_TRUE(AwaitVersion(*service, version));
    std::mt19937 random(2);
    std::vector<v1::CrestLookupRequest> requests;
    for (int i = 0; i < 500; ++i) {
      std::vector<TokenId> context(random() % 6);
      for (TokenId& token : context) {
        token = static_cast<TokenId>(random() % 110);
      }
      requests.push_back(
          LookupRequest(context, 1 + static_cast<int>(random() % 64)));
      requests.back().set_sequence(i);
    }
    LookupClient client(*service);
    std::thread writer([&] {
      for (const auto& request : requests) client.Write(request);
    });
    for (const auto& request : requests) {
      const auto response = client.Read();
      FORETOKEN_ASSERT_OK(response);
      ExpectAnswer(index, request, *response);
    }
    writer.join();
    FORETOKEN_EXPECT_OK(client.Finish());
    const std::string path = in_memory ? "memory" : "postgres";
    EXPECT_GE(
        service->Sample("foretoken_crest_lookup_latency_seconds_count{path=\"" +
                        path + "\"}"),
        500);
  }
}

TEST_F(CrestPostgresTest, ServesAsSoonAsSomethingIsPublished) {
  postgres_->StopCleanly();
  const auto service = StartCrest(Options(true));
  EXPECT_FALSE(service->Serving(""));
  EXPECT_FALSE(service->Serving("foretoken.v1.Crest"));
  EXPECT_THAT(LookUp(*service, LookupRequest({1})),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("\"chat\" serves nothing yet")));
  EXPECT_EQ(
      service->Sample("foretoken_crest_datastore_ready{datastore=\"chat\"}"),
      0);
  postgres_->Start();
  // An empty datastore is ready, and answers with nothing.
  EXPECT_TRUE(Eventually([&] { return service->Serving(""); }));
  EXPECT_TRUE(service->Serving(absl::StrCat(kPart, "chat")));
  const auto nothing = LookUp(*service, LookupRequest({1}));
  FORETOKEN_ASSERT_OK(nothing);
  EXPECT_EQ(nothing->n(), 0);
  EXPECT_EQ(nothing->version(), 0);
  EXPECT_EQ(nothing->tree().tokens_size(), 0);
  EXPECT_EQ(
      service->Sample("foretoken_crest_datastore_ready{datastore=\"chat\"}"),
      1);
  EXPECT_EQ(service->Sample("foretoken_crest_datastores"), 0);
  const int64_t version = Publish(MakeCrestSample(1, 200));
  EXPECT_TRUE(AwaitVersion(*service, version));
  EXPECT_TRUE(Eventually(
      [&] { return service->Sample("foretoken_crest_datastores") == 1; }));
  EXPECT_TRUE(Eventually([&] { return service->Serving(""); }));
  EXPECT_TRUE(service->Serving(absl::StrCat(kPart, "chat")));
}

TEST_F(CrestPostgresTest, PublicationsSwitchUnderStreamsAndNeverMix) {
  for (const bool in_memory : {true, false}) {
    std::map<int64_t, CrestIndex> indexes;
    const CrestSample first = MakeCrestSample(50, 300, 20);
    indexes.emplace(Publish(first), IndexOf(first));
    const auto service = StartCrest(Options(in_memory));
    ASSERT_TRUE(AwaitVersion(*service, indexes.begin()->first));
    std::atomic<bool> stop = false;
    std::vector<v1::CrestLookupRequest> asked[3];
    std::vector<v1::CrestLookupResponse> answers[3];
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) {
      callers.emplace_back([&, caller] {
        std::mt19937 random(caller);
        LookupClient client(*service);
        while (!stop) {
          const auto request =
              LookupRequest({static_cast<TokenId>(random() % 20),
                             static_cast<TokenId>(random() % 20)});
          const auto response = client.Ask(request);
          ASSERT_THAT(response, IsOk());
          if (asked[caller].size() == 20'000) continue;
          asked[caller].push_back(request);
          answers[caller].push_back(*response);
        }
      });
    }
    for (uint32_t seed = 51; seed < 54; ++seed) {
      const CrestSample sample = MakeCrestSample(seed, 300, 20);
      const int64_t version = Publish(sample);
      indexes.emplace(version, IndexOf(sample));
      EXPECT_TRUE(AwaitVersion(*service, version));
    }
    stop = true;
    for (std::thread& caller : callers) caller.join();
    for (int caller = 0; caller < 3; ++caller) {
      ASSERT_GT(answers[caller].size(), 0u);
      for (size_t i = 0; i < answers[caller].size(); ++i) {
        ExpectAnswer(indexes.at(answers[caller][i].version()), asked[caller][i],
                     answers[caller][i]);
      }
    }
  }
}

TEST_F(CrestPostgresTest, AKilledServerStopsOnlyWhatAsksItUntilItIsBack) {
  const CrestSample sample = MakeCrestSample(1, 500);
  const int64_t version = Publish(sample);
  const CrestIndex index = IndexOf(sample);
  const auto memory = StartCrest(Options(true));
  const auto asking = StartCrest(Options(false));
  ASSERT_TRUE(AwaitVersion(*memory, version));
  ASSERT_TRUE(AwaitVersion(*asking, version));
  postgres_->Kill();
  EXPECT_THAT(LookUp(*asking, Fresh()),
              StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_TRUE(Eventually([&] { return !asking->Serving(""); }));
  EXPECT_EQ(
      asking->Sample("foretoken_crest_datastore_ready{datastore=\"chat\"}"), 0);
  const auto request = LookupRequest(sample.ngrams[3]);
  const auto answer = LookUp(*memory, request);
  FORETOKEN_ASSERT_OK(answer);
  ExpectAnswer(index, request, *answer);
  EXPECT_TRUE(memory->Serving(""));
  postgres_->Start();
  EXPECT_TRUE(Eventually([&] { return LookUp(*asking, Fresh()).ok(); }));
  EXPECT_TRUE(Eventually([&] { return asking->Serving(""); }));
  const CrestSample next = MakeCrestSample(2, 500);
  const int64_t next_version = Publish(next);
  EXPECT_TRUE(AwaitVersion(*memory, next_version));
  EXPECT_TRUE(AwaitVersion(*asking, next_version));
}

TEST_F(CrestPostgresTest, AHungServerIsUnavailableWithinTheDeadline) {
  const CrestSample sample = MakeCrestSample(1, 500);
  const int64_t version = Publish(sample);
  const CrestIndex index = IndexOf(sample);
  const auto memory = StartCrest(Options(true));
  crest::CrestService options = Options(false);
  options.postgres.lookup_timeout = absl::Milliseconds(300);
  const auto asking = StartCrest(options);
  ASSERT_TRUE(AwaitVersion(*memory, version));
  ASSERT_TRUE(AwaitVersion(*asking, version));
  {
    const HungPostgres hung(*postgres_);
    // The first ones wait for the deadline, all of them together.
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&, request = Fresh()] {
        EXPECT_THAT(LookUp(*asking, request),
                    StatusIs(absl::StatusCode::kUnavailable, _));
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_FALSE(asking->service->Ready());
    for (int i = 0; i < 20; ++i) {
      EXPECT_THAT(LookUp(*asking, Fresh()),
                  StatusIs(absl::StatusCode::kUnavailable, _));
    }
    const auto request = LookupRequest(sample.ngrams[3]);
    const auto answer = LookUp(*memory, request);
    FORETOKEN_ASSERT_OK(answer);
    ExpectAnswer(index, request, *answer);
    EXPECT_TRUE(memory->service->Ready());
  }
  EXPECT_TRUE(Eventually([&] { return LookUp(*asking, Fresh()).ok(); }));
}

TEST_F(CrestPostgresTest, PublishSwitchesToAnyVersionThatIsThere) {
  const CrestSample first = MakeCrestSample(1, 200);
  const int64_t old_version = Publish(first);
  const int64_t new_version = Publish(MakeCrestSample(2, 200));
  crest::CrestService options = Options(true);
  options.server.enable_publish = true;
  const auto service = StartCrest(options);
  ASSERT_TRUE(AwaitVersion(*service, new_version));
  const auto publish = [&](int64_t version) -> absl::StatusOr<int64_t> {
    grpc::ClientContext context;
    v1::PublishRequest request;
    request.set_version(version);
    v1::PublishResponse response;
    const absl::Status status = rpc::FromGrpcStatus(
        service->stub->Publish(&context, request, &response));
    if (!status.ok()) return status;
    return response.previous_version();
  };
  EXPECT_THAT(publish(0), StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_THAT(publish(12345),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("12345")));
  const auto previous = publish(old_version);
  FORETOKEN_ASSERT_OK(previous);
  EXPECT_EQ(*previous, new_version);
  EXPECT_TRUE(AwaitVersion(*service, old_version));

  grpc::ClientContext context;
  v1::ListVersionsResponse list;
  ASSERT_TRUE(service->stub->ListVersions(&context, {}, &list).ok());
  ASSERT_EQ(list.versions_size(), 2);
  EXPECT_EQ(list.versions(0).version(), new_version);
  EXPECT_FALSE(list.versions(0).serving());
  EXPECT_EQ(list.versions(1).version(), old_version);
  EXPECT_TRUE(list.versions(1).serving());

  // Without the store, what serves is still told.
  postgres_->Kill();
  grpc::ClientContext second;
  v1::ListVersionsResponse alone;
  ASSERT_TRUE(service->stub->ListVersions(&second, {}, &alone).ok());
  ASSERT_EQ(alone.versions_size(), 1);
  EXPECT_EQ(alone.versions(0).version(), old_version);
  EXPECT_THAT(publish(new_version),
              StatusIs(absl::StatusCode::kUnavailable, _));
  postgres_->Start();
}

TEST_F(CrestPostgresTest, IngestPublishesWhereOthersReadIt) {
  const TempDir dir;
  crest::CrestService options = Options(true);
  options.tokenizer = dir.Write("tokenizer.json", TinyTokenizerJson());
  options.server.ingest.enabled = true;
  options.postgres.published.index = "hash";
  const auto service = StartCrest(options);
  grpc::ClientContext context;
  v1::IngestResponse response;
  const auto writer = service->stub->Ingest(&context, &response);
  v1::IngestRequest request;
  request.mutable_config()->set_datastore("chat");
  writer->Write(request);
  for (int i = 0; i < 50; ++i) {
    request.set_document("the hen in the inn ");
    writer->Write(request);
  }
  writer->WritesDone();
  FORETOKEN_ASSERT_OK(rpc::FromGrpcStatus(writer->Finish()));
  EXPECT_EQ(response.documents(), 50);
  EXPECT_TRUE(AwaitVersion(*service, response.version()));
  auto store = crest::PgStore::Connect(postgres_->url());
  FORETOKEN_ASSERT_OK(store);
  EXPECT_EQ((*store)->Current("chat")->version, response.version());
  // A version of another tokenizer is not taken.
  const int64_t foreign = Publish(MakeCrestSample(1, 100));
  EXPECT_TRUE(Eventually([&] {
    return service->Sample(
               "foretoken_crest_failed_loads_total{datastore=\"chat\"}") > 0;
  }));
  const auto answer = LookUp(*service, LookupRequest({}));
  FORETOKEN_ASSERT_OK(answer);
  EXPECT_EQ(answer->version(), response.version());
  EXPECT_NE(foreign, response.version());
  EXPECT_EQ(postgres_->Sql(
                "SELECT amname FROM pg_index JOIN pg_class c ON c.oid = "
                "indexrelid JOIN pg_am a ON a.oid = c.relam WHERE indrelid = "
                "'foretoken_crest_rows_" +
                std::to_string(response.version()) + "'::regclass"),
            "hash\n");
}

}  // namespace
}  // namespace foretoken::testing
