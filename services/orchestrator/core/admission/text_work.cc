#include "services/orchestrator/core/admission/text_work.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/timed_wait.h"
#include "services/orchestrator/core/admission/request_memory.h"

namespace foretoken::orchestrator {
namespace {

// Threads, those that one caller may use, and the texts that may wait.
constexpr int32_t kThreads = 4;
constexpr int32_t kThreadsPerCaller = 3;
constexpr int32_t kWaiting = 64;
// Texts are encoded with what decoding leaves of the processors.
constexpr int kNice = 10;
// Prompts above this size are encoded here, not on their requests' threads.
constexpr size_t kLongText = 64 << 10;
constexpr int64_t kBytesPerToken = 4;
// A constraint, however short, may take as long as a text of this size.
constexpr int64_t kCompileTextBytes = 64 << 10;
constexpr absl::Duration kCancelPoll = absl::Milliseconds(100);

RequestPoolOptions PoolOptions(const TextWorkOptions& options) {
  return {.max_running = kThreads,
          .waiting = {.items = kWaiting, .bytes = options.max_waiting_bytes},
          .min_retry_after = options.retry_after,
          .nice = kNice};
}

absl::Status NoTokenizer() {
  return absl::FailedPreconditionError("this server has no tokenizer");
}

}  // namespace

TextWork::TextWork(const TextWorkOptions& options,
                   std::shared_ptr<const Tokenizer> tokenizer,
                   ByteBudget& encoding, Clock clock)
    : options_(options),
      tokenizer_(std::move(tokenizer)),
      clock_(std::move(clock)),
      encoding_(encoding),
      pool_(PoolOptions(options), clock_) {}

TextWork::Ticket TextWork::Run(const Caller& caller, int64_t bytes,
                               absl::Time deadline,
                               std::function<void(const absl::Status&)> work) {
  PooledRequest pooled;
  pooled.item = {.owner = caller.name,
                 .weight = caller.weight,
                 .cost = 1 + bytes / kBytesPerToken,
                 .bytes = bytes,
                 .deadline = std::min(deadline, clock_() + options_.max_time)};
  pooled.max_running = kThreadsPerCaller;
  pooled.run = [work] { work(absl::OkStatus()); };
  pooled.refuse = std::move(work);
  return pool_.Submit(std::move(pooled));
}

void TextWork::Cancel(Ticket ticket) {
  pool_.Remove(ticket, absl::CancelledError("the call was cancelled"));
}

absl::Status TextWork::CheckBytes(absl::string_view field, size_t bytes) const {
  if (bytes <= static_cast<size_t>(options_.max_text_bytes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": ", bytes, " bytes, want at most ", options_.max_text_bytes));
}

absl::StatusOr<std::vector<TokenId>> TextWork::Encode(
    const Caller& caller, absl::string_view text, bool as_prompt,
    absl::Time deadline, const std::function<bool()>& cancelled) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const ByteBudget::Share memory,
      encoding_.TakeWhenFree(caller.name, EncodingBytesOf(text),
                             deadline - clock_(), cancelled));
  // Released at the end of the encoding, in whatever way it ends.
  return as_prompt ? tokenizer_->EncodePrompt(text) : tokenizer_->Encode(text);
}

absl::StatusOr<std::vector<TokenId>> TextWork::Tokenize(
    const Caller& caller, absl::string_view text, bool add_special_tokens,
    absl::Time deadline, const std::function<bool()>& cancelled) {
  if (tokenizer_ == nullptr) return NoTokenizer();
  return Encode(caller, text, add_special_tokens,
                std::min(deadline, clock_() + options_.max_time), cancelled);
}

absl::StatusOr<std::string> TextWork::Detokenize(
    absl::Span<const TokenId> token_ids) const {
  if (tokenizer_ == nullptr) return NoTokenizer();
  return tokenizer_->Decode(token_ids);
}

absl::StatusOr<std::vector<TokenId>> TextWork::EncodePrompt(
    const GenerationRequest& request, const std::function<bool()>& cancelled) {
  const auto encode = [&] {
    return Encode(request.caller, *request.text, /*as_prompt=*/true,
                  request.deadline, cancelled);
  };
  // Short texts take less than handing them to another thread.
  if (request.text->size() <= kLongText) return encode();
  absl::StatusOr<std::vector<TokenId>> ids;
  FORETOKEN_RETURN_IF_ERROR(
      RunAndWait(request, static_cast<int64_t>(request.text->size()), cancelled,
                 [&] { ids = encode(); }));
  return ids;
}

absl::StatusOr<CompiledConstraint> TextWork::CompileConstraint(
    const GenerationRequest& request, grammar::GrammarCache& grammars,
    const std::function<bool()>& cancelled) {
  const Constraint& constraint = request.constraint;
  if (auto known = grammars.Find(constraint); known != nullptr) {
    return CompiledConstraint{std::move(known), /*kept=*/true};
  }
  absl::Status memory;
  absl::StatusOr<std::shared_ptr<const grammar::Grammar>> compiled;
  FORETOKEN_RETURN_IF_ERROR(RunAndWait(
      request, kCompileTextBytes + static_cast<int64_t>(constraint.bytes()),
      cancelled, [&] {
        const absl::StatusOr<ByteBudget::Share> share = encoding_.TakeWhenFree(
            request.caller.name, std::min(kCompileBytes, encoding_.max_share()),
            request.deadline - clock_(), cancelled);
        memory = share.status();
        if (!share.ok()) return;
        compiled = grammars.Get(request.caller.name, constraint);
      }));
  FORETOKEN_RETURN_IF_ERROR(memory);
  if (compiled.ok()) return CompiledConstraint{*std::move(compiled)};
  // Also for what is too large or not supported: only another constraint helps.
  return absl::InvalidArgumentError(
      absl::StrCat("constraint: ", compiled.status().message()));
}

absl::Status TextWork::RunAndWait(const GenerationRequest& request,
                                  int64_t bytes,
                                  const std::function<bool()>& cancelled,
                                  absl::FunctionRef<void()> work) {
  absl::Mutex mu;
  bool done = false;
  absl::Status refused;
  const Ticket ticket = Run(request.caller, bytes, request.deadline,
                            [&](const absl::Status& admitted) {
                              if (admitted.ok()) {
                                work();
                              } else {
                                refused = admitted;
                              }
                              absl::MutexLock lock(&mu);
                              done = true;
                            });
  while (true) {
    {
      // Locals of this frame are used by the pooled work, so this waits for
      // `done` even after a cancel, which only hastens it.
      absl::MutexLock lock(&mu);
      if (AwaitFor(mu, absl::Condition(&done), kCancelPoll)) return refused;
    }
    if (cancelled()) Cancel(ticket);
  }
}

}  // namespace foretoken::orchestrator
