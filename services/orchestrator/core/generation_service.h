// GenerationService: the orchestrator without its network, as a Generator.
//
// It admits requests, gives each its mode, drafters and verifier session,
// drives its decode loop and delivers its output. Everything that a request is
// charged is charged here, whatever it came by: memory (request_memory.h), its
// caller's quota, its account; so are refusals (refusals.h).
//
// A request runs on its own thread of a bounded pool, behind a queue that is
// fair to callers (common/base/request_pool.h): it waits for its verifier and
// for a listener that wants no more. Tokenize, Detokenize and long prompts have
// threads of their own (text_work.h).
//
// The prompt is held once, by the decode loop, which lends it to verifier and
// drafters; its source is dropped once it is encoded. Drafters that run in this
// process have their own indexes of it. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_GENERATION_SERVICE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_GENERATION_SERVICE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/byte_budget.h"
#include "common/base/clock.h"
#include "common/base/log_throttle.h"
#include "common/base/request_pool.h"
#include "common/base/silent_calls.h"
#include "common/generation/generation.h"
#include "common/generation/generator.h"
#include "common/grammar/grammar_cache.h"
#include "common/grammar/token_trie.h"
#include "common/text/tokenizer.h"
#include "common/tracing/span.h"
#include "services/orchestrator/core/admission/cache_scopes.h"
#include "services/orchestrator/core/admission/caller_quotas.h"
#include "services/orchestrator/core/admission/refusals.h"
#include "services/orchestrator/core/admission/request_call.h"
#include "services/orchestrator/core/admission/text_work.h"
#include "services/orchestrator/core/drafters/mode_sources.h"
#include "services/orchestrator/core/round/decode_loop.h"

namespace foretoken::orchestrator {

// The verifiers of one model. Thread-safe.
class Target {
 public:
  virtual ~Target() = default;

  // Unavailable until one has answered, FailedPrecondition if none will serve.
  virtual absl::StatusOr<TargetInfo> Info() const = 0;
  // Whether one serves now.
  virtual bool Ready() const { return Info().ok(); }
  // Makes the verifier of one request; not null.
  virtual std::unique_ptr<Verifier> NewVerifier() = 0;
};

// Why a request was refused that was in order, with the names of metrics.
enum class Refusal { kMemory, kQueue, kQuota, kDraining };
inline constexpr std::array kRefusalNames = {"memory", "queue", "quota",
                                             "draining"};

// Parts of the memory budget, with the names of metrics.
enum class MemoryPart { kRequests, kEncoding };
inline constexpr std::array kMemoryPartNames = {"requests", "encoding"};

// Where a constraint's grammar came from.
enum class ConstraintGrammar { kKept, kCompiled, kRefused };
inline constexpr std::array<const char*, 3> kConstraintGrammarNames = {
    "kept", "compiled", "refused"};

// Observes requests, for metrics. Must be thread-safe and fast.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  virtual void OnRequest() {}
  // Requests that began (1) or ceased (-1) to wait in the queue; one that runs
  // at once does both.
  virtual void OnWaiting(int /*change*/) {}
  virtual void OnRefused(Refusal) {}
  // The bytes of a part that are in use. Called with a lock held.
  virtual void OnMemory(MemoryPart, int64_t /*used*/, int64_t /*limit*/) {}
  // `took`: from the request for a grammar to the grammar or the refusal.
  virtual void OnConstraint(ConstraintGrammar, absl::Duration /*took*/) {}
  // `mode`: of the request, a row of ModeTable.
  virtual void OnPrefill(const GenerationSummary&, const ModeInfo& /*mode*/) {}
  // A prompt was read for its embedding.
  virtual void OnEmbedding(const GenerationSummary&) {}
  virtual void OnRound(const RoundReport&, const ModeInfo& /*mode*/) {}
  virtual void OnFailovers(int64_t) {}
  virtual void OnEnd(absl::StatusCode, absl::Duration) {}
  // Where the caller's requests are counted; lives as long as the observer.
  virtual CallerAccount& AccountOf(const Caller&) { return no_account_; }

 private:
  CallerAccount no_account_;
};

