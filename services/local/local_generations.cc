#include "services/local/local_generations.h"

#include <utility>

#include "common/base/status_macros.h"
#include "services/orchestrator/core/request_memory.h"

namespace foretoken::local {

// One request. Its thread waits while the listener wants no more.
class LocalGenerations::Call final : public orchestrator::GenerationSink,
                                     public gateway::GenerationCall {
 public:
  Call(LocalGenerations& owner, Caller caller,
       std::shared_ptr<gateway::GenerationListener> listener)
      : busy_(owner),
        owner_(owner),
        account_(owner.orchestrator_.AccountOf(caller)),
        caller_(std::move(caller)),
        listener_(std::move(listener)) {}

  // Keeps itself alive until OnEnd.
  static void Begin(const std::shared_ptr<Call>& call,
                    absl::StatusOr<GenerationRequest> request) {
    call->self_ = call;
    if (request.ok()) {
      auto memory = call->owner_.generation().memory().Take(
          call->caller_.name, orchestrator::GenerateBytes(*request));
      if (memory.ok()) {
        call->memory_ = *std::move(memory);
      } else {
        request = memory.status();
      }
    }
    auto started = call->owner_.generation().Start(std::move(request), *call);
    bool cancel = false;
    {
      absl::MutexLock lock(&call->mu_);
      cancel = call->cancelled_;
      call->started_ = started;
    }
    if (cancel && started != nullptr) started->Cancel();
  }

  absl::Status OnDelta(const GenerationDelta& delta) override {
    account_.OnGeneratedTokens(static_cast<int64_t>(delta.token_ids.size()));
    {
      absl::MutexLock lock(&mu_);
      resumed_ = false;
    }
    const bool more = listener_->OnDelta(delta);
    absl::MutexLock lock(&mu_);
    const auto may_go_on = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return resumed_ || cancelled_;
    };
    if (!more) mu_.Await(absl::Condition(&may_go_on));
    return cancelled_ ? absl::CancelledError("the client is gone")
                      : absl::OkStatus();
  }
  absl::Status OnResult(const GenerationSummary& summary) override {
    account_.OnPromptTokens(summary.prompt_tokens);
    listener_->OnResult(summary);
    return absl::OkStatus();
  }
  void OnEnd(const absl::Status& status) override {
    const std::shared_ptr<Call> last = std::move(self_);
    account_.OnEnd(status.code());
    memory_.Release();
    std::exchange(listener_, nullptr)
        ->OnEnd(owner_.generation().WithRetryHint(status, caller_));
  }

  void Resume() override {
    absl::MutexLock lock(&mu_);
    resumed_ = true;
  }
  void Cancel() override {
    std::shared_ptr<orchestrator::GenerationService::Call> started;
    {
      absl::MutexLock lock(&mu_);
      cancelled_ = true;
      started = std::move(started_);
    }
    if (started != nullptr) started->Cancel();
  }

 private:
  const Busy busy_;  // first: the owner goes once the rest is gone
  LocalGenerations& owner_;
  orchestrator::PrincipalMetrics::Account& account_;
  const Caller caller_;
  std::shared_ptr<gateway::GenerationListener> listener_;
  ByteBudget::Share memory_;
  std::shared_ptr<Call> self_;

  absl::Mutex mu_;
  std::shared_ptr<orchestrator::GenerationService::Call> started_
      ABSL_GUARDED_BY(mu_);
  bool resumed_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

LocalGenerations::~LocalGenerations() {
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return work_ == 0;
  };
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&none));
}

void LocalGenerations::Change(int work) {
  absl::MutexLock lock(&mu_);
  work_ += work;
}

absl::StatusOr<gateway::ServedModel> LocalGenerations::Model() {
  const auto found = generation().Info();
  if (!found.ok()) return absl::UnavailableError(found.status().message());
  const orchestrator::TargetInfo& info = *found;
  gateway::ServedModel model;
  model.name = model_name_;
  model.max_positions = info.max_positions;
  model.modes = generation().modes();
  model.default_mode = generation().default_mode().name();
  const Tokenizer* const tokenizer = generation().tokenizer();
  model.tokenizer_fingerprint = tokenizer == nullptr
                                    ? info.tokenizer_fingerprint
                                    : tokenizer->fingerprint_bytes();
  return model;
}

std::shared_ptr<gateway::GenerationCall> LocalGenerations::Start(
    GenerationRequest request,
    std::shared_ptr<gateway::GenerationListener> listener) {
  auto call =
      std::make_shared<Call>(*this, request.caller, std::move(listener));
  Call::Begin(call, std::move(request));
  return call;
}

absl::StatusOr<ByteBudget::Share> LocalGenerations::Admit(const Caller& caller,
                                                          const char* field,
                                                          int64_t bytes,
                                                          int64_t memory) {
  FORETOKEN_RETURN_IF_ERROR(
      generation().CheckBytes(field, static_cast<size_t>(bytes)));
  return generation().memory().Take(caller.name, memory);
}

template <typename Result>
void LocalGenerations::RunTextWork(
    const Caller& caller, int64_t bytes, absl::Time deadline,
    absl::StatusOr<ByteBudget::Share> memory,
    std::function<absl::StatusOr<Result>()> work,
    std::function<void(absl::StatusOr<Result>)> done) {
  if (!memory.ok()) {
    done(generation().WithRetryHint(memory.status(), caller));
    return;
  }
  // Held until the work is done and its functions are gone; a function has to
  // be copyable.
  struct Held {
    Held(LocalGenerations& owner, ByteBudget::Share share)
        : busy(owner), memory(std::move(share)) {}
    const Busy busy;
    const ByteBudget::Share memory;
  };
  const auto held = std::make_shared<const Held>(*this, *std::move(memory));
  generation().RunTextWork(
      caller, bytes, deadline,
      [this, caller, held, work = std::move(work),
       done = std::move(done)](const absl::Status& status) {
        if (status.ok()) {
          done(work());
        } else {
          done(generation().WithRetryHint(status, caller));
        }
      });
}

void LocalGenerations::Tokenize(const Caller& caller, std::string text,
                                bool add_special_tokens, absl::Time deadline,
                                OnTokens done) {
  const auto bytes = static_cast<int64_t>(text.size());
  RunTextWork<std::vector<TokenId>>(
      caller, bytes, deadline,
      Admit(caller, "text", bytes, orchestrator::TokenizeBytes(bytes)),
      [this, name = caller.name, text = std::move(text), add_special_tokens,
       deadline] {
        return generation().Tokenize(name, text, add_special_tokens, deadline);
      },
      std::move(done));
}

void LocalGenerations::Detokenize(const Caller& caller,
                                  std::vector<TokenId> tokens,
                                  absl::Time deadline, OnText done) {
  const auto bytes = static_cast<int64_t>(tokens.size() * sizeof(TokenId));
  const int64_t memory =
      orchestrator::DetokenizeBytes(tokens, generation().tokenizer());
  RunTextWork<std::string>(
      caller, bytes, deadline, Admit(caller, "token_ids", bytes, memory),
      [this, tokens = std::move(tokens)] {
        return generation().Detokenize(tokens);
      },
      std::move(done));
}

}  // namespace foretoken::local
