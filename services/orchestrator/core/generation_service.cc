#include "services/orchestrator/core/generation_service.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/retry_after.h"
#include "common/base/status_macros.h"
#include "common/base/stopping.h"
#include "common/base/timed_wait.h"
#include "services/orchestrator/core/request_memory.h"
#include "services/orchestrator/core/trace.h"

namespace foretoken::orchestrator {
namespace {

// Threads that encode and decode texts, those that one caller may use, and the
// number of texts that may wait for them.
constexpr int32_t kTextThreads = 4;
constexpr int32_t kTextThreadsPerCaller = 3;
// Texts are encoded with what decoding leaves of the processors.
constexpr int kTextNice = 10;
// Texts above this size are encoded there, also those of prompts.
constexpr size_t kLongText = 64 << 10;
// The longest special token.
constexpr int64_t kMinLongestToken = 64;
// How much shorter than a text its tokens may be: normalizers drop characters,
// and a run of unknown ones may be a single token.
constexpr int64_t kMaxShrink = 16;
constexpr absl::Duration kCancelPoll = absl::Milliseconds(100);
constexpr int32_t kTextsWaiting = 64;

// Tokens of a prompt that count as much as one token of output when callers
// share a server: a prompt is read in passes of many rows.
constexpr int64_t kPromptTokensPerCost = 16;
constexpr int64_t kTextBytesPerToken = 4;
// Requests of maximum size that gRPC must be able to receive at once: when it
// runs out of memory for them, it cancels calls, any of them.
constexpr int64_t kReceivedAtOnce = 4;
// Caps the cost that a request can claim.
constexpr int64_t kMaxCost = 1 << 17;

int64_t PromptBytes(const GenerationRequest& request) {
  return static_cast<int64_t>(request.prompt.size() * sizeof(TokenId) +
                              (request.text ? request.text->size() : 0));
}

int64_t CostOf(const GenerationRequest& request) {
  const int64_t prompt_tokens = PromptBytes(request) / kTextBytesPerToken;
  return std::clamp<int64_t>(
      request.max_tokens + prompt_tokens / kPromptTokensPerCost, 1, kMaxCost);
}

// What the request counts against its caller's quota of tokens until it ends.
int64_t TokensOf(const GenerationRequest& request) {
  return std::max<int64_t>(request.max_tokens, 0) +
         PromptBytes(request) / kTextBytesPerToken;
}

RequestPoolOptions PoolOptions(const GenerationOptions& options) {
  return {.max_running = options.max_requests,
          .waiting = {.items = options.max_waiting_requests,
                      .bytes = options.max_waiting_bytes},
          .min_retry_after = options.retry_after};
}

RequestPoolOptions TextPoolOptions(const GenerationOptions& options) {
  return {
      .max_running = kTextThreads,
      .waiting = {.items = kTextsWaiting, .bytes = options.max_waiting_bytes},
      .min_retry_after = options.retry_after,
      .nice = kTextNice};
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
            LargestRequestBytes(options.max_prompt_bytes, with_tokenizer),
            requests.max_share()));
  FORETOKEN_RETURN_IF_ERROR(
      check("receiving requests",
            kReceivedAtOnce * MaxWireBytes(options.max_prompt_bytes),
            parts.receiving));
  const int64_t most =
      int64_t{options.max_requests} + options.max_waiting_requests;
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
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace

void GenerationService::Call::End(const absl::Status& reason) {
  RequestPool* pool;
  RequestPool::Ticket ticket;
  {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
    if (reason_.ok()) reason_ = reason;
    if (verifier_ != nullptr) verifier_->Cancel();
    pool = pool_;
    ticket = ticket_;
  }
  // Not under the lock: a request that still waited ends inside Remove.
  if (pool != nullptr) {
    pool->Remove(ticket, absl::CancelledError("the request was cancelled"));
  }
}

void GenerationService::Call::SetWaiting(RequestPool& pool,
                                         RequestPool::Ticket ticket) {
  {
    absl::MutexLock lock(&mu_);
    pool_ = &pool;
    ticket_ = ticket;
    if (!cancelled_) return;
  }
  End(absl::OkStatus());
}

void GenerationService::Call::SetVerifier(Verifier* verifier) {
  absl::MutexLock lock(&mu_);
  verifier_ = verifier;
  if (verifier != nullptr && cancelled_) verifier->Cancel();
}

bool GenerationService::Call::cancelled() const {
  absl::MutexLock lock(&mu_);
  return cancelled_;
}

absl::Status GenerationService::Call::Reason(const absl::Status& status,
                                             absl::Time now) const {
  absl::MutexLock lock(&mu_);
  if (status.ok()) return status;
  if (!reason_.ok()) return reason_;
  // A transport cancels at the deadline, too.
  if (now < deadline) return status;
  return absl::DeadlineExceededError("the request's deadline has passed");
}

absl::StatusOr<std::unique_ptr<GenerationService>> GenerationService::Create(
    const GenerationOptions& options, std::unique_ptr<Target> target,
    std::unique_ptr<DraftServices> drafters,
    std::shared_ptr<const Tokenizer> tokenizer, GenerationObserver& observer,
    Clock clock) {
  FORETOKEN_ASSIGN_OR_RETURN(Mode mode, Mode::Parse(options.default_mode));
  ModeContext context;
  context.services = drafters.get();
  FORETOKEN_RETURN_IF_ERROR(MakeSources(mode, context).status());
  FORETOKEN_ASSIGN_OR_RETURN(CacheScopes scopes,
                             CacheScopes::Load(options.scope_key_file));
  FORETOKEN_RETURN_IF_ERROR(CheckBudget(options, tokenizer != nullptr));
  return std::unique_ptr<GenerationService>(new GenerationService(
      options, std::move(mode), std::move(target), std::move(drafters),
      std::move(tokenizer), std::move(scopes), observer, std::move(clock)));
}

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
      texts_(TextPoolOptions(options), clock_),
      requests_(PoolOptions(options), clock_) {}

std::function<void(int64_t)> GenerationService::Gauge(MemoryPart part,
                                                      int64_t limit) {
  observer_.OnMemory(part, 0, limit);
  return [this, part, limit](int64_t used) {
    observer_.OnMemory(part, used, limit);
  };
}

// --- Admission and completion ------------------------------------------------

absl::StatusOr<std::shared_ptr<GenerationService::Call>>
GenerationService::Enter(GenerationRequest& request) {
  FORETOKEN_RETURN_IF_ERROR(CheckRequestId(request.request_id));
  FORETOKEN_RETURN_IF_ERROR(CheckCacheScope(request.cache_scope));
  request.cache_scope = scopes_.Effective(request.caller, request.cache_scope);
  if (request.text.has_value()) {
    FORETOKEN_RETURN_IF_ERROR(CheckBytes("text", request.text->size()));
  }
  FORETOKEN_RETURN_IF_ERROR(
      CheckBytes("token_ids", request.prompt.size() * sizeof(TokenId)));
  if (request.request_id.empty()) {
    request.request_id = absl::StrFormat("%016x", RandomSeed());
  }
  auto call = std::make_shared<Call>();
  call->id = request.request_id;
  call->start = clock_();
  request.deadline =
      std::min(request.deadline, call->start + options_.max_request_time);
  call->deadline = request.deadline;
  if (options_.spans != nullptr) {
    call->trace =
        RequestTrace::Create(request.traceparent, *options_.spans, call->start);
    if (call->trace != nullptr)
      request.traceparent = call->trace->traceparent();
  }
  call->caller = request.caller;
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
  call->charged_tokens = tokens;
  calls_.insert(call);
  return call;
}

absl::Status GenerationService::Leave(const std::shared_ptr<Call>& call,
                                      const absl::Status& status,
                                      int64_t unused_requests) {
  const absl::Time now = clock_();
  const absl::Status reason = call->Reason(status, now);
  quotas_.GiveBack(call->caller, call->charged_tokens - call->used_tokens,
                   unused_requests);
  observer_.OnEnd(reason.code(), now - call->start);
  if (call->trace != nullptr) call->trace->OnEnd(call->id, reason, now);
  // Refusals are counted, not logged.
  if (!reason.ok() && !absl::IsResourceExhausted(reason) &&
      log_throttle_.Take()) {
    FORETOKEN_LOG(kInfo, "request ", call->id, " ended after ",
                  absl::FormatDuration(now - call->start), ": ",
                  reason.ToString(), log_throttle_.Skipped());
  }
  absl::MutexLock lock(&mu_);
  calls_.erase(call);
  return reason;
}

std::shared_ptr<GenerationService::Call> GenerationService::Start(
    absl::StatusOr<GenerationRequest> request, GenerationSink& sink) {
  observer_.OnRequest();
  // (The caller of this class reports so that there is no memory.)
  if (absl::IsResourceExhausted(request.status())) {
    observer_.OnRefused(Refusal::kMemory);
  }
  absl::StatusOr<std::shared_ptr<Call>> call =
      request.ok() ? Enter(*request) : request.status();
  if (!call.ok()) {
    observer_.OnEnd(call.status().code(), absl::ZeroDuration());
    sink.OnEnd(call.status());
    return std::make_shared<Call>();
  }
  // Shared, because std::function copies its captures, and this may be large.
  auto shared = std::make_shared<GenerationRequest>(*std::move(request));
  const Caller& caller = shared->caller;
  PooledRequest pooled;
  pooled.item = {.owner = caller.name,
                 .weight = caller.weight,
                 .cost = CostOf(*shared),
                 .bytes = PromptBytes(*shared),
                 .deadline = shared->deadline};
  pooled.max_running = MaxRunning(caller);
  pooled.run = [this, call = *call, shared, &sink] {
    observer_.OnWaiting(-1);
    const auto summary = Drive(
        *call, std::move(*shared),
        [&](const GenerationDelta& delta) { return sink.OnDelta(delta); });
    if (call->refused) observer_.OnRefused(Refusal::kQueue);
    sink.OnEnd(Leave(call,
                     summary.ok() ? sink.OnResult(*summary) : summary.status(),
                     /*unused_requests=*/call->refused ? 1 : 0));
  };
  pooled.refuse = [this, call = *call, &sink](const absl::Status& reason) {
    observer_.OnWaiting(-1);
    const bool no_room = absl::IsResourceExhausted(reason);
    if (no_room) observer_.OnRefused(Refusal::kQueue);
    sink.OnEnd(Leave(call, reason, /*unused_requests=*/no_room ? 1 : 0));
  };
  observer_.OnWaiting(1);
  (*call)->SetWaiting(requests_, requests_.Submit(std::move(pooled)));
  return *std::move(call);
}

absl::StatusOr<GenerationSummary> GenerationService::Generate(
    GenerationRequest request,
    absl::FunctionRef<absl::Status(const GenerationDelta&)> on_delta) {
  observer_.OnRequest();
  const absl::StatusOr<std::shared_ptr<Call>> call = Enter(request);
  if (!call.ok()) {
    observer_.OnEnd(call.status().code(), absl::ZeroDuration());
    return call.status();
  }
  absl::StatusOr<GenerationSummary> summary =
      Drive(**call, std::move(request), on_delta);
  if ((*call)->refused) observer_.OnRefused(Refusal::kQueue);
  FORETOKEN_RETURN_IF_ERROR(Leave(*call, summary.status(),
                                  /*unused_requests=*/(*call)->refused));
  return summary;
}

RequestPool::Ticket GenerationService::RunTextWork(
    const Caller& caller, int64_t bytes, absl::Time deadline,
    std::function<void(const absl::Status&)> work) {
  PooledRequest pooled;
  pooled.item = {
      .owner = caller.name,
      .weight = caller.weight,
      .cost = 1 + bytes / kTextBytesPerToken,
      .bytes = bytes,
      .deadline = std::min(deadline, clock_() + options_.max_request_time)};
  pooled.max_running = kTextThreadsPerCaller;
  pooled.run = [work] { work(absl::OkStatus()); };
  pooled.refuse = std::move(work);
  return texts_.Submit(std::move(pooled));
}

void GenerationService::CancelTextWork(RequestPool::Ticket ticket) {
  texts_.Remove(ticket, absl::CancelledError("the call was cancelled"));
}

void GenerationService::BeginDrain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

void GenerationService::EndAll() {
  std::set<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mu_);
    calls = calls_;
  }
  // Not under the lock: a request that waits leaves inside End.
  for (const std::shared_ptr<Call>& call : calls) {
    call->End(StoppingError("the orchestrator"));
  }
}

