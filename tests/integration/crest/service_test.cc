// The crest service over real gRPC, with snapshots.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/crest/core/snapshot_origin.h"
#include "tests/integration/crest/crest_service.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::testing {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

class CrestServiceTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.File("x.crest"); }

  // With the datastores "chat" and "same", both of the one file.
  crest::CrestService Options() const {
    crest::CrestService options;
    options.datastores = {"chat=" + path(), "same=" + path()};
    return options;
  }
  // One datastore, and a tokenizer to build with.
  crest::CrestService IngestOptions() const {
    crest::CrestService options;
    options.datastores = {"chat=" + path()};
    options.tokenizer = dir_.Write("tokenizer.json", TinyTokenizerJson());
    options.server.ingest.enabled = true;
    return options;
  }
  // A snapshot that belongs to the tiny tokenizer.
  CrestSample WriteTinySnapshot() const {
    const auto tokenizer =
        Tokenizer::Load(dir_.Write("tokenizer.json", TinyTokenizerJson()));
    CrestSample sample = MakeCrestSample(1, 100, 50);
    sample.meta.tokenizer_fingerprint = (*tokenizer)->fingerprint();
    WriteSnapshot(path(), sample);
    return sample;
  }

  TempDir dir_;
};

std::vector<TokenId> RandomContext(std::mt19937& random, int vocabulary) {
  std::vector<TokenId> context(random() % 17);
  for (TokenId& token : context) {
    token = static_cast<TokenId>(random() % vocabulary);
  }
  return context;
}

TEST_F(CrestServiceTest, AnswersInOrderWhatTheSourceAnswersDirectly) {
  const CrestSample sample = MakeCrestSample(3, 2000, 100);
  WriteSnapshot(path(), sample);
  const CrestIndex index = IndexOf(sample);
  const auto service = StartCrest(Options());
  std::mt19937 random(1);
  std::vector<v1::CrestLookupRequest> requests;
  for (uint64_t i = 0; i < 1000; ++i) {
    requests.push_back(LookupRequest(RandomContext(random, 110),
                                     1 + static_cast<int>(random() % 64)));
    requests.back().set_sequence(i * 3);
    if (i % 2 == 0) requests.back().set_datastore(i % 4 == 0 ? "chat" : "same");
  }
  LookupClient client(*service);
  std::thread writer([&] {
    for (const auto& request : requests) client.Write(request);
  });
  int hits = 0;
  for (const auto& request : requests) {
    const auto response = client.Read();
    FORETOKEN_ASSERT_OK(response);
    ExpectAnswer(index, request, *response);
    EXPECT_EQ(response->version(), SnapshotVersion(sample.meta));
    hits += response->n() > 0;
  }
  writer.join();
  FORETOKEN_EXPECT_OK(client.Finish());
  EXPECT_GT(hits, 300);
  double counted = 0;
  for (const char* result : {"hit_1", "hit_2", "hit_3"}) {
    counted += service->Sample("foretoken_crest_lookups_total{result=\"" +
                               std::string(result) + "\"}");
  }
  EXPECT_EQ(counted, hits);
  EXPECT_EQ(service->Sample("foretoken_crest_lookups_total{result=\"miss\"}"),
            1000 - hits);
}

// Whose records are too large for memory, and stay in the file.
TEST_F(CrestServiceTest, ATruncatedSnapshotLosesHitsAndNothingElse) {
  const CrestSample sample = MakeCrestSample(5, 2000, 100);
  WriteSnapshot(path(), sample);
  crest::CrestService options = Options();
  options.postgres.index_memory = 0;
  const auto service = StartCrest(options);
  const uint64_t bytes = std::filesystem::file_size(path());
  LookupClient client(*service);
  const auto hits = [&] {
    int found = 0;
    for (const auto& ngram : sample.ngrams) {
      const auto response = client.Ask(LookupRequest(ngram));
      EXPECT_THAT(response, IsOk());
      found += response->n() == static_cast<int>(ngram.size());
    }
    return found;
  };
  const int all = hits();
  EXPECT_EQ(all, static_cast<int>(sample.ngrams.size()));
  std::filesystem::resize_file(path(), bytes / 2);
  const int half = hits();
  EXPECT_GT(half, all / 4);
  EXPECT_LT(half, all * 3 / 4);
  // As long as before, and zeros from there on: the record that was cut may be
  // one again.
  std::filesystem::resize_file(path(), bytes);
  EXPECT_NEAR(hits(), half, 1);
  std::filesystem::resize_file(path(), 0);
  EXPECT_EQ(hits(), 0);
  // The next version is served.
  const CrestSample next = MakeCrestSample(6, 2000, 100);
  WriteSnapshot(path(), next);
  EXPECT_TRUE(Eventually([&] {
    const auto response = client.Ask(LookupRequest(next.ngrams[0]));
    return response.ok() && response->version() == SnapshotVersion(next.meta);
  }));
  const CrestIndex index = IndexOf(next);
  for (const auto& ngram : next.ngrams) {
    const auto request = LookupRequest(ngram);
    const auto response = client.Ask(request);
    FORETOKEN_ASSERT_OK(response);
    ExpectAnswer(index, request, *response);
  }
}

