// The draft worker over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/convert_draft.h"
#include "common/rpc/health.h"
#include "common/rpc/status.h"
#include "services/draft_worker/config.h"
#include "tests/support/draft_caller.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_backend.h"
#include "tests/support/gate.h"
#include "tests/support/metric_samples.h"
#include "tests/support/status_matchers.h"

namespace foretoken::draft_worker {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::FakeBackend;
using ::foretoken::testing::FakeBackendOptions;
using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::_;
using ::testing::HasSubstr;

using Tokens = std::vector<TokenId>;

DraftOpen OpenOf(const std::string& mode, Tokens tokens) {
  DraftOpen open;
  open.prompt_length = static_cast<int64_t>(tokens.size());
  open.tokens = std::move(tokens);
  open.mode = *Mode::Parse(mode);
  open.request_id = "test";
  return open;
}

DraftRound RoundOf(int64_t length, Tokens committed) {
  DraftRound round;
  round.length = length;
  round.committed = std::move(committed);
  round.max_nodes = 64;
  return round;
}

class Client {
 public:
  explicit Client(v1::DraftWorker::Stub& stub) {
    rpc::PrepareCall(context_, absl::Now() + absl::Seconds(120), "");
    stream_ = stub.Draft(&context_);
  }
  ~Client() {
    context_.TryCancel();
    if (!finished_) stream_->Finish();
  }

