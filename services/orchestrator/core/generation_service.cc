#include "services/orchestrator/core/generation_service.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/stopping.h"
#include "common/generation/prompt_tokens.h"
#include "common/grammar/constrained_text.h"
#include "services/orchestrator/core/admission/request_memory.h"
#include "services/orchestrator/core/round/round_line.h"

namespace foretoken::orchestrator {
namespace {

// The longest special token.
constexpr int64_t kMinLongestToken = 64;
// How much shorter than a text its tokens may be: normalizers drop characters,
// and a run of unknown ones may be a single token.
constexpr int64_t kMaxShrink = 16;

// Tokens of a prompt that count as much as one token of output when callers
// share a server: a prompt is read in passes of many rows.
constexpr int64_t kPromptTokensPerCost = 16;
// Requests of maximum size that gRPC must be able to receive at once: when it
// runs out of memory for them, it cancels calls, any of them.
constexpr int64_t kReceivedAtOnce = 4;
// Caps the cost that a request can claim.
constexpr int64_t kMaxCost = 1 << 17;
// Drafts are checked against constraints whose grammar takes at most this much
// memory; the automaton of a request may grow by as much again (GenerateBytes
// counts both).
constexpr int64_t kCheckedGrammarBytes = int64_t{1} << 20;

int64_t PromptBytes(const GenerationRequest& request) {
  // Text counts by its bytes before anyone knows its tokens, since the cost
  // decides when it is encoded.
  return static_cast<int64_t>(request.prompt.size() * sizeof(TokenId) +
                              (request.text ? request.text->size() : 0));
}

int64_t CostOf(const GenerationRequest& request) {
  const int64_t prompt_tokens = PromptBytes(request) / kTextBytesPerToken;
  // Clamped: max_tokens is the client's number, and a claim of 2^31 would put
  // the caller behind all others for hours.
  return std::clamp<int64_t>(
      request.max_tokens + prompt_tokens / kPromptTokensPerCost, 1, kMaxCost);
}

// Tokens that count against the caller's quota until the request ends.
int64_t TokensOf(const GenerationRequest& request) {
  // max_tokens may be negative here; it is refused later.
  return std::max<int64_t>(request.max_tokens, 0) +
         EstimatedTokens(request.text ? request.text->size() : 0,
                         request.prompt.size());
}

RequestPoolOptions PoolOptions(const GenerationOptions& options) {
  return {.max_running = options.max_requests,
          .waiting = {.items = options.max_waiting_requests,
                      .bytes = options.max_waiting_bytes},
          .min_retry_after = options.retry_after};
}

TextWorkOptions TextOptions(const GenerationOptions& options) {
  return {.max_text_bytes = options.max_prompt_bytes,
          .max_waiting_bytes = options.max_waiting_bytes,
          .max_time = options.max_request_time,
          .retry_after = options.retry_after};
}

int64_t LongestToken(const Tokenizer* tokenizer) {
  int64_t longest = kMinLongestToken;
  for (TokenId id = 0; tokenizer != nullptr && id < tokenizer->vocab_size();
       ++id) {
    longest = std::max(longest,
                       static_cast<int64_t>(tokenizer->TokenBytes(id).size()));
  }
  return longest;
}

// Whether the largest prompt fits each part of the budget.
absl::Status CheckBudget(const GenerationOptions& options,
                         bool with_tokenizer) {
  const MemoryParts parts = DivideMemory(options.memory_budget);
  const auto check = [&](absl::string_view what, int64_t needed,
                         int64_t there) -> absl::Status {
    if (needed <= there) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "--memory-budget=", options.memory_budget, ": ", what,
        " of --max-prompt-bytes=", options.max_prompt_bytes, " takes ", needed,
        " bytes, more than the ", there,
        " that the budget leaves for it: want a larger --memory-budget or a "
        "smaller --max-prompt-bytes"));
  };
  if (with_tokenizer) {
    FORETOKEN_RETURN_IF_ERROR(check("encoding a prompt",
                                    EncodingBytes(options.max_prompt_bytes),
                                    ByteBudget(parts.encoding).max_share()));
  }
  const ByteBudget requests(parts.requests);
  FORETOKEN_RETURN_IF_ERROR(
      check("a request",
            LargestRequestBytes(options.max_prompt_bytes,
                                options.grammars.max_constraint_bytes,
                                with_tokenizer),
            requests.max_share()));
  FORETOKEN_RETURN_IF_ERROR(check(
      "receiving requests",
      kReceivedAtOnce * MaxWireBytes(options.max_prompt_bytes,
                                     options.grammars.max_constraint_bytes),
      parts.receiving));
  const int64_t most =
      int64_t{options.max_requests} + options.max_waiting_requests;
  // Only a warning: short requests are rarely all there is, and the operator
  // may want the limits for them.
  const int64_t smallest = GenerateBytes(GenerationRequest());
  if (most * smallest > requests.limit()) {
    FORETOKEN_LOG(kWarning, "--memory-budget=", options.memory_budget,
                  " has room for ", requests.limit() / smallest,
                  " short requests; --max-requests and --max-waiting-requests "
                  "allow ",
                  most);
  }
  return absl::OkStatus();
}

