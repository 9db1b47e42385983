// RemoteGenerations over real gRPC, with a server that does what a test says.
#include "services/gateway/adapters/remote_generations.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/rpc/auth.h"
#include "common/rpc/channel.h"
#include "gmock/gmock.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace foretoken::gateway {
namespace {

using ::foretoken::testing::Eventually;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Whether the orchestrator takes it for the name of a caller.
bool IsName(const std::string& principal) {
  return !absl::StrContains(principal, ' ');
}

class ScriptedServer final : public v1::Generation::Service {
 public:
  ScriptedServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~ScriptedServer() override {
    // Calls that wait for their client to cancel are ended.
    server_->Shutdown(std::chrono::system_clock::now());
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  void SetInfo(grpc::Status status, v1::GetModelInfoResponse info) {
    absl::MutexLock lock(&mu_);
    info_status_ = std::move(status);
    info_ = std::move(info);
  }
  void CheckPrincipals(bool check) {
    absl::MutexLock lock(&mu_);
    checks_principals_ = check;
  }
  // Every call: these texts as deltas, with a result if `result`, then
  // `status`; if `endless`, it then waits for its client to cancel instead.
  struct Script {
    std::vector<std::string> texts;
    bool result = true;
    bool endless = false;
    grpc::Status status = {};
  };
  void SetScript(Script script) {
    absl::MutexLock lock(&mu_);
    script_ = std::move(script);
  }
  // The principal that the last call named; "-" if it named none.
  std::string principal() const {
    absl::MutexLock lock(&mu_);
    return principal_;
  }
  v1::GenerateRequest request() const {
    absl::MutexLock lock(&mu_);
    return request_;
  }
  // Calls of Generate that have written all that they write.
  int written() const {
    absl::MutexLock lock(&mu_);
    return written_;
  }

  grpc::Status GetModelInfo(grpc::ServerContext* context,
                            const v1::GetModelInfoRequest*,
                            v1::GetModelInfoResponse* response) override {
    absl::MutexLock lock(&mu_);
    if (checks_principals_ && !IsName(PrincipalOf(*context))) {
      return {grpc::StatusCode::UNAUTHENTICATED, "not a name"};
    }
    *response = info_;
    return info_status_;
  }
  grpc::Status Generate(
      grpc::ServerContext* context, const v1::GenerateRequest* request,
      grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    Script script;
    {
      absl::MutexLock lock(&mu_);
      principal_ = PrincipalOf(*context);
      request_ = *request;
      script = script_;
    }
    for (const std::string& text : script.texts) {
      v1::GenerateResponse response;
      response.mutable_delta()->set_text(text);
      writer->Write(response);
    }
    if (script.result) {
      v1::GenerateResponse response;
      response.mutable_result()->set_finish_reason(v1::FINISH_REASON_STOP);
      response.mutable_result()->set_seed(9);
      writer->Write(response);
    }
    {
      absl::MutexLock lock(&mu_);
      ++written_;
    }
    while (script.endless && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return script.status;
  }
  grpc::Status Tokenize(grpc::ServerContext* context,
                        const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    absl::MutexLock lock(&mu_);
    principal_ = PrincipalOf(*context);
    if (request->text().empty()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "text: it is empty"};
    }
    if (request->add_special_tokens()) response->add_token_ids(1);
    for (const char c : request->text()) response->add_token_ids(c);
    return grpc::Status::OK;
  }
  grpc::Status Detokenize(grpc::ServerContext* context,
                          const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    absl::MutexLock lock(&mu_);
    principal_ = PrincipalOf(*context);
    if (request->token_ids().empty()) {
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "busy"};
    }
    for (const int32_t id : request->token_ids()) {
      response->mutable_text()->push_back(static_cast<char>(id));
    }
    return grpc::Status::OK;
  }

 private:
  static std::string PrincipalOf(const grpc::ServerContext& context) {
    const auto found = context.client_metadata().find(rpc::kPrincipalKey);
    if (found == context.client_metadata().end()) return "-";
    return {found->second.data(), found->second.size()};
  }

