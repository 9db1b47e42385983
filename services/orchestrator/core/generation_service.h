// GenerationService: the orchestrator without its network. It accepts requests,
// gives each its mode, drafters and verifier session, drives its decode loop
// and delivers its output.
//
// A request runs on its own thread of a bounded pool, behind a queue that is
// fair to callers (request_pool.h): it waits for its verifier, and a sink that
// blocks delays only its own request. Tokenize, Detokenize and long prompts
// have threads of their own for texts. All share one budget of memory
// (request_memory.h): the caller of this class charges requests to it, and
// encoding a text waits for its part.
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
#include "common/speculation/generation.h"
#include "common/text/tokenizer.h"
#include "common/tracing/span.h"
#include "services/orchestrator/core/cache_scopes.h"
#include "services/orchestrator/core/caller_quotas.h"
#include "services/orchestrator/core/decode_loop.h"
#include "services/orchestrator/core/modes.h"
#include "services/orchestrator/core/request_pool.h"
#include "services/orchestrator/core/request_trace.h"

namespace foretoken::orchestrator {

// The verifiers of one model. Thread-safe.
class Target {
 public:
  virtual ~Target() = default;

  // Unavailable until one has answered, FailedPrecondition if none will serve.
  virtual absl::StatusOr<TargetInfo> Info() const = 0;
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
  // `mode`: of the request, a row of ModeTable.
  virtual void OnPrefill(const GenerationSummary&, const ModeInfo& /*mode*/) {}
  virtual void OnRound(const RoundReport&, const ModeInfo& /*mode*/) {}
  virtual void OnFailovers(int64_t) {}
  virtual void OnEnd(absl::StatusCode, absl::Duration) {}
};

// Takes the output of one request. Called by one thread at a time.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;

  // Output that is final, never empty, in order. May block; an error that it
  // returns ends the request.
  virtual absl::Status OnDelta(const GenerationDelta& delta) = 0;
  // Once, after the last delta of a request that was served.
  virtual absl::Status OnResult(const GenerationSummary& summary) = 0;
  // Once, last: how the request ended.
  virtual void OnEnd(const absl::Status& status) = 0;
};

struct GenerationOptions {
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
  absl::Duration retry_after = absl::Milliseconds(200);  // minimum retry hint
  DraftWait draft_wait;
  std::string scope_key_file;  // see CacheScopes::Load
  bool trace = false;          // log a line for every round
  SpanSink* spans = nullptr;   // must outlive the service; null: no spans
};

class GenerationService {
 public:
  // One request between its arrival and its end. Thread-safe.
  class Call {
   public:
    // Ends the request with Cancelled, if it has not ended.
    void Cancel() { End(absl::OkStatus()); }

   private:
    friend class GenerationService;
    // Cancels the request; it ends with `reason` unless that is OK.
    void End(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
    // Where Cancel finds the request: in the pool's queue, later at its
    // verifier; null: nowhere any more.
    void SetWaiting(RequestPool& pool, RequestPool::Ticket ticket)
        ABSL_LOCKS_EXCLUDED(mu_);
    void SetVerifier(Verifier* verifier) ABSL_LOCKS_EXCLUDED(mu_);
    bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_);
    // The status to report for a request that ended with `status`.
    absl::Status Reason(const absl::Status& status, absl::Time now) const
        ABSL_LOCKS_EXCLUDED(mu_);

    std::string id;
    std::unique_ptr<RequestTrace> trace;  // of the thread that works on it
    absl::Time start;
    absl::Time deadline;
    Caller caller;
    int64_t charged_tokens = 0;  // to the caller's quota
    bool refused = false;        // no room for its text; of its thread
    int64_t used_tokens = 0;     // written by the request's thread
    mutable absl::Mutex mu_;
    RequestPool* pool_ ABSL_GUARDED_BY(mu_) = nullptr;
    RequestPool::Ticket ticket_ ABSL_GUARDED_BY(mu_) = RequestPool::kNotWaiting;
    Verifier* verifier_ ABSL_GUARDED_BY(mu_) = nullptr;
    bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
    absl::Status reason_ ABSL_GUARDED_BY(mu_);
  };

  // `drafters` may be null: no drafting services; `tokenizer` may be null:
  // token ids alone. InvalidArgument or Unimplemented for a default mode that
  // does not run here, InvalidArgument for a memory budget that is too small
  // for the largest request. `observer` must outlive the service.
  static absl::StatusOr<std::unique_ptr<GenerationService>> Create(
      const GenerationOptions& options, std::unique_ptr<Target> target,
      std::unique_ptr<DraftServices> drafters,
      std::shared_ptr<const Tokenizer> tokenizer, GenerationObserver& observer,
      Clock clock = MonotonicClock());

  // Queues the request; `sink` must live until its OnEnd. A refused request
  // (InvalidArgument by field or unreadable, Unavailable while draining,
  // ResourceExhausted if the queue is full or a quota of the caller is used up)
  // ends before this returns; one that is evicted from the queue or cancelled
  // while it waits ends at that time.
  std::shared_ptr<Call> Start(absl::StatusOr<GenerationRequest> request,
                              GenerationSink& sink);

