// StreamServer over real gRPC, with a handler that does what messages ask for.
#include "common/rpc/stream_server.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/stopping.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "foretoken/v1/crest.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::HasSubstr;

struct Seen final : public StreamObserver {
  void OnStreams(int open) override { streams = open; }
  void OnFailed(absl::StatusCode) override { ++failed; }

  std::atomic<int> streams{0};
  std::atomic<int> failed{0};
  std::atomic<int> messages{0};
  std::atomic<int> ends{0};
  std::atomic<int> drains{0};
  absl::Notification may_finish;
  // If set, OnClosed releases mu_ until may_close, after notifying closing.
  bool hold_close = false;
  absl::Notification closing, may_close;
  absl::Duration hold;  // of the action "hold"
};

constexpr int kAnswersBeforeEnd = 4;

// Answers every message with its sequence number and max_nodes tokens; then
// does what `datastore` names.
class EchoStream final
    : public BidiStream<v1::CrestLookupRequest, v1::CrestLookupResponse> {
 public:
  EchoStream(StreamServer& server, Seen& seen)
      : BidiStream(server), seen_(seen) {}

 private:
  void OnMessage(v1::CrestLookupRequest& request) override {
    ++seen_.messages;
    v1::CrestLookupResponse response;
    response.set_sequence(request.sequence());
    response.mutable_tree()->mutable_tokens()->Resize(request.max_nodes(), 7);
    const bool end = request.datastore() == "end";
    const bool end_after_sends = request.datastore() == "end_after_sends";
    // No write completes while this holds mu_: all answers but the first wait.
    for (int i = 1; (end || end_after_sends) && i < kAnswersBeforeEnd; ++i) {
      Send(v1::CrestLookupResponse(response));
    }
    Send(std::move(response));
    const absl::Status error = absl::InvalidArgumentError("as asked");
    if (end) End(error);
    if (end_after_sends) EndAfterSends(error);
    if (request.datastore() == "hold") {
      HoldFinish(seen_.hold);
      End(absl::ResourceExhaustedError("refused late"));
    }
    if (request.datastore() == "work") {
      working_ = true;
      std::thread([this, self = shared_from_this()] {
        seen_.may_finish.WaitForNotification();
        absl::MutexLock lock(&mu_);
        working_ = false;
        Continue();
      }).detach();
    }
  }
  void OnClosed(const absl::Status&) override {
    ++seen_.ends;
    if (!seen_.hold_close) return;
    mu_.Unlock();
    seen_.closing.Notify();
    seen_.may_close.WaitForNotification();
    mu_.Lock();
  }
  void OnDrain() override { ++seen_.drains; }
  bool CanFinish() const override { return !working_; }
  std::string LogName(const absl::Status&) const override { return "echo"; }

  Seen& seen_;
  bool working_ = false;
};

class EchoService final : public v1::Crest::CallbackService, public Servable {
 public:
  explicit EchoService(const StreamOptions& options)
      : streams_("the echo", options, &seen_) {}
  EchoStream* Lookup(grpc::CallbackServerContext* context) override {
    return streams_.Start<EchoStream>(context, seen_);
  }
  grpc::Service* grpc_service() override { return this; }
  std::string health_name() const override { return "foretoken.v1.Crest"; }
  void BeginDrain() override { streams_.BeginDrain(); }
  bool Idle() const override { return streams_.Idle(); }
  void EndAll() override { streams_.EndAll(); }

  Seen seen_;
  StreamServer streams_;
};

class EchoClient {
 public:
  explicit EchoClient(v1::Crest::Stub& stub,
                      absl::Time deadline = absl::InfiniteFuture()) {
    PrepareCall(context_, deadline, /*token=*/"");
    stream_ = stub.Lookup(&context_);
  }
  ~EchoClient() {
    context_.TryCancel();
    if (!finished_) stream_->Finish();
  }

  bool Ask(int sequence, const std::string& action = "", int tokens = 0) {
    v1::CrestLookupRequest request;
    request.set_sequence(sequence);
    request.set_datastore(action);
    request.set_max_nodes(tokens);
    return stream_->Write(request);
  }
  // The sequence of the next answer; -1: there is none.
  int Answer() {
    v1::CrestLookupResponse response;
    return stream_->Read(&response) ? static_cast<int>(response.sequence())
                                    : -1;
  }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  absl::Status Finish() {
    finished_ = true;
    return FromGrpcStatus(stream_->Finish());
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::CrestLookupRequest, v1::CrestLookupResponse>>
      stream_;
  bool finished_ = false;
};

class StreamServerTest : public ::testing::Test {
 protected:
  void Start(const StreamOptions& options = {}) {
    service_ = std::make_unique<EchoService>(options);
    ServerOptions listen;
    listen.listen = {"127.0.0.1:0"};
    auto server = Server::Start(listen, {service_.get()});
    FORETOKEN_ASSERT_OK(server);
    server_ = *std::move(server);
    stub_ = v1::Crest::NewStub(*CreateChannel(server_->addresses().at(0), {}));
  }
  Seen& seen() { return service_->seen_; }
  bool IsIdle() {
    return Eventually([&] { return service_->Idle(); }) && seen().streams == 0;
  }

