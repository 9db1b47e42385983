// What an operator relies on: closed doors, health, drain, limits, errors.
#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <future>
#include <limits>
#include <thread>

#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/integration/certificates.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kToken[] = "correct-horse-battery";
constexpr int kServing = 1;
constexpr int kNotServing = 2;

// grpc.health.v1.Health/Check: request and response have the wire format of
// these wrappers. -1: the call failed.
int HealthOf(const std::shared_ptr<grpc::Channel>& channel,
             const std::string& service) {
  grpc::TemplatedGenericStub<google::protobuf::StringValue,
                             google::protobuf::Int32Value>
      stub(channel);
  grpc::ClientContext context;
  rpc::PrepareCall(context, absl::Now() + absl::Seconds(20), "");
  google::protobuf::StringValue request;
  request.set_value(service);
  google::protobuf::Int32Value response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request,
                 &response,
                 [&](grpc::Status status) { done.set_value(status); });
  return done.get_future().get().ok() ? response.value() : -1;
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                         const rpc::ChannelOptions& options) {
  auto channel = rpc::CreateChannel(address, options);
  EXPECT_THAT(channel, IsOk());
  return *channel;
}

absl::Status InfoStatus(const std::string& address,
                        const rpc::ChannelOptions& options) {
  const auto channel = ChannelTo(address, options);
  const auto stub = v1::Verifier::NewStub(channel);
  grpc::ClientContext context;
  rpc::PrepareCall(context, absl::Now() + absl::Seconds(20),
                   rpc::ReadToken(options)->Get());
  v1::GetVerifierInfoResponse response;
  return rpc::FromGrpcStatus(
      stub->GetVerifierInfo(&context, v1::GetVerifierInfoRequest(), &response));
}

struct Pair {
  std::unique_ptr<TestVerifier> verifier;
  std::unique_ptr<TestOrchestrator> orchestrator;
};

Pair StartPair(TestVerifierOptions verifier = {},
               orchestrator::OrchestratorService config = {},
               const rpc::ServerOptions& rpc = {}) {
  Pair pair;
  pair.verifier = StartVerifier(std::move(verifier));
  config.verifiers = {pair.verifier->address()};
  pair.orchestrator = StartOrchestrator(std::move(config), rpc);
  return pair;
}

TEST(ListenTest, BeyondLoopbackWantsTlsOrInsecureSaidAloud) {
  rpc::ServerOptions options;
  options.listen = {"0.0.0.0:0"};
  EXPECT_THAT(options.Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("--insecure"))));
  options.insecure = true;
  FORETOKEN_EXPECT_OK(options.Validate());
  // A token would be read by everyone on the way.
  options.token_file = "tokens";
  EXPECT_THAT(options.Validate(), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("in the clear")));
  EXPECT_THAT(
      rpc::CreateChannel("10.1.2.3:1", {}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("10.1.2.3:1")));
}

TEST(AuthTest, EveryCallButHealthNeedsAKnownToken) {
  const TempDir dir;
  TestVerifierOptions options;
  options.rpc.token_file = dir.Write("tokens", std::string(kToken) + "\n");
  const auto verifier = StartVerifier(options);
  const std::string address = verifier->address();

  EXPECT_THAT(InfoStatus(address, {}),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("token")));
  rpc::ChannelOptions wrong;
  wrong.token_file = dir.Write("wrong", "wrong-wrong-wrong-wrong\n");
  EXPECT_THAT(InfoStatus(address, wrong),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("token")));
  rpc::ChannelOptions right;
  right.token_file = options.rpc.token_file;
  FORETOKEN_EXPECT_OK(InfoStatus(address, right));

  const auto channel = ChannelTo(address, {});
  EXPECT_EQ(HealthOf(channel, ""), kServing);
  // Also of the streaming call, whose handler must not even start.
  const auto stub = v1::Verifier::NewStub(channel);
  grpc::ClientContext context;
  const auto stream = stub->Verify(&context);
  v1::VerifyResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::UNAUTHENTICATED);
  EXPECT_EQ(verifier->Sample("foretoken_streams"), 0);
  // The health check needs none, and the one with the right token is known.
  EXPECT_EQ(verifier->server->callers()->strangers(), 3);
}

