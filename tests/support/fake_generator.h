// FakeGenerator: a generator whose output the test writes, or a script of the
// test's.
#ifndef FORETOKEN_TESTS_SUPPORT_FAKE_GENERATOR_H_
#define FORETOKEN_TESTS_SUPPORT_FAKE_GENERATOR_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/generation/generator.h"

namespace foretoken::testing {

// A request as the generator sees it.
class FakeCall final : public GenerationCall {
 public:
  void Resume() override { ++resumed; }
  void Cancel() override { ++cancelled; }

  GenerationRequest request;
  std::shared_ptr<GenerationListener> listener;
  std::atomic<int> resumed{0};
  std::atomic<int> cancelled{0};

  bool Write(const std::string& text, std::vector<TokenId> tokens = {}) {
    GenerationDelta delta;
    delta.text = text;
    delta.drafters.assign(tokens.size(), DrafterId::kTarget);
    delta.token_ids = std::move(tokens);
    return listener->OnDelta(delta);
  }
  // The usual end.
  void Finish(int64_t tokens = 2) {
    GenerationSummary summary;
    summary.mode = "auto";
    summary.seed = 5;
    summary.finish = FinishReason::kStop;
    summary.prompt_tokens = 3;
    summary.reused_tokens = 1;
    summary.completion_tokens = tokens;
    summary.rounds = 1;
    summary.drafted = 4;
    summary.accepted = 1;
    summary.by_drafter = {{DrafterId::kPromptLookup, 4, 1, 1, 0}};
    listener->OnResult(summary);
    End(absl::OkStatus());
  }
  void End(const absl::Status& status) {
    std::exchange(listener, nullptr)->OnEnd(status);
  }
};

// What the test reaches for is set before the generator is used.
class FakeGenerator final : public Generator {
 public:
  using Take = absl::FunctionRef<absl::Status(const GenerationDelta&)>;
  // Gives the request's output to `take`, which returns Cancelled once the
  // request is cancelled, and the result.
  using Script = std::function<absl::StatusOr<GenerationSummary>(
      const GenerationRequest&, Take take)>;

  // Without a script the test writes through `calls`.
  explicit FakeGenerator(Script script = nullptr) : script_(std::move(script)) {
    info.model = "demo";
    info.max_positions = 100;
    info.modes = {"off", "auto"};
    info.default_mode = "auto";
  }
  ~FakeGenerator() override {
    for (std::thread& thread : threads_) thread.join();
    // A call that has not ended and its listener own each other.
    for (const auto& call : calls) call->listener.reset();
  }

  absl::StatusOr<GeneratorInfo> Info(absl::Time) override {
    if (on_info) on_info();
    if (!ready) return absl::UnavailableError("no server");
    return info;
  }
  bool Ready() override { return ready; }
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) override {
    auto call = std::make_shared<FakeCall>();
    call->request = std::move(request);
    call->listener = std::move(listener);
    absl::MutexLock lock(&mu_);
    calls.push_back(call);
    if (script_ != nullptr) {
      threads_.emplace_back([this, call] { Play(*call); });
    } else if (!refusal.ok()) {
      later_.push_back([call, status = refusal] { call->End(status); });
    }
    return call;
  }
  // The ids of a text are its bytes; special tokens are 0 before them.
  std::shared_ptr<PendingCall> Tokenize(const Caller&, std::string text,
                                        bool add_special_tokens, absl::Time,
                                        OnTokens done) override {
    std::vector<TokenId> tokens;
    if (add_special_tokens) tokens.push_back(0);
    tokens.insert(tokens.end(), text.begin(), text.end());
    // Moved, not copied: answer_memory_test counts the heap.
    return DoLater(
        [done = std::move(done), tokens = std::move(tokens)]() mutable {
          done(std::move(tokens));
        });
  }
  std::shared_ptr<PendingCall> Detokenize(const Caller&,
                                          std::vector<TokenId> tokens,
                                          absl::Time, OnText done) override {
    return DoLater([done = std::move(done), tokens = std::move(tokens)] {
      done(std::string(tokens.begin(), tokens.end()));
    });
  }

  // Answers, in this thread, what could not be answered from inside the
  // functions above: refusals and texts.
  void AnswerRest() {
    std::vector<std::function<void()>> rest;
    {
      absl::MutexLock lock(&mu_);
      rest.swap(later_);
    }
    for (const auto& answer : rest) answer();
  }
  // Those that have come so far.
  std::vector<GenerationRequest> requests() const {
    absl::MutexLock lock(&mu_);
    std::vector<GenerationRequest> all;
    for (const auto& call : calls) all.push_back(call->request);
    return all;
  }

  std::function<void()> on_info;  // is asked for; may be null
  std::function<void()> on_text;  // is encoded or decoded; may be null
  std::atomic<bool> ready{true};
  GeneratorInfo info;
  absl::Status refusal;  // of every request, without a script
  std::vector<std::shared_ptr<FakeCall>> calls;  // read while none comes

 private:
  void Play(FakeCall& call) {
    const auto result = script_(
        call.request, [&](const GenerationDelta& delta) -> absl::Status {
          if (call.cancelled == 0) call.listener->OnDelta(delta);
          return call.cancelled > 0 ? absl::CancelledError("cancelled")
                                    : absl::OkStatus();
        });
    if (result.ok()) call.listener->OnResult(*result);
    call.End(result.status());
  }
  std::shared_ptr<PendingCall> DoLater(std::function<void()> answer) {
    struct Pending final : public PendingCall {
      void Cancel() override {}
    };
    absl::MutexLock lock(&mu_);
    later_.push_back([this, answer = std::move(answer)] {
      if (on_text) on_text();
      answer();
    });
    return std::make_shared<Pending>();
  }

  const Script script_;
  mutable absl::Mutex mu_;
  std::vector<std::function<void()>> later_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_FAKE_GENERATOR_H_
