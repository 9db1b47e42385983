// TextWork: encoding and decoding of texts and compiling of constraints, on
// threads that requests do not use and that callers share fairly, with what
// decoding leaves of the processors.
//
// Encoding a text takes many times its size, but ends soon: it waits for its
// part of a budget of its own, and so does compiling. Thread-safe.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_TEXT_WORK_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_TEXT_WORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/byte_budget.h"
#include "common/base/clock.h"
#include "common/base/request_pool.h"
#include "common/generation/generation.h"
#include "common/grammar/grammar_cache.h"
#include "common/text/tokenizer.h"

namespace foretoken::orchestrator {

struct TextWorkOptions {
  int64_t max_text_bytes = 4 << 20;  // ids count as four bytes each
  int64_t max_waiting_bytes = int64_t{256} << 20;
  absl::Duration max_time = absl::Hours(1);              // waiting included
  absl::Duration retry_after = absl::Milliseconds(200);  // minimum retry hint
};

struct CompiledConstraint {
  std::shared_ptr<const grammar::Grammar> grammar;
  bool kept = false;  // it was there from an earlier request
};

class TextWork {
 public:
  using Ticket = RequestPool::Ticket;

  // `tokenizer` may be null: then the functions on texts are
  // FailedPrecondition. `encoding`, the memory of texts while they are encoded,
  // must outlive the object.
  TextWork(const TextWorkOptions& options,
           std::shared_ptr<const Tokenizer> tokenizer, ByteBudget& encoding,
           Clock clock);

  // Runs work on a text of `bytes` bytes; it waits for a thread until
  // `deadline`, at most max_time. `work` is called once, never from inside this
  // function: with OK, or with the reason why it was refused (ResourceExhausted
  // if the queue is full, DeadlineExceeded, Cancelled). Returns the ticket for
  // Cancel.
  Ticket Run(const Caller& caller, int64_t bytes, absl::Time deadline,
             std::function<void(const absl::Status&)> work);
  // Refuses work that has not begun; does nothing otherwise.
  void Cancel(Ticket ticket);

  // These run in the caller's thread, which has checked the size (CheckBytes).
  // Tokenize waits for the memory that it takes, until `deadline`, at most
  // max_time: DeadlineExceeded, or Cancelled once `cancelled`, if given,
  // returns true.
  absl::StatusOr<std::vector<TokenId>> Tokenize(
      const Caller& caller, absl::string_view text, bool add_special_tokens,
      absl::Time deadline, const std::function<bool()>& cancelled = nullptr);
  absl::StatusOr<std::string> Detokenize(
      absl::Span<const TokenId> token_ids) const;

  // The ids of the request's text, for prefill; a long text is encoded on the
  // threads for texts. ResourceExhausted if these have no room for it.
  absl::StatusOr<std::vector<TokenId>> EncodePrompt(
      const GenerationRequest& request, const std::function<bool()>& cancelled);

  // The grammar of the request's constraint, from `grammars`; one that is not
  // there is compiled on the threads for texts. InvalidArgument, which names
  // the field, for a constraint that Compile refuses, whatever for;
  // ResourceExhausted if the threads have no room for it.
  absl::StatusOr<CompiledConstraint> CompileConstraint(
      const GenerationRequest& request, grammar::GrammarCache& grammars,
      const std::function<bool()>& cancelled);

  // InvalidArgument, with the field's name, for more than max_text_bytes.
  absl::Status CheckBytes(absl::string_view field, size_t bytes) const;

  bool idle() const { return pool_.active() == 0; }

 private:
  // Runs `work` as Run does, and returns when it has ended, OK, or was refused.
  // Refuses it once `cancelled` returns true.
  absl::Status RunAndWait(const GenerationRequest& request, int64_t bytes,
                          const std::function<bool()>& cancelled,
                          absl::FunctionRef<void()> work);
  absl::StatusOr<std::vector<TokenId>> Encode(
      const Caller& caller, absl::string_view text, bool as_prompt,
      absl::Time deadline, const std::function<bool()>& cancelled);

  const TextWorkOptions options_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const Clock clock_;
  ByteBudget& encoding_;
  RequestPool pool_;  // last: its threads use all of the above
};

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ADMISSION_TEXT_WORK_H_