  std::unique_ptr<EchoService> service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::Crest::Stub> stub_;
};

TEST_F(StreamServerTest, AnswersComeInOrderAndAHalfCloseEndsBehindThem) {
  Start();
  EchoClient client(*stub_);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.Ask(i));
  client.HalfClose();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.Answer(), i);
  EXPECT_EQ(client.Answer(), -1);
  EXPECT_THAT(client.Finish(), IsOk());
  EXPECT_TRUE(IsIdle());
  EXPECT_EQ(seen().ends, 1);
  EXPECT_EQ(seen().failed, 0);
}

// Answers that fill the connection's window, so that writes do not complete.
constexpr int kBig = 1 << 20;

TEST_F(StreamServerTest, AClientThatReadsNoAnswersIsNotReadWithoutEnd) {
  Start();
  EchoClient client(*stub_);
  constexpr int kAsked = 40;
  for (int i = 0; i < kAsked; ++i) ASSERT_TRUE(client.Ask(i, "", kBig));
  ASSERT_TRUE(Eventually([&] { return seen().messages >= 4; }));
  absl::SleepFor(absl::Milliseconds(100));  // more may come, but not all
  EXPECT_LT(seen().messages, kAsked / 2);
  client.HalfClose();
  for (int i = 0; i < kAsked; ++i) EXPECT_EQ(client.Answer(), i);
  EXPECT_THAT(client.Finish(), IsOk());
}

TEST_F(StreamServerTest, AClientThatTakesNothingIsCancelled) {
  StreamOptions options;
  options.stall_timeout = absl::Milliseconds(200);
  Start(options);
  EchoClient stalled(*stub_);
  for (int i = 0; i < 40 && stalled.Ask(i, "", kBig); ++i) {
  }
  ASSERT_TRUE(Eventually([&] { return seen().messages >= 1; }));
  EXPECT_TRUE(IsIdle());
  EXPECT_EQ(seen().ends, 1);
  EXPECT_EQ(seen().failed, 1);
}

// OnClosed may release the lock, and the call may then be over before OnClosed
// returns: the sanitizers see what is used afterwards.
TEST_F(StreamServerTest, AStalledCallMayEndWhileItsHandlerCloses) {
  StreamOptions options;
  options.stall_timeout = absl::Milliseconds(200);
  Start(options);
  seen().hold_close = true;
  {
    EchoClient stalled(*stub_);
    for (int i = 0; i < 40 && stalled.Ask(i, "", kBig); ++i) {
    }
    seen().closing.WaitForNotification();
    stalled.Cancel();
    stalled.Finish().IgnoreError();
  }
  EXPECT_TRUE(IsIdle());
  absl::SleepFor(absl::Milliseconds(100));  // gRPC frees the call
  seen().may_close.Notify();
  EXPECT_TRUE(Eventually([&] { return seen().ends == 1; }));
}

// Silence is no stall: it owes no answer.
TEST_F(StreamServerTest, AClientThatReadsIsKeptHoweverLongItPauses) {
  StreamOptions options;
  options.stall_timeout = absl::Milliseconds(500);
  Start(options);
  EchoClient client(*stub_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Ask(i));
    EXPECT_EQ(client.Answer(), i);
    absl::SleepFor(1.5 * options.stall_timeout);
  }
  client.HalfClose();
  EXPECT_EQ(client.Answer(), -1);
  EXPECT_THAT(client.Finish(), IsOk());
}

TEST_F(StreamServerTest, AnErrorDoesNotWaitForAnswersUnlessTold) {
  Start();
  for (const std::string action : {"end", "end_after_sends"}) {
    EchoClient client(*stub_);
    ASSERT_TRUE(client.Ask(1, action));
    int answers = 0;
    while (client.Answer() >= 0) ++answers;
    EXPECT_THAT(client.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("as asked")));
    EXPECT_EQ(answers, action == "end" ? 1 : kAnswersBeforeEnd);
    EXPECT_TRUE(IsIdle());
  }
  EXPECT_EQ(seen().failed, 2);
  EXPECT_EQ(seen().ends, 2);
}

TEST_F(StreamServerTest, AnEndedStreamFinishesOnceItsWorkHasReturned) {
  Start();
  EchoClient client(*stub_);
  ASSERT_TRUE(client.Ask(1, "work"));
  EXPECT_EQ(client.Answer(), 1);
  client.Cancel();
  EXPECT_TRUE(Eventually([&] { return seen().ends == 1; }));
  EXPECT_FALSE(service_->Idle());
  seen().may_finish.Notify();
  EXPECT_TRUE(IsIdle());
  EXPECT_EQ(seen().ends, 1);
}

