#include "services/orchestrator/core/generation_service.h"

#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/base/retry_after.h"
#include "common/base/stopping.h"
#include "gmock/gmock.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_backend.h"
#include "tests/support/in_process_verifier.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

namespace foretoken::orchestrator {
namespace {

using ::foretoken::testing::IsOk;
using ::foretoken::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A verifier that waits, where it is told to, until it is cancelled.
class HeldVerifier final : public Verifier {
 public:
  HeldVerifier(testing::EngineDriver& driver, bool hold)
      : verifier_(driver), hold_(hold) {}
  absl::StatusOr<PrefillResult> Open(SessionRequest request,
                                     absl::Span<const TokenId> text) override {
    if (hold_) {
      cancelled_.WaitForNotification();
      return absl::CancelledError("the request was cancelled");
    }
    return verifier_.Open(std::move(request), text);
  }
  absl::StatusOr<RoundResult> Round(RoundRequest request,
                                    absl::Span<const TokenId> text) override {
    return verifier_.Round(std::move(request), text);
  }
  void Close() override { verifier_.Close(); }
  void Cancel() override {
    if (!cancelled_.HasBeenNotified()) cancelled_.Notify();
  }
  int64_t failovers() const override { return 2; }

 private:
  testing::InProcessVerifier verifier_;
  const bool hold_;
  absl::Notification cancelled_;
};

class FakeTarget final : public Target {
 public:
  FakeTarget()
      : engine_({}, std::make_unique<testing::FakeBackend>(
                        testing::FakeBackendOptions())),
        driver_(engine_) {
    info.vocab_size = testing::kTinyVocabulary;
    info.max_positions = 4096;
    info.eos_tokens = {1};
  }
  absl::StatusOr<TargetInfo> Info() const override { return info; }
  std::unique_ptr<Verifier> NewVerifier() override {
    return std::make_unique<HeldVerifier>(driver_, hold);
  }

  TargetInfo info;
  bool hold = false;

 private:
  verifier::VerifyEngine engine_;
  testing::EngineDriver driver_;
};

// Called by the threads of all requests.
class CountingObserver final : public GenerationObserver {
 public:
  void OnRequest() override { ++requests; }
  void OnRefused(Refusal reason) override {
    ++refused[static_cast<size_t>(reason)];
  }
  void OnWaiting(int change) override { waiting += change; }
  void OnPrefill(const GenerationSummary&, const ModeInfo& mode) override {
    ++prefills;
    EXPECT_EQ(mode.name, mode_name);
  }
  void OnRound(const RoundReport&, const ModeInfo& mode) override {
    ++rounds;
    EXPECT_EQ(mode.name, mode_name);
  }
  void OnFailovers(int64_t count) override { failovers += count; }
  void OnEnd(absl::StatusCode code, absl::Duration) override {
    absl::MutexLock lock(&mu_);
    ends_.push_back(code);
  }
  std::vector<absl::StatusCode> ends() const {
    absl::MutexLock lock(&mu_);
    return ends_;
  }

  std::string mode_name = "prompt_lookup";  // of all requests
  std::atomic<int64_t> requests{0}, prefills{0}, rounds{0}, failovers{0};
  std::atomic<int> waiting{0};
  std::array<std::atomic<int>, kRefusalNames.size()> refused{};  // by Refusal

 private:
  mutable absl::Mutex mu_;
  std::vector<absl::StatusCode> ends_ ABSL_GUARDED_BY(mu_);
};

class RecordingSink final : public GenerationSink {
 public:
  absl::Status OnDelta(const GenerationDelta& delta) override {
    EXPECT_FALSE(delta.empty());
    text += delta.text;
    token_ids.insert(token_ids.end(), delta.token_ids.begin(),
                     delta.token_ids.end());
    return answer;
  }
  absl::Status OnResult(const GenerationSummary& result) override {
    summary = result;
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& end) override {
    status = end;
    ended.Notify();
  }

