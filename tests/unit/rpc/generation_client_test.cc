// GenerationClient over real gRPC, with a server that does what a test says.
#include "common/rpc/generation_client.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/speculation/modes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/scripted_generation_server.h"
#include "tests/support/status_matchers.h"

namespace foretoken::rpc {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::InfoOf;
using ::foretoken::testing::ScriptedServer;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Records what it is told; pauses at every delta if `pauses`.
class Recorder final : public GenerationListener {
 public:
  explicit Recorder(bool pauses = false) : pauses_(pauses) {}

  bool OnDelta(const GenerationDelta& delta) override {
    if (on_delta) on_delta();
    absl::MutexLock lock(&mu_);
    said_.push_back(delta.text);
    return !pauses_;
  }
  void OnResult(const GenerationSummary& summary) override {
    absl::MutexLock lock(&mu_);
    said_.push_back(absl::StrCat("result with seed ", summary.seed));
  }
  void OnEnd(const absl::Status& status) override {
    if (on_end) on_end();
    status_ = status;
    ended_.Notify();
  }

  std::vector<std::string> said() const {
    absl::MutexLock lock(&mu_);
    return said_;
  }
  bool ended() const { return ended_.HasBeenNotified(); }
  const absl::Status& Wait() const {
    ended_.WaitForNotification();
    return status_;
  }

  std::function<void()> on_delta, on_end;  // may be null

 private:
  const bool pauses_;
  mutable absl::Mutex mu_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mu_);
  absl::Status status_;
  absl::Notification ended_;
};

GenerationRequest RequestOf(const std::string& text) {
  GenerationRequest request;
  request.text = text;
  request.deadline = MonotonicNow() + absl::Minutes(5);
  return request;
}

class GenerationClientTest : public ::testing::Test {
 protected:
  ScriptedServer server_;
  const std::unique_ptr<GenerationClient> client_ =
      GenerationClient::Connect(server_.address(), {}).value();
};

TEST_F(GenerationClientTest, TheInfoIsWhatTheServerSays) {
  v1::GetModelInfoResponse said = InfoOf("demo");
  said.set_vocab_size(50);
  said.set_max_tree_nodes(64);
  said.set_numerics_fingerprint("numerics");
  said.mutable_default_speculation()->mutable_off();
  server_.SetInfo({}, said);
  const auto info = client_->Info(absl::InfiniteFuture());
  FORETOKEN_ASSERT_OK(info);
  EXPECT_EQ(info->model, "demo");
  EXPECT_EQ(info->vocab_size, 50);
  EXPECT_EQ(info->max_positions, 100);
  EXPECT_EQ(info->max_tree_nodes, 64);
  EXPECT_THAT(info->modes, ElementsAre("off", "auto"));
  EXPECT_EQ(info->default_mode, "off");
  EXPECT_EQ(info->numerics_fingerprint, "numerics");
  EXPECT_EQ(info->tokenizer_fingerprint, "print");
  // It is asked every time.
  server_.SetInfo({grpc::StatusCode::FAILED_PRECONDITION, "two models"}, {});
  EXPECT_THAT(
      client_->Info(absl::InfiniteFuture()),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("two models")));
}

TEST_F(GenerationClientTest, InfoIsUnavailableWhenNoServerListens) {
  const auto client = GenerationClient::Connect("127.0.0.1:1", {});
  FORETOKEN_ASSERT_OK(client);
  EXPECT_THAT((*client)->Info(absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("")));
}

TEST_F(GenerationClientTest, OutputComesInOrderAndTheEndLast) {
  server_.SetScript({{"a", "b", "c"}});
  const auto listener = std::make_shared<Recorder>();
  GenerationRequest request = RequestOf("hello");
  request.request_id = "id-1";
  const auto call = client_->Start(std::move(request), listener);
  FORETOKEN_EXPECT_OK(listener->Wait());
  EXPECT_THAT(listener->said(),
              ElementsAre("a", "b", "c", "result with seed 9"));
  EXPECT_EQ(server_.request().text(), "hello");
  EXPECT_EQ(server_.request().request_id(), "id-1");
  // Both do nothing now.
  call->Resume();
  call->Cancel();
}

TEST_F(GenerationClientTest, AStreamWithoutAResultIsDataLoss) {
  server_.SetScript({{"a"}, /*result=*/false});
  const auto listener = std::make_shared<Recorder>();
  const auto call = client_->Start(RequestOf("x"), listener);
  EXPECT_THAT(listener->Wait(), StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr("without a last message")));
  EXPECT_THAT(listener->said(), ElementsAre("a"));
}

TEST_F(GenerationClientTest, RefusalsKeepTheirStatus) {
  server_.SetScript({{},
                     /*result=*/false,
                     /*endless=*/false,
                     {grpc::StatusCode::RESOURCE_EXHAUSTED, "queue is full"}});
  const auto listener = std::make_shared<Recorder>();
  const auto call = client_->Start(RequestOf("x"), listener);
  EXPECT_THAT(listener->Wait(), StatusIs(absl::StatusCode::kResourceExhausted,
                                         HasSubstr("queue is full")));
}

