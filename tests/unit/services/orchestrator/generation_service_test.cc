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
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// What the verifiers of a target were asked for.
struct Asked {
  absl::Mutex mu;
  Constraint constraint ABSL_GUARDED_BY(mu);    // of the last session
  std::string cache_scope ABSL_GUARDED_BY(mu);  // the same
};

// A verifier that waits, where it is told to, until it is cancelled.
class HeldVerifier final : public Verifier {
 public:
  HeldVerifier(testing::EngineDriver& driver, bool hold,
               std::shared_ptr<Asked> asked)
      : verifier_(driver), hold_(hold), asked_(std::move(asked)) {}
  absl::StatusOr<PrefillResult> Open(SessionRequest request,
                                     absl::Span<const TokenId> text) override {
    {
      absl::MutexLock lock(&asked_->mu);
      asked_->constraint = request.constraint;
      asked_->cache_scope = request.cache_scope;
    }
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
  const std::shared_ptr<Asked> asked_;
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
    info.embedding_size = 8;  // the fake backend's
    info.eos_tokens = {1};
  }
  absl::StatusOr<TargetInfo> Info() const override { return info; }
  std::unique_ptr<Verifier> NewVerifier() override {
    return std::make_unique<HeldVerifier>(driver_, hold, asked);
  }

  const std::shared_ptr<Asked> asked = std::make_shared<Asked>();
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
  void OnEmbedding(const GenerationSummary& summary) override {
    embedded_tokens += summary.prompt_tokens;
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
  CallerAccount& AccountOf(const Caller&) override { return account; }

  struct Account final : public CallerAccount {
    void OnPromptTokens(int64_t count) override { prompt_tokens += count; }
    void OnGeneratedTokens(int64_t count) override {
      generated_tokens += count;
    }
    void OnEnd(absl::StatusCode) override { ++ends; }
    std::atomic<int64_t> prompt_tokens{0}, generated_tokens{0}, ends{0};
  };
  Account account;

  std::string mode_name = "prompt_lookup";  // of all requests
  std::atomic<int64_t> requests{0}, prefills{0}, rounds{0}, failovers{0};
  std::atomic<int64_t> embedded_tokens{0};
  std::atomic<int> waiting{0};
  std::array<std::atomic<int>, kRefusalNames.size()> refused{};  // by Refusal

 private:
  mutable absl::Mutex mu_;
  std::vector<absl::StatusCode> ends_ ABSL_GUARDED_BY(mu_);
};

// Records what it is told; pauses at every delta if `pauses`.
class Recorder final : public GenerationListener {
 public:
  explicit Recorder(bool pauses = false) : pauses_(pauses) {}

  bool OnDelta(const GenerationDelta& delta) override {
    EXPECT_FALSE(delta.empty());
    absl::MutexLock lock(&mu_);
    token_ids_.insert(token_ids_.end(), delta.token_ids.begin(),
                      delta.token_ids.end());
    return !pauses_;
  }
  void OnResult(const GenerationSummary& result) override { summary = result; }
  void OnEnd(const absl::Status& end) override {
    status = end;
    ended.Notify();
  }
  std::vector<TokenId> token_ids() const {
    absl::MutexLock lock(&mu_);
    return token_ids_;
  }
  const absl::Status& Wait() const {
    ended.WaitForNotification();
    return status;
  }

  // Once it has ended.
  GenerationSummary summary;
  absl::Status status;
  absl::Notification ended;

