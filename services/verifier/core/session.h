// Session: the verifier's record of one request's text.
//
//   waiting --admit--> prefilling --> ready --Submit--> round pending
//      ^                                |                    |
//      +------------ preempt -----------+--------------------+
//
// A preempted session loses its KV and keeps its text; admitted again it
// prefills all but its last token and continues with the same bits.
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_SESSION_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/engine/kv_session.h"
#include "common/engine/session_book.h"
#include "common/grammar/constrained_text.h"
#include "common/speculation/round.h"
#include "services/verifier/core/state_pool.h"

namespace foretoken::verifier {

// A round that waits for its pass.
struct PendingRound {
  RoundRequest request;
  // Nodes that get a row, ascending; parent of each among the rows (row 0 is
  // the last committed token), and rows of nodes (-1: dropped).
  std::vector<int32_t> kept_nodes;
  std::vector<TokenId> row_tokens;   // [1 + kept]
  std::vector<int32_t> row_parents;  // [1 + kept]
  std::vector<int32_t> row_of_node;  // [tree.size()]
  // Rows that a constraint forbids, or whose mask is not known: what they give
  // is not read. Empty without a constraint, else [1 + kept].
  std::vector<bool> closed_rows;
  int32_t max_draft_depth = 0;
  int64_t order = 0;  // of submission
  absl::Time arrived;
  absl::Duration queue_time;  // from arrival to its pass

  int32_t rows() const { return static_cast<int32_t>(row_tokens.size()); }
};

struct Session {
  SessionId id = -1;
  SessionRequest request;       // its `tokens` moved to the member below
  std::vector<TokenId> tokens;  // committed, prompt first
  FinishReason finish = FinishReason::kNone;

  KvSession kv;  // open while the session is admitted

  bool prefill_reported = false;  // the caller has its PrefillResult
  int64_t reused_tokens = 0;
  bool was_preempted = false;
  // Room, in tokens, for which other callers' sessions were preempted; 0 once
  // the text that it was for has been read.
  int64_t taken_room = 0;
  int64_t preempted_in = -1;  // the call of AdmitWaiting that preempted it
  absl::Time idle_since;  // time of its last answer; valid while it has no work
  std::optional<PendingRound> round;
  // The output under the request's constraint; null: there is none.
  std::unique_ptr<grammar::ConstrainedText> text;
  absl::Status mask_status;  // of the last pass
  bool follows_guard = false;  // its last round named an arm
  // Pools the states computed so far, if the request has a pooling.
  std::optional<StatePool> pool;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  bool is_embedded() const { return request.pooling != Pooling::kNone; }
  bool is_replay() const { return length() > request.prompt_length; }
  // Prefill ends at this KV length: a fresh prompt is computed whole, and its
  // last row gives the first token; else the last token is row 0 of the next
  // round.
  int64_t prefill_target() const { return length() - (is_replay() ? 1 : 0); }
  int64_t prefill_left() const { return prefill_target() - kv.length(); }
  bool has_work() const { return !prefill_reported || round.has_value(); }
  bool is_waiting() const { return !kv.is_open() && has_work(); }
  bool is_prefilling() const { return kv.is_open() && prefill_left() > 0; }
  bool is_read() const { return kv.is_open() && prefill_left() == 0; }
  bool is_ready() const {
    return is_read() && round.has_value();
  }
};

using Sessions = SessionBook<Session>;

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_SESSION_H_