  absl::Status answer;  // of OnDelta
  std::string text;
  std::vector<TokenId> token_ids;
  GenerationSummary summary;
  absl::Status status;
  absl::Notification ended;
};

class GenerationServiceTest : public ::testing::Test {
 protected:
  // `change` may alter target and options before the start.
  void Start(GenerationOptions options = {}, bool with_tokenizer = true) {
    options.default_mode = "prompt_lookup";
    auto service = GenerationService::Create(
        options, std::move(target_), nullptr,
        with_tokenizer ? LoadTokenizer() : nullptr, observer_);
    FORETOKEN_ASSERT_OK(service);
    service_ = *std::move(service);
  }

  std::unique_ptr<Tokenizer> LoadTokenizer() const {
    return Tokenizer::Load(
               dir_.Write("tokenizer.json", testing::TinyTokenizerJson()))
        .value();
  }

  static GenerationRequest Request() {
    GenerationRequest request;
    request.prompt = {0, 5, 9, 12, 5, 9};
    request.max_tokens = 40;
    request.ignore_eos = true;
    return request;
  }

  // How the request ends.
  absl::Status Run(absl::StatusOr<GenerationRequest> request) {
    RecordingSink sink;
    service_->Start(std::move(request), sink);
    sink.ended.WaitForNotification();
    return sink.status;
  }