// A hold that no test waits for.
constexpr absl::Duration kLongHold = absl::Minutes(10);

// Sends the message that ends the client's stream with a hold, and returns once
// it has ended.
void AskForHold(EchoClient& client, const Seen& seen) {
  ASSERT_TRUE(client.Ask(1, "hold"));
  EXPECT_EQ(client.Answer(), 1);
  ASSERT_TRUE(Eventually([&] { return seen.ends == 1; }));
}

auto IsRefusedLate() {
  return StatusIs(absl::StatusCode::kResourceExhausted,
                  HasSubstr("refused late"));
}

TEST_F(StreamServerTest, AHeldStreamFinishesLateWithItsStatus) {
  Start();
  seen().hold = absl::Milliseconds(300);
  EchoClient client(*stub_);
  const absl::Time asked = MonotonicNow();
  AskForHold(client, seen());
  EXPECT_THAT(client.Finish(), IsRefusedLate());
  // gRPC rounds the times of its alarms.
  EXPECT_GE(MonotonicNow() - asked, 0.9 * seen().hold);
  EXPECT_TRUE(IsIdle());
  EXPECT_EQ(seen().ends, 1);
  EXPECT_EQ(seen().failed, 1);
}

TEST_F(StreamServerTest, AHeldStreamWhoseClientLeavesFinishesAtOnce) {
  Start();
  seen().hold = kLongHold;
  EchoClient client(*stub_);
  AskForHold(client, seen());
  EXPECT_FALSE(service_->Idle());
  client.Cancel();
  EXPECT_TRUE(IsIdle());
  EXPECT_EQ(seen().ends, 1);
}

TEST_F(StreamServerTest, EndAllFinishesAHeldStreamAtOnce) {
  Start();
  seen().hold = kLongHold;
  EchoClient client(*stub_);
  AskForHold(client, seen());
  EXPECT_FALSE(service_->Idle());
  const absl::Time stopped = MonotonicNow();
  service_->EndAll();
  EXPECT_THAT(client.Finish(), IsRefusedLate());
  EXPECT_LT(MonotonicNow() - stopped, kLongHold / 2);
  EXPECT_TRUE(IsIdle());
}

TEST_F(StreamServerTest, AHoldEndsInTimeForTheCallsDeadline) {
  Start();
  seen().hold = kLongHold;
  EchoClient client(*stub_, MonotonicNow() + absl::Seconds(3));
  AskForHold(client, seen());
  EXPECT_THAT(client.Finish(), IsRefusedLate());
  EXPECT_TRUE(IsIdle());
}

TEST_F(StreamServerTest, ADrainRefusesNewStreamsAndTellsThoseThatRun) {
  Start();
  EchoClient client(*stub_);
  ASSERT_TRUE(client.Ask(1));
  EXPECT_EQ(client.Answer(), 1);
  service_->BeginDrain();
  EXPECT_EQ(seen().drains, 1);
  EXPECT_THAT(EchoClient(*stub_).Finish(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("the echo is draining")));
  EXPECT_EQ(seen().ends, 0);  // a refused call has no handler to tell
  ASSERT_TRUE(client.Ask(2));
  EXPECT_EQ(client.Answer(), 2);
  service_->EndAll();
  EXPECT_EQ(client.Finish(), StoppingError("the echo"));
  EXPECT_TRUE(IsIdle());
  EXPECT_EQ(seen().failed, 2);
}

TEST_F(StreamServerTest, StreamsBeyondTheLimitAreRefusedWithAHint) {
  StreamOptions options;
  options.max_streams = 1;
  options.retry_after = absl::Milliseconds(750);
  Start(options);
  EchoClient first(*stub_);
  ASSERT_TRUE(first.Ask(1));
  EXPECT_EQ(first.Answer(), 1);
  EXPECT_EQ(seen().streams, 1);
  const absl::Status refused = EchoClient(*stub_).Finish();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("all 1 streams")));
  EXPECT_EQ(RetryAfter(refused), options.retry_after);
  first.HalfClose();
  EXPECT_THAT(first.Finish(), IsOk());
  EXPECT_TRUE(IsIdle());
}

TEST_F(StreamServerTest, AStreamThatSendsNothingIsEnded) {
  StreamOptions options;
  options.first_message_time = absl::Milliseconds(20);
  Start(options);
  EXPECT_THAT(EchoClient(*stub_).Finish(),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no message within 20ms")));
  EXPECT_TRUE(IsIdle());
}

}  // namespace
}  // namespace foretoken::rpc