TEST_F(CrestServiceTest, BadRequestsAreRefusedBehindTheAnswersBefore) {
  const CrestSample sample = MakeCrestSample(4, 200, 100);
  WriteSnapshot(path(), sample);
  const CrestIndex index = IndexOf(sample);
  const auto service = StartCrest(Options());
  const v1::CrestLookupRequest good = LookupRequest(sample.ngrams[0]);
  std::vector<std::pair<v1::CrestLookupRequest, absl::StatusCode>> bad(
      8, {good, absl::StatusCode::kInvalidArgument});
  bad[0].first.set_max_nodes(0);
  bad[1].first.set_max_nodes(65);
  bad[2].first.set_max_nodes(-1);
  bad[3].first.mutable_context()->Resize(17, 1);
  bad[4].first.add_context(-1);
  bad[5].first.set_tokenizer_fingerprint("short");
  bad[6] = {good, absl::StatusCode::kFailedPrecondition};
  bad[6].first.set_tokenizer_fingerprint(std::string(32, 'x'));
  bad[7] = {good, absl::StatusCode::kNotFound};
  bad[7].first.set_datastore("/etc/passwd");
  for (const auto& [request, code] : bad) {
    LookupClient client(*service);
    client.Write(good);
    client.Write(request);
    const auto first = client.Read();
    FORETOKEN_ASSERT_OK(first);
    ExpectAnswer(index, good, *first);
    EXPECT_THAT(client.Read(), StatusIs(code, _));
  }
  EXPECT_EQ(service->Sample("foretoken_crest_lookups_total{result=\"error\"}"),
            8);
  v1::CrestLookupRequest right = good;
  right.set_tokenizer_fingerprint(std::string(32, '\0'));
  FORETOKEN_EXPECT_OK(LookUp(*service, right));
}

TEST_F(CrestServiceTest, AReplacedFileSwitchesUnderStreamsAndNeverMixes) {
  std::vector<CrestSample> samples;
  std::map<int64_t, CrestIndex> indexes;
  for (uint32_t seed = 10; seed < 14; ++seed) {
    samples.push_back(MakeCrestSample(seed, 300, 20));
    indexes.emplace(SnapshotVersion(samples.back().meta),
                    IndexOf(samples.back()));
  }
  WriteSnapshot(path(), samples[0]);
  const auto service = StartCrest(Options());
  std::atomic<bool> stop = false;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      std::mt19937 random(caller);
      LookupClient client(*service);
      while (!stop) {
        const auto request = LookupRequest(RandomContext(random, 20));
        const auto response = client.Ask(request);
        ASSERT_THAT(response, IsOk());
        ExpectAnswer(indexes.at(response->version()), request, *response);
      }
      FORETOKEN_EXPECT_OK(client.Finish());
    });
  }
  for (const CrestSample& sample : samples) {
    WriteSnapshot(path(), sample);
    // Both datastores, because a version that is replaced while one of them
    // reads it is left out.
    EXPECT_TRUE(Eventually([&] {
      v1::CrestLookupRequest same = LookupRequest({});
      same.set_datastore("same");
      for (const auto& request : {LookupRequest({}), same}) {
        const auto response = LookUp(*service, request);
        if (!response.ok() ||
            response->version() != SnapshotVersion(sample.meta)) {
          return false;
        }
      }
      return true;
    }));
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_TRUE(Eventually([&] {
    return service->Sample(
               "foretoken_crest_switches_total{datastore=\"same\"}") == 4;
  }));
  EXPECT_EQ(service->Sample("foretoken_crest_version{datastore=\"chat\"}"),
            static_cast<double>(SnapshotVersion(samples[3].meta)));
}

TEST_F(CrestServiceTest, StreamsAreBoundedAndLeaveWithTheirClients) {
  WriteSnapshot(path(), MakeCrestSample(1, 100, 50));
  crest::CrestService options = Options();
  options.server.lookup.streams.max_streams = 2;
  const auto service = StartCrest(options);
  const auto request = LookupRequest({1});
  LookupClient first(*service);
  LookupClient second(*service);
  FORETOKEN_ASSERT_OK(first.Ask(request));
  FORETOKEN_ASSERT_OK(second.Ask(request));
  const absl::Status refused = LookUp(*service, request).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("all 2 streams")));
  EXPECT_EQ(rpc::RetryAfter(refused),
            options.server.lookup.streams.retry_after);
  first.Cancel();
  EXPECT_TRUE(Eventually([&] { return LookUp(*service, request).ok(); }));
  second.Cancel();
  EXPECT_TRUE(Eventually(
      [&] { return service->Sample("foretoken_crest_streams") == 0; }));
}