 private:
  const bool pauses_;
  mutable absl::Mutex mu_;
  std::vector<TokenId> token_ids_ ABSL_GUARDED_BY(mu_);
};

class GenerationServiceTest : public ::testing::Test {
 protected:
  // `change` may alter target and options before the start.
  void Start(GenerationOptions options = {}, bool with_tokenizer = true,
             Clock clock = MonotonicClock()) {
    options.default_mode = "prompt_lookup";
    auto service =
        GenerationService::Create(options, std::move(target_), nullptr,
                                  with_tokenizer ? LoadTokenizer() : nullptr,
                                  observer_, std::move(clock));
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

  struct Started {
    std::shared_ptr<Recorder> recorder;
    std::shared_ptr<GenerationCall> call;
  };
  Started Send(GenerationRequest request, bool pauses = false) {
    Started started;
    started.recorder = std::make_shared<Recorder>(pauses);
    started.call = service_->Start(std::move(request), started.recorder);
    return started;
  }
  // How the request ends.
  absl::Status Run(GenerationRequest request) {
    return Send(std::move(request)).recorder->Wait();
  }
  absl::StatusOr<std::vector<TokenId>> Tokenize(const std::string& text) {
    absl::StatusOr<std::vector<TokenId>> ids;
    absl::Notification done;
    const auto call =
        service_->Tokenize({.name = "me"}, text, true, absl::InfiniteFuture(),
                           [&](absl::StatusOr<std::vector<TokenId>> got) {
                             ids = std::move(got);
                             done.Notify();
                           });
    done.WaitForNotification();
    return ids;
  }
  absl::Status DetokenizeError(std::vector<TokenId> tokens) {
    absl::Status status;
    absl::Notification done;
    const auto call = service_->Detokenize(
        {.name = "me"}, std::move(tokens), absl::InfiniteFuture(),
        [&](absl::StatusOr<std::string> got) {
          status = got.status();
          done.Notify();
        });
    done.WaitForNotification();
    return status;
  }

  testing::TempDir dir_;
  std::unique_ptr<FakeTarget> target_ = std::make_unique<FakeTarget>();
  CountingObserver observer_;
  std::unique_ptr<GenerationService> service_;
};

TEST_F(GenerationServiceTest, ARequestIsServedAndObserved) {
  Start();
  const auto recorder = Send(Request()).recorder;
  FORETOKEN_ASSERT_OK(recorder->Wait());
  const GenerationSummary& summary = recorder->summary;
  EXPECT_THAT(recorder->token_ids(), SizeIs(40));
  EXPECT_EQ(summary.completion_tokens, 40);
  EXPECT_EQ(summary.prompt, Request().prompt);
  EXPECT_EQ(summary.mode, "prompt_lookup");
  EXPECT_THAT(summary.request_id, SizeIs(16));  // drawn
  EXPECT_EQ(observer_.requests, 1);
  EXPECT_EQ(observer_.waiting, 0);
  EXPECT_EQ(observer_.prefills, 1);
  EXPECT_EQ(observer_.rounds, summary.rounds);
  EXPECT_EQ(observer_.failovers, 2);
  EXPECT_THAT(observer_.ends(), ElementsAre(absl::StatusCode::kOk));
  EXPECT_EQ(observer_.account.prompt_tokens, 6);
  EXPECT_EQ(observer_.account.generated_tokens, 40);
  EXPECT_EQ(observer_.account.ends, 1);
}

TEST_F(GenerationServiceTest, AnEmbeddingIsServedAndCharged) {
  const std::shared_ptr<Asked> asked = target_->asked;
  Start();
  GenerationRequest request = Request();
  request.pooling = Pooling::kMean;
  request.cache_scope = "scope";
  request.caller = {.name = "me", .tokens_per_minute = 16};
  const auto recorder = Send(request).recorder;
  FORETOKEN_ASSERT_OK(recorder->Wait());
  const GenerationSummary& summary = recorder->summary;
  EXPECT_THAT(summary.embedding, SizeIs(8));
  EXPECT_EQ(summary.prompt_tokens, 6);
  EXPECT_EQ(summary.completion_tokens, 0);
  EXPECT_THAT(recorder->token_ids(), SizeIs(0));
  EXPECT_EQ(observer_.embedded_tokens, 6);
  EXPECT_EQ(observer_.prefills + observer_.rounds, 0);
  EXPECT_EQ(observer_.failovers, 2);
  EXPECT_EQ(observer_.account.prompt_tokens, 6);
  EXPECT_EQ(observer_.account.generated_tokens, 0);
  {
    absl::MutexLock lock(&asked->mu);
    EXPECT_EQ(asked->cache_scope, "");
  }
  // Its 40 tokens of output were not charged, its prompt is.
  FORETOKEN_EXPECT_OK(Run(request));
  EXPECT_THAT(Run(request),
              StatusIs(absl::StatusCode::kResourceExhausted, ::testing::_));
  // The same text, encoded here.
  GenerationRequest text = request;
  text.caller = {.name = "other"};
  text.prompt.clear();
  text.text = "ab";
  FORETOKEN_EXPECT_OK(Run(text));
}

TEST_F(GenerationServiceTest, BadTextsHaveNoEmbedding) {
  target_->info.max_positions = 5;
  target_->info.numerics_fingerprint = "numerics";
  Start();
  GenerationRequest request = Request();
  request.pooling = Pooling::kLast;
  EXPECT_THAT(Run(request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("prompt: it has 6 tokens: this model's "
                                 "maximum context length is 5 tokens")));
  request.prompt = {};
  EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("prompt: it is empty")));
  request.prompt = {testing::kTinyVocabulary};
  EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("prompt: token 0")));
  request.prompt = {1};
  request.numerics_fingerprint = "others";
  EXPECT_THAT(Run(request),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::_));
}

