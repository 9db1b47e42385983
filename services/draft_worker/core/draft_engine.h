// DraftEngine: the draft worker without its network and without a thread:
// sessions, continuous batching, admission by KV pages.
//
// Synchronous and deterministic: callers submit rounds, RunPass runs one
// forward pass over whatever waits and reports what came of it. One thread owns
// the object and drives it.
//
// A pass holds drafts of many sessions, oldest round first and whole, and
// chunks of text that lacks KV (prompts, and what was committed without a
// draft). Tokens that the draft did not foresee are rows of its next pass, so
// that catching up costs no pass of its own. A draft's last pass is committed
// late: if its session's next round comes before another pass, the KV of the
// accepted tokens is kept and need not be computed again.
//
// Drafts cost speed only: a session whose text the draft model does not know,
// or that is longer than its context, goes on with empty drafts; one whose
// logits are not numbers gets what was drafted before, and its batch mates do
// not notice.
//
// Source: continuous batching after Orca (OSDI 2022, "Iteration-level
// scheduling").
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_ENGINE_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_ENGINE_H_

#include <array>
#include <cstdint>
#include <map>
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
#include "common/sampling/sampler.h"
#include "services/draft_worker/core/draft_mode.h"

namespace foretoken::draft_worker {

// What becomes of one session. Called on the engine thread, which waits: a
// listener hands over and returns. After OnFailed nothing more comes.
class DraftListener {
 public:
  virtual ~DraftListener() = default;
  virtual void OnOpened(const std::string& numerics_fingerprint) = 0;
  virtual void OnAnswer(DraftAnswer answer) = 0;
  virtual void OnFailed(absl::Status status) = 0;
};

struct DraftEngineOptions {
  int32_t max_sessions = 256;
  int32_t max_rows_per_pass = 1024;    // also bounded by the backend
  int32_t max_rows_per_session = 320;  // of a pass, below the committed text
  int32_t prefill_chunk = 128;         // rows of text in a pass beside drafts
  int32_t admission_reserve = 64;      // tokens beyond the text
  int32_t max_pool_phrases = 1 << 13;  // of one session's working pool
  // Ids at or above are never proposed: the tokenizer's size, where the
  // model's vocabulary is padded. 0: the model's.
  int32_t vocab_limit = 0;

  // InvalidArgument names every bad field with its value and range.
  absl::Status Validate() const;
};

// Sums since the start; what a metrics adapter exports.
struct DraftEngineTotals {
  int64_t passes = 0;
  int64_t rows = 0;
  int64_t text_rows = 0;      // of those, committed text
  int64_t kept_rows = 0;      // accepted drafts whose KV was kept
  int64_t reused_tokens = 0;  // not computed, thanks to the prefix cache
  int64_t drafts = 0;         // answered with at least one node
  int64_t draft_tokens = 0;
  int64_t muted = 0;  // sessions that the model cannot follow
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
      DraftListener* const listener = listener_of(session, true);
      if (listener != nullptr) listener->OnAnswer(std::move(answer));
    }
  }
};

struct DraftSnapshot : EngineNumbers {
  DraftEngineTotals totals;
  int64_t pool_phrases = 0;
};

class DraftEngine {
 public:
  using OpenRequest = DraftOpen;
  using RoundRequest = DraftRound;
  using Listener = DraftListener;
  using Report = DraftReport;
  using Snapshot = DraftSnapshot;

  // `options` must be valid. The backend is the engine's alone.
  DraftEngine(const DraftEngineOptions& options,
              std::unique_ptr<Backend> backend, Clock clock = SystemClock());
  ~DraftEngine();
  DraftEngine(const DraftEngine&) = delete;
  DraftEngine& operator=(const DraftEngine&) = delete;

  const ModelConfig& model() const { return backend_->config(); }
  std::string numerics_fingerprint() const {
    return backend_->numerics_fingerprint();
  }

  // Admits the session; passes read its prompt from now on. InvalidArgument by
  // field, Unimplemented for another mode, ResourceExhausted over max_sessions
  // or where KV pages are short.
  absl::StatusOr<SessionId> Open(DraftOpen open);

  // Learns from the round and queues its draft, which a RunPass reports; with
  // max_nodes 0, or in a session that cannot draft, the next one does.
  // NotFound: no such session; FailedPrecondition: a round is under way, or
  // `round` does not follow the session's text; InvalidArgument by field. Its
  // time runs since `arrived`, if not from now.
  absl::Status Submit(SessionId session, const DraftRound& round,
                      std::optional<absl::Time> arrived = std::nullopt);

  // Frees the session, whatever it waits for. NotFound.
  absl::Status Close(SessionId session);

  // True if RunPass would do something.
  bool HasWork() const;
  // HasWork never turns true by itself.
  absl::Time NextDeadline() const { return absl::InfiniteFuture(); }

