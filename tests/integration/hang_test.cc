// An engine whose pass does not end, behind a gRPC server that answers.
#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/rpc/health.h"
#include "common/rpc/status.h"
#include "common/rpc/verify_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/gate.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

// A verifier whose passes wait at a gate.
struct Gated {
  Gate gate;
  std::unique_ptr<TestVerifier> verifier;

  // `hang_timeout`: after which it says itself that it hangs.
  explicit Gated(absl::Duration hang_timeout = absl::Milliseconds(300)) {
    TestVerifierOptions options;
    options.fake.before_pass = [this] { gate.Pass(); };
    options.server.sessions.loop.hang_timeout = hang_timeout;
    options.engine.idle_time = absl::Milliseconds(50);
    verifier = StartVerifier(options);
  }
  ~Gated() { gate.Open(); }

  std::shared_ptr<grpc::Channel> Channel() const {
    return *rpc::CreateChannel(verifier->address(), {});
  }
  bool Serves() const {
    const auto serving = rpc::IsServing(Channel(), "foretoken.v1.Verifier",
                                        MonotonicNow() + absl::Minutes(1));
    return serving.ok() && *serving;
  }
  absl::Status InfoStatus() const {
    const auto stub = v1::Verifier::NewStub(Channel());
    grpc::ClientContext context;
    rpc::PrepareCall(context, MonotonicNow() + absl::Minutes(1), "");
    v1::GetVerifierInfoResponse response;
    return rpc::FromGrpcStatus(stub->GetVerifierInfo(&context, {}, &response));
  }
};