TEST_F(GenerationServiceTest, VerifiersWithoutEmbeddingsMakeNone) {
  target_->info.embedding_size = 0;
  Start();
  GenerationRequest request = Request();
  request.pooling = Pooling::kMean;
  EXPECT_THAT(Run(request),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("pooling")));
}

TEST_F(GenerationServiceTest, ItSaysWhatItServes) {
  target_->info.numerics_fingerprint = "numerics";
  GenerationOptions options;
  options.model_name = "tiny";
  options.max_tree_nodes = 32;
  Start(options);
  const auto info = service_->Info(absl::InfiniteFuture());
  FORETOKEN_ASSERT_OK(info);
  EXPECT_EQ(info->model, "tiny");
  EXPECT_EQ(info->vocab_size, testing::kTinyVocabulary);
  EXPECT_EQ(info->max_positions, 4096);
  EXPECT_EQ(info->max_tree_nodes, 32);
  EXPECT_THAT(info->modes, Contains("prompt_lookup"));
  EXPECT_EQ(info->default_mode, "prompt_lookup");
  EXPECT_EQ(info->numerics_fingerprint, "numerics");
  EXPECT_EQ(info->tokenizer_fingerprint, LoadTokenizer()->fingerprint_bytes());
  EXPECT_TRUE(service_->Ready());
}

TEST_F(GenerationServiceTest, AListenerThatPausesHoldsUpItsRequestAlone) {
  Start();
  const auto whole = Send(Request()).recorder;
  FORETOKEN_ASSERT_OK(whole->Wait());
  const auto [paused, call] = Send(Request(), /*pauses=*/true);
  ASSERT_TRUE(
      testing::Eventually([&p = paused] { return !p->token_ids().empty(); }));
  FORETOKEN_EXPECT_OK(Run(Request()));
  EXPECT_THAT(paused->token_ids(), SizeIs(1));
  EXPECT_FALSE(paused->ended.HasBeenNotified());
  ASSERT_TRUE(testing::Eventually([&p = paused, &c = call] {
    c->Resume();
    return p->ended.HasBeenNotified();
  }));
  FORETOKEN_EXPECT_OK(paused->Wait());
  EXPECT_EQ(paused->token_ids(), whole->token_ids());
}

TEST_F(GenerationServiceTest, ACancelEndsARequestThatIsPaused) {
  Start();
  const auto [paused, call] = Send(Request(), /*pauses=*/true);
  ASSERT_TRUE(
      testing::Eventually([&p = paused] { return !p->token_ids().empty(); }));
  call->Cancel();
  EXPECT_THAT(paused->Wait(), StatusIs(absl::StatusCode::kCancelled,
                                       HasSubstr("was cancelled")));
  EXPECT_THAT(paused->token_ids(), SizeIs(1));
  EXPECT_EQ(paused->summary.rounds, 0);
}