TEST_F(GenerationClientTest, ARequestThatCannotBeSentEndsAfterStart) {
  auto replay_only = Mode::Parse("phrase_pool", ModeUse::kReplay);
  FORETOKEN_ASSERT_OK(replay_only);
  GenerationRequest request = RequestOf("x");
  request.mode = *std::move(replay_only);
  absl::Mutex lock_of_caller;
  const auto listener = std::make_shared<Recorder>();
  listener->on_end = [&] { absl::MutexLock lock(&lock_of_caller); };
  std::shared_ptr<GenerationCall> call;
  {
    absl::MutexLock lock(&lock_of_caller);
    call = client_->Start(std::move(request), listener);
    EXPECT_FALSE(listener->ended());
  }
  EXPECT_THAT(listener->Wait(), StatusIs(absl::StatusCode::kUnimplemented,
                                         HasSubstr("mode 'phrase_pool'")));
  EXPECT_THAT(listener->said(), IsEmpty());
  // Both do nothing.
  call->Resume();
  call->Cancel();
}

TEST_F(GenerationClientTest, APausedListenerHearsNothingUntilItIsResumed) {
  server_.SetScript({{"a", "b"}});
  const auto listener = std::make_shared<Recorder>(/*pauses=*/true);
  const auto call = client_->Start(RequestOf("x"), listener);
  ASSERT_TRUE(Eventually([&] { return !listener->said().empty(); }));
  // All of it is on its way.
  ASSERT_TRUE(Eventually([&] { return server_.written() == 1; }));
  EXPECT_THAT(listener->said(), ElementsAre("a"));
  EXPECT_FALSE(listener->ended());
  ASSERT_TRUE(Eventually([&] {
    call->Resume();
    return listener->said().size() >= 2;
  }));
  ASSERT_TRUE(Eventually([&] {
    call->Resume();
    return listener->ended();
  }));
  FORETOKEN_EXPECT_OK(listener->Wait());
  EXPECT_THAT(listener->said(), ElementsAre("a", "b", "result with seed 9"));
}

TEST_F(GenerationClientTest, ResumeDuringADeltaThatPausesIsNotLost) {
  server_.SetScript({{"a", "b"}});
  const auto listener = std::make_shared<Recorder>(/*pauses=*/true);
  std::shared_ptr<GenerationCall> call;
  absl::Notification started;
  listener->on_delta = [&] {
    started.WaitForNotification();
    call->Resume();
  };
  call = client_->Start(RequestOf("x"), listener);
  started.Notify();
  ASSERT_TRUE(Eventually([&] { return listener->ended(); }));
  FORETOKEN_EXPECT_OK(listener->Wait());
  EXPECT_THAT(listener->said(), ElementsAre("a", "b", "result with seed 9"));
}

TEST_F(GenerationClientTest, CancelEndsACallThatReadsAndOneThatIsPaused) {
  for (const bool pauses : {false, true}) {
    server_.SetScript({{"a"}, /*result=*/false, /*endless=*/true});
    const auto listener = std::make_shared<Recorder>(pauses);
    const auto call = client_->Start(RequestOf("x"), listener);
    ASSERT_TRUE(Eventually([&] { return !listener->said().empty(); }));
    EXPECT_FALSE(listener->ended());
    call->Cancel();
    ASSERT_TRUE(Eventually([&] { return listener->ended(); }))
        << "pauses " << pauses;
    EXPECT_THAT(listener->Wait(),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("")));
    EXPECT_THAT(listener->said(), ElementsAre("a"));
  }
}

TEST_F(GenerationClientTest, OnlyCallersWithAKeyAreNamed) {
  Caller anonymous;
  anonymous.name = "192.0.2.1";
  Caller alice;
  alice.name = "alice";
  alice.authenticated = true;
  for (const Caller& caller : {anonymous, alice}) {
    const std::string want = caller.authenticated ? "alice" : "-";
    GenerationRequest request = RequestOf("x");
    request.caller = caller;
    const auto listener = std::make_shared<Recorder>();
    const auto call = client_->Start(std::move(request), listener);
    FORETOKEN_EXPECT_OK(listener->Wait());
    EXPECT_EQ(server_.principal(), want);
    absl::Notification tokens, text;
    const absl::Time deadline = MonotonicNow() + absl::Minutes(5);
    client_->Tokenize(caller, "ab", true, deadline, [&](const auto& got) {
      FORETOKEN_ASSERT_OK(got);
      EXPECT_THAT(*got, ElementsAre(1, 'a', 'b'));
      tokens.Notify();
    });
    tokens.WaitForNotification();
    EXPECT_EQ(server_.principal(), want);
    client_->Detokenize(caller, {'o', 'k'}, deadline, [&](const auto& got) {
      FORETOKEN_ASSERT_OK(got);
      EXPECT_EQ(*got, "ok");
      text.Notify();
    });
    text.WaitForNotification();
    EXPECT_EQ(server_.principal(), want);
  }
}

TEST_F(GenerationClientTest, TextsThatAreRefusedKeepTheirStatus) {
  const absl::Time deadline = MonotonicNow() + absl::Minutes(5);
  absl::Status of_tokens, of_text;
  absl::Notification tokens, text;
  client_->Tokenize({}, "", false, deadline, [&](const auto& got) {
    of_tokens = got.status();
    tokens.Notify();
  });
  client_->Detokenize({}, {}, deadline, [&](const auto& got) {
    of_text = got.status();
    text.Notify();
  });
  tokens.WaitForNotification();
  text.WaitForNotification();
  EXPECT_THAT(of_tokens, StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("text: it is empty")));
  EXPECT_THAT(of_text,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
}

}  // namespace
}  // namespace foretoken::rpc
