// VerifyEngine: the verifier without its network. Sessions, continuous
// batching, the acceptance walk, admission by KV pages, preemption and replay.
//
// Synchronous and deterministic: callers submit, RunPass runs one forward pass
// over the waiting work and reports the results. One engine thread owns the
// object and drives it; a server feeds it through a queue of its own.
//
// A pass holds rounds of many sessions (whole trees) and chunks of prompts,
// which callers share by weight (pass_shares.h). While rounds wait, prefill
// takes at most prefill_chunk rows, and at least one session of either kind
// moves in every pass. Which sessions share a pass changes no token
// (common/infer/backend.h).
//
// Memory: see admission.h. A session that is alone in the cache drops its
// drafts before it is refused for lack of pages.
//
// Source: continuous batching after Orca (OSDI 2022, "Iteration-level
// scheduling").
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_VERIFY_ENGINE_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_VERIFY_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/engine/engine_report.h"
#include "common/infer/backend.h"
#include "common/infer/pass_timing.h"
#include "common/speculation/round.h"
#include "common/speculation/verify_session.h"
#include "services/verifier/core/admission.h"
#include "services/verifier/core/goodput_guard.h"
#include "services/verifier/core/pass_shares.h"
#include "services/verifier/core/round_plan.h"
#include "services/verifier/core/session.h"
#include "services/verifier/core/session_grammars.h"

namespace foretoken::verifier {

struct VerifyEngineOptions {
  int32_t max_sessions = 256;          // open at once, waiting ones included
  int32_t max_rows_per_pass = 512;     // also bounded by the backend
  int32_t max_rows_per_session = 321;  // row 0, draft and probe rows of a round
  int32_t prefill_chunk = 128;         // prompt rows of a pass beside rounds
  int32_t admission_reserve = 64;      // tokens beyond the text, for one round
  // A session that waits longer for its client may lose its KV to others.
  absl::Duration idle_time = absl::Seconds(2);
  PassTiming pass_timing;  // initial estimates
  GuardMode guard = GuardMode::kMeasure;
  ArmHook arm_hook;  // for tests
  // The tokens' bytes, for sessions with a constraint; null: they are refused.
  std::shared_ptr<const grammar::TokenVocabulary> vocabulary;
  // Memory of the automata and masks of constraints.
  int64_t grammar_bytes = int64_t{512} << 20;
  // Result of the model's self-check before the start.
  absl::Status model_fault;

  // InvalidArgument names every bad field with its value and range.
  absl::Status Validate() const;
};

// Totals since the start, for a metrics adapter.
struct EngineTotals : AdmissionTotals {
  int64_t passes = 0;
  int64_t rounds = 0;
  int64_t rounds_with_drafts = 0;
  int64_t draft_rows = 0;
  int64_t probe_rows = 0;
  int64_t dropped_nodes = 0;
  int64_t accepted = 0;
  int64_t committed = 0;     // tokens, those of prefill included
  int64_t prefill_rows = 0;  // computed, replays included
  int64_t replayed_rows = 0;
  int64_t masks = 0;  // rows that a constraint limits
};

struct PassReport {
  struct Prefilled {
    SessionId session;
    PrefillResult result;
  };
  struct Round {
    SessionId session;
    RoundResult result;
  };
  std::vector<Prefilled> prefilled;
  std::vector<Round> rounds;
  std::vector<SessionFailure> failures;
  PassStats stats;

  // Gives every answer to its listener (common/engine/engine_loop.h).
  template <typename ListenerOf>
  void Deliver(const ListenerOf& listener_of) {
    for (auto& [session, result] : prefilled) {
      VerifyListener* const listener =
          listener_of(session, result.finish == FinishReason::kNone);
      if (listener != nullptr) listener->OnPrefilled(std::move(result));
    }
    for (auto& [session, result] : rounds) {
      VerifyListener* const listener =
          listener_of(session, result.finish == FinishReason::kNone);
      if (listener != nullptr) listener->OnRound(std::move(result));
    }
  }
};

struct VerifySnapshot : EngineNumbers {
  EngineTotals totals;
  PassTiming pass_timing;
  GuardNumbers guard;
  int64_t grammar_bytes = 0;  // of automata and masks, about
  // Unavailable, with the reason, once no session can be served any more: the
  // model's logits are not finite, whatever the text.
  absl::Status model_fault;
  // Predicted time of a pass of as many rows as it may have, prompts included.
  absl::Duration largest_pass;
  // See VerifyEngineOptions: sessions may wait this long for pages of others.
  absl::Duration idle_time;
};

class VerifyEngine {
 public:
  using OpenRequest = SessionRequest;
  using RoundRequest = foretoken::RoundRequest;
  using Listener = VerifyListener;
  using Report = PassReport;
  using Snapshot = VerifySnapshot;

  // `options` must be valid. Only the engine may use the backend.
  VerifyEngine(const VerifyEngineOptions& options,
               std::unique_ptr<Backend> backend,
               Clock clock = MonotonicClock());
  VerifyEngine(const VerifyEngine&) = delete;
  VerifyEngine& operator=(const VerifyEngine&) = delete;