  void Send(const DraftOpen& open) {
    v1::DraftRequest request;
    EXPECT_THAT(rpc::ToProto(open, request.mutable_open()), IsOk());
    stream_->Write(request);
  }
  void Send(const DraftRound& round) {
    v1::DraftRequest request;
    rpc::ToProto(round, request.mutable_round());
    stream_->Write(request);
  }
  // The next answer, or the status that the call ended with.
  absl::StatusOr<DraftAnswer> Receive() {
    v1::DraftResponse response;
    if (stream_->Read(&response)) return rpc::FromProto(response);
    finished_ = true;
    const absl::Status status = rpc::FromGrpcStatus(stream_->Finish());
    return status.ok() ? absl::OutOfRangeError("the call has ended") : status;
  }
  absl::StatusOr<DraftAnswer> Ask(const DraftRound& round) {
    Send(round);
    return Receive();
  }
  void HalfClose() { stream_->WritesDone(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::DraftRequest, v1::DraftResponse>>
      stream_;
  bool finished_ = false;
};

class DraftWorkerTest : public ::testing::Test {
 protected:
  void Start(const DraftServerOptions& options = {},
             const DraftEngineOptions& engine = {},
             FakeBackendOptions fake = {}) {
    fake.max_rows = 1024;
    Listen(std::make_unique<DraftWorkerServer>(
        options,
        std::make_unique<DraftEngine>(engine,
                                      std::make_unique<FakeBackend>(fake)),
        registry_));
  }
  void Listen(std::unique_ptr<DraftWorkerServer> service) {
    service_ = std::move(service);
    rpc::ServerOptions listen;
    listen.listen = {"127.0.0.1:0"};
    auto server = rpc::Server::Start(listen, {service_.get()});
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
    stub_ = v1::DraftWorker::NewStub(
        *rpc::CreateChannel(server_->addresses().at(0), {}));
  }
  DraftSnapshot Snapshot() { return service_->loop().snapshot(); }
  bool IsFreed() {
    const DraftSnapshot now = Snapshot();
    return now.sessions == 0 && now.kv.sessions == 0 &&
           now.kv.pages_free == now.kv.pages_total && service_->Idle();
  }
  double Sample(const std::string& sample) const {
    return metrics::SampleValue(registry_.Text(), sample).value_or(-1);
  }

  metrics::Registry registry_;
  std::unique_ptr<DraftWorkerServer> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::DraftWorker::Stub> stub_;
};

TEST_F(DraftWorkerTest, IsNotServingWhileItsEngineHangs) {
  // The engine may outlive this function.
  const auto gate = std::make_shared<testing::Gate>();
  FakeBackendOptions fake;
  fake.before_pass = [gate] { gate->Pass(); };
  DraftServerOptions options;
  options.loop.hang_timeout = absl::Milliseconds(300);
  Start(options, {}, fake);
  const auto serves = [&] {
    const auto channel =
        rpc::CreateChannel(server_->addresses().at(0), rpc::ChannelOptions());
    const auto serving = rpc::IsServing(*channel, "foretoken.v1.DraftWorker",
                                        MonotonicNow() + absl::Minutes(1));
    return serving.ok() && *serving;
  };
  EXPECT_TRUE(serves());
  gate->Close();
  Client client(*stub_);
  client.Send(OpenOf("draft_model", {1, 7, 3}));
  client.Send(RoundOf(4, {9}));
  EXPECT_TRUE(Eventually([&] { return !serves(); }));
  EXPECT_EQ(gate->waiting(), 1);
  EXPECT_EQ(Sample("foretoken_draft_worker_engine_hangs"), 1);
  gate->Open();
  EXPECT_TRUE(Eventually(serves));
  EXPECT_EQ(Sample("foretoken_draft_worker_engine_hangs"), 0);
  EXPECT_THAT(client.Receive(), IsOk());
}

TEST_F(DraftWorkerTest, DraftsOverTheWireAsInProcess) {
  Start();
  for (const std::string mode : {"draft_model:gamma=5", "ouroboros:window=5"}) {
    auto own =
        testing::DraftCaller::Open(service_->drafts(), OpenOf(mode, {1, 7, 3}));
    ASSERT_THAT(own, IsOk());
    Client client(*stub_);
    client.Send(OpenOf(mode, {1, 7, 3}));
    Tokens committed = {9};
    int64_t length = 4;
    for (int i = 0; i < 6; ++i) {
      DraftAnswer want;
      ASSERT_THAT((*own)->Round(RoundOf(length, committed), want), IsOk());
      const auto got = client.Ask(RoundOf(length, committed));
      ASSERT_THAT(got, IsOk());
      EXPECT_EQ(got->length, length);
      EXPECT_GT(got->tree.size(), 0);
      EXPECT_EQ(got->tree.tokens, want.tree.tokens);
      EXPECT_EQ(got->tree.parents, want.tree.parents);
      EXPECT_EQ(got->tree.probs, want.tree.probs);
      EXPECT_EQ(got->phrases, want.phrases);
      committed = {want.tree.tokens[0], static_cast<TokenId>(20 + i)};
      length += 2;
    }
  }
  // Both ways are observed.
  EXPECT_EQ(Sample("foretoken_draft_worker_drafts_total"), 24);
  EXPECT_EQ(Sample("foretoken_draft_worker_draft_latency_seconds_count"), 24);
  EXPECT_GT(Sample("foretoken_draft_worker_passes_total"), 24);
  EXPECT_GT(Sample("foretoken_draft_worker_phrases_total{event=\"made\"}"), 0);
}

// How many passes a draft has depends on the pace of the rounds.
TEST_F(DraftWorkerTest, DraftsItsPartOfAutoAndKeepsItsPhrasesToItself) {
  Start();
  DraftOpen open = OpenOf("auto", {1, 7, 3});
  open.cache_scope = "scope";
  Client client(*stub_);
  client.Send(open);
  Tokens committed = {9};
  int64_t length = 4;
  for (int i = 0; i < 12; ++i) {
    const auto got = client.Ask(RoundOf(length, committed));
    ASSERT_THAT(got, IsOk());
    ASSERT_GT(got->tree.size(), 0);
    EXPECT_EQ(got->tree.parents[0], -1);
    EXPECT_GT(got->tree.probs[0], 0.0f);
    EXPECT_TRUE(got->phrases.empty());
    committed = {got->tree.tokens[0], 9};
    length += 2;
  }
  EXPECT_GE(Sample("foretoken_draft_worker_passes_total"), 12);
}

TEST_F(DraftWorkerTest, EndTokensTravelWithTheOpen) {
  Start();
  DraftOpen open = OpenOf("draft_model:gamma=9", {1, 7, 3});
  Client endless(*stub_);
  endless.Send(open);
  const auto whole = endless.Ask(RoundOf(4, {9}));
  ASSERT_THAT(whole, IsOk());
  ASSERT_EQ(whole->tree.size(), 9);
  open.sampling.end_tokens = {whole->tree.tokens[0]};
  Client ended(*stub_);
  ended.Send(open);
  const auto cut = ended.Ask(RoundOf(4, {9}));
  ASSERT_THAT(cut, IsOk());
  EXPECT_EQ(cut->tree.tokens, open.sampling.end_tokens);
  open.sampling.min_tokens = 1000;
  Client banned(*stub_);
  banned.Send(open);
  const auto other = banned.Ask(RoundOf(4, {9}));
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(other->tree.size(), 9);
  EXPECT_THAT(other->tree.tokens,
              ::testing::Not(::testing::Contains(whole->tree.tokens[0])));
}

TEST_F(DraftWorkerTest, ADisconnectFreesSessionAndPages) {
  Start();
  {
    Client idle(*stub_);
    idle.Send(OpenOf("draft_model", Tokens(100, 5)));
    ASSERT_THAT(idle.Ask(RoundOf(101, {6})), IsOk());
    Client drafting(*stub_);
    drafting.Send(OpenOf("draft_model:gamma=250", {1}));
    drafting.Send(RoundOf(2, {6}));
    ASSERT_TRUE(Eventually([&] { return Snapshot().sessions == 2; }));
  }
  EXPECT_TRUE(Eventually([&] { return IsFreed(); }));
  EXPECT_EQ(Sample("foretoken_draft_worker_streams"), 0);
}

TEST_F(DraftWorkerTest, AHalfCloseEndsTheSession) {
  Start();
  Client client(*stub_);
  client.Send(OpenOf("ouroboros", {1, 2}));
  ASSERT_THAT(client.Ask(RoundOf(3, {6})), IsOk());
  client.HalfClose();
  EXPECT_THAT(client.Receive(), StatusIs(absl::StatusCode::kOutOfRange, _));
  EXPECT_TRUE(Eventually([&] { return IsFreed(); }));
}

TEST_F(DraftWorkerTest, StaleAndRepeatedRoundsAreRefused) {
  Start();
  Client repeated(*stub_);
  repeated.Send(OpenOf("draft_model", {1, 2}));
  ASSERT_THAT(repeated.Ask(RoundOf(3, {6})), IsOk());
  EXPECT_THAT(repeated.Ask(RoundOf(3, {6})),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("3")));
  Client stale(*stub_);
  stale.Send(OpenOf("draft_model", {1, 2}));
  EXPECT_THAT(stale.Ask(RoundOf(8, {6})),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("8")));
  EXPECT_TRUE(Eventually([&] { return IsFreed(); }));
  EXPECT_EQ(Sample("foretoken_draft_worker_sessions_failed_total"
                   "{code=\"FAILED_PRECONDITION\"}"),
            2);
}

TEST_F(DraftWorkerTest, AnotherTokenizersTextIsRefused) {
  DraftServerOptions options;
  options.tokenizer_fingerprint = std::string(32, 'a');
  Start(options);
  DraftOpen open = OpenOf("draft_model", {1});
  open.tokenizer_fingerprint = std::string(32, 'b');
  Client foreign(*stub_);
  foreign.Send(open);
  EXPECT_THAT(foreign.Receive(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("tokenizer")));
  open.tokenizer_fingerprint = std::string(32, 'a');
  Client own(*stub_);
  own.Send(open);
  EXPECT_THAT(own.Ask(RoundOf(2, {5})), IsOk());
}

TEST_F(DraftWorkerTest, FullMeansResourceExhaustedWithAHint) {
  DraftEngineOptions engine;
  engine.max_sessions = 1;
  Start({}, engine);
  Client first(*stub_);
  first.Send(OpenOf("draft_model", {1}));
  ASSERT_THAT(first.Ask(RoundOf(2, {5})), IsOk());
  Client second(*stub_);
  second.Send(OpenOf("draft_model", {1}));
  const absl::Status refused = second.Receive().status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, _));
  EXPECT_TRUE(rpc::RetryAfter(refused).has_value());
  EXPECT_THAT(first.Ask(RoundOf(3, {5})), IsOk());
}

