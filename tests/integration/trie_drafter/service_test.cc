// The trie drafter over real gRPC: protocol, limits, drain, phrases, metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/trie_drafter/draft_client.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<TokenId> kPrompt = {1, 2, 3, 4, 1, 2};

TEST(TrieDrafterServiceTest, DraftsRoundByRound) {
  const auto trie = StartTrieDrafter();
  DraftClient client(*trie->stub);
  ASSERT_TRUE(client.Send(OpenOf("ngram_trie", kPrompt)));
  auto answer = client.Ask(RoundOf(6, {}, 2));
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->length, 6);
  EXPECT_THAT(answer->tree.tokens, ElementsAre(3, 4));
  EXPECT_THAT(answer->tree.parents, ElementsAre(-1, 0));
  answer = client.Ask(RoundOf(8, {3, 9}, 0));  // commit only
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->length, 8);
  EXPECT_EQ(answer->tree.size(), 0);
  client.HalfClose();
  EXPECT_THAT(client.Finish(), IsOk());
  EXPECT_EQ(trie->service->sessions().sessions(), 0);
  EXPECT_EQ(trie->Sample("foretoken_trie_rounds_total"), 2);
  EXPECT_EQ(trie->Sample("foretoken_trie_draft_nodes_total"), 2);
  EXPECT_EQ(trie->Sample("foretoken_trie_sessions"), 0);
}

TEST(TrieDrafterServiceTest, AnOldConnectionIsReplacedAndItsCallsGoOn) {
  metrics::Registry registry;
  auto service = trie_drafter::TrieDrafterService().Make(registry);
  ASSERT_THAT(service, IsOk());
  rpc::ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.max_connection_age = absl::Milliseconds(200);
  auto server = rpc::Server::Start(options, {service->get()});
  ASSERT_THAT(server, IsOk());
  const auto channel =
      rpc::CreateChannel((*server)->addresses().at(0), {}).value();
  const auto stub = v1::TrieDrafter::NewStub(channel);
  DraftClient old(*stub);
  ASSERT_TRUE(old.Send(OpenOf("ngram_trie", kPrompt)));
  ASSERT_THAT(old.Ask(RoundOf(6, {}, 2)), IsOk());
  // The client is told to go, and its call is served as before.
  const auto gone = std::chrono::system_clock::now() + std::chrono::minutes(1);
  ASSERT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, gone));
  ASSERT_THAT(old.Ask(RoundOf(7, {3}, 2)), IsOk());
  DraftClient next(*stub);
  ASSERT_TRUE(next.Send(OpenOf("ngram_trie", kPrompt)));
  ASSERT_THAT(next.Ask(RoundOf(6, {}, 2)), IsOk());
  ASSERT_THAT(old.Ask(RoundOf(8, {4}, 2)), IsOk());
}

TEST(TrieDrafterServiceTest, AStaleRoundEndsTheSessionAndItIsReopened) {
  const auto trie = StartTrieDrafter();
  for (const DraftRound& stale :
       {RoundOf(7, {9}), RoundOf(6, {}), RoundOf(20, {1, 2})}) {
    DraftClient client(*trie->stub);
    client.Send(OpenOf("auto", kPrompt, "scope"));
    ASSERT_THAT(client.Ask(RoundOf(7, {9})), IsOk());
    EXPECT_THAT(client.Ask(stale),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("committed_length")));
    EXPECT_EQ(trie->service->sessions().sessions(), 0);
  }
  DraftClient again(*trie->stub);
  again.Send(OpenOf("auto", {1, 2, 3, 4, 1, 2, 9}, "scope"));
  EXPECT_THAT(again.Ask(RoundOf(7, {})), IsOk());
  EXPECT_EQ(trie->Sample("foretoken_trie_sessions_failed_total{code="
                         "\"FAILED_PRECONDITION\"}"),
            3);
}