int32_t GenerationService::MaxRunning(const Caller& caller) const {
  if (caller.max_requests > 0) return caller.max_requests;
  if (options_.max_requests_per_caller > 0) {
    return options_.max_requests_per_caller;
  }
  return std::max(1, options_.max_requests * 3 / 4);
}

absl::Status GenerationService::WithRetryHint(const absl::Status& status,
                                              const Caller& caller) {
  if (!absl::IsResourceExhausted(status) || RetryAfter(status).has_value()) {
    return status;
  }
  return WithRetryAfter(status,
                        requests_.RetryAfter(caller.name, MaxRunning(caller)));
}

// --- Running a request -------------------------------------------------------

absl::Status GenerationService::CheckBytes(absl::string_view field,
                                           size_t bytes) const {
  if (bytes <= static_cast<size_t>(options_.max_prompt_bytes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": ", bytes, " bytes, want at most ", options_.max_prompt_bytes));
}

absl::Status GenerationService::CheckTokenizer(const TargetInfo& info) const {
  if (tokenizer_ == nullptr || info.tokenizer_fingerprint.empty() ||
      tokenizer_->fingerprint_bytes() == info.tokenizer_fingerprint) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "the verifiers' model has another tokenizer than this orchestrator");
}

absl::StatusOr<std::vector<TokenId>> GenerationService::Encode(
    const std::string& caller, absl::string_view text, bool as_prompt,
    absl::Time deadline, const std::function<bool()>& cancelled) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const ByteBudget::Share memory,
      encoding_.TakeWhenFree(caller, EncodingBytesOf(text), deadline - clock_(),
                             cancelled));
  return as_prompt ? tokenizer_->EncodePrompt(text) : tokenizer_->Encode(text);
}

