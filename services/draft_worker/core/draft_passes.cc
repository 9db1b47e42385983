// DraftEngine's passes: who takes part, what they lay out, what comes of it.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "services/draft_worker/core/draft_engine.h"

namespace foretoken::draft_worker {
namespace {

// Of what a pass is expected to take, from draft to draft.
constexpr double kForgetting = 0.8;

}  // namespace

bool DraftEngine::HasWork() const {
  return std::any_of(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return entry.second->draft.has_value() || entry.second->wants_prefill();
  });
}

void DraftEngine::Fail(SessionId id, absl::Status status, DraftReport& report) {
  report.failures.push_back({id, std::move(status)});
  const absl::Status closed = Close(id);
  FORETOKEN_CHECK(closed.ok());
}

// No pass could still help: nothing is wanted, nothing can be added, or it
// would come too late.
bool DraftEngine::IsDue(const Session& session) const {
  const Draft& draft = *session.draft;
  return session.muted || draft.max_nodes == 0 || session.mode->done() ||
         clock_() + session.pass_time[kind_of_pass()] >= draft.deadline;
}

void DraftEngine::AnswerReady(DraftReport& report) {
  for (const auto& [id, session] : sessions_) {
    if (session->draft.has_value() && IsDue(*session)) {
      Answer(*session, report);
    }
  }
}

void DraftEngine::Answer(Session& session, DraftReport& report) {
  // Where passes are thought too long to begin one, only a pass can tell that
  // they have become shorter.
  session.pass_time[kind_of_pass()] *= kForgetting;
  DraftReport::Answer& answer = report.answers.emplace_back();
  answer.session = session.id;
  answer.answer.length = session.length;
  if (!session.muted) {
    if (session.draft->max_nodes > 0) session.mode->Finish(answer.answer.tree);
    answer.answer.phrases = session.mode->TakeGained();
  }
  answer.answer.draft_time = clock_() - session.draft->arrived;
  totals_.drafts += answer.answer.tree.size() > 0;
  totals_.draft_tokens += answer.answer.tree.size();
  session.draft.reset();
}

// The next pass drops the rows of the last one.
absl::Status DraftEngine::SettleHeld() {
  for (const auto& [id, session] : sessions_) {
    if (!session->held_rows.has_value()) continue;
    const int32_t text = *session->held_rows;
    session->held_rows.reset();
    const absl::Status committed = CommitRows(*session, text, 0);
    // Without room the text stays to be read.
    if (!committed.ok() && !absl::IsResourceExhausted(committed)) {
      return committed;
    }
  }
  return absl::OkStatus();
}

void DraftEngine::NoteText() {
  const bool waited = std::exchange(
      text_waits_, std::any_of(sessions_.begin(), sessions_.end(),
                               [this](const auto& entry) {
                                 return entry.second->reads_much(text_chunk_);
                               }));
  if (waited || !text_waits_) return;
  // What another text cost says little of this one.
  for (const auto& [id, session] : sessions_) {
    session->pass_time[1] = absl::ZeroDuration();
  }
}

DraftReport DraftEngine::RunPass() {
  DraftReport report;
  NoteText();
  AnswerReady(report);
  if (!report.answers.empty() || !HasWork()) return report;
  const absl::Status settled = SettleHeld();
  std::vector<Share> plan = PlanPass();
  ReserveShares(plan, report);
  if (plan.empty()) return report;

  if (settled.ok()) {
    RunShares(plan, report);
  } else {
    for (const Share& share : plan) {
      Fail(share.session->id, Annotate(settled, "draft pass"), report);
    }
  }
  return report;
}

void DraftEngine::RunShares(absl::Span<const Share> plan, DraftReport& report) {
  PassResult outputs;
  const absl::Time start = clock_();
  const absl::Status status = Forward(plan, outputs);
  const absl::Duration took = clock_() - start;
  ++totals_.passes;
  if (absl::IsDataLoss(status) && plan.size() > 1) {
    // Logits of one session are not numbers; the others must not pay for it.
    for (const Share& share : plan) {
      const absl::Status settled = SettleHeld();
      if (settled.ok()) {
        RunShares({&share, 1}, report);
      } else {
        Fail(share.session->id, Annotate(settled, "draft pass"), report);
      }
    }
    return;
  }
  report.stats.forward_time += took;
  report.stats.sessions += static_cast<int32_t>(plan.size());
  const size_t kind = kind_of_pass();
  const auto finish = [&](bool drafts) {
    for (size_t i = 0; i < plan.size(); ++i) {
      if (plan[i].drafts != drafts) continue;
      if (drafts && status.ok()) plan[i].session->pass_time[kind] = took;
      FinishShare(
          plan[i], status,
          status.ok() ? outputs.outputs[i] : absl::Span<const SampledToken>(),
          report);
    }
  };
  // Texts first: what is left of them decides how long the next pass is.
  finish(false);
  NoteText();
  finish(true);
}