uint64_t RandomSeed() {
  std::random_device device;
  // random_device gives 32 bits a call.
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

// Work on one text between its arrival and its end.
class GenerationService::TextCall final : public PendingCall {
 public:
  // `memory` is held until the call is destroyed.
  TextCall(GenerationService& service, Caller from, absl::Time until,
           ByteBudget::Share held)
      : caller(std::move(from)),
        deadline(until),
        memory(std::move(held)),
        service_(service) {}

  void Cancel() override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
    // Safe under mu_: neither calls back into this object before it returns.
    if (ticket_.has_value()) service_.texts_.Cancel(*ticket_);
    if (refusal_.has_value()) service_.refusals_.Hurry(*refusal_);
  }
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return cancelled_;
  }
  void SetWaiting(TextWork::Ticket ticket) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    ticket_ = ticket;
    // Cancel may have come between Run and this call, when there was no ticket
    // to cancel.
    if (cancelled_) service_.texts_.Cancel(ticket);
  }
  void SetRefused(const Refusals::Ticket& ticket) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    refusal_ = ticket;
    if (cancelled_) service_.refusals_.Hurry(ticket);
  }

  const Caller caller;
  const absl::Time deadline;
  ByteBudget::Share memory;
  // Set before the call is run; exactly one of the two is called, once. `work`
  // holds the text, does the work and reports its result; `fail` reports why it
  // was refused.
  std::function<void()> work;
  std::function<void(const absl::Status&)> fail;

 private:
  GenerationService& service_;
  mutable absl::Mutex mu_;
  std::optional<TextWork::Ticket> ticket_ ABSL_GUARDED_BY(mu_);
  std::optional<Refusals::Ticket> refusal_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

absl::StatusOr<std::unique_ptr<GenerationService>> GenerationService::Create(
    const GenerationOptions& options, std::unique_ptr<Target> target,
    std::unique_ptr<DraftServices> drafters,
    std::shared_ptr<const Tokenizer> tokenizer, GenerationObserver& observer,
    Clock clock) {
  FORETOKEN_ASSIGN_OR_RETURN(Mode mode, Mode::Parse(options.default_mode));
  ModeContext context;
  // Made once, only to fail here and not in every request: the default mode
  // needs its services.
  context.services = drafters.get();
  FORETOKEN_RETURN_IF_ERROR(MakeSources(mode, context).status());
  FORETOKEN_ASSIGN_OR_RETURN(CacheScopes scopes,
                             CacheScopes::Load(options.scope_key_file));
  FORETOKEN_RETURN_IF_ERROR(CheckBudget(options, tokenizer != nullptr));
  return std::unique_ptr<GenerationService>(new GenerationService(
      options, std::move(mode), std::move(target), std::move(drafters),
      std::move(tokenizer), std::move(scopes), observer, std::move(clock)));
}