  int port_ = 0;
  mutable absl::Mutex mu_;
  grpc::Status info_status_ ABSL_GUARDED_BY(mu_);
  v1::GetModelInfoResponse info_ ABSL_GUARDED_BY(mu_);
  bool checks_principals_ ABSL_GUARDED_BY(mu_) = false;
  Script script_ ABSL_GUARDED_BY(mu_);
  std::string principal_ ABSL_GUARDED_BY(mu_);
  v1::GenerateRequest request_ ABSL_GUARDED_BY(mu_);
  int written_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<grpc::Server> server_;
};

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

  std::function<void()> on_delta;  // may be null

 private:
  const bool pauses_;
  mutable absl::Mutex mu_;
  std::vector<std::string> said_ ABSL_GUARDED_BY(mu_);
  absl::Status status_;
  absl::Notification ended_;
};

v1::GetModelInfoResponse InfoOf(const std::string& model) {
  v1::GetModelInfoResponse info;
  info.set_model(model);
  info.set_max_positions(100);
  info.add_modes("off");
  info.add_modes("auto");
  info.set_tokenizer_fingerprint("print");
  return info;
}

GenerationRequest RequestOf(const std::string& text) {
  GenerationRequest request;
  request.text = text;
  request.deadline = MonotonicNow() + absl::Minutes(5);
  return request;
}

class RemoteGenerationsTest : public ::testing::Test {
 protected:
  RemoteGenerationsTest() { server_.SetInfo({}, InfoOf("demo")); }

  std::unique_ptr<RemoteGenerations> Make(bool with_principals = false) {
    rpc::Endpoint endpoint;
    endpoint.channel = rpc::CreateChannel(server_.address(), {}).value();
    return std::make_unique<RemoteGenerations>(
        endpoint, with_principals,
        RemoteGenerations::ModelTimes{absl::Milliseconds(5),
                                      absl::Minutes(10)});
  }

  ScriptedServer server_;
};

TEST_F(RemoteGenerationsTest, TheModelIsWhatTheOrchestratorSays) {
  const auto generations = Make();
  ASSERT_TRUE(Eventually([&] { return generations->Model().ok(); }));
  const auto model = generations->Model();
  EXPECT_EQ(model->name, "demo");
  EXPECT_EQ(model->max_positions, 100);
  EXPECT_THAT(model->modes, ElementsAre("off", "auto"));
  EXPECT_EQ(model->tokenizer_fingerprint, "print");
  EXPECT_TRUE(generations->Ready());
  // It is asked again, without any request.
  server_.SetInfo({}, InfoOf("other"));
  EXPECT_TRUE(
      Eventually([&] { return generations->Model()->name == "other"; }));
}

TEST_F(RemoteGenerationsTest, WithoutAnAnswerThereIsNoModel) {
  server_.SetInfo({grpc::StatusCode::UNAVAILABLE, "no verifier"}, {});
  const auto generations = Make();
  EXPECT_THAT(generations->Model(), StatusIs(absl::StatusCode::kUnavailable,
                                             HasSubstr("not answered yet")));
  EXPECT_FALSE(generations->Ready());
  server_.SetInfo({}, InfoOf("demo"));
  EXPECT_TRUE(Eventually([&] { return generations->Ready(); }));
}

TEST_F(RemoteGenerationsTest, WithKeysItNeedsLeaveToSpeakForItsCallers) {
  const auto generations = Make(/*with_principals=*/true);
  // A server that does not refuse a bad name has ignored it.
  ASSERT_TRUE(Eventually([&] {
    const auto model = generations->Model();
    return absl::StrContains(model.status().message(), "speaks_for_others");
  }));
  EXPECT_FALSE(generations->Ready());
  server_.CheckPrincipals(true);
  EXPECT_TRUE(Eventually([&] { return generations->Model().ok(); }));
}

TEST_F(RemoteGenerationsTest, OutputComesInOrderAndTheEndLast) {
  const auto generations = Make();
  server_.SetScript({{"a", "b", "c"}});
  const auto listener = std::make_shared<Recorder>();
  GenerationRequest request = RequestOf("hello");
  request.request_id = "id-1";
  const auto call = generations->Start(std::move(request), listener);
  FORETOKEN_EXPECT_OK(listener->Wait());
  EXPECT_THAT(listener->said(),
              ElementsAre("a", "b", "c", "result with seed 9"));
  EXPECT_EQ(server_.request().text(), "hello");
  EXPECT_EQ(server_.request().request_id(), "id-1");
  // Both do nothing now.
  call->Resume();
  call->Cancel();
}