// Its caller may hold a lock that the listener takes.
TEST_F(GenerationServiceTest, NoListenerIsToldFromInsideACall) {
  target_->hold = true;
  GenerationOptions options;
  options.max_requests = 1;
  options.max_waiting_requests = 1;
  Start(options);
  struct Locking final : public GenerationListener {
    explicit Locking(absl::Mutex& of_caller) : mu(of_caller) {}
    bool OnDelta(const GenerationDelta&) override { return true; }
    void OnResult(const GenerationSummary&) override {}
    void OnEnd(const absl::Status&) override {
      { absl::MutexLock lock(&mu); }
      ended.Notify();
    }
    absl::Mutex& mu;
    absl::Notification ended;
  };
  absl::Mutex mu;
  std::vector<std::shared_ptr<Locking>> listeners;
  std::vector<std::shared_ptr<GenerationCall>> calls;
  {
    absl::MutexLock lock(&mu);
    // The first runs, the second waits, one is refused for its id and one for
    // the queue, which may evict the one that waits.
    for (const char* id : {"a", "b", "no id", "d"}) {
      GenerationRequest request = Request();
      request.request_id = id;
      listeners.push_back(std::make_shared<Locking>(mu));
      calls.push_back(service_->Start(std::move(request), listeners.back()));
    }
    for (const auto& call : calls) call->Cancel();
    service_->EndAll();
  }
  for (const auto& listener : listeners) listener->ended.WaitForNotification();
}

TEST_F(GenerationServiceTest, ATextIsEncodedAndASeedDrawn) {
  Start();
  GenerationRequest request = Request();
  request.prompt.clear();
  request.text = "the an";
  request.has_seed = false;
  request.mode = *Mode::Parse("off");
  observer_.mode_name = "off";
  const auto first = Send(request).recorder;
  FORETOKEN_ASSERT_OK(first->Wait());
  const auto second = Send(request).recorder;
  FORETOKEN_ASSERT_OK(second->Wait());
  EXPECT_EQ(first->summary.prompt, *Tokenize("the an"));
  EXPECT_EQ(first->summary.mode, "off");
  EXPECT_NE(first->summary.seed, second->summary.seed);
}

TEST_F(GenerationServiceTest, WithoutATokenizerTextsAreRefused) {
  Start({}, /*with_tokenizer=*/false);
  GenerationRequest request = Request();
  request.text = "the";
  EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("want token_ids")));
  EXPECT_THAT(Tokenize("the"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("no tokenizer")));
  EXPECT_THAT(DetokenizeError({1}),
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
  refused([](auto& r) { r.prefix_scope = std::string(257, 's'); },
          "prefix_scope: 257 bytes");
  refused([](auto& r) { r.text = std::string(25, 'x'); }, "text: 25 bytes");
  refused([](auto& r) { r.max_tree_nodes = 33; },
          "speculation.max_tree_nodes: 33, want 1..32");
  refused([](auto& r) { r.max_tree_nodes = 0; }, "max_tree_nodes");
  refused([](auto& r) { r.mode = *Mode::Parse("draft_model:gamma=33"); },
          "gamma");
  refused([](auto& r) { r.prompt.clear(); }, "prompt: it is empty");
  GenerationRequest request = Request();
  request.mode = *Mode::Parse("crest");
  EXPECT_THAT(Run(std::move(request)),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("crest")));
  service_->CountRefused({}, absl::InvalidArgumentError("sampling.top_k: no"));
  EXPECT_EQ(observer_.requests, 10);
  EXPECT_THAT(observer_.ends(), SizeIs(10));
  EXPECT_EQ(observer_.account.ends, 10);
}