// The gauges report to observer_, so they are made after it.
GenerationService::GenerationService(const GenerationOptions& options,
                                     Mode default_mode,
                                     std::unique_ptr<Target> target,
                                     std::unique_ptr<DraftServices> drafters,
                                     std::shared_ptr<const Tokenizer> tokenizer,
                                     CacheScopes scopes,
                                     GenerationObserver& observer, Clock clock)
    : options_(options),
      default_mode_(std::move(default_mode)),
      target_(std::move(target)),
      drafters_(std::move(drafters)),
      tokenizer_(std::move(tokenizer)),
      vocabulary_(grammar::TokenVocabulary::Of(tokenizer_)),
      longest_token_(LongestToken(tokenizer_.get())),
      scopes_(std::move(scopes)),
      estimates_(std::make_shared<DraftEstimates>()),
      observer_(observer),
      clock_(std::move(clock)),
      memory_(DivideMemory(options.memory_budget).requests,
              Gauge(MemoryPart::kRequests,
                    DivideMemory(options.memory_budget).requests)),
      encoding_(DivideMemory(options.memory_budget).encoding,
                Gauge(MemoryPart::kEncoding,
                      DivideMemory(options.memory_budget).encoding)),
      quotas_(clock_),
      grammars_(
          options.grammar_cache != nullptr
              ? options.grammar_cache
              : std::make_shared<grammar::GrammarCache>(options.grammars)),
      refusals_(
          [this](const Caller& caller) {
            // A refused caller is told how long its own queue will take.
            // requests_ is declared later; the function is called only once
            // requests come.
            return requests_.RetryAfter(caller.name, MaxRunning(caller));
          },
          clock_),
      texts_(TextOptions(options), tokenizer_, encoding_, clock_),
      requests_(PoolOptions(options), clock_) {}

std::function<void(int64_t)> GenerationService::Gauge(MemoryPart part,
                                                      int64_t limit) {
  observer_.OnMemory(part, 0, limit);
  return [this, part, limit](int64_t used) {
    observer_.OnMemory(part, used, limit);
  };
}

// --- Admission and completion ------------------------------------------------

absl::StatusOr<GeneratorInfo> GenerationService::Info(absl::Time) {
  FORETOKEN_ASSIGN_OR_RETURN(TargetInfo target, target_->Info());
  GeneratorInfo info;
  info.model = !options_.model_name.empty() ? options_.model_name
               : !target.model.empty()      ? std::move(target.model)
                                            : "model";
  info.vocab_size = target.vocab_size;
  info.max_positions = target.max_positions;
  info.max_tree_nodes = options_.max_tree_nodes;
  info.embedding_size = target.embedding_size;
  info.modes = ServedModes(drafters_.get());
  info.default_mode = default_mode_.name();
  info.numerics_fingerprint = std::move(target.numerics_fingerprint);
  info.tokenizer_fingerprint = tokenizer_ == nullptr
                                   ? std::move(target.tokenizer_fingerprint)
                                   : tokenizer_->fingerprint_bytes();
  return info;
}

absl::Status GenerationService::ChargeMemory(const Caller& caller,
                                             int64_t bytes,
                                             ByteBudget::Share& share) {
  // The stream has charged its message already; only the difference is new.
  const int64_t more = std::max<int64_t>(bytes - share.bytes(), 0);
  return silent_.TakeWithRoom(caller.name, more, [&]() -> absl::Status {
    if (share.bytes() > 0) return share.Resize(bytes);
    FORETOKEN_ASSIGN_OR_RETURN(share, memory_.Take(caller.name, bytes));
    return absl::OkStatus();
  });
}