TEST_F(RemoteGenerationsTest, AStreamWithoutAResultIsDataLoss) {
  const auto generations = Make();
  server_.SetScript({{"a"}, /*result=*/false});
  const auto listener = std::make_shared<Recorder>();
  const auto call = generations->Start(RequestOf("x"), listener);
  EXPECT_THAT(listener->Wait(), StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr("without a last message")));
  EXPECT_THAT(listener->said(), ElementsAre("a"));
}

TEST_F(RemoteGenerationsTest, RefusalsKeepTheirStatus) {
  const auto generations = Make();
  server_.SetScript({{},
                     /*result=*/false,
                     /*endless=*/false,
                     {grpc::StatusCode::RESOURCE_EXHAUSTED, "queue is full"}});
  const auto listener = std::make_shared<Recorder>();
  const auto call = generations->Start(RequestOf("x"), listener);
  EXPECT_THAT(listener->Wait(), StatusIs(absl::StatusCode::kResourceExhausted,
                                         HasSubstr("queue is full")));
}

TEST_F(RemoteGenerationsTest, APausedListenerHearsNothingUntilItIsResumed) {
  const auto generations = Make();
  server_.SetScript({{"a", "b"}});
  const auto listener = std::make_shared<Recorder>(/*pauses=*/true);
  const auto call = generations->Start(RequestOf("x"), listener);
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

TEST_F(RemoteGenerationsTest, ResumeDuringADeltaThatPausesIsNotLost) {
  const auto generations = Make();
  server_.SetScript({{"a", "b"}});
  const auto listener = std::make_shared<Recorder>(/*pauses=*/true);
  std::shared_ptr<GenerationCall> call;
  absl::Notification started;
  listener->on_delta = [&] {
    started.WaitForNotification();
    call->Resume();
  };
  call = generations->Start(RequestOf("x"), listener);
  started.Notify();
  ASSERT_TRUE(Eventually([&] { return listener->ended(); }));
  FORETOKEN_EXPECT_OK(listener->Wait());
  EXPECT_THAT(listener->said(), ElementsAre("a", "b", "result with seed 9"));
}

TEST_F(RemoteGenerationsTest, CancelEndsACallThatReadsAndOneThatIsPaused) {
  const auto generations = Make();
  for (const bool pauses : {false, true}) {
    server_.SetScript({{"a"}, /*result=*/false, /*endless=*/true});
    const auto listener = std::make_shared<Recorder>(pauses);
    const auto call = generations->Start(RequestOf("x"), listener);
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

TEST_F(RemoteGenerationsTest, OnlyCallersWithAKeyAreNamed) {
  const auto generations = Make();
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
    const auto call = generations->Start(std::move(request), listener);
    FORETOKEN_EXPECT_OK(listener->Wait());
    EXPECT_EQ(server_.principal(), want);
    absl::Notification tokens, text;
    const absl::Time deadline = MonotonicNow() + absl::Minutes(5);
    generations->Tokenize(caller, "ab", true, deadline, [&](const auto& got) {
      FORETOKEN_ASSERT_OK(got);
      EXPECT_THAT(*got, ElementsAre(1, 'a', 'b'));
      tokens.Notify();
    });
    tokens.WaitForNotification();
    EXPECT_EQ(server_.principal(), want);
    generations->Detokenize(caller, {'o', 'k'}, deadline, [&](const auto& got) {
      FORETOKEN_ASSERT_OK(got);
      EXPECT_EQ(*got, "ok");
      text.Notify();
    });
    text.WaitForNotification();
    EXPECT_EQ(server_.principal(), want);
  }
}

TEST_F(RemoteGenerationsTest, TextsThatAreRefusedKeepTheirStatus) {
  const auto generations = Make();
  const absl::Time deadline = MonotonicNow() + absl::Minutes(5);
  absl::Status of_tokens, of_text;
  absl::Notification tokens, text;
  generations->Tokenize({}, "", false, deadline, [&](const auto& got) {
    of_tokens = got.status();
    tokens.Notify();
  });
  generations->Detokenize({}, {}, deadline, [&](const auto& got) {
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
}  // namespace foretoken::gateway