  // Runs the request in this thread, bypassing the queue.
  absl::StatusOr<GenerationSummary> Generate(
      GenerationRequest request,
      absl::FunctionRef<absl::Status(const GenerationDelta&)> on_delta);

  // Runs work on a text (Tokenize, Detokenize) of `bytes` bytes on threads that
  // requests do not use and that callers share fairly; it waits for them at
  // most max_request_time. `work` is called once, possibly before this returns:
  // with OK, or with the reason why it was refused (ResourceExhausted if the
  // queue is full, DeadlineExceeded, Cancelled). Returns the ticket for
  // CancelTextWork.
  RequestPool::Ticket RunTextWork(
      const Caller& caller, int64_t bytes, absl::Time deadline,
      std::function<void(const absl::Status&)> work);
  // Refuses work that has not begun; does nothing otherwise.
  void CancelTextWork(RequestPool::Ticket ticket);

  // FailedPrecondition without a tokenizer; InvalidArgument for more than
  // max_prompt_bytes, ids counted as four bytes each. Tokenize waits for the
  // memory that it takes, at most max_request_time: DeadlineExceeded, or
  // Cancelled once `cancelled`, if given, returns true.
  absl::StatusOr<std::vector<TokenId>> Tokenize(
      const std::string& caller, absl::string_view text,
      bool add_special_tokens, absl::Time deadline,
      const std::function<bool()>& cancelled = nullptr);
  absl::StatusOr<std::string> Detokenize(
      absl::Span<const TokenId> token_ids) const;
  // InvalidArgument for more than max_prompt_bytes.
  absl::Status CheckBytes(absl::string_view field, size_t bytes) const;

  // `status`; a ResourceExhausted gets a retry hint, if it has none, that
  // follows the load.
  absl::Status WithRetryHint(const absl::Status& status, const Caller& caller);

  // The part of the memory budget that requests are charged to. It must not be
  // used beyond the service's life.
  ByteBudget& memory() { return memory_; }
  // The part for texts while they are encoded.
  ByteBudget& encoding_memory() { return encoding_; }

  const GenerationOptions& options() const { return options_; }
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  const Mode& default_mode() const { return default_mode_; }
  std::vector<std::string> modes() const {
    return ServedModes(drafters_.get());
  }
  absl::StatusOr<TargetInfo> Info() const { return target_->Info(); }

  // Refuses new requests from now on.
  void BeginDrain() ABSL_LOCKS_EXCLUDED(mu_);
  bool Idle() const { return requests_.active() == 0 && texts_.active() == 0; }
  void EndAll() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  GenerationService(const GenerationOptions& options, Mode default_mode,
                    std::unique_ptr<Target> target,
                    std::unique_ptr<DraftServices> drafters,
                    std::shared_ptr<const Tokenizer> tokenizer,
                    CacheScopes scopes, GenerationObserver& observer,
                    Clock clock);

  // Checks the request's names, charges its caller's quota and gives it an id;
  // Unavailable while draining.
  absl::StatusOr<std::shared_ptr<Call>> Enter(GenerationRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // What observes a part's bytes.
  std::function<void(int64_t)> Gauge(MemoryPart part, int64_t limit);
  // Observes and logs the end and gives back what the request did not use of
  // its caller's quota, with `unused_requests`; returns the reason of the end.
  absl::Status Leave(const std::shared_ptr<Call>& call,
                     const absl::Status& status, int64_t unused_requests = 0)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The caller's limit of running requests.
  int32_t MaxRunning(const Caller& caller) const;
  absl::Status CheckTokenizer(const TargetInfo& info) const;
  absl::StatusOr<std::vector<TokenId>> Encode(
      const std::string& caller, absl::string_view text, bool as_prompt,
      absl::Time deadline, const std::function<bool()>& cancelled);
  // Encodes the request's text, a long one on the threads of texts_.
  absl::StatusOr<std::vector<TokenId>> EncodePrompt(
      Call& call, const GenerationRequest& request);
  absl::StatusOr<std::unique_ptr<DecodeLoop>> MakeLoop(
      Call& call, GenerationRequest request);
  absl::StatusOr<GenerationSummary> Drive(
      Call& call, GenerationRequest request,
      absl::FunctionRef<absl::Status(const GenerationDelta&)> on_delta);

  const GenerationOptions options_;
  const Mode default_mode_;
  const std::unique_ptr<Target> target_;
  const std::unique_ptr<DraftServices> drafters_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const int64_t longest_token_;  // bytes
  const CacheScopes scopes_;
  const std::shared_ptr<DraftEstimates> estimates_;  // shared with requests
  GenerationObserver& observer_;
  const Clock clock_;
  ByteBudget memory_;    // of requests
  ByteBudget encoding_;  // of texts while they are encoded
  CallerQuotas quotas_;
  LogThrottle log_throttle_;  // of the lines about requests

  absl::Mutex mu_;
  std::set<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;

  // Last: their threads use all of the above.
  RequestPool texts_;
  RequestPool requests_;
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_GENERATION_SERVICE_H_