absl::Status GenerationService::Enter(
    GenerationRequest& request, const std::shared_ptr<RequestCall>& call) {
  // Charged before anything is checked: the checks read the request, which is
  // in memory from here on.
  const absl::Status charged =
      ChargeMemory(request.caller, GenerateBytes(request), call->memory);
  if (absl::IsResourceExhausted(charged)) {
    observer_.OnRefused(Refusal::kMemory);
  }
  FORETOKEN_RETURN_IF_ERROR(charged);
  FORETOKEN_RETURN_IF_ERROR(CheckRequestId(request.request_id));
  FORETOKEN_RETURN_IF_ERROR(CheckCacheScope(request.cache_scope));
  FORETOKEN_RETURN_IF_ERROR(
      CheckCacheScope(request.prefix_scope, "prefix_scope"));
  // Scopes are made the caller's own, so that equal names of two callers never
  // meet.
  request.cache_scope = scopes_.Effective(request.caller, request.cache_scope);
  request.prefix_scope =
      scopes_.EffectiveOfPages(request.caller, request.prefix_scope);
  if (request.text.has_value()) {
    FORETOKEN_RETURN_IF_ERROR(texts_.CheckBytes("text", request.text->size()));
  }
  FORETOKEN_RETURN_IF_ERROR(
      texts_.CheckBytes("token_ids", request.prompt.size() * sizeof(TokenId)));
  FORETOKEN_RETURN_IF_ERROR(CheckConstraint(request.constraint));
  // A request without an id still has one in logs and traces.
  if (request.request_id.empty()) {
    request.request_id = absl::StrFormat("%016x", RandomSeed());
  }
  call->id = request.request_id;
  // From the arrival: time spent receiving and queueing counts.
  request.deadline =
      std::min(request.deadline, call->arrived + options_.max_request_time);
  call->deadline = request.deadline;
  // The last step, under the lock: drain, quota and the set of calls change
  // together, so EndAll reaches every call that was let in.
  absl::MutexLock lock(&mu_);
  if (draining_) {
    observer_.OnRefused(Refusal::kDraining);
    return absl::UnavailableError("the orchestrator is draining");
  }
  const int64_t tokens = TokensOf(request);
  const absl::Status taken = quotas_.Take(request.caller, tokens);
  if (!taken.ok()) {
    observer_.OnRefused(Refusal::kQuota);
    return taken;
  }
  // What GiveBack returns is counted from this, less what was used.
  call->charged_tokens = tokens;
  if (options_.spans != nullptr) {
    call->trace = RequestSpans::Create(request.traceparent, *options_.spans,
                                       call->arrived);
  }
  if (call->trace != nullptr) request.traceparent = call->trace->traceparent();
  calls_.insert(call);
  return absl::OkStatus();
}

void GenerationService::CountRefused(const Caller& caller,
                                     const absl::Status& status) {
  observer_.OnRequest();
  if (absl::IsResourceExhausted(status)) observer_.OnRefused(Refusal::kMemory);
  CountEnd(observer_.AccountOf(caller), status.code(), absl::ZeroDuration());
}

void GenerationService::CountEnd(CallerAccount& account, absl::StatusCode code,
                                 absl::Duration latency) {
  observer_.OnEnd(code, latency);
  account.OnEnd(code);
}

void GenerationService::Refuse(const std::shared_ptr<RequestCall>& call,
                               const absl::Status& status) {
  // Refused callers wait for their hint without memory of the request.
  call->memory.Release();
  call->SetRefused(refusals_,
                   refusals_.End(call->caller, call->deadline, status,
                                 [call](const absl::Status& hinted) {
                                   call->DeliverEnd(hinted);
                                 }));
}

