// What a client's session learns of a call that the server resets.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/stopping.h"
#include "common/rpc/verify_client.h"
#include "common/speculation/verify_mailbox.h"
#include "foretoken/v1/verifier.grpc.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"

namespace foretoken::rpc {
namespace {

// Ends every stream as gRPC does when the deadline passes or it shuts down.
class ResettingVerifier final : public v1::Verifier::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::VerifyRequest, v1::VerifyResponse>* Verify(
      grpc::CallbackServerContext*) override {
    class Reactor final : public grpc::ServerBidiReactor<v1::VerifyRequest,
                                                         v1::VerifyResponse> {
     public:
      Reactor() { Finish({grpc::StatusCode::CANCELLED, "reset"}); }
      void OnDone() override { delete this; }
    };
    return new Reactor();
  }
};

class CallStatusTest : public ::testing::Test {
 protected:
  CallStatusTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    client_ = MakeVerifyClient(
        {grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                             grpc::InsecureChannelCredentials()),
         BearerToken()});
  }

  absl::Status StatusWith(absl::Duration time) {
    SessionRequest request;
    request.tokens = {1};
    request.deadline = MonotonicNow() + time;
    const auto mailbox = std::make_shared<VerifyMailbox>();
    const auto session = client_->Open(std::move(request), mailbox);
    if (!session.ok()) return session.status();
    return mailbox->CollectPrefill(MonotonicNow() + absl::Minutes(1)).status();
  }

  ResettingVerifier service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<VerifierPeer> client_;
};

TEST_F(CallStatusTest, AResetLongBeforeTheDeadlineIsAStop) {
  const absl::Status status = StatusWith(absl::Minutes(5));
  EXPECT_TRUE(IsStopping(status)) << status;
}

TEST_F(CallStatusTest, AResetCloseToTheDeadlineIsTheDeadline) {
  const absl::Status status = StatusWith(absl::Milliseconds(80));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

}  // namespace
}  // namespace foretoken::rpc