absl::StatusOr<std::vector<TokenId>> GenerationService::EncodePrompt(
    Call& call, const GenerationRequest& request) {
  const auto encode = [&] {
    return Encode(request.caller.name, *request.text, /*as_prompt=*/true,
                  request.deadline, [&call] { return call.cancelled(); });
  };
  if (request.text->size() <= kLongText) return encode();
  absl::Mutex mu;
  bool done = false;
  absl::StatusOr<std::vector<TokenId>> ids;
  const auto bytes = static_cast<int64_t>(request.text->size());
  const RequestPool::Ticket ticket =
      RunTextWork(request.caller, bytes, request.deadline,
                  [&](const absl::Status& admitted) {
                    call.refused = absl::IsResourceExhausted(admitted);
                    ids = admitted.ok() ? encode() : admitted;
                    absl::MutexLock lock(&mu);
                    done = true;
                  });
  while (true) {
    {
      absl::MutexLock lock(&mu);
      if (AwaitFor(mu, absl::Condition(&done), kCancelPoll)) return ids;
    }
    if (call.cancelled()) CancelTextWork(ticket);
  }
}

absl::StatusOr<std::unique_ptr<DecodeLoop>> GenerationService::MakeLoop(
    Call& call, GenerationRequest request) {
  if (!request.mode.has_value()) request.mode = default_mode_;
  const int32_t nodes =
      request.max_tree_nodes.value_or(options_.max_tree_nodes);
  if (nodes < 1 || nodes > options_.max_tree_nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("speculation.max_tree_nodes: ", nodes, ", want 1..",
                     options_.max_tree_nodes));
  }
  const absl::StatusOr<TargetInfo> found = target_->Info();
  // It is the server's condition, not the request's.
  if (absl::IsFailedPrecondition(found.status())) {
    return absl::UnavailableError(found.status().message());
  }
  FORETOKEN_RETURN_IF_ERROR(found.status());
  const TargetInfo& target = *found;
  const std::string& pinned = request.numerics_fingerprint;
  if (!pinned.empty() && pinned != target.numerics_fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("numerics_fingerprint: the active model has another, ",
                     target.numerics_fingerprint));
  }
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
  FORETOKEN_RETURN_IF_ERROR(CheckTokenizer(target));
  if (request.text.has_value()) {
    if (tokenizer_ == nullptr) {
      return absl::InvalidArgumentError(
          "text: this server has no tokenizer, want token_ids");
    }
    // Known without encoding it, which takes long.
    const auto bytes = static_cast<int64_t>(request.text->size());
    if (bytes > target.max_positions * longest_token_ * kMaxShrink) {
      return absl::InvalidArgumentError(
          absl::StrCat("text: it has ", bytes,
                       " bytes: this model's maximum context length is ",
                       target.max_positions, " tokens"));
    }
    FORETOKEN_ASSIGN_OR_RETURN(request.prompt, EncodePrompt(call, request));
    request.text.reset();
    // Work was done for it, even if it fails from here on.
    call.used_tokens = static_cast<int64_t>(request.prompt.size());
  }
  if (!request.has_seed) request.sampling.seed = RandomSeed();
  return DecodeLoop::Create(std::move(request), target, tokenizer_.get(),
                            std::move(made.sources), std::move(drafting));
}

