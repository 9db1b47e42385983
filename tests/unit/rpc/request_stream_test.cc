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
  LengthStream(StreamServer& server, ByteBudget& budget, SilentCalls& silent)
      : RequestStream(server, budget, silent, "caller", kMaxWireBytes) {}

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
  LengthService(const StreamOptions& options, int64_t budget,
                absl::Duration grace)
      : budget_(budget),
        silent_(budget_, grace),
        streams_("the test", options, nullptr) {
    using Handler = grpc::internal::CallbackBidiHandler<grpc::ByteBuffer,
                                                        v1::TokenizeResponse>;
    const auto start = [this](grpc::CallbackServerContext* context) {
      return streams_.Start<LengthStream>(context, budget_, silent_);
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
  SilentCalls silent_;
  StreamServer streams_;
};

class RequestStreamTest : public ::testing::Test {
 protected:
  // `grace`: time for which a call may be silent.
  void Start(int64_t budget, const StreamOptions& options = {},
             absl::Duration grace = absl::Hours(1)) {
    service_ = std::make_unique<LengthService>(options, budget, grace);
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

// As many calls without a message as one caller may have at 16 KiB each.
class SilentCallers {
 public:
  SilentCallers(const std::shared_ptr<grpc::Channel>& channel,
                const ByteBudget& budget) {
    for (int64_t i = 1; i <= budget.max_share() / kCallBytes; ++i) {
      calls_.push_back(std::make_unique<ManualCall>(channel));
      EXPECT_TRUE(Eventually([&] { return budget.used() == i * kCallBytes; }));
    }
  }
  ManualCall& oldest() { return *calls_.front(); }
  ManualCall& newest() { return *calls_.back(); }

 private:
  static constexpr int64_t kCallBytes = 16 << 10;
  std::vector<std::unique_ptr<ManualCall>> calls_;
};

TEST_F(RequestStreamTest, CallsThatSendNothingAreBoundedByTheBudget) {
  Start(1 << 20);
  const SilentCallers silent(channel_, service_->budget());
  EXPECT_THAT(Ask(1), StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("by this caller")));
}

TEST_F(RequestStreamTest, TheOldestCallThatSendsNothingMakesRoomForARequest) {
  Start(1 << 20, {}, /*grace=*/absl::ZeroDuration());
  SilentCallers silent(channel_, service_->budget());
  EXPECT_EQ(Ask(1).value_or(-1), 1);
  EXPECT_THAT(silent.oldest().Finish(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("had sent no request")));
  silent.newest().HalfClose();
  EXPECT_THAT(
      silent.newest().Finish(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no request")));
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
