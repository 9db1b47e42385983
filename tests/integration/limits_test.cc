// A verifier's limits, as a client of its own protocol meets them.
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kPrompt = 3;

// One Verify stream, message by message.
class Session {
 public:
  explicit Session(v1::Verifier::Stub& stub,
                   absl::Duration timeout = absl::Minutes(2)) {
    rpc::PrepareCall(context_, absl::Now() + timeout, "");
    stream_ = stub.Verify(&context_);
  }
  bool Open(int max_tokens) {
    v1::VerifyRequest message;
    v1::OpenSession& open = *message.mutable_open();
    for (int i = 0; i < kPrompt; ++i) open.add_token_ids(i + 1);
    open.set_prompt_length(kPrompt);
    open.set_max_length(kPrompt + max_tokens);
    return stream_->Write(message);
  }
  bool Read(v1::VerifyResponse* response) { return stream_->Read(response); }
  // Whether the first token has come.
  bool Prefilled() {
    v1::VerifyResponse response;
    return Read(&response) && response.has_opened() && Read(&response) &&
           response.has_prefilled();
  }
  bool Write(const v1::VerifyRequest& message) {
    return stream_->Write(message);
  }
  absl::Status Finish() {
    v1::VerifyResponse response;
    while (Read(&response)) {
    }
    return rpc::FromGrpcStatus(stream_->Finish());
  }
  void HalfClose() { stream_->WritesDone(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::VerifyRequest, v1::VerifyResponse>>
      stream_;
};

class LimitsTest : public ::testing::Test {
 protected:
  void Start(TestVerifierOptions options) {
    verifier_ = StartVerifier(std::move(options));
    auto channel = rpc::CreateChannel(verifier_->address(), {});
    FORETOKEN_CHECK(channel.ok());
    stub_ = v1::Verifier::NewStub(*channel);
  }
  // Nothing is held for anybody.
  bool Empty() {
    return Eventually([&] {
      return verifier_->Sample("foretoken_sessions") == 0 &&
             verifier_->Sample("foretoken_streams") == 0 &&
             verifier_->Sample("foretoken_kv_pages_free") ==
                 verifier_->Sample("foretoken_kv_pages");
    });
  }

  std::unique_ptr<TestVerifier> verifier_;
  std::unique_ptr<v1::Verifier::Stub> stub_;
};

TEST_F(LimitsTest, AStreamThatSaysNothingIsEnded) {
  TestVerifierOptions options;
  options.server.streams.first_message_time = absl::Milliseconds(20);
  Start(options);
  Session silent(*stub_);
  EXPECT_THAT(silent.Finish(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                        HasSubstr("no message within 20ms")));
  EXPECT_TRUE(Empty());
}

TEST_F(LimitsTest, NoSessionOpensWhileDrainingOnAnOlderStreamEither) {
  Start({});
  Session older(*stub_);
  ASSERT_TRUE(
      Eventually([&] { return verifier_->Sample("foretoken_streams") == 1; }));
  verifier_->service->BeginDrain();
  ASSERT_TRUE(older.Open(5));
  EXPECT_THAT(older.Finish(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  EXPECT_TRUE(Empty());
}

TEST_F(LimitsTest, StreamsBeyondTheLimitAreRefusedWithAHint) {
  TestVerifierOptions options;
  options.server.streams.max_streams = 1;
  options.server.streams.retry_after = absl::Milliseconds(750);
  Start(options);
  Session first(*stub_);
  ASSERT_TRUE(first.Open(5));
  ASSERT_TRUE(first.Prefilled());
  const absl::Status refused = Session(*stub_).Finish();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("all 1 streams")));
  EXPECT_EQ(rpc::RetryAfter(refused), absl::Milliseconds(750));
  first.HalfClose();
  FORETOKEN_EXPECT_OK(first.Finish());
  EXPECT_TRUE(Empty());
}

TEST_F(LimitsTest, SessionsBeyondTheLimitAreRefusedWithAHint) {
  TestVerifierOptions options;
  options.engine.max_sessions = 1;
  Start(options);
  Session first(*stub_);
  ASSERT_TRUE(first.Open(5));
  ASSERT_TRUE(first.Prefilled());
  Session second(*stub_);
  second.Open(5);
  const absl::Status refused = second.Finish();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("all 1 sessions")));
  EXPECT_EQ(rpc::RetryAfter(refused), absl::Milliseconds(100));
  first.HalfClose();
  FORETOKEN_EXPECT_OK(first.Finish());
  EXPECT_TRUE(Empty());
}

TEST_F(LimitsTest, ADeadlineFreesASessionThatIsLeftIdle) {
  Start({});
  Session session(*stub_, absl::Milliseconds(700));
  ASSERT_TRUE(session.Open(5));
  // On a busy machine the deadline may come before the first token.
  session.Prefilled();
  EXPECT_THAT(session.Finish(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("")));
  EXPECT_TRUE(Empty());
}

// Rounds of probes alone commit one token each, so that a client knows the next
// length without reading a single answer.
v1::VerifyRequest WideRound(int round) {
  constexpr int kProbes = 320;
  v1::VerifyRequest message;
  message.mutable_round()->set_committed_length(kPrompt + 1 + round);
  message.mutable_round()->set_top_candidates(8);
  v1::TokenTree& tree = *message.mutable_round()->mutable_tree();
  for (int node = 0; node < kProbes; ++node) {
    tree.add_tokens(node % 50);
    tree.add_parents(-1);
    tree.add_probes(node);
  }
  return message;
}

TEST_F(LimitsTest, AClientThatReadsNothingIsNotServedWithoutEnd) {
  constexpr int kRounds = 400;  // their answers: about 12 MB
  TestVerifierOptions options;
  options.fake.max_rows = 512;
  Start(options);
  Session session(*stub_);
  ASSERT_TRUE(session.Open(2000));
  ASSERT_TRUE(session.Prefilled());
  // Rounds: the passes after that of the prompt, which counts a moment late.
  const auto served = [&] {
    return verifier_->Sample("foretoken_passes_total") - 1;
  };
  ASSERT_TRUE(Eventually([&] { return served() == 0; }));
  int sent = 0;
  while (sent < kRounds) {
    ASSERT_TRUE(session.Write(WideRound(sent)));
    ++sent;
    // Given up on after two seconds in which nothing was served.
    const absl::Time patience = absl::Now() + absl::Seconds(2);
    while (served() < sent && absl::Now() < patience) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    if (served() < sent) break;
  }
  EXPECT_LT(sent, kRounds) << "every answer was kept for a client that is deaf";
  // Once it reads, everything it asked for comes, in order.
  for (int round = 0; round < sent; ++round) {
    v1::VerifyResponse response;
    ASSERT_TRUE(session.Read(&response));
    EXPECT_EQ(response.result().committed_length(), kPrompt + 2 + round);
  }
  session.HalfClose();
  FORETOKEN_EXPECT_OK(session.Finish());
  EXPECT_EQ(served(), sent);
  EXPECT_TRUE(Empty());
}

}  // namespace
}  // namespace foretoken::testing