  testing::TempDir dir_;
  std::unique_ptr<FakeTarget> target_ = std::make_unique<FakeTarget>();
  CountingObserver observer_;
  std::unique_ptr<GenerationService> service_;
};

TEST_F(GenerationServiceTest, ARequestIsServedAndObserved) {
  Start();
  RecordingSink sink;
  service_->Start(Request(), sink);
  sink.ended.WaitForNotification();
  FORETOKEN_ASSERT_OK(sink.status);
  EXPECT_THAT(sink.token_ids, SizeIs(40));
  EXPECT_EQ(sink.summary.completion_tokens, 40);
  EXPECT_EQ(sink.summary.prompt, Request().prompt);
  EXPECT_EQ(sink.summary.mode, "prompt_lookup");
  EXPECT_THAT(sink.summary.request_id, SizeIs(16));  // drawn
  EXPECT_EQ(observer_.requests, 1);
  EXPECT_EQ(observer_.waiting, 0);
  EXPECT_EQ(observer_.prefills, 1);
  EXPECT_EQ(observer_.rounds, sink.summary.rounds);
  EXPECT_EQ(observer_.failovers, 2);
  EXPECT_THAT(observer_.ends(), ElementsAre(absl::StatusCode::kOk));
}

TEST_F(GenerationServiceTest, TheCallersThreadWritesTheSameAsTheQueue) {
  Start();
  RecordingSink sink;
  service_->Start(Request(), sink);
  sink.ended.WaitForNotification();
  std::vector<TokenId> token_ids;
  const auto summary =
      service_->Generate(Request(), [&](const GenerationDelta& delta) {
        token_ids.insert(token_ids.end(), delta.token_ids.begin(),
                         delta.token_ids.end());
        return absl::OkStatus();
      });
  FORETOKEN_ASSERT_OK(summary);
  EXPECT_EQ(token_ids, sink.token_ids);
  EXPECT_EQ(summary->rounds, sink.summary.rounds);
}

TEST_F(GenerationServiceTest, ATextIsEncodedAndASeedDrawn) {
  Start();
  GenerationRequest request = Request();
  request.prompt.clear();
  request.text = "the an";
  request.has_seed = false;
  request.mode = *Mode::Parse("off");
  observer_.mode_name = "off";
  const auto ignore = [](const GenerationDelta&) { return absl::OkStatus(); };
  const auto first = service_->Generate(request, ignore);
  const auto second = service_->Generate(request, ignore);
  FORETOKEN_ASSERT_OK(first);
  FORETOKEN_ASSERT_OK(second);
  EXPECT_EQ(first->prompt,
            *service_->Tokenize("me", "the an", true, absl::InfiniteFuture()));
  EXPECT_EQ(first->mode, "off");
  EXPECT_NE(first->seed, second->seed);
}

TEST_F(GenerationServiceTest, WithoutATokenizerTextsAreRefused) {
  Start({}, /*with_tokenizer=*/false);
  GenerationRequest request = Request();
  request.text = "the";
  EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("want token_ids")));
  EXPECT_THAT(service_->Tokenize("me", "the", true, absl::InfiniteFuture()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no tokenizer")));
  EXPECT_THAT(service_->Detokenize({1}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no tokenizer")));
}

TEST_F(GenerationServiceTest, BadRequestsAreRefusedByField) {
  GenerationOptions options;
  options.max_prompt_bytes = 24;
  options.max_tree_nodes = 32;
  Start(options);
  const auto refused = [&](auto change, const std::string& why) {
    GenerationRequest request = Request();
    change(request);
    EXPECT_THAT(Run(std::move(request)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused([](auto& r) { r.request_id = "two words"; }, "request_id");
  refused([](auto& r) { r.cache_scope = std::string(257, 's'); },
          "cache_scope: 257 bytes");
  refused([](auto& r) { r.text = std::string(25, 'x'); }, "text: 25 bytes");
  refused([](auto& r) { r.max_tree_nodes = 33; },
          "speculation.max_tree_nodes: 33, want 1..32");
  refused([](auto& r) { r.max_tree_nodes = 0; }, "max_tree_nodes");
  refused([](auto& r) { r.mode = *Mode::Parse("draft_model:gamma=33"); },
          "gamma");
  refused([](auto& r) { r.prompt.clear(); }, "prompt: it is empty");
  EXPECT_THAT(Run(absl::InvalidArgumentError("sampling.top_k: no")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("top_k")));
  GenerationRequest request = Request();
  request.mode = *Mode::Parse("crest");
  EXPECT_THAT(Run(std::move(request)),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("crest")));
  EXPECT_EQ(observer_.requests, 9);
  EXPECT_THAT(observer_.ends(), SizeIs(9));
}

TEST_F(GenerationServiceTest, AnotherTokenizersModelIsRefused) {
  target_->info.tokenizer_fingerprint = std::string(32, 'x');
  Start();
  EXPECT_THAT(Run(Request()), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("another tokenizer")));
}

TEST_F(GenerationServiceTest, AnErrorOfTheSinkEndsTheRequest) {
  Start();
  RecordingSink sink;
  sink.answer = absl::CancelledError("the client is gone");
  service_->Start(Request(), sink);
  sink.ended.WaitForNotification();
  EXPECT_THAT(sink.status,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("gone")));
  EXPECT_THAT(sink.token_ids, SizeIs(1));
  EXPECT_EQ(sink.summary.rounds, 0);
}

TEST_F(GenerationServiceTest, ACancelReachesTheVerifier) {
  target_->hold = true;
  Start();
  RecordingSink sink;
  service_->Start(Request(), sink)->Cancel();
  sink.ended.WaitForNotification();
  EXPECT_THAT(sink.status, StatusIs(absl::StatusCode::kCancelled,
                                    HasSubstr("was cancelled")));
  // A transport cancels at the deadline, too.
  GenerationRequest late = Request();
  late.deadline = absl::InfinitePast();
  RecordingSink expired;
  service_->Start(std::move(late), expired)->Cancel();
  expired.ended.WaitForNotification();
  EXPECT_THAT(expired.status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                       HasSubstr("deadline has passed")));
}

TEST_F(GenerationServiceTest, AStopEndsWhatRunsAndRefusesWhatComes) {
  target_->hold = true;
  Start();
  RecordingSink running;
  service_->Start(Request(), running);
  service_->BeginDrain();
  EXPECT_THAT(Run(Request()), StatusIs(absl::StatusCode::kUnavailable,
                                       HasSubstr("is draining")));
  EXPECT_FALSE(service_->Idle());
  service_->EndAll();
  running.ended.WaitForNotification();
  EXPECT_TRUE(IsStopping(running.status)) << running.status;
}

TEST_F(GenerationServiceTest, AFullQueueRefuses) {
  target_->hold = true;
  GenerationOptions options;
  options.max_requests = 1;
  options.max_waiting_requests = 1;
  Start(options);
  RecordingSink running, waiting;
  service_->Start(Request(), running);
  service_->Start(Request(), waiting);
  EXPECT_TRUE(absl::IsResourceExhausted(Run(Request())));
  service_->EndAll();
  running.ended.WaitForNotification();
  waiting.ended.WaitForNotification();
}

TEST_F(GenerationServiceTest, ACancelledRequestLeavesTheQueueAtOnce) {
  target_->hold = true;
  GenerationOptions options;
  options.max_requests = 1;
  Start(options);
  RecordingSink running, waiting;
  service_->Start(Request(), running);
  const auto call = service_->Start(Request(), waiting);
  EXPECT_FALSE(waiting.ended.HasBeenNotified());
  call->Cancel();
  EXPECT_TRUE(waiting.ended.HasBeenNotified());
  EXPECT_TRUE(absl::IsCancelled(waiting.status));
  EXPECT_FALSE(running.ended.HasBeenNotified());
  service_->EndAll();
  running.ended.WaitForNotification();
}

TEST_F(GenerationServiceTest,
       ACallersRequestsBeyondItsLimitWaitWhileOthersRun) {
  target_->hold = true;
  GenerationOptions options;
  options.max_requests = 3;
  options.max_requests_per_caller = 1;
  Start(options);
  const auto from = [](const char* name, int32_t max_requests = 0) {
    GenerationRequest request = Request();
    request.caller.name = name;
    request.caller.max_requests = max_requests;
    request.deadline = absl::Now() + absl::Milliseconds(50);
    return request;
  };
  // A held request does not end by its deadline, one that waits does.
  RecordingSink first, second, other, others_second;
  service_->Start(from("a"), first);
  service_->Start(from("a"), second);
  service_->Start(from("b", 2), other);
  service_->Start(from("b", 2), others_second);
  second.ended.WaitForNotification();
  EXPECT_TRUE(absl::IsDeadlineExceeded(second.status));
  EXPECT_FALSE(first.ended.HasBeenNotified());
  EXPECT_FALSE(other.ended.HasBeenNotified());
  EXPECT_FALSE(others_second.ended.HasBeenNotified());
  service_->EndAll();
  for (RecordingSink* sink : {&first, &other, &others_second}) {
    sink->ended.WaitForNotification();
  }
}

TEST_F(GenerationServiceTest, ARequestThatNamesNoDeadlineHasOne) {
  target_->hold = true;
  GenerationOptions options;
  options.max_requests = 1;
  options.max_request_time = absl::Milliseconds(50);
  Start(options);
  RecordingSink running, waiting;
  service_->Start(Request(), running);
  service_->Start(Request(), waiting);
  waiting.ended.WaitForNotification();
  EXPECT_TRUE(absl::IsDeadlineExceeded(waiting.status));
  service_->EndAll();
  running.ended.WaitForNotification();
}

TEST_F(GenerationServiceTest, LargeTextsAreRefusedBeforeTheyQueue) {
  GenerationOptions options;
  options.max_prompt_bytes = 8;
  Start(options);
  GenerationRequest request = Request();
  request.text = "nine char";
  RecordingSink sink;
  service_->Start(std::move(request), sink);
  EXPECT_TRUE(sink.ended.HasBeenNotified());
  EXPECT_THAT(sink.status, StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("text: 9 bytes")));
  request = Request();
  request.prompt = {1, 2, 3};
  EXPECT_THAT(Run(std::move(request)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("token_ids: 12 bytes")));
  EXPECT_THAT(
      service_->Tokenize("me", "nine char", true, absl::InfiniteFuture()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text")));
  EXPECT_THAT(
      service_->Detokenize({1, 2, 3}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token_ids")));
}

TEST_F(GenerationServiceTest, ACallersTextsLeaveAThreadToOthers) {
  GenerationOptions options;
  options.max_prompt_bytes = 8;
  Start(options);
  absl::Notification go;
  std::atomic<int> begun{0}, ended{0};
  const auto hold = [&](const absl::Status& admitted) {
    if (admitted.ok()) {
      ++begun;
      go.WaitForNotification();
    }
    ++ended;
  };
  constexpr int kTexts = 100;
  for (int i = 0; i < kTexts; ++i) {
    service_->RunTextWork({.name = "flood"}, 8, absl::InfiniteFuture(), hold);
  }
  absl::Status other = absl::UnknownError("not called");
  absl::Notification done;
  service_->RunTextWork({.name = "other"}, 8, absl::InfiniteFuture(),
                        [&](const absl::Status& admitted) {
                          other = admitted;
                          done.Notify();
                        });
  done.WaitForNotification();
  EXPECT_THAT(other, IsOk());
  EXPECT_GT(ended, 0);  // the queue was full
  EXPECT_LT(begun, kTexts);
  go.Notify();
  service_.reset();
  EXPECT_EQ(ended, kTexts);
}

TEST_F(GenerationServiceTest, ALongPromptWithoutRoomForItsTextIsGivenBack) {
  Start();
  absl::Notification go;
  std::atomic<int> ended{0};
  constexpr int kTexts = 100;
  for (int i = 0; i < kTexts; ++i) {
    service_->RunTextWork({.name = "me"}, 8, absl::InfiniteFuture(),
                          [&](const absl::Status& admitted) {
                            if (admitted.ok()) go.WaitForNotification();
                            ++ended;
                          });
  }
  GenerationRequest request = Request();
  request.caller.name = "me";
  request.caller.requests_per_minute = 1;
  GenerationRequest long_one = request;
  long_one.prompt.clear();
  long_one.text = std::string(70'000, 'q');
  EXPECT_TRUE(absl::IsResourceExhausted(Run(long_one)));
  EXPECT_EQ(observer_.refused[static_cast<size_t>(Refusal::kQueue)], 1);
  EXPECT_EQ(observer_.refused[static_cast<size_t>(Refusal::kQuota)], 0);
  go.Notify();
  FORETOKEN_EXPECT_OK(Run(request));
  service_.reset();
  EXPECT_EQ(ended, kTexts);
}

TEST_F(GenerationServiceTest, AQuotaOfTokensIsChargedForWhatWasUsed) {
  Start();
  GenerationRequest request = Request();
  request.caller.name = "me";
  request.caller.tokens_per_minute = 1000;
  request.max_tokens = 40;
  FORETOKEN_EXPECT_OK(Run(request));
  request.max_tokens = 900;
  FORETOKEN_EXPECT_OK(Run(request));
  const absl::Status refused = Run(request);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("1000 tokens a minute")));
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_EQ(observer_.refused[static_cast<size_t>(Refusal::kQuota)], 1);
  GenerationRequest other = Request();
  FORETOKEN_EXPECT_OK(Run(other));
}

TEST_F(GenerationServiceTest, WhatARequestDidNotUseIsGivenBack) {
  Start();
  GenerationRequest request = Request();
  request.caller.name = "me";
  request.caller.tokens_per_minute = 1000;
  request.max_tokens = 5000;  // beyond the context: nothing is used
  EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("context")));
  request.max_tokens = 900;
  FORETOKEN_EXPECT_OK(Run(request));
}

TEST_F(GenerationServiceTest, APromptThatWasEncodedIsPaidFor) {
  Start();
  GenerationRequest request = Request();
  request.caller.name = "me";
  request.caller.tokens_per_minute = 1000;
  request.prompt.clear();
  request.text = std::string(400, 'q');
  request.max_tokens = 5000;  // beyond the context
  EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("context")));
  request = Request();
  request.caller.name = "me";
  request.caller.tokens_per_minute = 1000;
  request.max_tokens = 900;
  EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr("1000 tokens a minute")));
}

