// Session: the draft worker's record of one request's text and its draft.
//
// Owned by the engine thread.
#ifndef FORETOKEN_SERVICES_DRAFT_WORKER_CORE_SESSION_H_
#define FORETOKEN_SERVICES_DRAFT_WORKER_CORE_SESSION_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/engine/kv_session.h"
#include "common/engine/session_book.h"
#include "services/draft_worker/core/draft_mode.h"
#include "services/draft_worker/core/draft_pace.h"

namespace foretoken::draft_worker {

struct PendingDraft {  // a round under way
  int32_t max_nodes = 0;
  absl::Time arrived;
  absl::Time deadline;  // for the answer to be on its way
  // As the round said; see DraftRound.
  absl::Duration token_time;
  std::vector<float> row_ms;
  int64_t order = 0;  // of submission
};

struct Session {
  SessionId id = -1;
  int64_t length = 0;
  // The draft model cannot follow: no text, no KV, empty drafts.
  bool muted = false;
  std::vector<TokenId> text;
  std::unique_ptr<DraftMode> mode;
  ModeTotals counted;  // mode totals already added to the engine's
  std::optional<PendingDraft> draft;
  int64_t draft_base = -1;  // length that the mode's draft builds on
  // Expected time of the next pass, from the last one: [0] without and [1]
  // with much text of other sessions.
  std::array<absl::Duration, 2> pass_time;
  int32_t pass_rows = 0;  // of the session, in its last pass of a draft
  DraftPace pace;

  KvSession kv;  // closed in a muted session
  // The beginning of the mode's chain: tokens whose KV follows that of the
  // text, all of which is then in the cache. The next round drops those that
  // it does not commit.
  std::vector<TokenId> drafted;

  PassRows rows;  // of the pass being planned
  int32_t text_rows = 0;

  // Tokens of the text whose KV is committed.
  int64_t text_known() const {
    return kv.length() - static_cast<int64_t>(drafted.size());
  }
  int64_t text_left() const {
    return static_cast<int64_t>(text.size()) - text_known();
  }
  // True if the session has text to prefill. The last token is left for the
  // draft, as its first row.
  bool wants_prefill() const { return !muted && text_left() > 1; }
  // True if its next pass reads text only.
  bool reads(int32_t text_chunk) const {
    return draft.has_value() ? text_left() > text_chunk : wants_prefill();
  }
  // Fewer rows, such as one or two empty drafts leave, add no noticeable time
  // to a pass of drafts.
  bool reads_much(int32_t text_chunk) const {
    constexpr int64_t kFewRows = 16;
    return reads(text_chunk) && text_left() > kFewRows;
  }

  // Lays out its rows of the next pass: `count` tokens of text, and below them
  // those of its draft.
  void LayOut(bool drafts, int32_t count);

  // Commits the rows of text of its last pass, for which there is room.
  absl::Status CommitText();
  // The same with the rows of its chain; without them where pages are short.
  absl::Status CommitDraft();
  // Drops all but the first `count` of the tokens drafted.
  absl::Status KeepDrafted(size_t count);
  // Drops those that the next pass does not build on.
  absl::Status KeepChain();
};

using Sessions = SessionBook<Session>;

// A session's share of the pass being planned.
struct Share {
  Session* session;
  bool drafts;  // else text alone
};

// Chooses the sessions of a pass of at most `rows` rows and lays out their
// rows: drafts, oldest round first, then `text_chunk` rows of text beside them,
// or `text_rows` alone.
std::vector<Share> PlanPass(Sessions& sessions, int32_t rows,
                            int32_t text_chunk, int32_t text_rows);

}  // namespace foretoken::draft_worker

#endif  // FORETOKEN_SERVICES_DRAFT_WORKER_CORE_SESSION_H_
