// RequestStream over real gRPC.
#include "common/rpc/request_stream.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "foretoken/v1/generation.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kMaxWireBytes = 1 << 20;

// Answers with the length of the text.
class LengthStream final
    : public RequestStream<v1::TokenizeRequest, v1::TokenizeResponse> {
 public:
  LengthStream(StreamServer& server, ByteBudget& budget)
      : RequestStream(server, budget, "caller", kMaxWireBytes) {}

 private:
  void OnRequest(absl::StatusOr<v1::TokenizeRequest> request) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!request.ok()) {
      End(server_.WithRetryHint(request.status()));
      return;
    }
    v1::TokenizeResponse response;
    response.add_token_ids(static_cast<int32_t>(request->text().size()));
    Send(std::move(response));
    End(absl::OkStatus());
  }
  std::string LogName(const absl::Status&) const override { return ""; }
};

class LengthService final : public v1::Generation::Service, public Servable {
 public:
  LengthService(const StreamOptions& options, int64_t budget)
      : budget_(budget), streams_("the test", options, nullptr) {
    using Handler = grpc::internal::CallbackBidiHandler<grpc::ByteBuffer,
                                                        v1::TokenizeResponse>;
    const auto start = [this](grpc::CallbackServerContext* context) {
      return streams_.Start<LengthStream>(context, budget_);
    };
    MarkMethodStreamed(1, new Handler(start));
    MarkMethodRawCallback(1, new Handler(start));
  }
  grpc::Service* grpc_service() override { return this; }
  std::string health_name() const override { return "foretoken.v1.Generation"; }
  void BeginDrain() override { streams_.BeginDrain(); }
  bool Idle() const override { return streams_.Idle(); }
  void EndAll() override { streams_.EndAll(); }

  ByteBudget& budget() { return budget_; }

 private:
  ByteBudget budget_;
  StreamServer streams_;
};

class RequestStreamTest : public ::testing::Test {
 protected:
  void Start(int64_t budget, const StreamOptions& options = {}) {
    service_ = std::make_unique<LengthService>(options, budget);
    ServerOptions server;
    server.listen = {"127.0.0.1:0"};
    auto started = Server::Start(server, {service_.get()});
    FORETOKEN_ASSERT_OK(started);
    server_ = *std::move(started);
    auto channel = CreateChannel(server_->addresses().at(0), {});
    FORETOKEN_ASSERT_OK(channel);
    channel_ = *std::move(channel);
    stub_ = v1::Generation::NewStub(channel_);
  }
  absl::StatusOr<int> Ask(size_t text_bytes) {
    v1::TokenizeRequest request;
    request.set_text(std::string(text_bytes, 'a'));
    v1::TokenizeResponse response;
    grpc::ClientContext context;
    PrepareCall(context, MonotonicNow() + absl::Minutes(1), "");
    const absl::Status status =
        FromGrpcStatus(stub_->Tokenize(&context, request, &response));
    if (!status.ok()) return status;
    return response.token_ids(0);
  }

  std::unique_ptr<LengthService> service_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

TEST_F(RequestStreamTest, AUnaryClientGetsItsAnswerAndTheChargeEnds) {
  Start(16 << 20);
  EXPECT_EQ(Ask(5).value_or(-1), 5);
  EXPECT_EQ(Ask(500000).value_or(-1), 500000);
  EXPECT_TRUE(Eventually([&] { return service_->budget().used() == 0; }));
}

TEST_F(RequestStreamTest, AMessageThatDoesNotFitIsRefusedWithAHint) {
  Start(16 << 20);
  auto held = service_->budget().Take("caller", 12 << 20);
  held->Resize((12 << 20) - (256 << 10)).IgnoreError();
  EXPECT_EQ(Ask(5).value_or(-1), 5);
  const auto refused = Ask(500000);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("memory for requests")));
  EXPECT_TRUE(RetryAfter(refused.status()).has_value());
  held->Release();
  EXPECT_EQ(Ask(500000).value_or(-1), 500000);
}

TEST_F(RequestStreamTest, AMessageThatCannotBeValidIsRefusedUnparsed) {
  Start(64 << 20);
  EXPECT_THAT(Ask(kMaxWireBytes), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("want at most 1048576")));
}

// A call through the asynchronous API, step by step.
class ManualCall {
 public:
  explicit ManualCall(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(channel),
        call_(stub_.PrepareCall(&context_, "/foretoken.v1.Generation/Tokenize",
                                &queue_)) {
    call_->StartCall(this);
    Wait();
  }
  ~ManualCall() {
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  void Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), {}, this);
    Wait();
  }
  void HalfClose() {
    call_->WritesDone(this);
    Wait();
  }
  absl::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
    return FromGrpcStatus(status);
  }

 private:
  void Wait() {
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST_F(RequestStreamTest, ACallThatSendsNothingIsClosed) {
  StreamOptions options;
  options.first_message_time = absl::Milliseconds(20);
  Start(16 << 20, options);
  EXPECT_THAT(ManualCall(channel_).Finish(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no message within 20ms")));
  EXPECT_TRUE(Eventually([&] { return service_->budget().used() == 0; }));
}

TEST_F(RequestStreamTest, CallsThatSendNothingAreBoundedByTheBudget) {
  Start(1 << 20);
  std::vector<std::unique_ptr<ManualCall>> silent;
  for (int i = 0; i < 9; ++i) {
    silent.push_back(std::make_unique<ManualCall>(channel_));
  }
  ASSERT_TRUE(
      Eventually([&] { return service_->budget().used() >= 9 * (80 << 10); }));
  EXPECT_THAT(Ask(1), StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("by this caller")));
}

TEST_F(RequestStreamTest, ACallWithoutARequestIsAnError) {
  Start(16 << 20);
  ManualCall call(channel_);
  call.HalfClose();
  EXPECT_THAT(call.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("no request")));
}

TEST_F(RequestStreamTest, AMalformedRequestIsAnError) {
  Start(16 << 20);
  ManualCall call(channel_);
  call.Send("\x0a\x7fshort");
  EXPECT_THAT(call.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("malformed")));
}

}  // namespace
}  // namespace foretoken::rpc