TEST_F(CrestServiceTest, AStreamThatAsksNothingIsEnded) {
  WriteSnapshot(path(), MakeCrestSample(1, 100, 50));
  crest::CrestService options = Options();
  options.server.lookup.streams.first_message_time = absl::Milliseconds(20);
  const auto service = StartCrest(options);
  LookupClient silent(*service);
  EXPECT_THAT(silent.Read(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      HasSubstr("no message within 20ms")));
  EXPECT_TRUE(Eventually(
      [&] { return service->Sample("foretoken_crest_streams") == 0; }));
}

TEST_F(CrestServiceTest, ADrainAnswersWhatWasTakenAndEndsTheStreams) {
  const CrestSample sample = MakeCrestSample(1, 100, 50);
  WriteSnapshot(path(), sample);
  const auto service = StartCrest(Options());
  EXPECT_TRUE(service->Serving(""));
  LookupClient client(*service);
  FORETOKEN_ASSERT_OK(client.Ask(LookupRequest(sample.ngrams[0])));
  EXPECT_TRUE(service->server->Drain(absl::Minutes(1)));
  EXPECT_THAT(client.Read(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
}

TEST_F(CrestServiceTest, HealthIsThatOfTheDatastores) {
  WriteSnapshot(path(), MakeCrestSample(1, 100, 50));
  const auto service = StartCrest(Options());
  for (const char* name : {"", "foretoken.v1.Crest", "foretoken.v1.Crest/chat",
                           "foretoken.v1.Crest/same"}) {
    EXPECT_TRUE(service->Serving(name)) << name;
  }
  EXPECT_FALSE(service->Serving("foretoken.v1.Crest/other"));
}

TEST_F(CrestServiceTest, ASnapshotThatIsMissingOrDamagedStopsTheStart) {
  metrics::Registry registry;
  EXPECT_THAT(Options().Make(registry),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("x.crest")));
  dir_.Write("x.crest", "not a snapshot");
  EXPECT_THAT(Options().Make(registry),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chat")));
}

TEST_F(CrestServiceTest, ListsTheVersionThatServes) {
  const CrestSample sample = MakeCrestSample(1, 100, 50);
  WriteSnapshot(path(), sample);
  const auto service = StartCrest(Options());
  grpc::ClientContext context;
  v1::ListVersionsRequest request;
  v1::ListVersionsResponse response;
  ASSERT_TRUE(service->stub->ListVersions(&context, request, &response).ok());
  ASSERT_EQ(response.versions_size(), 1);
  const v1::DatastoreVersion& version = response.versions(0);
  EXPECT_TRUE(version.serving());
  EXPECT_EQ(version.version(), SnapshotVersion(sample.meta));
  EXPECT_EQ(version.ngrams(), 100);
  EXPECT_EQ(version.nodes(), static_cast<int64_t>(sample.meta.nodes));
  EXPECT_EQ(version.max_n(), 3);
  EXPECT_EQ(version.tokenizer_fingerprint(), std::string(32, '\0'));
  EXPECT_GT(version.created_unix_seconds(), 1'600'000'000);
}

TEST_F(CrestServiceTest, PublishAndIngestAreOffUnlessEnabled) {
  WriteSnapshot(path(), MakeCrestSample(1, 100, 50));
  const auto service = StartCrest(Options());
  grpc::ClientContext publish;
  v1::PublishResponse published;
  EXPECT_EQ(service->stub->Publish(&publish, {}, &published).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  grpc::ClientContext ingest;
  v1::IngestResponse ingested;
  const auto writer = service->stub->Ingest(&ingest, &ingested);
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

// A call counts until its thread is free, a little longer than its client
// waits.
void AwaitIdle(const TestCrest& service, bool idle) {
  EXPECT_TRUE(Eventually([&] { return service.service->Idle() == idle; }));
}

// One Ingest call.
class IngestClient {
 public:
  explicit IngestClient(const TestCrest& service)
      : writer_(service.stub->Ingest(&context_, &response_)) {}

  void Begin() {
    v1::IngestRequest request;
    request.mutable_config()->set_max_n(2);
    writer_->Write(request);
  }
  void Send(const std::string& document) {
    v1::IngestRequest request;
    request.set_document(document);
    writer_->Write(request);
  }
  void Cancel() { context_.TryCancel(); }
  absl::StatusOr<v1::IngestResponse> Finish() {
    writer_->WritesDone();
    const absl::Status status = rpc::FromGrpcStatus(writer_->Finish());
    if (!status.ok()) return status;
    return response_;
  }

 private:
  grpc::ClientContext context_;
  v1::IngestResponse response_;
  std::unique_ptr<grpc::ClientWriter<v1::IngestRequest>> writer_;
};

TEST_F(CrestServiceTest, IngestBuildsAVersionThatThenServes) {
  WriteTinySnapshot();
  const auto service = StartCrest(IngestOptions());
  IngestClient client(*service);
  client.Begin();
  for (int i = 0; i < 50; ++i) client.Send("the hen in the inn ");
  const auto response = client.Finish();
  FORETOKEN_ASSERT_OK(response);
  EXPECT_EQ(response->documents(), 50);
  EXPECT_GT(response->tokens(), 100);
  // "the": the pair th, then e.
  EXPECT_TRUE(Eventually([&] {
    const auto answer = LookUp(*service, LookupRequest({31}));
    return answer.ok() && answer->version() == response->version() &&
           answer->n() == 1 && answer->tree().tokens_size() > 0;
  }));
  EXPECT_EQ(service->Sample("foretoken_crest_ingests_total{code=\"OK\"}"), 1);
}

// `foretoken crest ingest`, against a service.
int IngestCommand(const TestCrest& service, const std::string& corpus) {
  const std::string command =
      absl::StrCat(FORETOKEN_BINARY, " crest ingest --server ",
                   service.server->addresses().at(0), " --max-n 2 --corpus ",
                   corpus, " > /dev/null 2>&1");
  return std::system(command.c_str());
}

TEST_F(CrestServiceTest, TheCommandIngestsWhatATargetWrote) {
  WriteTinySnapshot();
  const auto service = StartCrest(IngestOptions());
  std::string rows;
  for (int i = 0; i < 50; ++i) {
    rows += R"({"prompt":"a man","output":"the hen in the inn "})"
            "\n";
  }
  EXPECT_EQ(IngestCommand(*service, dir_.Write("rows.jsonl", rows)), 0);
  EXPECT_TRUE(Eventually([&] {
    const auto answer = LookUp(*service, LookupRequest({31}));
    return answer.ok() && answer->n() == 1 && answer->tree().tokens_size() > 0;
  }));
  AwaitIdle(*service, true);
  // A row without a text: nothing is sent.
  EXPECT_NE(IngestCommand(*service, dir_.Write("bad.jsonl", rows + "{}\n")), 0);
  AwaitIdle(*service, true);
  EXPECT_EQ(service->Sample("foretoken_crest_ingests_total{code=\"OK\"}"), 1);
}

TEST_F(CrestServiceTest, IngestKeepsItsBoundsAndRunsAlone) {
  WriteTinySnapshot();
  crest::CrestService options = IngestOptions();
  options.server.ingest.limits.documents = 2;
  const auto service = StartCrest(options);
  {
    IngestClient client(*service);
    client.Send("a document before the config");
    EXPECT_THAT(client.Finish(),
                StatusIs(absl::StatusCode::kInvalidArgument, _));
  }
  AwaitIdle(*service, true);
  {
    IngestClient client(*service);
    client.Begin();
    for (int i = 0; i < 3; ++i) client.Send("the hen");
    EXPECT_THAT(client.Finish(), StatusIs(absl::StatusCode::kResourceExhausted,
                                          HasSubstr("more than 2 documents")));
  }
  AwaitIdle(*service, true);
  IngestClient running(*service);
  running.Begin();
  AwaitIdle(*service, false);
  {
    IngestClient second(*service);
    const auto refused = second.Finish();
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, _));
    EXPECT_TRUE(rpc::RetryAfter(refused.status()).has_value());
  }
  running.Cancel();
  AwaitIdle(*service, true);
  EXPECT_THAT(running.Finish(), StatusIs(absl::StatusCode::kCancelled, _));
}

TEST_F(CrestServiceTest, ACancelledOrStoppedIngestLeavesTheOldVersion) {
  const CrestSample sample = WriteTinySnapshot();
  const auto service = StartCrest(IngestOptions());
  {
    IngestClient client(*service);
    client.Begin();
    client.Send("the hen in the inn");
    AwaitIdle(*service, false);
    client.Cancel();
    EXPECT_THAT(client.Finish(), StatusIs(absl::StatusCode::kCancelled, _));
  }
  AwaitIdle(*service, true);
  IngestClient client(*service);
  client.Begin();
  AwaitIdle(*service, false);
  EXPECT_FALSE(service->server->Drain(absl::Milliseconds(1)));
  EXPECT_THAT(client.Finish(), StatusIs(absl::StatusCode::kUnavailable, _));
  const auto left = CrestIndex::Open(path());
  FORETOKEN_ASSERT_OK(left);
  EXPECT_EQ(left->meta().record_digest, sample.meta.record_digest);
}

}  // namespace
}  // namespace foretoken::testing