struct GenerationOptions {
  // Shown to clients; never a path. Empty: the name that the target has.
  std::string model_name;
  std::string default_mode = "auto";
  int32_t max_tree_nodes = 64;
  int32_t max_requests = 128;                      // running at once
  int32_t max_waiting_requests = 512;              // beside those
  int64_t max_waiting_bytes = int64_t{256} << 20;  // of their prompts
  // Memory of all requests, whatever their state.
  int64_t memory_budget = int64_t{1} << 30;
  // Maximum concurrent requests of a caller; 0: three quarters of max_requests.
  int32_t max_requests_per_caller = 0;
  absl::Duration max_request_time = absl::Hours(1);  // waiting included
  int64_t max_prompt_bytes = 4 << 20;
  grammar::GrammarCacheOptions grammars;
  // One that others in this process use, too, in place of one with `grammars`;
  // may be null.
  std::shared_ptr<grammar::GrammarCache> grammar_cache;
  absl::Duration retry_after = absl::Milliseconds(200);  // minimum retry hint
  DraftWait draft_wait;
  std::string scope_key_file;  // see CacheScopes::Load
  bool trace = false;          // log a line for every round
  SpanSink* spans = nullptr;   // must outlive the service; null: no spans
};

class GenerationService final : public Generator {
 public:
  // `drafters` may be null: no drafting services; `tokenizer` may be null:
  // token ids alone. InvalidArgument or Unimplemented for a default mode that
  // does not run here, InvalidArgument for a memory budget that is too small
  // for the largest request. `observer` must outlive the service.
  static absl::StatusOr<std::unique_ptr<GenerationService>> Create(
      const GenerationOptions& options, std::unique_ptr<Target> target,
      std::unique_ptr<DraftServices> drafters,
      std::shared_ptr<const Tokenizer> tokenizer, GenerationObserver& observer,
      Clock clock = MonotonicClock());

