#include "services/draft_worker/core/session.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/engine/pass_budget.h"

namespace foretoken::draft_worker {

void Session::LayOut(bool drafts, int32_t count) {
  rows.Clear();
  text_rows = count;
  int32_t row = kRootParent;
  for (int32_t i = 0; i < count; ++i) {
    // The rows of the text come first, in order, and the draft hangs on the
    // last of them.
    row = rows.Add(text[text_known() + i], row);
  }
  if (drafts) mode->LayOut(row, static_cast<int32_t>(drafted.size()), rows);
}

absl::Status Session::CommitText() {
  std::vector<int32_t> committed(text_rows);
  std::iota(committed.begin(), committed.end(), 0);
  return committed.empty() ? absl::OkStatus() : kv.Commit(committed, text);
}

absl::Status Session::CommitDraft() {
  const absl::Span<const int32_t> chain_rows = mode->chain_rows();
  if (chain_rows.empty()) return CommitText();
  std::vector<int32_t> committed(text_rows);
  std::iota(committed.begin(), committed.end(), 0);
  committed.insert(committed.end(), chain_rows.begin(), chain_rows.end());
  const auto text_tokens =
      absl::MakeConstSpan(text).subspan(text_known(), text_rows);
  const auto chain_tokens =
      mode->chain().subspan(drafted.size(), chain_rows.size());
  std::vector<TokenId> tokens(text_tokens.begin(), text_tokens.end());
  tokens.insert(tokens.end(), chain_tokens.begin(), chain_tokens.end());
  const absl::Status appended = kv.Append(committed, tokens);
  // No page for the draft's KV: its tokens stay, and their KV is computed
  // again.
  if (absl::IsResourceExhausted(appended)) return CommitText();
  FORETOKEN_RETURN_IF_ERROR(appended);
  drafted.insert(drafted.end(), chain_tokens.begin(), chain_tokens.end());
  return absl::OkStatus();
}

absl::Status Session::KeepDrafted(size_t count) {
  if (count >= drafted.size()) return absl::OkStatus();
  FORETOKEN_RETURN_IF_ERROR(
      kv.DropLast(absl::MakeConstSpan(drafted).subspan(count)));
  drafted.resize(count);
  return absl::OkStatus();
}

absl::Status Session::KeepChain() {
  const absl::Span<const TokenId> chain = mode->chain();
  const size_t most =
      std::min({drafted.size(), chain.size(), mode->keepable()});
  size_t same = 0;
  while (same < most && drafted[same] == chain[same]) ++same;
  return KeepDrafted(same);
}

std::vector<Share> PlanPass(Sessions& sessions, int32_t rows,
                            int32_t text_chunk, int32_t text_rows) {
  std::vector<Session*> drafting;  // oldest round first
  std::vector<Session*> reading;   // those with a round first
  for (auto& [id, session] : sessions) {
    if (!session.draft.has_value()) continue;
    (session.reads(text_chunk) ? reading : drafting).push_back(&session);
  }
  const auto older = [](const Session* a, const Session* b) {
    return a->draft->order < b->draft->order;
  };
  std::sort(drafting.begin(), drafting.end(), older);
  std::sort(reading.begin(), reading.end(), older);
  for (auto& [id, session] : sessions) {
    if (!session.draft.has_value() && session.reads(text_chunk)) {
      reading.push_back(&session);
    }
  }

  std::vector<Share> plan;
  // A pass without drafts may have many rows; with drafts each row delays an
  // answer.
  PassBudget budget(drafting.empty() ? text_rows : rows,
                    reading.empty() ? 0 : text_chunk);
  for (Session* session : drafting) {
    session->LayOut(true, static_cast<int32_t>(session->text_left()));
    FORETOKEN_CHECK(session->rows.size() <= rows);
    // Rounds that do not fit wait for the next pass; the oldest are in this
    // one.
    if (!budget.TakeRound(session->rows.size())) break;
    plan.push_back({session, true});
  }
  for (Session* session : reading) {
    // All but the last token, which becomes the first row of the draft.
    const int32_t chunk = budget.TakeText(session->text_left() - 1);
    if (chunk == 0) break;
    session->LayOut(false, chunk);
    plan.push_back({session, false});
  }
  return plan;
}

}  // namespace foretoken::draft_worker