void GenerationService::Leave(const std::shared_ptr<RequestCall>& call,
                              const absl::Status& status, bool no_room) {
  if (no_room) observer_.OnRefused(Refusal::kQueue);
  const absl::Time now = clock_();
  const absl::Status reason = call->Reason(status, now);
  // Unused tokens go back whatever the end; the request itself only if it was
  // never run for lack of room.
  quotas_.GiveBack(call->caller, call->charged_tokens - call->used_tokens,
                   /*unused_requests=*/no_room ? 1 : 0);
  CountEnd(call->account, reason.code(), now - call->arrived);
  if (call->trace != nullptr) call->trace->OnEnd(call->id, reason, now);
  // Refusals are counted, not logged.
  if (!reason.ok() && !absl::IsResourceExhausted(reason) &&
      log_throttle_.Take()) {
    FORETOKEN_LOG(kInfo, "request ", call->id, " ended after ",
                  absl::FormatDuration(now - call->arrived), ": ",
                  reason.ToString(), log_throttle_.Skipped());
  }
  // Before the end is delivered: Idle must not wait for a client that reads it
  // slowly.
  {
    absl::MutexLock lock(&mu_);
    calls_.erase(call);
  }
  if (absl::IsResourceExhausted(reason)) {
    Refuse(call, reason);
  } else {
    call->DeliverEnd(reason);
  }
}

std::shared_ptr<GenerationCall> GenerationService::Start(
    GenerationRequest request, ByteBudget::Share received,
    std::shared_ptr<GenerationListener> listener) {
  observer_.OnRequest();
  if (request.pooling != Pooling::kNone) {
    // Before it is charged for output.
    request.max_tokens = 0;
    request.constraint = {};
  }
  CallerAccount& account = observer_.AccountOf(request.caller);
  auto call =
      std::make_shared<RequestCall>(request.caller, clock_(), account,
                                    std::move(received), std::move(listener));
  call->deadline = request.deadline;
  if (const absl::Status entered = Enter(request, call); !entered.ok()) {
    CountEnd(account, entered.code(), absl::ZeroDuration());
    Refuse(call, entered);
    return call;
  }
  // Shared, because std::function copies its captures, and this may be large.
  auto shared = std::make_shared<GenerationRequest>(std::move(request));
  PooledRequest pooled;
  pooled.item = {.owner = call->caller.name,
                 .weight = call->caller.weight,
                 .cost = CostOf(*shared),
                 .bytes = PromptBytes(*shared),
                 .deadline = shared->deadline};
  pooled.max_running = MaxRunning(call->caller);
  pooled.run = [this, call, shared] {
    observer_.OnWaiting(-1);
    // Drive takes the request, and its memory ends with the loop, not with
    // `shared`, which the pool may hold longer.
    const auto summary = Drive(*call, std::move(*shared));
    if (summary.ok()) call->DeliverResult(*summary);
    Leave(call, summary.status(), call->no_room);
  };
  pooled.refuse = [this, call](const absl::Status& reason) {
    observer_.OnWaiting(-1);
    Leave(call, reason, /*no_room=*/absl::IsResourceExhausted(reason));
  };
  observer_.OnWaiting(1);
  call->SetWaiting(requests_, requests_.Submit(std::move(pooled)));
  return call;
}

void GenerationService::BeginDrain() {
  {
    absl::MutexLock lock(&mu_);
    draining_ = true;
  }
  refusals_.StopHolding();
}

void GenerationService::EndAll() {
  absl::MutexLock lock(&mu_);
  // Under mu_, so that no call enters meanwhile; End calls no listener (see
  // RequestCall::End), so the call cannot come back for mu_.
  for (const std::shared_ptr<RequestCall>& call : calls_) {
    call->End(StoppingError("the orchestrator"));
  }
}

int32_t GenerationService::MaxRunning(const Caller& caller) const {
  if (caller.max_requests > 0) return caller.max_requests;
  if (options_.max_requests_per_caller > 0) {
    return options_.max_requests_per_caller;
  }
  // A caller alone must not fill the server: the rest is left to other callers.
  return std::max(1, options_.max_requests * 3 / 4);
}

// --- Running a request -------------------------------------------------------

