// DraftEngine: the draft worker without network or thread: sessions, continuous
// batching, admission by KV pages.
//
// Synchronous and deterministic: callers submit rounds, RunPass runs one
// forward pass over the waiting work and reports the results. One thread owns
// the object and drives it.
//
// A pass holds drafts of many sessions, oldest round first and whole, and
// chunks of text that lacks KV (prompts, and what was committed without a
// draft). Tokens that the draft did not foresee are rows of its next pass, so
// that catching up costs no pass of its own. The chain's KV is committed with
// the text's, so that a pass computes only what is new; the session's next
// round drops the KV of what it does not commit. Where pages are short, text
// takes those of drafts, and passes compute their chains again.
//
// A failure costs only speed: a session whose text the draft model does not
// know, or that is longer than its context, continues with empty drafts; one
// whose logits are not numbers gets the tokens drafted before, and the rest of
// its batch is unaffected.
//
// Source: continuous batching after Orca (OSDI 2022, "Iteration-level
// scheduling").
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_ENGINE_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/drafting/draft_session.h"
#include "common/engine/engine_report.h"
#include "common/infer/backend.h"
#include "common/infer/pass_timing.h"
#include "services/draft_worker/core/draft_mode.h"
#include "services/draft_worker/core/session.h"

namespace foretoken::draft_worker {

// Receives the events of one session on the engine thread; must not block.
// Not called again after OnFailed.
class EngineDraftListener {
 public:
  virtual ~EngineDraftListener() = default;
  virtual void OnOpened(const std::string& numerics_fingerprint) = 0;
  virtual void OnAnswer(DraftAnswer answer) = 0;
  virtual void OnFailed(absl::Status status) = 0;
};

struct DraftEngineOptions {
  int32_t max_sessions = 256;
  int32_t max_rows_per_pass = 1024;    // also bounded by the backend
  int32_t max_rows_per_session = 320;  // of a pass, below the committed text
  int32_t prefill_chunk = 128;         // rows of text in a pass beside drafts
  int32_t max_text_rows = 0;           // in one without; 0: max_rows_per_pass
  int32_t admission_reserve = 64;      // tokens beyond the text
  int32_t max_pool_phrases = 1 << 13;  // of one session's working pool
  // Token ids at or above this are never proposed: the tokenizer's size if the
  // model's vocabulary is padded. 0: the model's vocabulary size.
  int32_t vocab_limit = 0;
  // Keep the chain's KV between the passes of a draft. Off, every pass computes
  // the chain again: for tests and benchmarks, since the drafts are the same.
  bool keep_chain = true;

  // InvalidArgument names every bad field with its value and range.
  absl::Status Validate() const;
};

// Totals since the start, for a metrics adapter.
struct DraftEngineTotals {
  int64_t passes = 0;
  int64_t rows = 0;
  int64_t text_rows = 0;      // of those, committed text
  int64_t kept_rows = 0;      // accepted drafts whose KV was kept
  int64_t reused_tokens = 0;  // not computed, thanks to the prefix cache
  int64_t drafts = 0;         // answered with at least one node
  int64_t draft_tokens = 0;
  int64_t vocabulary_misses = 0;  // committed tokens that are never drawn
  int64_t muted = 0;              // sessions whose text the model cannot follow
  ModeTotals modes;
};

struct DraftReport {
  struct Answer {
    SessionId session;
    DraftAnswer answer;
  };
  std::vector<Answer> answers;
  std::vector<SessionFailure> failures;
  PassStats stats;

  // Gives every answer to its listener (common/engine/engine_loop.h).
  template <typename ListenerOf>
  void Deliver(const ListenerOf& listener_of) {
    for (auto& [session, answer] : answers) {
      EngineDraftListener* const listener = listener_of(session, true);
      if (listener != nullptr) listener->OnAnswer(std::move(answer));
    }
  }
};

struct DraftSnapshot : EngineNumbers {
  DraftEngineTotals totals;
  int64_t pool_phrases = 0;  // of all working pools
};

class DraftEngine {
 public:
  using OpenRequest = DraftOpen;
  using RoundRequest = DraftRound;
  using Listener = EngineDraftListener;
  using Report = DraftReport;
  using Snapshot = DraftSnapshot;

