// StreamServer over real gRPC, with a handler that does what messages ask for.
#include "common/rpc/stream_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

// A slow line between one client and the server, on which what the server sends
// can be held up.
class SlowLine {
 public:
  explicit SlowLine(const std::string& server) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* address = reinterpret_cast<sockaddr*>(&here);
    socklen_t length = sizeof(here);
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(bind(listener_, address, length), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, address, &length), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(here.sin_port));
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(server.substr(server.rfind(':') + 1), &port));
    here.sin_port = htons(static_cast<uint16_t>(port));
    server_ = socket(AF_INET, SOCK_STREAM, 0);
    // What is held up is the server's to keep.
    constexpr int kReceiveBytes = 4096;
    EXPECT_EQ(setsockopt(server_, SOL_SOCKET, SO_RCVBUF, &kReceiveBytes,
                         sizeof(kReceiveBytes)),
              0);
    EXPECT_EQ(connect(server_, address, sizeof(here)), 0);
    thread_ = std::thread([this] { Run(); });
  }
  ~SlowLine() {
    stop_ = true;
    thread_.join();
    for (const int fd : {listener_, client_, server_}) {
      if (fd >= 0) close(fd);
    }
  }

  const std::string& address() const { return address_; }
  void HoldUp() { held_up_ = true; }
  // Sends the server a frame as a client does that reads: one more byte of
  // window for the connection; then lets through what was held up.
  void LetGo() {
    constexpr absl::string_view kWindowUpdate(
        "\0\0\x04\x08\0\0\0\0\0\0\0\0\x01", 13);
    EXPECT_EQ(
        send(server_, kWindowUpdate.data(), kWindowUpdate.size(), MSG_NOSIGNAL),
        static_cast<ssize_t>(kWindowUpdate.size()));
    held_up_ = false;
  }

 private:
  void Run() {
    constexpr int kPollMs = 5;
    while (!stop_) {
      pollfd polled[] = {{client_ < 0 ? listener_ : client_, POLLIN, 0},
                         {held_up_ || client_ < 0 ? -1 : server_, POLLIN, 0}};
      poll(polled, 2, kPollMs);
      if (client_ < 0) {
        if (polled[0].revents != 0)
          client_ = accept(listener_, nullptr, nullptr);
        continue;
      }
      if (polled[0].revents != 0 && !Pass(client_, server_)) return;
      if (polled[1].revents != 0 && !Pass(server_, client_)) return;
    }
  }
  // False at the end of either.
  static bool Pass(int from, int to) {
    char bytes[4096];
    const ssize_t n = recv(from, bytes, sizeof(bytes), 0);
    if (n > 0 && send(to, bytes, static_cast<size_t>(n), MSG_NOSIGNAL) == n) {
      return true;
    }
    shutdown(to, SHUT_WR);
    return false;
  }

  std::string address_;
  int listener_ = -1;
  int client_ = -1;  // the thread's
  int server_ = -1;
  std::atomic<bool> held_up_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
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

// A client sends while it reads: it tells the server how much more it takes. If
// the server has closed the connection by then, the kernel resets it and drops
// what it has not sent yet.
TEST_F(StreamServerTest, ADrainEndsNoConnectionBeforeItsClientHasRead) {
  StreamOptions options;
  options.linger = absl::Seconds(2);
  Start(options);
  SlowLine line(server_->addresses().at(0));
  const auto channel = CreateChannel(line.address(), {});
  FORETOKEN_ASSERT_OK(channel);
  const auto stub = v1::Crest::NewStub(*channel);
  EchoClient client(*stub);
  ASSERT_TRUE(client.Ask(1));
  EXPECT_EQ(client.Answer(), 1);
  std::thread drain([&] { EXPECT_TRUE(server_->Drain(absl::Minutes(2))); });
  // The client has been told: the connection closes with its last call.
  EXPECT_TRUE(Eventually(
      [&] { return (*channel)->GetState(false) != GRPC_CHANNEL_READY; }));
  line.HoldUp();
  constexpr int kTokens = 40000;  // within the client's window
  ASSERT_TRUE(client.Ask(2, "", kTokens));
  client.HalfClose();
  EXPECT_TRUE(Eventually([&] { return seen().ends == 1; }));
  absl::SleepFor(absl::Milliseconds(50));  // gRPC would have closed it by now
  line.LetGo();
  EXPECT_EQ(client.Answer(), 2);
  EXPECT_THAT(client.Finish(), IsOk());
  drain.join();
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