TEST_F(GenerationServiceTest, PagesAreSharedWithinTheScopeOfTheCaller) {
  const std::shared_ptr<Asked> asked = target_->asked;
  Start();
  const auto scope = [&](const char* caller, const char* cache_scope,
                         const char* prefix_scope) {
    GenerationRequest request = Request();
    request.caller.name = caller;
    request.caller.authenticated = true;
    request.cache_scope = cache_scope;
    request.prefix_scope = prefix_scope;
    FORETOKEN_EXPECT_OK(Run(std::move(request)));
    absl::MutexLock lock(&asked->mu);
    return asked->cache_scope;
  };
  EXPECT_EQ(scope("a", "", ""), "");
  const std::string pages = scope("a", "", "own");
  EXPECT_THAT(pages, SizeIs(64));
  EXPECT_EQ(scope("a", "", "own"), pages);
  EXPECT_NE(scope("b", "", "own"), pages);
  // One that the request names is the scope of all it shares.
  const std::string named = scope("a", "chat", "");
  EXPECT_NE(named, pages);
  EXPECT_EQ(scope("a", "chat", "own"), named);
  EXPECT_NE(scope("a", "own", ""), pages);
}

TEST_F(GenerationServiceTest, AnotherTokenizersModelIsRefused) {
  target_->info.tokenizer_fingerprint = std::string(32, 'x');
  Start();
  EXPECT_THAT(Run(Request()), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("another tokenizer")));
}

TEST_F(GenerationServiceTest, ACancelReachesTheVerifier) {
  target_->hold = true;
  Start();
  const auto [recorder, call] = Send(Request());
  call->Cancel();
  EXPECT_THAT(recorder->Wait(), StatusIs(absl::StatusCode::kCancelled,
                                         HasSubstr("was cancelled")));
  // A transport cancels at the deadline, too.
  GenerationRequest late = Request();
  late.deadline = absl::InfinitePast();
  const auto [expired, late_call] = Send(std::move(late));
  late_call->Cancel();
  EXPECT_THAT(expired->Wait(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                        HasSubstr("deadline has passed")));
}

TEST_F(GenerationServiceTest, AStopEndsWhatRunsAndRefusesWhatComes) {
  target_->hold = true;
  Start();
  const auto running = Send(Request()).recorder;
  service_->BeginDrain();
  EXPECT_THAT(Run(Request()), StatusIs(absl::StatusCode::kUnavailable,
                                       HasSubstr("is draining")));
  EXPECT_FALSE(service_->Idle());
  service_->EndAll();
  running->Wait();
  EXPECT_TRUE(IsStopping(running->status)) << running->status;
}

TEST_F(GenerationServiceTest, AFullQueueRefuses) {
  target_->hold = true;
  GenerationOptions options;
  options.max_requests = 1;
  options.max_waiting_requests = 1;
  Start(options);
  const auto running = Send(Request()).recorder;
  const auto waiting = Send(Request()).recorder;
  EXPECT_TRUE(absl::IsResourceExhausted(Run(Request())));
  service_->EndAll();
  running->Wait();
  waiting->Wait();
}

TEST_F(GenerationServiceTest, ACancelledRequestLeavesTheQueueAtOnce) {
  target_->hold = true;
  GenerationOptions options;
  options.max_requests = 1;
  Start(options);
  const auto running = Send(Request()).recorder;
  const auto [waiting, call] = Send(Request());
  EXPECT_FALSE(waiting->ended.HasBeenNotified());
  call->Cancel();
  EXPECT_TRUE(absl::IsCancelled(waiting->Wait()));
  EXPECT_FALSE(running->ended.HasBeenNotified());
  service_->EndAll();
  running->Wait();
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
  const auto first = Send(from("a")).recorder;
  const auto second = Send(from("a")).recorder;
  const auto other = Send(from("b", 2)).recorder;
  const auto others_second = Send(from("b", 2)).recorder;
  second->Wait();
  EXPECT_TRUE(absl::IsDeadlineExceeded(second->status));
  EXPECT_FALSE(first->ended.HasBeenNotified());
  EXPECT_FALSE(other->ended.HasBeenNotified());
  EXPECT_FALSE(others_second->ended.HasBeenNotified());
  service_->EndAll();
  for (const auto& held : {first, other, others_second}) held->Wait();
}

