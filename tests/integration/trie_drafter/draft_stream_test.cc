// rpc::DraftStreams over real gRPC, with sessions that do what the test says.
#include "common/rpc/draft_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "common/drafting/observed_draft_sessions.h"
#include "tests/integration/trie_drafter/draft_client.h"
#include "tests/support/eventually.h"
#include "tests/support/gate.h"
#include "tests/support/status_matchers.h"

namespace foretoken::testing {
namespace {

using ::testing::HasSubstr;

// Sessions that answer with their length, and not while `blocked`: then a round
// is under way until its session is closed.
class ScriptedSessions final : public DraftSessions {
 public:
  absl::StatusOr<std::unique_ptr<DraftSession>> Open(
      DraftOpen open, std::shared_ptr<DraftListener> listener) override {
    if (full_) return absl::ResourceExhaustedError("too much to do");
    ++open_;
    return std::make_unique<Session>(
        *this, static_cast<int64_t>(open.tokens.size()), std::move(listener));
  }

  std::atomic<int> open_{0};
  std::atomic<int> in_round_{0};
  std::atomic<bool> blocked_{false};
  std::atomic<bool> full_{false};
  Gate gate_;  // holds every Ask while it is closed

 private:
  class Session final : public DraftSession {
   public:
    Session(ScriptedSessions& owner, int64_t length,
            std::shared_ptr<DraftListener> listener)
        : owner_(owner), length_(length), listener_(std::move(listener)) {}
    ~Session() override {
      owner_.in_round_ -= asked_;
      --owner_.open_;
    }

    void Ask(DraftRound round) override {
      owner_.gate_.Pass();
      const absl::Status follows = CheckFollows(length_, round);
      if (!follows.ok()) return listener_->OnFailed(follows);
      length_ = round.length;
      if (owner_.blocked_) {
        ++owner_.in_round_;
        ++asked_;
        return;
      }
      DraftAnswer answer;
      answer.length = length_;
      listener_->OnAnswer(std::move(answer));
    }

   private:
    ScriptedSessions& owner_;
    int64_t length_;
    int asked_ = 0;
    const std::shared_ptr<DraftListener> listener_;
  };
};

class CountingObserver final : public rpc::StreamObserver,
                               public DraftObserver {
 public:
  void OnStreams(int open) override { streams_ = open; }
  void OnAnswer(const DraftAnswer&) override { ++answers_; }
  void OnFailed(absl::StatusCode) override { ++failed_; }

  std::atomic<int> streams_{0};
  std::atomic<int> answers_{0};
  std::atomic<int> failed_{0};
};

class StreamService final : public v1::TrieDrafter::CallbackService,
                            public rpc::Servable {
 public:
  explicit StreamService(absl::Duration first_message_time)
      : streams_({"test", "", {16, first_message_time, absl::Milliseconds(50)}},
                 observed_, observer_) {}
  rpc::DraftStreams::Reactor* Draft(
      grpc::CallbackServerContext* context) override {
    return streams_.Start(context);
  }
  grpc::Service* grpc_service() override { return this; }
  std::string health_name() const override {
    return "foretoken.v1.TrieDrafter";
  }
  void BeginDrain() override { streams_.BeginDrain(); }
  bool Idle() const override { return streams_.Idle(); }
  void EndAll() override { streams_.EndAll(); }

  ScriptedSessions sessions_;
  CountingObserver observer_;
  ObservedDraftSessions observed_{sessions_, observer_};
  rpc::DraftStreams streams_;
};

class DraftStreamTest : public ::testing::Test {
 protected:
  void Start(absl::Duration first_message_time = absl::Seconds(60)) {
    service_ = std::make_unique<StreamService>(first_message_time);
    rpc::ServerOptions options;
    options.listen = {"127.0.0.1:0"};
    auto server = rpc::Server::Start(options, {service_.get()});
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
    stub_ = v1::TrieDrafter::NewStub(
        *rpc::CreateChannel(server_->addresses().at(0), {}));
  }
  ScriptedSessions& sessions() { return service_->sessions_; }