  // `options` must be valid. Only the engine may use the backend.
  DraftEngine(const DraftEngineOptions& options,
              std::unique_ptr<Backend> backend, Clock clock = MonotonicClock());
  DraftEngine(const DraftEngine&) = delete;
  DraftEngine& operator=(const DraftEngine&) = delete;

  const ModelConfig& model() const { return backend_->config(); }
  std::string numerics_fingerprint() const {
    return backend_->numerics_fingerprint();
  }
  bool lost() const { return backend_->lost(); }

  // Admits the session; later passes prefill its prompt. InvalidArgument names
  // the field; Unimplemented for another mode; ResourceExhausted over
  // max_sessions or short of KV pages.
  absl::StatusOr<SessionId> Open(DraftOpen open);

  // Learns from the round and queues its draft, which a later RunPass reports:
  // the next one if max_nodes is 0 or the session cannot draft.
  // NotFound: no such session; FailedPrecondition: a round is in progress, or
  // `round` does not follow the session's text; InvalidArgument names the
  // field. The time budget counts from `arrived`, or from now if absent.
  absl::Status Submit(SessionId session, const DraftRound& round,
                      std::optional<absl::Time> arrived = std::nullopt);

  // Frees the session in any state. NotFound: no such session.
  absl::Status Close(SessionId session) { return sessions_.Remove(session); }

  // True if RunPass would do something.
  bool HasWork() const;
  // Whether the next pass drafts, and does not only read texts.
  bool has_drafts() const;
  // HasWork never turns true by itself.
  absl::Time NextDeadline() const { return absl::InfiniteFuture(); }

  // Answers the rounds that need no pass; if there are none, runs one forward
  // pass. Failures of sessions are in the report; a backend error other than
  // DataLoss ends every session of the pass.
  DraftReport RunPass();

  DraftSnapshot snapshot() const;

 private:
  absl::Status Check(const DraftOpen& open) const;
  absl::Status Admit(Session& session, DraftOpen& open);
  void Mute(Session& session);
  // Drops the KV of the session's draft that `committed` does not continue.
  absl::Status KeepAccepted(Session& session,
                            absl::Span<const TokenId> committed);
  absl::Status Learn(Session& session, const DraftRound& round);
  // True if the session's mode wants another pass for its draft.
  bool Wants(const Session& session) const;
  bool IsDue(const Session& session) const;
  DraftPrices PricesOf(const Session& session) const;
  // Seconds that a row adds to a pass of drafts; negative if unknown.
  double RowSeconds() const;
  bool HasFreeRows() const;
  // Whether the next pass has much text in it.
  void NoteText();
  size_t kind_of_pass() const { return text_waits_ ? 1 : 0; }

  void AnswerReady(DraftReport& report);
  void Answer(Session& session, DraftReport& report);
  void Count(Session& session);

  void ReserveShares(std::vector<Share>& plan, DraftReport& report);
  // Gives back the KV of all drafts but those laid out in `plan`. False if
  // there was none.
  bool DropDrafted(absl::Span<const Share> plan);
  // Runs one pass of `plan`, which is laid out and reserved.
  void RunShares(absl::Span<const Share> plan, DraftReport& report);
  absl::Status Forward(absl::Span<const Share> plan, PassResult& result);
  absl::Status Take(const Share& share, absl::Span<const SampledToken> outputs,
                    DraftReport& report);
  // Handles a share of a pass that ended with `status`.
  void FinishShare(const Share& share, const absl::Status& status,
                   absl::Span<const SampledToken> outputs, DraftReport& report);

  const DraftEngineOptions options_;
  const std::unique_ptr<Backend> backend_;
  const Clock clock_;
  int32_t row_budget_ = 0;  // of a pass
  int32_t text_chunk_ = 0;
  int32_t text_rows_ = 0;    // of a pass that only reads
  bool text_waits_ = false;  // some session has much text to read
  PassTiming timing_;        // of passes of drafts alone
  ModeLimits limits_;
  std::vector<SampledToken> by_row_;  // of the session that is being answered
  Sessions sessions_;
  int64_t next_order_ = 1;
  DraftEngineTotals totals_;
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_ENGINE_H_