TEST_F(GenerationServiceTest, ARequestThatFindsNoRoomIsGivenBack) {
  target_->hold = true;
  GenerationOptions options;
  options.max_requests = 1;
  options.max_waiting_requests = 1;
  Start(options);
  GenerationRequest request = Request();
  request.caller.name = "me";
  request.caller.requests_per_minute = 3;
  RecordingSink running, waiting;
  service_->Start(request, running);
  service_->Start(request, waiting);
  EXPECT_TRUE(testing::Eventually([&] { return observer_.waiting == 1; }));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("the queue is full")));
  }
  EXPECT_EQ(observer_.refused[static_cast<size_t>(Refusal::kQueue)], 3);
  service_->EndAll();
  running.ended.WaitForNotification();
  waiting.ended.WaitForNotification();
}

TEST_F(GenerationServiceTest, ACancelledRequestDoesNotWaitForEncodingMemory) {
  Start();
  ByteBudget& memory = service_->encoding_memory();
  const auto held = memory.Take("me", memory.max_share());
  FORETOKEN_ASSERT_OK(held);
  GenerationRequest request = Request();
  request.caller.name = "me";
  request.prompt.clear();
  request.text = "the an";
  RecordingSink sink;
  const auto call = service_->Start(request, sink);
  ASSERT_TRUE(testing::Eventually([&] { return memory.waiting() == 1; }));
  call->Cancel();
  sink.ended.WaitForNotification();
  EXPECT_THAT(sink.status,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  EXPECT_EQ(memory.used(), held->bytes());
  EXPECT_THAT(service_->Tokenize("me", "the", true, absl::InfiniteFuture(),
                                 [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
}

TEST_F(GenerationServiceTest, ATextWithoutADeadlineDoesNotWaitForEver) {
  GenerationOptions options;
  options.max_request_time = absl::Milliseconds(20);
  Start(options);
  ByteBudget& memory = service_->encoding_memory();
  const auto held = memory.Take("me", memory.max_share());
  FORETOKEN_ASSERT_OK(held);
  EXPECT_THAT(
      service_->Tokenize("me", "the", true, absl::InfiniteFuture()),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("memory")));
}

TEST_F(GenerationServiceTest, ATextThatWaitsLeavesWhenItsCallIsCancelled) {
  Start();
  absl::Notification go;
  const auto hold = [&](const absl::Status&) { go.WaitForNotification(); };
  RequestPool::Ticket waiting = RequestPool::kNotWaiting;
  absl::Status ended;
  for (int i = 0; i < 3; ++i) {
    service_->RunTextWork({.name = "me"}, 8, absl::InfiniteFuture(), hold);
  }
  waiting = service_->RunTextWork(
      {.name = "me"}, 8, absl::InfiniteFuture(),
      [&](const absl::Status& status) { ended = status; });
  ASSERT_NE(waiting, RequestPool::kNotWaiting);
  service_->CancelTextWork(waiting);
  EXPECT_THAT(ended,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  go.Notify();
  service_.reset();
}

TEST_F(GenerationServiceTest, ABudgetTooSmallForAPromptIsRefusedAtStart) {
  GenerationOptions options;
  options.memory_budget = 64 << 20;
  EXPECT_THAT(GenerationService::Create(options, std::move(target_), nullptr,
                                        LoadTokenizer(), observer_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--memory-budget=67108864")));
}

// Without a tokenizer nothing is encoded, but ids take memory as well.
TEST_F(GenerationServiceTest, ABudgetTooSmallForARequestIsRefusedAtStart) {
  GenerationOptions options;
  options.max_prompt_bytes = 1 << 20;
  options.memory_budget = 32 << 20;
  EXPECT_THAT(GenerationService::Create(options, std::move(target_), nullptr,
                                        nullptr, observer_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--memory-budget=33554432: a request of "
                                 "--max-prompt-bytes=1048576")));
  options.memory_budget = 64 << 20;
  target_ = std::make_unique<FakeTarget>();
  Start(options, /*with_tokenizer=*/false);
}

TEST_F(GenerationServiceTest, ADefaultModeThatCannotRunIsRefusedAtStart) {
  GenerationOptions options;
  options.default_mode = "ouroboros";
  EXPECT_THAT(
      GenerationService::Create(options, std::move(target_), nullptr, nullptr,
                                observer_),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("ouroboros")));
}

}  // namespace
}  // namespace foretoken::orchestrator