absl::Status GenerationService::CheckTokenizer(const TargetInfo& info) const {
  // An unknown fingerprint passes, as of verifiers with random weights.
  if (tokenizer_ == nullptr || info.tokenizer_fingerprint.empty() ||
      tokenizer_->fingerprint_bytes() == info.tokenizer_fingerprint) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "the verifiers' model has another tokenizer than this orchestrator");
}

absl::Status GenerationService::CheckConstraint(
    const Constraint& constraint) const {
  if (constraint.empty()) return absl::OkStatus();
  if (tokenizer_ == nullptr) {
    return absl::FailedPreconditionError(
        "constraint: this server has no tokenizer");
  }
  const auto bytes = static_cast<int64_t>(constraint.bytes());
  if (bytes <= options_.grammars.max_constraint_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("constraint: ", bytes, " bytes, want at most ",
                   options_.grammars.max_constraint_bytes));
}

absl::StatusOr<std::shared_ptr<const grammar::Grammar>>
GenerationService::CompileConstraint(RequestCall& call,
                                     const GenerationRequest& request) {
  const absl::Time start = clock_();
  auto compiled = texts_.CompileConstraint(
      request, *grammars_, [&call] { return call.cancelled(); });
  call.no_room = absl::IsResourceExhausted(compiled.status());
  // Only what is wrong with the constraint itself is its refusal.
  if (compiled.ok() || absl::IsInvalidArgument(compiled.status())) {
    observer_.OnConstraint(!compiled.ok()   ? ConstraintGrammar::kRefused
                           : compiled->kept ? ConstraintGrammar::kKept
                                            : ConstraintGrammar::kCompiled,
                           clock_() - start);
  }
  FORETOKEN_RETURN_IF_ERROR(compiled.status());
  return std::move(compiled->grammar);
}

absl::StatusOr<TargetInfo> GenerationService::TargetOf(
    const GenerationRequest& request) const {
  absl::StatusOr<TargetInfo> target = target_->Info();
  // It is the server's condition, not the request's.
  if (absl::IsFailedPrecondition(target.status())) {
    return absl::UnavailableError(target.status().message());
  }
  FORETOKEN_RETURN_IF_ERROR(target.status());
  const std::string& pinned = request.numerics_fingerprint;
  // The client continues an output whose bits another model would not have
  // written.
  if (!pinned.empty() && pinned != target->numerics_fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("numerics_fingerprint: the active model has another, ",
                     target->numerics_fingerprint));
  }
  return target;
}