TEST_F(DraftWorkerTest, ADrainLetsStreamsEndAndThenEndsThem) {
  Start();
  Client running(*stub_);
  running.Send(OpenOf("draft_model", {1}));
  ASSERT_THAT(running.Ask(RoundOf(2, {5})), IsOk());
  service_->BeginDrain();
  Client late(*stub_);
  late.Send(OpenOf("draft_model", {1}));
  EXPECT_THAT(late.Receive(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  EXPECT_THAT(running.Ask(RoundOf(3, {5})), IsOk());
  EXPECT_FALSE(service_->Idle());
  service_->EndAll();
  EXPECT_THAT(running.Receive(), StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_TRUE(Eventually([&] { return IsFreed(); }));
}

// With a real model of random weights: many streams at once.
TEST_F(DraftWorkerTest, ConcurrentStreamsDraftAsEachAlone) {
  DraftWorkerService parts;
  parts.backend.random_model =
      "d_model=32,layers=1,heads=2,kv_heads=1,d_ff=48,vocab=97";
  parts.backend.precision = "fp32";
  parts.backend.threads = 1;
  parts.engine.vocab_limit = 90;
  auto service = parts.Make(registry_);
  ASSERT_THAT(service, IsOk());
  Listen(*std::move(service));

  EXPECT_EQ(service_->loop().model().vocab_size, 97);
  EXPECT_EQ(service_->loop().model().max_positions, 4096);

  const auto run = [this](int i) {
    std::vector<Tokens> drafts;
    Client client(*stub_);
    client.Send(
        OpenOf(i % 2 == 0 ? "draft_model:gamma=5" : "ouroboros:window=4,beta=4",
               Tokens(1 + 9 * i, 3 + i)));
    int64_t length = 1 + 9 * i;
    for (int round = 0; round < 6; ++round) {
      const auto answer =
          client.Ask(RoundOf(++length, {static_cast<TokenId>(7 * round)}));
      EXPECT_THAT(answer, IsOk());
      if (!answer.ok()) break;
      for (const TokenId token : answer->tree.tokens) EXPECT_LT(token, 90);
      drafts.push_back(answer->tree.tokens);
    }
    return drafts;
  };
  std::vector<std::vector<Tokens>> alone;
  for (int i = 0; i < 6; ++i) alone.push_back(run(i));
  std::vector<std::future<std::vector<Tokens>>> together;
  for (int i = 0; i < 6; ++i) {
    together.push_back(std::async(std::launch::async, run, i));
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(together[i].get(), alone[i]) << i;
}

TEST_F(DraftWorkerTest, DraftsOfAPartOfTheVocabularyStayInsideIt) {
  DraftWorkerService parts;
  parts.backend.random_model =
      "d_model=64,layers=1,heads=2,kv_heads=1,d_ff=64,vocab=97";
  parts.backend.threads = 1;
  parts.loading.weights = "q4_0";
  parts.loading.vocabulary = 20;
  auto service = parts.Make(registry_);
  ASSERT_THAT(service, IsOk());
  Listen(*std::move(service));
  int nodes = 0;
  for (TokenId first = 0; first < 97; first += 8) {
    Client client(*stub_);
    client.Send(OpenOf("draft_model:gamma=5", {first}));
    const auto answer = client.Ask(RoundOf(2, {96}));
    ASSERT_THAT(answer, IsOk());
    for (const TokenId token : answer->tree.tokens) EXPECT_LT(token, 20);
    nodes += answer->tree.size();
  }
  EXPECT_EQ(nodes, 13 * 5);
  EXPECT_EQ(Sample("foretoken_draft_worker_vocabulary_misses_total"), 13);
}

TEST(DraftWorkerConfigTest, DefaultsAndBadFlags) {
  const char* good[] = {"foretoken-draft-worker", "--random-model",
                        "d_model=32,layers=1,heads=2,kv_heads=1,d_ff=48,"
                        "vocab=97"};
  DraftWorkerService service;
  const auto config = rpc::ParseFlags(3, good, &service);
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->rpc.listen, ::testing::ElementsAre("127.0.0.1:50052"));
  EXPECT_EQ(config->metrics.address, "127.0.0.1:9102");
  EXPECT_EQ(service.backend.max_rows, 1024);
  EXPECT_EQ(service.loading.weights, "auto");
  EXPECT_EQ(service.loading.vocabulary, 32768);
  const char* bad[] = {"foretoken-draft-worker", "--max-sessions", "0"};
  DraftWorkerService without_model;
  const absl::Status refused = rpc::ParseFlags(3, bad, &without_model).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("--max-sessions")));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--model"));
}

TEST(DraftWorkerConfigTest, APriorNeedsTheTokenizerItCounts) {
  DraftWorkerService service;
  service.backend.random_model =
      "d_model=64,layers=1,heads=2,kv_heads=1,d_ff=64,vocab=97";
  service.prior = "some.prior";
  metrics::Registry registry;
  EXPECT_THAT(service.Make(registry),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("--prior: the model has no tokenizer")));
}

}  // namespace
}  // namespace foretoken::draft_worker
