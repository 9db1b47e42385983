#include "services/draft_worker/core/session.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/engine/pass_budget.h"

namespace foretoken::draft_worker {

void Session::LayOut(bool drafts, int32_t count) {
  rows.Clear();
  text_rows = count;
  int32_t row = kRootParent;
  for (int32_t i = 0; i < count; ++i) {
    row = rows.Add(text[kv.length() + i], row);
  }
  if (drafts) mode->LayOut(row, rows);
}

absl::Status Session::Commit(int32_t text_count, int32_t drafted) {
  std::vector<int32_t> committed(text_count);
  for (int32_t i = 0; i < text_count; ++i) committed[i] = i;
  const auto accepted = mode->chain_rows().first(drafted);
  committed.insert(committed.end(), accepted.begin(), accepted.end());
  if (committed.empty()) return absl::OkStatus();
  FORETOKEN_RETURN_IF_ERROR(
      kv.Reserve(kv.length() + static_cast<int64_t>(committed.size())));
  return kv.Commit(committed, text);
}

std::vector<Share> PlanPass(Sessions& sessions, int32_t rows,
                            int32_t text_chunk) {
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
  PassBudget budget(rows, reading.empty() ? 0 : text_chunk);
  for (Session* session : drafting) {
    session->LayOut(true, static_cast<int32_t>(session->text_left()));
    FORETOKEN_CHECK(session->rows.size() <= rows);
    if (!budget.TakeRound(session->rows.size())) break;
    plan.push_back({session, true});
  }
  for (Session* session : reading) {
    const int32_t chunk = budget.TakeText(session->text_left() - 1);
    if (chunk == 0) break;
    session->LayOut(false, chunk);
    plan.push_back({session, false});
  }
  return plan;
}

}  // namespace foretoken::draft_worker