TEST(TrieDrafterServiceTest, GarbageIsRefusedByField) {
  trie_drafter::TrieDrafterService parts;
  parts.server.tokenizer_fingerprint = std::string(32, 'a');
  const auto trie = StartTrieDrafter(parts);
  using Change = std::function<void(v1::DraftRequest&)>;
  struct Case {
    const char* want;
    absl::StatusCode code;
    bool opened;  // the message comes after a good open
    Change change;
  };
  const auto bad = absl::StatusCode::kInvalidArgument;
  const auto order = absl::StatusCode::kFailedPrecondition;
  const std::vector<Case> cases = {
      {"want open or round", bad, false, [](auto&) {}},
      {"want open first", order, false, [](auto& r) { r.mutable_round(); }},
      {"token_ids", bad, false,
       [](auto& r) { r.mutable_open()->set_token_ids(0, -1); }},
      {"request_id", bad, false,
       [](auto& r) { r.mutable_open()->set_request_id("a\nb"); }},
      {"cache_scope", bad, false,
       [](auto& r) {
         r.mutable_open()->set_cache_scope(std::string(300, 's'));
       }},
      {"is not that of", order, false,
       [](auto& r) {
         r.mutable_open()->set_tokenizer_fingerprint(std::string(32, 'b'));
       }},
      {"draft_model", absl::StatusCode::kUnimplemented, false,
       [](auto& r) {
         r.mutable_open()->mutable_speculation()->mutable_draft_model();
       }},
      {"match_length", bad, false,
       [](auto& r) {
         r.mutable_open()
             ->mutable_speculation()
             ->mutable_ngram_trie()
             ->set_match_length(50);
       }},
      {"a session already", order, true, [](auto& r) { r.mutable_open(); }},
      {"committed[0]", bad, true,
       [](auto& r) { r.mutable_round()->add_committed(-7); }},
      {"node 0", bad, true,
       [](auto& r) {
         auto* tree = r.mutable_round()->mutable_verified()->mutable_tree();
         tree->add_tokens(5);
         tree->add_parents(3);
       }},
      {"max_nodes", bad, true,
       [](auto& r) { r.mutable_round()->set_max_nodes(1 << 30); }},
  };
  for (const Case& c : cases) {
    DraftClient client(*trie->stub);
    v1::DraftRequest request;
    if (c.opened) {
      client.Send(OpenOf("auto", kPrompt, "scope"));
    } else if (std::string(c.want).find("want open") == std::string::npos) {
      ASSERT_THAT(
          rpc::ToProto(OpenOf("ngram_trie", kPrompt), request.mutable_open()),
          IsOk());
    }
    c.change(request);
    client.Send(request);
    EXPECT_THAT(client.Receive(), StatusIs(c.code, HasSubstr(c.want)));
    EXPECT_EQ(trie->service->sessions().sessions(), 0) << c.want;
  }
  EXPECT_TRUE(Eventually([&] { return trie->service->Idle(); }));
}

TEST(TrieDrafterServiceTest, ADisconnectFreesTheSession) {
  const auto trie = StartTrieDrafter();
  std::vector<std::unique_ptr<DraftClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<DraftClient>(*trie->stub));
    clients.back()->Send(OpenOf("auto", kPrompt, "scope"));
    ASSERT_THAT(clients.back()->Ask(RoundOf(7, {9})), IsOk());
  }
  EXPECT_EQ(trie->service->sessions().sessions(), 8);
  for (const auto& client : clients) client->Cancel();
  EXPECT_TRUE(Eventually([&] {
    return trie->service->sessions().sessions() == 0 && trie->service->Idle();
  }));
  EXPECT_EQ(trie->Sample("foretoken_trie_streams"), 0);
  EXPECT_EQ(trie->Sample("foretoken_trie_session_bytes"), 0);
}

TEST(TrieDrafterServiceTest, StreamsOverTheLimitAreToldWhenToRetry) {
  trie_drafter::TrieDrafterService parts;
  parts.server.streams.max_streams = 1;
  const auto trie = StartTrieDrafter(parts);
  DraftClient first(*trie->stub);
  first.Send(OpenOf("auto", kPrompt));
  ASSERT_THAT(first.Ask(RoundOf(6, {})), IsOk());
  DraftClient second(*trie->stub);
  const absl::Status refused = second.Receive().status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("streams")));
  EXPECT_TRUE(rpc::RetryAfter(refused).has_value());
  EXPECT_THAT(first.Ask(RoundOf(7, {1})), IsOk());
}