void DraftEngine::FinishShare(const Share& share, const absl::Status& status,
                              absl::Span<const SampledToken> outputs,
                              DraftReport& report) {
  Session& session = *share.session;
  report.stats.rows += session.rows.size();
  totals_.rows += session.rows.size();
  totals_.text_rows += session.text_rows;
  if (absl::IsDataLoss(status) && share.drafts) {
    Answer(session, report);  // it drafts as far as there are numbers
    return;
  }
  absl::Status done = status;
  if (done.ok()) done = Take(share, outputs, report);
  if (!done.ok()) Fail(session.id, Annotate(done, "draft pass"), report);
}

void DraftEngine::LayOut(Session& session, bool drafts, int32_t text_rows) {
  session.rows.Clear();
  session.text_rows = text_rows;
  int32_t row = kRootParent;
  for (int32_t i = 0; i < text_rows; ++i) {
    row = session.rows.Add(session.text[session.kv_length + i], row);
  }
  if (drafts) session.mode->LayOut(row, session.rows);
}

std::vector<DraftEngine::Share> DraftEngine::PlanPass() {
  std::vector<Session*> drafting;  // oldest round first
  std::vector<Session*> reading;   // those with a round first
  for (const auto& [id, session] : sessions_) {
    if (!session->draft.has_value()) continue;
    (session->reads(text_chunk_) ? reading : drafting).push_back(session.get());
  }
  const auto older = [](const Session* a, const Session* b) {
    return a->draft->order < b->draft->order;
  };
  std::sort(drafting.begin(), drafting.end(), older);
  std::sort(reading.begin(), reading.end(), older);
  for (const auto& [id, session] : sessions_) {
    if (!session->draft.has_value() && session->reads(text_chunk_)) {
      reading.push_back(session.get());
    }
  }

  std::vector<Share> plan;
  int32_t budget = row_budget_;
  const int32_t kept_for_text = reading.empty() ? 0 : text_chunk_;
  for (Session* session : drafting) {
    LayOut(*session, true, static_cast<int32_t>(session->text_left()));
    // Drafts are not split; the first always fits a pass of its own.
    const int32_t rows = session->rows.size();
    if (rows > budget - kept_for_text && !plan.empty()) break;
    FORETOKEN_CHECK(rows <= budget);
    plan.push_back({session, true});
    budget -= rows;
  }
  if (!plan.empty()) budget = std::min(budget, text_chunk_);
  for (Session* session : reading) {
    const int32_t rows = static_cast<int32_t>(
        std::min<int64_t>(session->text_left() - 1, budget));
    if (rows == 0) break;
    LayOut(*session, false, rows);
    plan.push_back({session, false});
    budget -= rows;
  }
  return plan;
}

void DraftEngine::ReserveShares(std::vector<Share>& plan, DraftReport& report) {
  std::vector<Share> kept;
  for (const Share& share : plan) {
    const Session& session = *share.session;
    const absl::Status reserved = backend_->Reserve(
        *session.backend_session, session.kv_length + session.text_rows);
    if (reserved.ok()) {
      kept.push_back(share);
    } else {
      Fail(session.id, Annotate(reserved, "KV cache"), report);
    }
  }
  plan.swap(kept);
}

absl::Status DraftEngine::Forward(absl::Span<const Share> plan,
                                  PassResult& result) {
  std::vector<PassSession> pass;
  pass.reserve(plan.size());
  for (const Share& share : plan) {
    const Session& session = *share.session;
    PassSession& part = pass.emplace_back();
    part.session = *session.backend_session;
    part.tokens = session.rows.tokens;
    part.parents = session.rows.parents;
    part.outputs = RowOutputs::kListedRows;
    part.output_rows = session.rows.outputs;
    part.sampling = &*session.sampling;
  }
  return backend_->Forward(pass, result);
}

absl::Status DraftEngine::Take(const Share& share,
                               absl::Span<const SampledToken> outputs,
                               DraftReport& report) {
  Session& session = *share.session;
  if (!share.drafts) return CommitRows(session, session.text_rows, 0);
  by_row_.assign(session.rows.size(), SampledToken());
  for (size_t i = 0; i < outputs.size(); ++i) {
    by_row_[session.rows.outputs[i]] = outputs[i];
  }
  session.mode->Take(by_row_);
  Count(session);
  if (!IsDue(session)) return CommitRows(session, session.text_rows, 0);
  Answer(session, report);
  session.held_rows = session.text_rows;
  return absl::OkStatus();
}

}  // namespace foretoken::draft_worker
