// Streams whose constraint takes long to compile.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/verify_client.h"
#include "common/speculation/verify_mailbox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/cluster.h"
#include "tests/support/eventually.h"
#include "tests/support/gate.h"
#include "tests/support/letter_vocabulary.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

using ::testing::_;

// Sessions over gRPC with a verifier whose compilations wait at a gate.
class ConstraintsTest : public ::testing::Test {
 protected:
  struct Caller {
    std::shared_ptr<VerifyMailbox> mailbox = std::make_shared<VerifyMailbox>();
    std::unique_ptr<VerifySession> session;

    absl::Status Prefill() const {
      return mailbox->CollectPrefill(absl::InfiniteFuture()).status();
    }
  };

  ConstraintsTest() {
    TestVerifierOptions options;
    options.engine.vocabulary = LetterVocabulary(options.fake.vocab_size);
    options.server.sessions.constraints.before_compile =
        [this](const Constraint&) { gate_.Pass(); };
    verifier_ = StartVerifier(options);
    peer_ = rpc::MakeVerifyClient(
        {*rpc::CreateChannel(verifier_->address(), {}), {}});
    gate_.Close();
  }
  ~ConstraintsTest() override { gate_.Open(); }

  Caller Open(const std::string& regex) {
    SessionRequest request;
    request.tokens = {1, 2, 3};
    request.prompt_length = 3;
    request.max_length = 50;
    if (!regex.empty()) {
      request.constraint = {Constraint::Kind::kRegex, regex, {}};
      request.sampling.end_tokens = {0};
    }
    Caller caller;
    auto session = peer_->Open(std::move(request), caller.mailbox);
    EXPECT_THAT(session, IsOk());
    if (session.ok()) caller.session = *std::move(session);
    return caller;
  }
  bool Streams(int count) {
    return Eventually(
        [&] { return verifier_->Sample("foretoken_streams") == count; });
  }

  Gate gate_;
  std::unique_ptr<TestVerifier> verifier_;
  std::shared_ptr<VerifierPeer> peer_;
};

TEST_F(ConstraintsTest, TheirCompilationsLeaveGrpcsThreadsToOtherStreams) {
  std::vector<Caller> waiting;
  for (int i = 0; i < 128; ++i) {
    waiting.push_back(Open(absl::StrCat("[ab]{1,", 2 + i, "}")));
  }
  ASSERT_TRUE(Streams(128));
  Caller free = Open("");
  FORETOKEN_EXPECT_OK(free.Prefill());
  EXPECT_TRUE(Eventually([&] { return gate_.waiting() == 1; }));
  gate_.Open();
  for (const Caller& caller : waiting) FORETOKEN_EXPECT_OK(caller.Prefill());
}

TEST_F(ConstraintsTest, AStreamThatIsCancelledMeanwhileEndsAtOnce) {
  std::vector<Caller> waiting;
  for (const char* regex : {"a", "b"}) waiting.push_back(Open(regex));
  ASSERT_TRUE(Streams(2));
  waiting.clear();
  EXPECT_TRUE(Streams(0));
  EXPECT_EQ(verifier_->service->sessions().loop().snapshot().sessions, 0);
  gate_.Open();
  FORETOKEN_EXPECT_OK(Open("c").Prefill());
}

TEST_F(ConstraintsTest, AConstraintThatCannotBeCompiledEndsItsStream) {
  const Caller bad = Open("a(");
  gate_.Open();
  EXPECT_THAT(bad.Prefill(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      ::testing::HasSubstr("constraint: ")));
  EXPECT_TRUE(Streams(0));
}

TEST_F(ConstraintsTest, TheServersEndDoesNotWaitForACompilation) {
  const Caller caller = Open("a");
  ASSERT_TRUE(Streams(1));
  verifier_->service->EndAll();
  EXPECT_THAT(caller.Prefill(), StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_TRUE(Streams(0));
}

}  // namespace
}  // namespace foretoken::testing