  std::unique_ptr<StreamService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::TrieDrafter::Stub> stub_;
};

TEST_F(DraftStreamTest, RoundsSentAheadAreAnsweredInOrder) {
  Start();
  DraftClient client(*stub_);
  client.Send(OpenOf("auto", {1}));
  for (int i = 0; i < 50; ++i) client.Send(RoundOf(2 + i, {5}));
  client.HalfClose();
  for (int i = 0; i < 50; ++i) {
    const auto answer = client.Receive();
    ASSERT_THAT(answer, IsOk());
    EXPECT_EQ(answer->length, 2 + i);
  }
  EXPECT_THAT(client.Finish(), IsOk());
  EXPECT_EQ(sessions().open_, 0);
}

TEST_F(DraftStreamTest, ACancelReachesTheRoundUnderWay) {
  Start();
  sessions().blocked_ = true;
  DraftClient client(*stub_);
  client.Send(OpenOf("auto", {1}));
  client.Send(RoundOf(1, {}));
  ASSERT_TRUE(Eventually([&] { return sessions().in_round_ == 1; }));
  client.Cancel();
  EXPECT_TRUE(
      Eventually([&] { return sessions().open_ == 0 && service_->Idle(); }));
  EXPECT_EQ(sessions().in_round_, 0);
}

TEST_F(DraftStreamTest, AStreamThatSaysNothingIsEnded) {
  Start(absl::Milliseconds(20));
  DraftClient silent(*stub_);
  EXPECT_THAT(silent.Finish(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                        HasSubstr("no message within 20ms")));
  EXPECT_TRUE(Eventually([&] { return service_->Idle(); }));
}

TEST_F(DraftStreamTest, AStreamThatSpokeMayBeSilentAfterwards) {
  Start(absl::Seconds(2));
  DraftClient client(*stub_);
  client.Send(OpenOf("auto", {1}));
  ASSERT_THAT(client.Ask(RoundOf(1, {})), IsOk());
  DraftClient silent(*stub_);  // begins later, and is ended
  EXPECT_FALSE(silent.Finish().ok());
  EXPECT_THAT(client.Ask(RoundOf(2, {5})), IsOk());
}

TEST_F(DraftStreamTest, NoSessionBeginsWhileDrainingOnAnOlderStreamEither) {
  Start();
  DraftClient older(*stub_);
  DraftClient running(*stub_);
  running.Send(OpenOf("auto", {1}));
  ASSERT_THAT(running.Ask(RoundOf(1, {})), IsOk());
  ASSERT_TRUE(Eventually([&] { return service_->observer_.streams_ == 2; }));
  service_->BeginDrain();
  older.Send(OpenOf("auto", {1}));
  EXPECT_THAT(older.Receive(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  EXPECT_THAT(running.Ask(RoundOf(2, {5})), IsOk());
}

TEST_F(DraftStreamTest, EndAllReachesTheRoundUnderWay) {
  Start();
  sessions().blocked_ = true;
  DraftClient client(*stub_);
  client.Send(OpenOf("auto", {1}));
  client.Send(RoundOf(1, {}));
  ASSERT_TRUE(Eventually([&] { return sessions().in_round_ == 1; }));
  EXPECT_FALSE(server_->Drain(absl::ZeroDuration()));
  EXPECT_EQ(sessions().open_, 0);
  EXPECT_TRUE(service_->Idle());
}

TEST_F(DraftStreamTest, EveryEndWithAnErrorIsCountedOnce) {
  Start(absl::Seconds(2));
  CountingObserver& seen = service_->observer_;
  DraftClient stale(*stub_);
  stale.Send(OpenOf("auto", {1}));
  ASSERT_THAT(stale.Ask(RoundOf(2, {5})), IsOk());
  EXPECT_FALSE(stale.Ask(RoundOf(2, {5})).ok());  // the session's error
  EXPECT_EQ(seen.answers_, 1);
  EXPECT_EQ(seen.failed_, 1);
  DraftClient early(*stub_);
  early.Send(RoundOf(1, {}));  // the stream's
  EXPECT_FALSE(early.Receive().ok());
  EXPECT_EQ(seen.failed_, 2);
  sessions().full_ = true;
  DraftClient refused(*stub_);
  refused.Send(OpenOf("auto", {1}));
  EXPECT_FALSE(refused.Receive().ok());
  EXPECT_EQ(seen.failed_, 3);
  DraftClient silent(*stub_);
  EXPECT_FALSE(silent.Finish().ok());
  EXPECT_TRUE(Eventually([&] { return service_->Idle(); }));
  EXPECT_EQ(seen.failed_, 4);
  EXPECT_EQ(seen.answers_, 1);
}

TEST_F(DraftStreamTest, OnceItsClientHasGoneARoundUnderWayIsNotCounted) {
  // An answer, and the error of a round that does not follow.
  for (const int64_t length : {1, 7}) {
    server_.reset();
    Start();
    const CountingObserver& seen = service_->observer_;
    sessions().gate_.Close();
    DraftClient client(*stub_);
    client.Send(OpenOf("auto", {1}));
    client.Send(RoundOf(length, {}));
    EXPECT_TRUE(Eventually([&] { return sessions().gate_.waiting() == 1; }));
    client.Cancel();
    EXPECT_TRUE(Eventually([&] { return seen.failed_ == 1; }));
    // Takes the lock under which the stream counts its end, and so waits for
    // all that is done there.
    service_->BeginDrain();
    sessions().gate_.Open();
    EXPECT_TRUE(Eventually([&] { return service_->Idle(); }));
    EXPECT_EQ(seen.answers_, 0);
    EXPECT_EQ(seen.failed_, 1);
  }
}

TEST_F(DraftStreamTest, AFullServiceSaysWhenToRetry) {
  Start();
  sessions().full_ = true;
  DraftClient other(*stub_);
  other.Send(OpenOf("auto", {1}));
  const absl::Status refused = other.Receive().status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("too much to do")));
  EXPECT_TRUE(rpc::RetryAfter(refused).has_value());
}

}  // namespace
}  // namespace foretoken::testing