TEST(TrieDrafterServiceTest, ADrainLetsSessionsEndAndTakesNoNewOnes) {
  const auto trie = StartTrieDrafter();
  DraftClient running(*trie->stub);
  running.Send(OpenOf("auto", kPrompt));
  ASSERT_THAT(running.Ask(RoundOf(6, {})), IsOk());
  trie->service->BeginDrain();
  DraftClient late(*trie->stub);
  EXPECT_THAT(late.Receive(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  EXPECT_THAT(running.Ask(RoundOf(7, {1})), IsOk());
  EXPECT_FALSE(trie->service->Idle());
  EXPECT_FALSE(trie->server->Drain(absl::ZeroDuration()));
  EXPECT_THAT(running.Receive(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stopping")));
  EXPECT_EQ(trie->service->sessions().sessions(), 0);
}

class PhrasesTest : public ::testing::Test {
 protected:
  // A request of `scope` whose only round adds `phrases`.
  absl::Status Add(const std::string& scope,
                   const std::vector<Phrase>& phrases) {
    DraftClient client(*trie_->stub);
    client.Send(OpenOf("ouroboros", kPrompt, scope));
    DraftRound round = RoundOf(7, {9});
    round.phrases = phrases;
    return client.Ask(round).status();
  }
  absl::StatusOr<std::vector<Phrase>> Get(const std::string& scope,
                                          int32_t max) {
    grpc::ClientContext context;
    v1::GetPhrasesRequest request;
    v1::GetPhrasesResponse response;
    request.set_cache_scope(scope);
    request.set_max_phrases(max);
    const absl::Status status = rpc::FromGrpcStatus(
        trie_->stub->GetPhrases(&context, request, &response));
    if (!status.ok()) return status;
    return rpc::FromProto(response.phrases());
  }
  std::unique_ptr<TestTrieDrafter> trie_ = StartTrieDrafter();
};

TEST_F(PhrasesTest, AreSharedWithinAScopeNewestFirst) {
  ASSERT_THAT(Add("a", {{7, 1}, {7, 2}, {8, 1}}), IsOk());
  EXPECT_THAT(*Get("a", 2), ElementsAre(ElementsAre(8, 1), ElementsAre(7, 2)));
  EXPECT_THAT(*Get("b", 2), IsEmpty());
  ASSERT_THAT(Add("", {{7, 1}}), IsOk());
  EXPECT_THAT(*Get("", 2), IsEmpty());
  EXPECT_EQ(trie_->Sample("foretoken_trie_pool_phrases"), 3);
  EXPECT_EQ(
      trie_->Sample("foretoken_trie_scope_lookups_total{result=\"pool_hit\"}"),
      1);
}

TEST_F(PhrasesTest, OfRoundsServeTheScopeToo) {
  DraftClient client(*trie_->stub);
  client.Send(OpenOf("ouroboros:gamma=4", kPrompt, "a"));
  DraftRound round = RoundOf(7, {9});
  round.phrases = {{3, 4, 5}};
  const auto answer = client.Ask(round);
  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->tree.size(), 0);
  EXPECT_THAT(*Get("a", 5), ElementsAre(ElementsAre(3, 4, 5)));
}

TEST_F(PhrasesTest, AreRefusedByField) {
  EXPECT_THAT(Get("a", 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("max_phrases")));
  EXPECT_THAT(
      Get(std::string(300, 's'), 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cache_scope")));
  EXPECT_THAT(Add("a", {{1, -2}}), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("phrases")));
}

TEST(TrieDrafterConfigTest, SecretsOfTheUrlAreNeitherTakenNorShown) {
  const std::vector<const char*> argv = {
      "foretoken-trie-drafter", "--redis-url=redis://:hunter2@localhost"};
  trie_drafter::TrieDrafterService service;
  const auto refused = rpc::ParseFlags(2, argv.data(), &service);
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::AllOf(HasSubstr("from the environment alone"),
                                        ::testing::Not(HasSubstr("hunter2")))));
  setenv("FORETOKEN_REDIS_URL", "redis://:hunter2@localhost:7000/3", 1);
  const auto config = rpc::ParseFlags(1, argv.data(), &service);
  unsetenv("FORETOKEN_REDIS_URL");
  ASSERT_THAT(config, IsOk());
  EXPECT_THAT(config->changes,
              ::testing::AllOf(HasSubstr("redis-url="),
                               ::testing::Not(HasSubstr("hunter2"))));
  const auto address = trie_drafter::RedisAddress::Parse(service.redis_url);
  ASSERT_THAT(address, IsOk());
  EXPECT_EQ(address->password, "hunter2");
  EXPECT_EQ(address->ToString(), "localhost:7000/3");
}

}  // namespace
}  // namespace foretoken::testing
