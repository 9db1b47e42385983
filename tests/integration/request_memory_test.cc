// The memory budget of an orchestrator, through its listener.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "grpc/compression.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kFloodToken[] = "flood-flood-flood-flood";
constexpr char kOtherToken[] = "other-other-other-other";

class RequestMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    verifier_ = StartVerifier({});
    orchestrator::OrchestratorService config;
    config.verifiers = {verifier_->address()};
    config.server.memory_budget = 64 << 20;  // 24 MiB of it for requests
    config.server.max_prompt_bytes = 1 << 20;
    config.server.grammars.max_constraint_bytes = 64 << 10;
    rpc::ServerOptions rpc;
    rpc.listen = {"127.0.0.1:0"};
    rpc.token_file =
        dir_.Write("tokens", std::string(kFloodToken) + " flood\n" +
                                 kOtherToken + " modest\n");
    orchestrator_ = StartOrchestrator(config, rpc);
    flood_ = Client(kFloodToken);
    other_ = Client(kOtherToken);
    ASSERT_TRUE(
        Eventually([&] { return Generate(*other_, Small()).status.ok(); }));
  }
  std::unique_ptr<WireClient> Client(const char* token) {
    auto channel = rpc::CreateChannel(orchestrator_->address(), {});
    EXPECT_THAT(channel, IsOk());
    return std::make_unique<WireClient>(*channel, token);
  }
  ByteBudget& memory() { return orchestrator_->service->generation().memory(); }

  static v1::GenerateRequest Small() {
    return MakeRequest({1, 2, 3}, "off", 8);
  }
  // The largest prompt, which is beyond every context.
  static v1::GenerateRequest Largest() {
    return MakeRequest(std::vector<TokenId>((1 << 20) / sizeof(TokenId), 5),
                       "off", 8);
  }

  const TempDir dir_;
  std::unique_ptr<TestVerifier> verifier_;
  std::unique_ptr<TestOrchestrator> orchestrator_;
  std::unique_ptr<WireClient> flood_, other_;
};

TEST_F(RequestMemoryTest, WhatDoesNotFitIsRefusedAndOthersAreServed) {
  auto held = memory().Take("flood", 16 << 20);
  FORETOKEN_ASSERT_OK(held);
  const absl::Status refused = Generate(*flood_, Largest()).status;
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("memory for requests")));
  EXPECT_TRUE(rpc::RetryAfter(refused).has_value());
  FORETOKEN_EXPECT_OK(Generate(*other_, Small()).status);
  held->Release();
  EXPECT_THAT(Generate(*flood_, Largest()).status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("maximum context length")));
}

TEST_F(RequestMemoryTest, AFloodKeepsWithinTheBudgetAndLeavesNothingBehind) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      const auto client = Client(kFloodToken);
      for (int i = 0; i < 10; ++i) {
        const absl::Status status = Generate(*client, Largest()).status;
        EXPECT_TRUE(absl::IsResourceExhausted(status) ||
                    absl::IsInvalidArgument(status))
            << status;
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    FORETOKEN_EXPECT_OK(Generate(*other_, Small()).status);
    EXPECT_LE(memory().used(), memory().limit());
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Eventually([&] { return memory().used() == 0; }));
  EXPECT_EQ(orchestrator_->Sample(
                "foretoken_request_memory_bytes{part=\"requests\"}"),
            0);
  EXPECT_EQ(orchestrator_->Sample(
                "foretoken_request_memory_limit_bytes{part=\"requests\"}"),
            static_cast<double>(memory().limit()));
}

// Beyond the limit of any request: refused by gRPC, by its size.
TEST_F(RequestMemoryTest, AMessageLargerThanAnyRequestIsRefusedAtOnce) {
  v1::GenerateRequest request = Small();
  request.set_text(std::string(3 << 20, 'a'));
  EXPECT_THAT(Generate(*other_, request).status,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("larger than max")));
}

// A message of a few kilobytes may be gigabytes once it is inflated, which gRPC
// does before anything is charged.
TEST_F(RequestMemoryTest, CompressedMessagesAreRefusedAndNotInflated) {
  const auto stub = v1::Generation::NewStub(grpc::CreateChannel(
      orchestrator_->address(), grpc::InsecureChannelCredentials()));
  const auto generate = [&](const v1::GenerateRequest& request,
                            grpc_compression_algorithm algorithm) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    rpc::PrepareCall(context, MonotonicNow() + absl::Minutes(1), kOtherToken);
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    return rpc::FromGrpcStatus(reader->Finish());
  };
  v1::GenerateRequest bomb = Small();
  bomb.set_text(std::string(64 << 20, '\0'));
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    for (const v1::GenerateRequest& request : {Small(), Largest(), bomb}) {
      EXPECT_THAT(
          generate(request, algorithm),
          StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("disabled")));
    }
  }
  FORETOKEN_EXPECT_OK(generate(Small(), GRPC_COMPRESS_NONE));
  EXPECT_TRUE(Eventually([&] { return memory().used() == 0; }));
}

}  // namespace
}  // namespace foretoken::testing