  // Answers what needs no pass, else runs one forward pass. Whatever befalls a
  // session is in the report; an error of the backend ends the sessions of the
  // pass, DataLoss aside.
  DraftReport RunPass();

  int32_t sessions() const { return static_cast<int32_t>(sessions_.size()); }
  int64_t pool_phrases() const { return pool_phrases_; }
  KvUsage kv_usage() const { return backend_->kv_usage(); }
  const DraftEngineTotals& totals() const { return totals_; }
  DraftSnapshot snapshot() const;

 private:
  static constexpr int64_t kFewRows = 16;

  struct Draft {  // a round under way
    int32_t max_nodes = 0;
    absl::Time arrived;
    absl::Time deadline;  // for the answer to be on its way
    int64_t order = 0;
  };
  struct Session {
    SessionId id = -1;
    int64_t length = 0;
    // The draft model cannot follow: no text, no KV, empty drafts.
    bool muted = false;
    std::vector<TokenId> text;
    std::unique_ptr<DraftMode> mode;
    ModeTotals counted;  // of the mode, as far as the engine's totals have them
    int64_t counted_phrases = 0;
    std::optional<Draft> draft;
    int64_t draft_base = -1;  // length that the mode's draft builds on
    // What its next pass is expected to take, as long as its last one: without
    // much text of others in it, and with that.
    std::array<absl::Duration, 2> pass_time;

    std::optional<SessionId> backend_session;
    std::optional<SamplingState> sampling;  // its length() is the KV's
    int64_t kv_length = 0;
    // Rows of text in the last pass that are not committed yet: the rest of
    // that pass may be wanted by the next round.
    std::optional<int32_t> held_rows;

    PassRows rows;  // of the pass in the making
    int32_t text_rows = 0;

    int64_t text_left() const {
      return static_cast<int64_t>(text.size()) - kv_length;
    }
    // Text to read with no draft to show for it. The last token is left to the
    // draft, whose first row it is.
    bool wants_prefill() const {
      return !muted && !held_rows.has_value() && text_left() > 1;
    }
    // Its next pass is one of text alone.
    bool reads(int32_t text_chunk) const {
      return draft.has_value() ? text_left() > text_chunk : wants_prefill();
    }
    // What is left after an empty draft or two is read beside drafts unnoticed.
    bool reads_much(int32_t text_chunk) const {
      return reads(text_chunk) && text_left() > kFewRows;
    }
  };
  // A session's share of the pass in the making.
  struct Share {
    Session* session;
    bool drafts;  // else text alone
  };

  absl::Status Check(const DraftOpen& open) const;
  absl::Status Admit(Session& session, DraftOpen& open);
  void Mute(Session& session);
  void ReleaseBackend(Session& session);
  // Commits the first `text` rows of the session's last pass and `drafted` of
  // its draft's rows, whose tokens the text has by now.
  absl::Status CommitRows(Session& session, int32_t text, int32_t drafted);
  absl::Status SettleHeld();
  absl::Status KeepAccepted(Session& session, const DraftRound& round,
                            bool follows_draft);
  absl::Status Learn(Session& session, const DraftRound& round);
  bool IsDue(const Session& session) const;
  // Whether the next pass has much text in it.
  void NoteText();
  size_t kind_of_pass() const { return text_waits_ ? 1 : 0; }

  void AnswerReady(DraftReport& report);
  void Answer(Session& session, DraftReport& report);
  void Count(Session& session);
  void Fail(SessionId id, absl::Status status, DraftReport& report);

  std::vector<Share> PlanPass();
  void LayOut(Session& session, bool drafts, int32_t text_rows);
  void ReserveShares(std::vector<Share>& plan, DraftReport& report);
  // One pass of `plan`, all of it laid out and reserved.
  void RunShares(absl::Span<const Share> plan, DraftReport& report);
  absl::Status Forward(absl::Span<const Share> plan, PassResult& result);
  absl::Status Take(const Share& share, absl::Span<const SampledToken> outputs,
                    DraftReport& report);
  // What became of a share of a pass that ended with `status`.
  void FinishShare(const Share& share, const absl::Status& status,
                   absl::Span<const SampledToken> outputs, DraftReport& report);

  const DraftEngineOptions options_;
  const std::unique_ptr<Backend> backend_;
  const Clock clock_;
  int32_t row_budget_ = 0;  // of a pass
  int32_t text_chunk_ = 0;
  bool text_waits_ = false;  // much of it, someone's
  ModeLimits limits_;
  std::vector<SampledToken> by_row_;  // of the session that is being answered
  // By id, so by age: iteration is deterministic.
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  SessionId next_id_ = 1;
  int64_t next_order_ = 1;
  int64_t pool_phrases_ = 0;
  DraftEngineTotals totals_;
};

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_DRAFT_ENGINE_H_