TEST(AuthTest, AnOrchestratorSendsItsTokenToTheVerifier) {
  const TempDir dir;
  TestVerifierOptions options;
  options.rpc.token_file = dir.Write("tokens", std::string(kToken) + "\n");
  orchestrator::OrchestratorService config;
  config.verifier_channel.token_file = options.rpc.token_file;
  const Pair pair = StartPair(options, config);
  const auto got =
      Generate(*pair.orchestrator->client, MakeRequest({1, 2}, "off", 3));
  FORETOKEN_EXPECT_OK(got.status);
}

TEST(TlsTest, ServerCertificatesAreCheckedByTheClient) {
  const TempDir dir;
  const Certificates ours = MakeCertificates(dir, "ours");
  const Certificates strangers = MakeCertificates(dir, "strangers");
  TestVerifierOptions options;
  options.rpc.tls_cert = ours.cert;
  options.rpc.tls_key = ours.key;
  const auto verifier = StartVerifier(options);
  rpc::ChannelOptions client;
  client.tls_ca = ours.ca;
  FORETOKEN_EXPECT_OK(InfoStatus(verifier->address(), client));
  client.tls_ca = strangers.ca;
  EXPECT_EQ(InfoStatus(verifier->address(), client).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(InfoStatus(verifier->address(), {}).code(),
            absl::StatusCode::kUnavailable);
}

TEST(TlsTest, MutualTlsRefusesClientsWithoutACertificateOfTheRoot) {
  const TempDir dir;
  const Certificates ours = MakeCertificates(dir, "ours");
  const Certificates strangers = MakeCertificates(dir, "strangers");
  TestVerifierOptions options;
  options.rpc.tls_cert = ours.cert;
  options.rpc.tls_key = ours.key;
  options.rpc.tls_client_ca = ours.ca;
  options.rpc.token_file = dir.Write("tokens", std::string(kToken) + "\n");
  const auto verifier = StartVerifier(options);
  rpc::ChannelOptions client;
  client.tls_ca = ours.ca;
  client.token_file = options.rpc.token_file;
  EXPECT_EQ(InfoStatus(verifier->address(), client).code(),
            absl::StatusCode::kUnavailable);
  client.tls_cert = strangers.cert;
  client.tls_key = strangers.key;
  EXPECT_EQ(InfoStatus(verifier->address(), client).code(),
            absl::StatusCode::kUnavailable);
  client.tls_cert = ours.cert;
  client.tls_key = ours.key;
  FORETOKEN_EXPECT_OK(InfoStatus(verifier->address(), client));
  client.token_file.clear();
  EXPECT_EQ(InfoStatus(verifier->address(), client).code(),
            absl::StatusCode::kUnauthenticated);
}

// Labels are names of the token file: nothing that a caller sends, and never a
// token.
TEST(PrincipalTest, MetricsCountByAccountOfTheTokenFile) {
  const TempDir dir;
  rpc::ServerOptions server;
  server.token_file =
      dir.Write("tokens",
                "alpha-alpha-alpha-alpha a\nbeta-beta-beta-beta-beta b\n"
                "delta-delta-delta-delta\n");
  const Pair pair = StartPair({}, {}, server);
  const TestOrchestrator& orchestrator = *pair.orchestrator;
  const auto channel = ChannelTo(orchestrator.address(), {});
  const WireClient a(channel, "alpha-alpha-alpha-alpha");
  const WireClient b(channel, "beta-beta-beta-beta-beta");
  const WireClient unnamed(channel, "delta-delta-delta-delta");
  const WireClient stranger(channel, "gamma-gamma-gamma-gamma");
  FORETOKEN_EXPECT_OK(Generate(a, MakeRequest({1, 2, 3}, "off", 5)).status);
  FORETOKEN_EXPECT_OK(Generate(a, MakeRequest({1, 2}, "off", 4)).status);
  FORETOKEN_EXPECT_OK(Generate(unnamed, MakeRequest({1}, "off", 3)).status);
  EXPECT_FALSE(Generate(b, MakeRequest({}, "off", 5)).status.ok());
  EXPECT_EQ(Generate(stranger, MakeRequest({1}, "off", 5)).status.code(),
            absl::StatusCode::kUnauthenticated);
  const auto requests = [&](const std::string& account,
                            const std::string& outcome) {
    return orchestrator.Sample("foretoken_principal_requests_total{outcome=\"" +
                               outcome + "\",principal=\"" + account + "\"}");
  };
  const auto tokens = [&](const std::string& account, const std::string& kind) {
    return orchestrator.Sample("foretoken_principal_tokens_total{kind=\"" +
                               kind + "\",principal=\"" + account + "\"}");
  };
  EXPECT_EQ(requests("a", "served"), 2);
  EXPECT_EQ(tokens("a", "prompt"), 5);
  EXPECT_EQ(tokens("a", "generated"), 9);
  EXPECT_EQ(requests("b", "failed"), 1);
  EXPECT_EQ(requests("b", "served"), 0);
  EXPECT_EQ(requests("other", "served"), 1);
  const std::string page = orchestrator.registry.Text();
  for (const char* secret :
       {"alpha-alpha", "beta-beta", "gamma", "delta", "\"token-"}) {
    EXPECT_THAT(page, ::testing::Not(HasSubstr(secret)));
  }
}

TEST(PrincipalTest, CallersWithoutAnAccountAreOther) {
  const Pair pair = StartPair();
  const TestOrchestrator& orchestrator = *pair.orchestrator;
  FORETOKEN_EXPECT_OK(
      Generate(*orchestrator.client, MakeRequest({1, 2, 3}, "off", 5)).status);
  EXPECT_EQ(orchestrator.Sample("foretoken_principal_requests_total{outcome="
                                "\"served\",principal=\"other\"}"),
            1);
}

// The number of prompt tokens found in the prefix cache tells how much of a
// prompt somebody else has sent in the same scope.
TEST(ScopeTest, ACallerLearnsNothingFromAnothersScope) {
  const TempDir dir;
  TestVerifierOptions verifier;
  verifier.random_model =
      "d_model=32,layers=1,heads=2,kv_heads=2,d_ff=64,vocab=50,"
      "max_positions=4096";
  rpc::ServerOptions server;
  server.token_file =
      dir.Write("tokens", "alpha-alpha-alpha-alpha a\nbeta-beta-beta-beta b\n");
  const Pair pair = StartPair(verifier, {}, server);
  const auto channel = ChannelTo(pair.orchestrator->address(), {});
  const WireClient a(channel, "alpha-alpha-alpha-alpha");
  const WireClient b(channel, "beta-beta-beta-beta");
  v1::GenerateRequest request = MakeRequest(MakePrompt(1, 300, 50), "off", 4);
  request.set_cache_scope("chat");
  const auto cached = [&](const WireClient& client) {
    const Generated got = Generate(client, request);
    EXPECT_THAT(got.status, IsOk());
    return got.result.usage().cached_prompt_tokens();
  };
  EXPECT_EQ(cached(a), 0);
  EXPECT_GE(cached(a), 256);
  EXPECT_EQ(cached(b), 0);
  EXPECT_GE(cached(b), 256);
}

TEST(HealthTest, AnOrchestratorServesOnlyWhileAVerifierIsUp) {
  Pair pair = StartPair();
  TestOrchestrator& orchestrator = *pair.orchestrator;
  const auto channel = ChannelTo(orchestrator.address(), {});
  const auto health = [&] {
    return HealthOf(channel, "foretoken.v1.Generation");
  };
  EXPECT_EQ(health(), kServing);
  EXPECT_EQ(HealthOf(channel, "foretoken.v1.None"), -1);
  pair.verifier->server.reset();
  EXPECT_TRUE(Eventually([&] { return health() == kNotServing; }));
}

TEST(DrainTest, RunningRequestsFinishNewOnesAreRefusedAndHealthSaysSo) {
  const Pair pair = StartPair();
  TestOrchestrator& orchestrator = *pair.orchestrator;
  const auto channel = ChannelTo(orchestrator.address(), {});
  // A drain stops listening at once: this connection is from before.
  EXPECT_EQ(HealthOf(channel, ""), kServing);
  std::promise<void> started;
  std::promise<void> go_on;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  absl::Status first_status;
  std::vector<TokenId> first_tokens;
  std::thread first([&] {
    bool told = false;
    const auto result = orchestrator.client->Generate(
        MakeRequest({1, 2, 3}, "off", 2000), absl::Now() + absl::Minutes(2),
        [&](const v1::GenerateDelta& delta) {
          first_tokens.insert(first_tokens.end(), delta.token_ids().begin(),
                              delta.token_ids().end());
          if (!told) started.set_value();
          told = true;
          may_go_on.wait();
          return true;
        });
    first_status = result.status();
  });
  started.get_future().wait();
  std::future<bool> drained = std::async(std::launch::async, [&] {
    return orchestrator.server->Drain(absl::Minutes(2));
  });
  EXPECT_TRUE(Eventually([&] { return HealthOf(channel, "") == kNotServing; }));
  // Clients that have not noticed yet are served for a moment.
  EXPECT_TRUE(Eventually([&] {
    const absl::Status status =
        Generate(*orchestrator.client, MakeRequest({1}, "off", 2)).status;
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    return !status.ok();
  }));
  go_on.set_value();
  EXPECT_TRUE(drained.get());
  first.join();
  FORETOKEN_EXPECT_OK(first_status);
  EXPECT_EQ(first_tokens.size(), 2000u);
}

TEST(DrainTest, WhatOutlastsTheDeadlineIsEndedAsUnavailable) {
  const Pair pair = StartPair();
  TestOrchestrator& orchestrator = *pair.orchestrator;
  std::promise<void> started;
  std::promise<void> go_on;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  absl::Status status;
  std::thread client([&] {
    bool told = false;
    status = orchestrator.client
                 ->Generate(MakeRequest({1, 2, 3}, "off", 4000),
                            absl::Now() + absl::Minutes(2),
                            [&](const v1::GenerateDelta&) {
                              if (!told) started.set_value();
                              told = true;
                              may_go_on.wait();
                              return true;
                            })
                 .status();
  });
  started.get_future().wait();
  EXPECT_FALSE(orchestrator.server->Drain(absl::Milliseconds(50)));
  go_on.set_value();
  client.join();
  EXPECT_FALSE(status.ok());
  // The verifier's session went with it.
  EXPECT_TRUE(Eventually(
      [&] { return pair.verifier->Sample("foretoken_sessions") == 0; }));
}

TEST(RequestTest, BadRequestsAreRefusedByFieldAndCostNothing) {
  const Pair pair = StartPair();
  const WireClient& client = *pair.orchestrator->client;
  const auto expect = [&](v1::GenerateRequest request, absl::StatusCode code,
                          const char* what) {
    EXPECT_THAT(Generate(client, request).status,
                StatusIs(code, HasSubstr(what)));
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const v1::GenerateRequest good = MakeRequest({1, 2}, "off", 4);
  v1::GenerateRequest bad = good;
  bad.clear_token_ids();
  expect(bad, invalid, "prompt");
  bad = good;
  bad.set_text("hello");
  expect(bad, invalid, "tokenizer");
  bad = MakeRequest({}, "off", 4);
  expect(bad, invalid, "prompt");
  bad = MakeRequest({1, 50}, "off", 4);
  expect(bad, invalid, "50");
  bad = MakeRequest({1, -1}, "off", 4);
  expect(bad, invalid, "-1");
  bad = MakeRequest({1}, "off", 0);
  expect(bad, invalid, "max_tokens");
  bad = MakeRequest({1}, "off", 4096);
  expect(bad, invalid, "4096");
  bad = good;
  bad.mutable_sampling()->set_temperature(-1);
  expect(bad, invalid, "temperature");
  bad = good;
  bad.mutable_sampling()->set_temperature(
      std::numeric_limits<float>::quiet_NaN());
  expect(bad, invalid, "temperature");
  bad = good;
  bad.set_request_id("no spaces");
  expect(bad, invalid, "request_id");
  bad = good;
  bad.add_stop("x");
  expect(bad, invalid, "stop");
  bad = good;
  bad.mutable_speculation()->set_max_tree_nodes(65);
  expect(bad, invalid, "max_tree_nodes");
  bad = MakeRequest({1}, "prompt_lookup", 4);
  bad.mutable_speculation()->mutable_prompt_lookup()->set_max_n(99);
  expect(bad, invalid, "max_n");
  for (const char* mode : {"draft_model", "ouroboros", "crest"}) {
    expect(MakeRequest({1}, mode, 4), absl::StatusCode::kUnimplemented, mode);
  }
  EXPECT_EQ(pair.verifier->Sample("foretoken_passes_total"), 0);
  EXPECT_EQ(pair.orchestrator->Sample("foretoken_requests_running"), 0);
}

TEST(RequestTest, TheLastMessageTellsWhatHappened) {
  const Pair pair = StartPair();
  v1::GenerateRequest request = MakeRequest({1, 2, 3, 1, 2}, "off", 9);
  request.set_request_id("my-request");
  request.mutable_sampling()->set_logprobs(2);
  int logprobs = 0;
  const auto result = pair.orchestrator->client->Generate(
      request, absl::Now() + absl::Minutes(1),
      [&](const v1::GenerateDelta& delta) {
        for (const auto& entry : delta.logprobs()) {
          ++logprobs;
          EXPECT_EQ(entry.top_size(), 2);
        }
        return true;
      });
  FORETOKEN_ASSERT_OK(result);
  EXPECT_EQ(logprobs, 9);
  EXPECT_EQ(result->finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(result->usage().prompt_tokens(), 5);
  EXPECT_EQ(result->usage().completion_tokens(), 9);
  EXPECT_EQ(result->speculation().mode(), "off");
  EXPECT_EQ(result->speculation().rounds(), 8);
  EXPECT_EQ(result->speculation().accept_length(), 1.0);
  EXPECT_EQ(result->request_id(), "my-request");
  EXPECT_THAT(result->prompt_token_ids(),
              ::testing::ElementsAre(1, 2, 3, 1, 2));
  EXPECT_EQ(pair.orchestrator->Sample("foretoken_rounds_total{mode=\"off\"}"),
            8);
  EXPECT_EQ(pair.orchestrator->Sample(
                "foretoken_generation_tokens_total{mode=\"off\"}"),
            9);
  EXPECT_EQ(pair.orchestrator->Sample("foretoken_requests_total{code=\"OK\"}"),
            1);
}

TEST(RequestTest, ATooLargeMessageIsRefusedAndTheServerGoesOn) {
  rpc::ServerOptions small;
  small.max_message_bytes = 4096;
  const Pair pair = StartPair({}, {}, small);
  const WireClient& client = *pair.orchestrator->client;
  const std::vector<TokenId> big(8000, 49);
  EXPECT_EQ(Generate(client, MakeRequest(big, "off", 1)).status.code(),
            absl::StatusCode::kResourceExhausted);
  FORETOKEN_EXPECT_OK(Generate(client, MakeRequest({1}, "off", 1)).status);
}

}  // namespace
}  // namespace foretoken::testing