absl::StatusOr<GenerationSummary> GenerationService::Drive(
    Call& call, GenerationRequest request,
    absl::FunctionRef<absl::Status(const GenerationDelta&)> on_delta) {
  RequestTrace* const trace = call.trace.get();
  if (trace != nullptr) trace->OnStart(clock_());
  const std::unique_ptr<Verifier> verifier = target_->NewVerifier();
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
                    TraceLine(summary.rounds, (*loop)->last_round()));
    }
    return delta.empty() ? absl::OkStatus() : on_delta(delta);
  };
  if (status.ok()) status = orchestrator::Generate(**loop, *verifier, on_step);
  while (IsModelReplaced(status)) {
    const absl::StatusOr<TargetInfo> target = target_->Info();
    if (!target.ok() || !(*loop)->Retarget(*target)) break;
    status = orchestrator::Generate(**loop, *verifier, on_step);
  }
  call.SetVerifier(nullptr);
  verifier->Close();
  if (loop.ok()) {
    const GenerationSummary& summary = (*loop)->summary();
    call.used_tokens = summary.prompt_tokens + summary.completion_tokens;
  }
  observer_.OnFailovers(verifier->failovers());
  FORETOKEN_RETURN_IF_ERROR(status);
  GenerationSummary summary = (*loop)->TakeSummary();
  summary.total_time = clock_() - call.start;
  return summary;
}

// --- Texts -------------------------------------------------------------------

absl::StatusOr<std::vector<TokenId>> GenerationService::Tokenize(
    const std::string& caller, absl::string_view text, bool add_special_tokens,
    absl::Time deadline, const std::function<bool()>& cancelled) {
  if (tokenizer_ == nullptr) {
    return absl::FailedPreconditionError("this server has no tokenizer");
  }
  FORETOKEN_RETURN_IF_ERROR(CheckBytes("text", text.size()));
  return Encode(caller, text, add_special_tokens,
                std::min(deadline, clock_() + options_.max_request_time),
                cancelled);
}

absl::StatusOr<std::string> GenerationService::Detokenize(
    absl::Span<const TokenId> token_ids) const {
  if (tokenizer_ == nullptr) {
    return absl::FailedPreconditionError("this server has no tokenizer");
  }
  FORETOKEN_RETURN_IF_ERROR(
      CheckBytes("token_ids", token_ids.size() * sizeof(TokenId)));
  return tokenizer_->Decode(token_ids);
}

}  // namespace foretoken::orchestrator