  // Generator; Info does not wait.
  absl::StatusOr<GeneratorInfo> Info(absl::Time deadline) override;
  bool Ready() override { return target_->Ready(); }
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest request,
      std::shared_ptr<GenerationListener> listener) override {
    return Start(std::move(request), {}, std::move(listener));
  }
  std::shared_ptr<PendingCall> Tokenize(const Caller& caller, std::string text,
                                        bool add_special_tokens,
                                        absl::Time deadline,
                                        OnTokens done) override {
    return Tokenize(caller, std::move(text), add_special_tokens, deadline, {},
                    std::move(done));
  }
  std::shared_ptr<PendingCall> Detokenize(const Caller& caller,
                                          std::vector<TokenId> tokens,
                                          absl::Time deadline,
                                          OnText done) override {
    return Detokenize(caller, std::move(tokens), deadline, {}, std::move(done));
  }

  // The same for a transport that has charged `received` to memory() for the
  // message that it read. Refuses with InvalidArgument (names the field),
  // Unavailable (draining) and ResourceExhausted (memory, queue, quota).
  std::shared_ptr<GenerationCall> Start(
      GenerationRequest request, ByteBudget::Share received,
      std::shared_ptr<GenerationListener> listener);
  std::shared_ptr<PendingCall> Tokenize(const Caller& caller, std::string text,
                                        bool add_special_tokens,
                                        absl::Time deadline,
                                        ByteBudget::Share received,
                                        OnTokens done);
  std::shared_ptr<PendingCall> Detokenize(const Caller& caller,
                                          std::vector<TokenId> tokens,
                                          absl::Time deadline,
                                          ByteBudget::Share received,
                                          OnText done);

  // Counts a call that a transport refuses before it has a request (unreadable,
  // or no memory).
  void CountRefused(const Caller& caller, const absl::Status& status);
  // Ends such calls.
  Refusals& refusals() { return refusals_; }
  // The part of the memory budget that requests are charged to, and the calls
  // charged to it that have sent no request.
  ByteBudget& memory() { return memory_; }
  SilentCalls& silent_calls() { return silent_; }
  // The part for texts while they are encoded.
  ByteBudget& encoding_memory() { return encoding_; }

  const GenerationOptions& options() const { return options_; }
  const Mode& default_mode() const { return default_mode_; }

  // Refuses new requests from now on.
  void BeginDrain() ABSL_LOCKS_EXCLUDED(mu_);
  bool Idle() const {
    return requests_.active() == 0 && texts_.idle() && refusals_.active() == 0;
  }
  void EndAll() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  GenerationService(const GenerationOptions& options, Mode default_mode,
                    std::unique_ptr<Target> target,
                    std::unique_ptr<DraftServices> drafters,
                    std::shared_ptr<const Tokenizer> tokenizer,
                    CacheScopes scopes, GenerationObserver& observer,
                    Clock clock);

  class TextCall;

  // Makes `share` hold `bytes` for the caller.
  absl::Status ChargeMemory(const Caller& caller, int64_t bytes,
                            ByteBudget::Share& share);
  // Checks the request's names, charges its caller's quota and gives it an id;
  // Unavailable while draining.
  absl::Status Enter(GenerationRequest& request,
                     const std::shared_ptr<RequestCall>& call)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Observer of a part's bytes.
  std::function<void(int64_t)> Gauge(MemoryPart part, int64_t limit);
  // Gives back what the request did not use of its caller's quota, counts and
  // logs its end, and tells the listener. `no_room`: it was refused because the
  // queue was full, and no work was done for it.
  void Leave(const std::shared_ptr<RequestCall>& call,
             const absl::Status& status, bool no_room) ABSL_LOCKS_EXCLUDED(mu_);
  // Tells the observer of the end of a request, and of its account's.
  void CountEnd(CallerAccount& account, absl::StatusCode code,
                absl::Duration latency);
  // Ends a request that was refused, never from inside this function.
  void Refuse(const std::shared_ptr<RequestCall>& call,
              const absl::Status& status);
  // The caller's limit of running requests.
  int32_t MaxRunning(const Caller& caller) const;
  // Admits work on a text of `bytes` bytes, which takes `memory`, and runs it
  // on the threads for texts.
  void RunTextCall(const std::shared_ptr<TextCall>& call, const char* field,
                   int64_t bytes, absl::FunctionRef<int64_t()> memory);
  absl::Status CheckTokenizer(const TargetInfo& info) const;
  // Checks of a constraint that need no compilation: FailedPrecondition
  // where there is no tokenizer, InvalidArgument for one that is too large.
  absl::Status CheckConstraint(const Constraint& constraint) const;
  // Errors are those of TextWork::CompileConstraint.
  absl::StatusOr<std::shared_ptr<const grammar::Grammar>> CompileConstraint(
      RequestCall& call, const GenerationRequest& request);
  // The verifiers' model. Unavailable, and FailedPrecondition for a request
  // that is pinned to another.
  absl::StatusOr<TargetInfo> TargetOf(const GenerationRequest& request) const;
  // Makes a text of the request its prompt.
  absl::Status EncodePrompt(RequestCall& call, const TargetInfo& target,
                            GenerationRequest& request);
  absl::StatusOr<std::unique_ptr<DecodeLoop>> MakeLoop(
      RequestCall& call, GenerationRequest request);
  absl::StatusOr<GenerationSummary> Drive(RequestCall& call,
                                          GenerationRequest request);
  // The same for a request with a pooling (generation_embedding.cc).
  absl::StatusOr<GenerationSummary> DriveEmbedding(RequestCall& call,
                                                   GenerationRequest request);
  absl::StatusOr<GenerationSummary> ReadEmbedding(RequestCall& call,
                                                  GenerationRequest request,
                                                  Verifier& verifier);

  const GenerationOptions options_;
  const Mode default_mode_;
  const std::unique_ptr<Target> target_;
  const std::unique_ptr<DraftServices> drafters_;
  const std::shared_ptr<const Tokenizer> tokenizer_;  // may be null
  const std::shared_ptr<const grammar::TokenVocabulary> vocabulary_;  // as it
  const int64_t longest_token_;                       // bytes
  const CacheScopes scopes_;
  const std::shared_ptr<DraftEstimates> estimates_;  // shared with requests
  GenerationObserver& observer_;
  const Clock clock_;
  ByteBudget memory_;    // of requests
  ByteBudget encoding_;  // of texts while they are encoded
  SilentCalls silent_{memory_};
  CallerQuotas quotas_;
  const std::shared_ptr<grammar::GrammarCache> grammars_;
  LogThrottle log_throttle_;  // of the lines about requests

  absl::Mutex mu_;
  std::set<std::shared_ptr<RequestCall>> calls_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;

  // Last: their threads use all of the above, and each those before it. Only
  // refusals_ calls requests_, for hints, and never while that is destroyed:
  // the pools' own refusals carry theirs.
  Refusals refusals_;
  TextWork texts_;
  RequestPool requests_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_GENERATION_SERVICE_H_