TEST(HangTest, AVerifierSaysSoUntilItsPassHasEnded) {
  Gated one;
  EXPECT_TRUE(one.Serves());
  const auto stub = v1::Verifier::NewStub(one.Channel());
  grpc::ClientContext context;
  const auto session = stub->Verify(&context);
  v1::VerifyRequest open;
  open.mutable_open()->add_token_ids(1);
  open.mutable_open()->set_prompt_length(1);
  open.mutable_open()->set_max_length(9);
  one.gate.Close();
  ASSERT_TRUE(session->Write(open));
  EXPECT_TRUE(Eventually([&] { return !one.Serves(); }));
  EXPECT_EQ(one.gate.waiting(), 1);
  EXPECT_EQ(one.InfoStatus().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(one.verifier->Sample("foretoken_engine_hangs"), 1);
  one.gate.Open();
  EXPECT_TRUE(Eventually([&] { return one.Serves(); }));
  EXPECT_EQ(one.verifier->Sample("foretoken_engine_hangs"), 0);
  EXPECT_TRUE(Eventually([&] { return one.InfoStatus().ok(); }));
  v1::VerifyResponse response;
  EXPECT_TRUE(session->Read(&response));
  session->WritesDone();
  while (session->Read(&response)) {
  }
  EXPECT_TRUE(session->Finish().ok());
}

TEST(HangTest, AStreamMovesOnToAVerifierThatWorks) {
  Gated verifiers[2];
  orchestrator::OrchestratorService config;
  config.verifiers = {verifiers[0].verifier->address(),
                      verifiers[1].verifier->address()};
  const auto orchestrator = StartOrchestrator(config);
  const v1::GenerateRequest request = MakeRequest({1, 2, 3}, "off", 2000);
  const Generated want = Generate(*orchestrator->client, request);
  FORETOKEN_ASSERT_OK(want.status);

  const auto idle = [&] {
    for (const Gated& one : verifiers) {
      if (one.verifier->Sample("foretoken_streams") != 0) return false;
    }
    return true;
  };
  ASSERT_TRUE(Eventually(idle));
  std::vector<TokenId> got;
  Gated* hung = nullptr;
  const auto result = orchestrator->client->Generate(
      request, MonotonicNow() + absl::Minutes(2),
      [&](const v1::GenerateDelta& delta) {
        got.insert(got.end(), delta.token_ids().begin(),
                   delta.token_ids().end());
        for (Gated& one : verifiers) {
          if (hung != nullptr || one.verifier->Sample("foretoken_streams") == 0)
            continue;
          hung = &one;
          one.gate.Close();
        }
        return true;
      });
  FORETOKEN_EXPECT_OK(result);
  EXPECT_EQ(got, want.tokens);
  ASSERT_NE(hung, nullptr);
  EXPECT_EQ(hung->gate.waiting(), 1);
}

std::vector<TokenId> Reference(const TestVerifier& verifier,
                               const v1::GenerateRequest& request) {
  orchestrator::OrchestratorService config;
  config.verifiers = {verifier.address()};
  const auto orchestrator = StartOrchestrator(config);
  const Generated got = Generate(*orchestrator->client, request);
  FORETOKEN_EXPECT_OK(got.status);
  return got.tokens;
}

TEST(HangTest, AVerifierTellsHowManyPassesHaveEnded) {
  TestVerifierOptions options;
  options.engine.idle_time = absl::Seconds(7);
  const auto verifier = StartVerifier(options);
  const auto peer =
      rpc::MakeVerifyClient({*rpc::CreateChannel(verifier->address(), {}), {}});
  const auto passes = [&] {
    std::promise<VerifierInfo> told;
    peer->GetInfo(
        MonotonicNow() + absl::Minutes(1),
        [&](absl::StatusOr<VerifierInfo> info) { told.set_value(*info); });
    const VerifierInfo info = told.get_future().get();
    EXPECT_GE(info.silence_limit, absl::Seconds(14));
    return info.passes.value_or(-1);
  };
  const int64_t before = passes();
  EXPECT_GE(before, 0);
  Reference(*verifier, MakeRequest({1, 2, 3}, "off", 5));
  EXPECT_TRUE(Eventually([&] { return passes() == before + 5; }));
}

// Describes itself as another verifier does, opens sessions and says no more.
class SilentVerifier final : public v1::Verifier::Service {
 public:
  explicit SilentVerifier(const TestVerifier& like) {
    const auto stub =
        v1::Verifier::NewStub(*rpc::CreateChannel(like.address(), {}));
    grpc::ClientContext context;
    rpc::PrepareCall(context, MonotonicNow() + absl::Minutes(1), "");
    EXPECT_TRUE(stub->GetVerifierInfo(&context, {}, &info_).ok());
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~SilentVerifier() override {
    server_->Shutdown(absl::ToChronoTime(absl::Now()));
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int opened() const { return opened_; }

 private:
  grpc::Status GetVerifierInfo(grpc::ServerContext*,
                               const v1::GetVerifierInfoRequest*,
                               v1::GetVerifierInfoResponse* response) override {
    *response = info_;
    return grpc::Status::OK;
  }
  grpc::Status Verify(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::VerifyResponse, v1::VerifyRequest>* stream)
      override {
    v1::VerifyRequest request;
    while (stream->Read(&request)) {
      if (!request.has_open()) continue;
      ++opened_;
      v1::VerifyResponse response;
      response.mutable_opened()->set_numerics_fingerprint(
          info_.numerics_fingerprint());
      stream->Write(response);
    }
    return grpc::Status::CANCELLED;
  }

  v1::GetVerifierInfoResponse info_;
  int port_ = 0;
  std::atomic<int> opened_{0};
  std::unique_ptr<grpc::Server> server_;
};

// Runs `count` requests at once and checks the output of each.
void RunAll(const TestOrchestrator& orchestrator, int count,
            const std::vector<TokenId>& want,
            const v1::GenerateRequest& request) {
  std::vector<std::thread> clients;
  for (int i = 0; i < count; ++i) {
    clients.emplace_back([&] {
      const Generated got = Generate(*orchestrator.client, request);
      FORETOKEN_EXPECT_OK(got.status);
      EXPECT_EQ(got.tokens, want);
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST(HangTest, SessionsLeaveAVerifierThatOpensThemAndSaysNoMore) {
  Gated works;
  const v1::GenerateRequest request = MakeRequest({1, 2, 3}, "off", 100);
  const std::vector<TokenId> want = Reference(*works.verifier, request);
  SilentVerifier silent(*works.verifier);
  orchestrator::OrchestratorService config;
  config.verifiers = {works.verifier->address(), silent.address()};
  config.pool.least_silence = absl::Seconds(1);
  const auto orchestrator = StartOrchestrator(config);
  RunAll(*orchestrator, 20, want, request);
  EXPECT_GE(silent.opened(), 1);
}

TEST(HangTest, SessionsLeaveAVerifierWhoseEngineStandsStill) {
  // Neither says that it hangs.
  Gated verifiers[2] = {Gated(absl::Hours(1)), Gated(absl::Hours(1))};
  const v1::GenerateRequest request = MakeRequest({1, 2, 3}, "off", 100);
  const std::vector<TokenId> want = Reference(*verifiers[0].verifier, request);
  orchestrator::OrchestratorService config;
  config.verifiers = {verifiers[0].verifier->address(),
                      verifiers[1].verifier->address()};
  config.pool.least_silence = absl::Seconds(1);
  const auto orchestrator = StartOrchestrator(config);
  verifiers[0].gate.Close();
  RunAll(*orchestrator, 20, want, request);
  EXPECT_EQ(verifiers[0].gate.waiting(), 1);
  // It is used again once it works.
  verifiers[0].gate.Open();
  verifiers[1].verifier->server.reset();
  RunAll(*orchestrator, 1, want, request);
}

}  // namespace
}  // namespace foretoken::testing
