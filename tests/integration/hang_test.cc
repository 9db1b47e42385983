// An engine whose pass does not end, behind a gRPC server that answers.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/health.h"
#include "common/rpc/status.h"
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

  Gated() {
    TestVerifierOptions options;
    options.fake.before_pass = [this] { gate.Pass(); };
    options.server.sessions.loop.hang_timeout = absl::Milliseconds(300);
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

}  // namespace
}  // namespace foretoken::testing