  const ModelConfig& model() const { return backend_->config(); }
  std::string numerics_fingerprint() const {
    return backend_->numerics_fingerprint();
  }
  bool lost() const { return backend_->lost(); }

  // Checks the request and queues its prefill, which a later pass reports.
  // InvalidArgument names the field; ResourceExhausted over max_sessions;
  // DeadlineExceeded; the model's fault, if it has one.
  absl::StatusOr<SessionId> Open(SessionRequest request);

  // Queues a round of an open session. NotFound: no such session;
  // FailedPrecondition: it builds on another length, prefill is not reported, a
  // round is already queued, or the session has ended; InvalidArgument: sizes
  // that do not belong together. Queue time counts from `arrived`, or from now
  // if absent.
  absl::Status Submit(SessionId session, RoundRequest request,
                      std::optional<absl::Time> arrived = std::nullopt);

  // Frees the session in any state. NotFound.
  absl::Status Close(SessionId session);

  // True if a pass would do something: rows wait, a session may be admitted, or
  // a deadline has passed.
  bool HasWork() const;
  // When HasWork may turn true by itself: the earliest deadline, or the time at
  // which an idle session may be preempted. InfiniteFuture if there is neither.
  absl::Time NextDeadline() const;

  // Expires deadlines, admits, runs one forward pass, commits. With nothing to
  // do it returns an empty report. Failures of sessions are in the report. A
  // backend error ends every session of the pass; DataLoss (logits that are not
  // numbers) ends only the sessions that the logits belong to, and none for a
  // draft row. Where it is the model's fault, not the text's, such sessions end
  // with Unavailable: another verifier may serve them.
  PassReport RunPass();

  VerifySnapshot snapshot() const;

 private:
  // A session's share of the pass being planned.
  struct Share {
    Session* session;
    int32_t prefill_rows;  // 0: its round
  };

  absl::Status Check(const SessionRequest& request) const;
  absl::Status CheckLength(const SessionRequest& request) const;
  absl::Status CheckEmbedding(const SessionRequest& request) const;
  RoundLimits LimitsOf(const Session& session) const;
  int32_t RowBudget() const;

  void ExpireDeadlines(PassReport& report);
  void Fail(SessionId id, absl::Status status, PassReport& report);

  std::vector<Share> PlanPass(PassReport& report);
  // Adds callers that have no session now and are about to open one.
  void AddRecentCallers(absl::Time now, std::vector<PassDemand>& demands);
  // Reserves KV for the tokens that the planned rounds may commit. Preempts
  // sessions if necessary and removes them from the plan.
  void ReserveRounds(std::vector<Share>& plan, PassReport& report);
  absl::Status ReserveRound(Session& session);

  // Adds what the masks took to `stats`.
  absl::Status Forward(const std::vector<Share>& plan, PassResult& result,
                       PassStats& stats);
  // Commits the results of a pass for `share`, or ends its session.
  void FinishShare(const Share& share, absl::Status status, PassResult& result,
                   size_t index, PassReport& report);
  // Number of sessions that decode, and of those that follow the guard.
  std::pair<int32_t, int32_t> CountDecoding() const;
  // Tells the guard of a pass over `plan`, and puts its arm into the answers.
  void Guard(GuardPass pass, PassReport& report);
  // Looks for a fault of the model after logits that are not numbers, and
  // returns what the session ends with.
  absl::Status CheckModel(absl::Status data_loss);
  // The same for the states of embeddings that were not numbers.
  void CheckStates(PassReport& report);
  // Runs the share again, in a pass of its own.
  void RunAlone(const Share& share, PassReport& report);
  // Takes the states of the session's `rows` of the last pass, before they are
  // committed.
  absl::Status PoolStates(Session& session, int32_t rows);
  absl::Status FinishPrefill(Session& session, int32_t rows,
                             std::vector<SampledToken>& outputs,
                             PassReport& report);
  absl::Status FinishRound(Session& session, std::vector<SampledToken>& outputs,
                           PassReport& report);

  const VerifyEngineOptions options_;
  const std::unique_ptr<Backend> backend_;
  const Clock clock_;
  Sessions sessions_;
  Admission admission_;
  PassShares shares_;
  // Callers that were answered lately.
  struct RecentCaller {
    double weight = 1;
    absl::Time answered;
  };
  absl::flat_hash_map<std::string, RecentCaller> recent_callers_;
  int64_t next_order_ = 1;
  std::vector<int32_t> chain_;  // parents of a prefill chunk: -1, 0, 1, ...
  std::vector<int32_t> rows_;   // of a prefill chunk: 0, 1, 2, ...
  std::vector<float> states_;   // [up to kStateRows, d_model]
  bool lost_states_ = false;    // DataLoss in states of the last pass
  absl::Duration pooling_time_;  // in the last pass
  SessionGrammars grammars_;
  EngineTotals totals_;         // without those of admission_
  PassTiming pass_timing_;      // of passes without prompt rows
  PassTiming any_timing_;       // of all passes, for shares_
  GoodputGuard guard_;
  absl::Status model_fault_;
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_VERIFY_ENGINE_H_