absl::Status GenerationService::EncodePrompt(RequestCall& call,
                                             const TargetInfo& target,
                                             GenerationRequest& request) {
  if (!request.text.has_value()) return absl::OkStatus();
  if (tokenizer_ == nullptr) {
    return absl::InvalidArgumentError(
        "text: this server has no tokenizer, want token_ids");
  }
  // Known without encoding it, which takes long.
  const auto bytes = static_cast<int64_t>(request.text->size());
  // Every token has at most longest_token_ bytes, and normalization shrinks a
  // text at most kMaxShrink times: a longer one cannot fit, whatever its
  // tokens.
  if (bytes > target.max_positions * longest_token_ * kMaxShrink) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: it has ", bytes,
                     " bytes: this model's maximum context length is ",
                     target.max_positions, " tokens"));
  }
  absl::StatusOr<std::vector<TokenId>> ids =
      texts_.EncodePrompt(request, [&call] { return call.cancelled(); });
  call.no_room = absl::IsResourceExhausted(ids.status());
  FORETOKEN_ASSIGN_OR_RETURN(request.prompt, std::move(ids));
  // Freed now: request and loop hold the tokens alone.
  request.text.reset();
  // Work was done for it, even if it fails from here on.
  call.used_tokens = static_cast<int64_t>(request.prompt.size());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DecodeLoop>> GenerationService::MakeLoop(
    RequestCall& call, GenerationRequest request) {
  if (!request.mode.has_value()) request.mode = default_mode_;
  const int32_t nodes =
      request.max_tree_nodes.value_or(options_.max_tree_nodes);
  // A request may ask for fewer nodes than the server's limit, never for more:
  // memory and rows of a pass are planned for the limit.
  if (nodes < 1 || nodes > options_.max_tree_nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("speculation.max_tree_nodes: ", nodes, ", want 1..",
                     options_.max_tree_nodes));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const TargetInfo target, TargetOf(request));
  DraftingOptions drafting;
  drafting.limits = {nodes, target.max_rows_per_session};
  drafting.costs = target.costs;
  drafting.estimates = estimates_;
  drafting.wait = options_.draft_wait;
  drafting.deadline = request.deadline;
  drafting.clock = clock_;
  FORETOKEN_ASSIGN_OR_RETURN(
      ModeSources made,
      MakeSources(*request.mode,
                  {drafters_.get(), drafting.limits, drafting.clock,
                   [&call] { return call.cancelled(); }}));
  drafting.economical = made.economical;
  // Before the text is encoded with a tokenizer that may be wrong.
  FORETOKEN_RETURN_IF_ERROR(CheckTokenizer(target));
  std::shared_ptr<grammar::LiveGrammar> grammar;
  if (!request.constraint.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(auto compiled, CompileConstraint(call, request));
    // Without drafts there is nothing to check; the verifier applies the
    // constraint in any case. The same holds for grammars that are too large.
    if (!made.sources.empty() &&
        grammar::GrammarBytes(*compiled) <= kCheckedGrammarBytes) {
      grammar = std::make_shared<grammar::LiveGrammar>(
          std::move(compiled), vocabulary_, kCheckedGrammarBytes,
          kCheckedGrammarBytes);
    }
  }
  FORETOKEN_RETURN_IF_ERROR(EncodePrompt(call, target, request));
  // Drawn even at temperature 0: the summary tells it, and a request repeated
  // with it gives the same output.
  if (!request.has_seed) request.sampling.seed = RandomSeed();
  return DecodeLoop::Create(std::move(request), target, tokenizer_.get(),
                            std::move(made.sources), std::move(drafting),
                            std::move(grammar));
}

absl::StatusOr<GenerationSummary> GenerationService::Drive(
    RequestCall& call, GenerationRequest request) {
  if (request.pooling != Pooling::kNone) {
    return DriveEmbedding(call, std::move(request));
  }
  RequestSpans* const trace = call.trace.get();
  if (trace != nullptr) trace->OnStart(clock_());
  const std::unique_ptr<Verifier> verifier = target_->NewVerifier();
  // From here on Cancel reaches the verifier; reset below before the verifier
  // is destroyed.
  call.SetVerifier(verifier.get());
  const ModeInfo& mode =
      (request.mode.has_value() ? *request.mode : default_mode_).info();
  absl::StatusOr<std::unique_ptr<DecodeLoop>> loop =
      MakeLoop(call, std::move(request));
  absl::Status status = loop.status();
  const auto on_step = [&](const GenerationDelta& delta) {
    const GenerationSummary& summary = (*loop)->summary();
    if (summary.rounds == 0) {
      observer_.OnPrefill(summary, mode);
      if (trace != nullptr) trace->OnPrefill(summary, clock_());
    } else {
      observer_.OnRound((*loop)->last_round(), mode);
      if (trace != nullptr) trace->OnRound((*loop)->last_round(), clock_());
    }
    if (options_.trace && summary.rounds > 0) {
      FORETOKEN_LOG(kInfo, "trace ", call.id, " ",
                    RoundLine(summary.rounds, (*loop)->last_round()));
    }
    // Empty at steps whose text is held back for a possible stop sequence; they
    // are counted but not delivered.
    return delta.empty() ? absl::OkStatus() : call.Deliver(delta);
  };
  if (status.ok()) status = orchestrator::Generate(**loop, *verifier, on_step);
  // The verifiers serve another model now. A request that has no output yet may
  // start over on it; Retarget says no to the others.
  while (IsModelReplaced(status)) {
    const absl::StatusOr<TargetInfo> target = target_->Info();
    if (!target.ok() || !(*loop)->Retarget(*target)) break;
    status = orchestrator::Generate(**loop, *verifier, on_step);
  }
  call.SetVerifier(nullptr);
  verifier->Close();
  if (loop.ok()) {
    const GenerationSummary& summary = (*loop)->summary();
    // For the quota: what was really read and written replaces the estimate.
    call.used_tokens = summary.prompt_tokens + summary.completion_tokens;
  }
  observer_.OnFailovers(verifier->failovers());
  FORETOKEN_RETURN_IF_ERROR(status);
  GenerationSummary summary = (*loop)->TakeSummary();
  summary.total_time = clock_() - call.arrived;
  return summary;
}