TEST_F(GenerationServiceTest, ARequestThatNamesNoDeadlineHasOne) {
  target_->hold = true;
  GenerationOptions options;
  options.max_requests = 1;
  options.max_request_time = absl::Milliseconds(50);
  Start(options);
  const auto running = Send(Request()).recorder;
  const auto waiting = Send(Request()).recorder;
  waiting->Wait();
  EXPECT_TRUE(absl::IsDeadlineExceeded(waiting->status));
  service_->EndAll();
  running->Wait();
}

TEST_F(GenerationServiceTest, LargeTextsAreRefusedBeforeTheyQueue) {
  GenerationOptions options;
  options.max_prompt_bytes = 8;
  Start(options);
  GenerationRequest request = Request();
  request.text = "nine char";
  const auto recorder = Send(std::move(request)).recorder;
  EXPECT_THAT(recorder->Wait(), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("text: 9 bytes")));
  request = Request();
  request.prompt = {1, 2, 3};
  EXPECT_THAT(Run(std::move(request)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("token_ids: 12 bytes")));
  EXPECT_THAT(Tokenize("nine char"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text")));
  EXPECT_THAT(
      DetokenizeError({1, 2, 3}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token_ids")));
}

TEST_F(GenerationServiceTest, ALongPromptWithoutRoomForItsTextIsGivenBack) {
  Start();
  absl::Notification go;
  std::atomic<int> ended{0};
  constexpr int kTexts = 100;
  for (int i = 0; i < kTexts; ++i) {
    service_->Tokenize({.name = "me"}, "a text", true, absl::InfiniteFuture(),
                       [&](const absl::StatusOr<std::vector<TokenId>>& ids) {
                         if (ids.ok()) go.WaitForNotification();
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

// Where time stands still, a refusal that is held stays held.
TEST_F(GenerationServiceTest,
       ARefusalIsHeldWithoutMemoryUntilItsCallIsCancelled) {
  Start({}, /*with_tokenizer=*/true, [now = MonotonicNow()] { return now; });
  GenerationRequest request = Request();
  request.caller.name = "me";
  request.caller.requests_per_minute = 1;
  FORETOKEN_EXPECT_OK(Run(request));
  EXPECT_TRUE(absl::IsResourceExhausted(Run(request)));
  EXPECT_TRUE(testing::Eventually([&] { return service_->Idle(); }));
  const auto [held, call] = Send(request);
  EXPECT_FALSE(service_->Idle());
  EXPECT_FALSE(held->ended.HasBeenNotified());
  EXPECT_EQ(service_->memory().used(), 0);
  call->Cancel();
  EXPECT_TRUE(absl::IsResourceExhausted(held->Wait()));
  EXPECT_EQ(observer_.refused[static_cast<size_t>(Refusal::kQuota)], 2);
}

TEST_F(GenerationServiceTest, ATextThatIsRefusedIsHeldWithoutMemory) {
  Start({}, /*with_tokenizer=*/true, [now = MonotonicNow()] { return now; });
  ByteBudget& memory = service_->memory();
  const auto full = memory.Take("me", memory.max_share());
  FORETOKEN_ASSERT_OK(full);
  EXPECT_TRUE(absl::IsResourceExhausted(Tokenize("the an").status()));
  EXPECT_TRUE(testing::Eventually([&] { return service_->Idle(); }));
  absl::Notification ended;
  const auto call =
      service_->Tokenize({.name = "me"}, "the an", true, absl::InfiniteFuture(),
                         [&](const absl::StatusOr<std::vector<TokenId>>& ids) {
                           EXPECT_TRUE(absl::IsResourceExhausted(ids.status()));
                           ended.Notify();
                         });
  EXPECT_FALSE(service_->Idle());
  EXPECT_EQ(memory.used(), full->bytes());
  call->Cancel();
  ended.WaitForNotification();
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
  const auto running = Send(request).recorder;
  const auto waiting = Send(request).recorder;
  EXPECT_TRUE(testing::Eventually([&] { return observer_.waiting == 1; }));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("the queue is full")));
  }
  EXPECT_EQ(observer_.refused[static_cast<size_t>(Refusal::kQueue)], 3);
  service_->EndAll();
  running->Wait();
  waiting->Wait();
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
  const auto [recorder, call] = Send(request);
  ASSERT_TRUE(testing::Eventually([&] { return memory.waiting() == 1; }));
  call->Cancel();
  recorder->Wait();
  EXPECT_THAT(recorder->status,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  EXPECT_EQ(memory.used(), held->bytes());
  absl::Status of_text;
  absl::Notification ended;
  const auto text =
      service_->Tokenize({.name = "me"}, "the", true, absl::InfiniteFuture(),
                         [&](const absl::StatusOr<std::vector<TokenId>>& ids) {
                           of_text = ids.status();
                           ended.Notify();
                         });
  ASSERT_TRUE(testing::Eventually([&] { return memory.waiting() == 1; }));
  text->Cancel();
  ended.WaitForNotification();
  EXPECT_THAT(of_text,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
}

GenerationRequest WithRegex(GenerationRequest request,
                            const std::string& regex) {
  request.constraint = {Constraint::Kind::kRegex, regex, {}};
  return request;
}

TEST_F(GenerationServiceTest, AConstraintIsCheckedBeforeItsSessionIsOpened) {
  target_->hold = true;  // a session that is opened never ends
  const std::shared_ptr<Asked> asked = target_->asked;
  Start();
  EXPECT_THAT(
      Run(WithRegex(Request(), "a(")),
      StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("constraint: ")));
  // Its reason does not matter to the caller: only another constraint helps.
  GenerationRequest request = Request();
  request.constraint = {
      Constraint::Kind::kJsonSchema, R"({"$dynamicRef": "#a"})", {}};
  EXPECT_THAT(Run(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                     StartsWith("constraint: ")));
  EXPECT_EQ(observer_.refused[static_cast<size_t>(Refusal::kQueue)], 0);
  const auto good = Send(WithRegex(Request(), "a+"));
  EXPECT_TRUE(testing::Eventually([&] {
    absl::MutexLock lock(&asked->mu);
    return asked->constraint == Constraint{Constraint::Kind::kRegex, "a+", {}};
  }));
  good.call->Cancel();
  good.recorder->Wait();
}

TEST_F(GenerationServiceTest, AGrammarIsLeftToOthersInTheProcess) {
  target_->hold = true;
  const std::shared_ptr<Asked> asked = target_->asked;
  GenerationOptions options;
  options.grammar_cache =
      std::make_shared<grammar::GrammarCache>(grammar::GrammarCacheOptions());
  Start(options);
  const GenerationRequest request = WithRegex(Request(), "a+");
  const auto [recorder, call] = Send(request);
  // Before its session is opened.
  EXPECT_TRUE(testing::Eventually([&] {
    absl::MutexLock lock(&asked->mu);
    return asked->constraint == request.constraint;
  }));
  EXPECT_NE(options.grammar_cache->Find(request.constraint), nullptr);
  call->Cancel();
  recorder->Wait();
}

TEST_F(GenerationServiceTest, AConstraintThatIsTooLargeIsRefusedAtOnce) {
  GenerationOptions options;
  options.grammars.max_constraint_bytes = 100;
  Start(options);
  EXPECT_THAT(Run(WithRegex(Request(), std::string(101, 'a'))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("constraint: 101 bytes, want at most 100")));
}

TEST_F(GenerationServiceTest, WithoutATokenizerAConstraintIsRefused) {
  Start({}, /*with_tokenizer=*/false);
  EXPECT_THAT(Run(WithRegex(Request(), "a+")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("constraint: this server has no tokenizer")));
  FORETOKEN_EXPECT_OK(Run(Request()));
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
  options.grammars.max_constraint_bytes = 64 << 10;
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
