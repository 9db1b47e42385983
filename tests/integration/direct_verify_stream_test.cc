// The verifier's protocol without gRPC: what a caller in the same process sees.
#include "services/local/direct_verify_stream.h"

#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/rpc/convert.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

using local::DirectVerifyStream;
using local::VerifyStream;
using ::testing::_;

v1::VerifyRequest OpenMessage(std::vector<TokenId> tokens) {
  SessionRequest session;
  session.prompt_length = static_cast<int64_t>(tokens.size());
  session.max_length = session.prompt_length + 50;
  session.tokens = std::move(tokens);
  v1::VerifyRequest request;
  rpc::ToProto(session, request.mutable_open());
  return request;
}

v1::VerifyRequest PlainRound(int64_t length) {
  v1::VerifyRequest request;
  RoundRequest round;
  round.length = length;
  rpc::ToProto(round, request.mutable_round());
  return request;
}

class DirectVerifyStreamTest : public ::testing::Test {
 protected:
  std::shared_ptr<VerifyStream> Start(
      absl::Time deadline = absl::InfiniteFuture()) {
    return DirectVerifyStream::Start(*verifier_->service, deadline);
  }
  // Opened and prefilled: it has four tokens.
  std::shared_ptr<VerifyStream> Open() {
    auto stream = Start();
    stream->Send(OpenMessage({1, 2, 3}));
    const auto opened = stream->Receive();
    EXPECT_THAT(opened, IsOk());
    EXPECT_EQ(opened->opened().numerics_fingerprint(), "fake");
    const auto prefilled = stream->Receive();
    EXPECT_THAT(prefilled, IsOk());
    EXPECT_EQ(prefilled->prefilled().committed_length(), 4);
    return stream;
  }
  bool Empty() {
    return Eventually([&] {
      const auto now = verifier_->service->sessions().loop().snapshot();
      return now.sessions == 0 && now.kv.pages_free == now.kv.pages_total &&
             verifier_->service->Idle();
    });
  }

  std::unique_ptr<TestVerifier> verifier_ = StartVerifier({});
};

TEST_F(DirectVerifyStreamTest, RoundsGoBothWaysAndTheStreamEndsWell) {
  auto stream = Open();
  for (int64_t length = 4; length < 10; ++length) {
    stream->Send(PlainRound(length));
    const auto result = stream->Receive();
    FORETOKEN_ASSERT_OK(result);
    EXPECT_EQ(result->result().committed_length(), length + 1);
  }
  EXPECT_FALSE(stream->Receive(absl::Now()).has_value());
  EXPECT_FALSE(stream->done());
  stream->Finish();
  EXPECT_TRUE(stream->done());
  EXPECT_THAT(stream->Receive(), StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_TRUE(Empty());
}

TEST_F(DirectVerifyStreamTest, ACancelFreesTheSessionAndWakesTheReader) {
  auto stream = Open();
  std::thread reader([&] {
    EXPECT_THAT(stream->Receive(), StatusIs(absl::StatusCode::kCancelled, _));
  });
  stream->Cancel();
  reader.join();
  stream->Finish();
  EXPECT_TRUE(Empty());
}

TEST_F(DirectVerifyStreamTest, BadMessagesEndTheStream) {
  auto stream = Start();
  stream->Send(PlainRound(3));
  EXPECT_THAT(stream->Receive(),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  stream = Open();
  stream->Send(PlainRound(17));
  EXPECT_THAT(stream->Receive(),
              StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_TRUE(Empty());
  EXPECT_EQ(verifier_->Sample("foretoken_sessions_failed_total{code="
                              "\"FAILED_PRECONDITION\"}"),
            2);
}

TEST_F(DirectVerifyStreamTest, TheDeadlineEndsAnIdleSession) {
  auto stream = Start(absl::Now() + absl::Milliseconds(50));
  stream->Send(OpenMessage({1, 2, 3}));
  absl::Status last;
  while (last.ok()) last = stream->Receive().status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(last)) << last;
  EXPECT_TRUE(Empty());
}

TEST_F(DirectVerifyStreamTest, ADrainingVerifierTakesNoneAndEndsTheRest) {
  auto stream = Open();
  verifier_->service->BeginDrain();
  auto late = Start();
  late->Send(OpenMessage({1}));
  EXPECT_THAT(late->Receive(), StatusIs(absl::StatusCode::kUnavailable, _));
  late->Finish();
  EXPECT_FALSE(verifier_->service->Idle());
  verifier_->service->EndAll();
  EXPECT_THAT(stream->Receive(), StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_TRUE(Empty());
}

TEST_F(DirectVerifyStreamTest, StreamsCountAgainstTheLimitOfAll) {
  TestVerifierOptions options;
  options.server.streams.max_streams = 1;
  verifier_ = StartVerifier(options);
  auto first = Open();
  auto second = Start();
  const absl::Status full = second->Receive().status();
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  first->Finish();
  Open()->Finish();
  EXPECT_TRUE(Empty());
}

}  // namespace
}  // namespace foretoken::testing