// --- Texts -------------------------------------------------------------------

void GenerationService::RunTextCall(const std::shared_ptr<TextCall>& call,
                                    const char* field, int64_t bytes,
                                    absl::FunctionRef<int64_t()> memory) {
  const auto refuse = [this, call](const absl::Status& status) {
    call->work = nullptr;  // the text, which is charged no longer
    call->memory.Release();
    call->SetRefused(refusals_.End(call->caller, call->deadline, status,
                                   [call](const absl::Status& hinted) {
                                     // exchange: the function holds the call's
                                     // captures, and a call that kept it would
                                     // keep itself alive.
                                     std::exchange(call->fail, nullptr)(hinted);
                                   }));
  };
  absl::Status admitted = texts_.CheckBytes(field, static_cast<size_t>(bytes));
  if (admitted.ok()) {
    admitted = ChargeMemory(call->caller, memory(), call->memory);
  }
  if (!admitted.ok()) {
    refuse(admitted);
    return;
  }
  call->SetWaiting(texts_.Run(call->caller, bytes, call->deadline,
                              [call, refuse](const absl::Status& status) {
                                if (status.ok()) {
                                  std::exchange(call->work, nullptr)();
                                } else {
                                  refuse(status);
                                }
                              }));
}

std::shared_ptr<PendingCall> GenerationService::Tokenize(
    const Caller& caller, std::string text, bool add_special_tokens,
    absl::Time deadline, ByteBudget::Share received, OnTokens done) {
  const auto call =
      std::make_shared<TextCall>(*this, caller, deadline, std::move(received));
  const auto bytes = static_cast<int64_t>(text.size());
  call->fail = done;
  // A raw pointer: `work` is part of the call, and a shared one would be a
  // cycle.
  call->work = [this, call = call.get(), text = std::move(text),
                add_special_tokens, done = std::move(done)] {
    done(texts_.Tokenize(call->caller, text, add_special_tokens, call->deadline,
                         [call] { return call->cancelled(); }));
  };
  RunTextCall(call, "text", bytes, [&] { return TokenizeBytes(bytes); });
  return call;
}

std::shared_ptr<PendingCall> GenerationService::Detokenize(
    const Caller& caller, std::vector<TokenId> tokens, absl::Time deadline,
    ByteBudget::Share received, OnText done) {
  const auto call =
      std::make_shared<TextCall>(*this, caller, deadline, std::move(received));
  // Shared, because std::function copies its captures, and this may be large.
  const auto ids =
      std::make_shared<const std::vector<TokenId>>(std::move(tokens));
  call->fail = done;
  call->work = [this, ids, done = std::move(done)] {
    done(texts_.Detokenize(*ids));
  };
  RunTextCall(call, "token_ids",
              static_cast<int64_t>(ids->size() * sizeof(TokenId)),
              [&] { return DetokenizeBytes(*ids, tokenizer_.get()); });
  return call;
}

}  // namespace foretoken::orchestrator
