// VerifyEngine's choice of who takes part in a pass: deadlines, admission,
// preemption, the row budget.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "services/verifier/core/verify_engine.h"

namespace foretoken::verifier {

void VerifyEngine::ReleaseBackend(Session& session) {
  if (!session.backend_session.has_value()) return;
  const absl::Status closed = backend_->Close(*session.backend_session);
  FORETOKEN_CHECK(closed.ok());  // opened by us, closed once
  session.backend_session.reset();
  session.sampling.reset();
  session.kv_length = 0;
  admission_blocked_ = false;
}

void VerifyEngine::Fail(SessionId id, absl::Status status, PassReport& report) {
  report.failures.push_back({id, std::move(status)});
  const absl::Status closed = Close(id);
  FORETOKEN_CHECK(closed.ok());
}

void VerifyEngine::ExpireDeadlines(PassReport& report) {
  const absl::Time now = clock_();
  std::vector<SessionId> expired;
  for (const auto& [id, session] : sessions_) {
    if (session->request.deadline <= now) expired.push_back(id);
  }
  for (const SessionId id : expired) {
    Fail(id, absl::DeadlineExceededError("the deadline has passed"), report);
  }
}

absl::StatusOr<bool> VerifyEngine::Admit(Session& session, int64_t reserve) {
  const int64_t target = session.prefill_target();
  FORETOKEN_CHECK(target > 0);
  const auto prefix = absl::MakeConstSpan(session.tokens).first(target);
  absl::StatusOr<OpenedSession> opened =
      backend_->Open(session.request.cache_scope, prefix);
  if (absl::IsResourceExhausted(opened.status())) return false;
  FORETOKEN_RETURN_IF_ERROR(opened.status());
  session.backend_session = opened->session;
  // The last token's KV is never computed.
  const int64_t room =
      std::min(target + reserve, session.request.max_length - 1);
  const absl::Status reserved =
      backend_->Reserve(opened->session, std::max(target, room));
  if (!reserved.ok()) {
    ReleaseBackend(session);
    if (absl::IsResourceExhausted(reserved)) return false;
    return reserved;
  }
  session.sampling.emplace(session.request.sampling,
                           session.request.prompt_length, model().vocab_size);
  session.sampling->Append(prefix.first(opened->reused_tokens));
  session.kv_length = opened->reused_tokens;
  session.reused_tokens = opened->reused_tokens;
  totals_.reused_tokens += opened->reused_tokens;
  if (session.was_preempted) ++totals_.replays;
  return true;
}

void VerifyEngine::AdmitWaiting(PassReport& report) {
  if (admission_blocked_ && LongestIdle() == nullptr) return;
  std::vector<Session*> waiting;  // oldest first
  for (const auto& [id, session] : sessions_) {
    if (!session->backend_session.has_value() && session->has_work()) {
      waiting.push_back(session.get());
    }
  }
  for (Session* session : waiting) {
    int64_t reserve = options_.admission_reserve;
    if (session->round.has_value()) {
      reserve = std::max<int64_t>(reserve, 1 + session->round->max_draft_depth);
    }
    absl::StatusOr<bool> done = Admit(*session, reserve);
    while (done.ok() && !*done) {
      Session* idle = LongestIdle();
      if (idle == nullptr) break;
      Preempt(*idle);
      done = Admit(*session, reserve);
    }
    const bool alone = admitted() == 0;
    if (done.ok() && !*done && alone) done = Admit(*session, 1);
    if (!done.ok()) {
      Fail(session->id, done.status(), report);
    } else if (!*done && alone) {
      Fail(session->id,
           absl::ResourceExhaustedError(
               absl::StrCat(session->tokens.size(),
                            " tokens are more than the whole KV cache holds")),
           report);
    } else if (!*done) {
      admission_blocked_ = true;
      return;
    }
  }
}

Session* VerifyEngine::YoungestAdmitted() {
  for (auto entry = sessions_.rbegin(); entry != sessions_.rend(); ++entry) {
    if (entry->second->backend_session.has_value()) return entry->second.get();
  }
  return nullptr;
}

bool VerifyEngine::AnyWaiting() const {
  return std::any_of(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return !entry.second->backend_session && entry.second->has_work();
  });
}

absl::Time VerifyEngine::NextIdle() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, session] : sessions_) {
    if (!session->backend_session.has_value() || session->has_work()) continue;
    next = std::min(next, session->idle_since + options_.idle_time);
  }
  return next;
}

Session* VerifyEngine::LongestIdle() {
  const absl::Time next = NextIdle();
  if (next > clock_()) return nullptr;
  for (const auto& [id, session] : sessions_) {
    if (session->backend_session.has_value() && !session->has_work() &&
        session->idle_since + options_.idle_time == next) {
      return session.get();
    }
  }
  return nullptr;
}

void VerifyEngine::Preempt(Session& session) {
  ReleaseBackend(session);
  session.was_preempted = true;
  ++totals_.preemptions;
}

void VerifyEngine::TakeRounds(int32_t budget, std::vector<Share>& plan) const {
  std::vector<Session*> ready;
  for (const auto& [id, session] : sessions_) {
    if (session->backend_session.has_value() && session->round.has_value() &&
        !session->needs_prefill()) {
      ready.push_back(session.get());
    }
  }
  std::sort(ready.begin(), ready.end(), [](const Session* a, const Session* b) {
    return a->round->order < b->round->order;
  });
  // Trees are not split; the first always fits a pass of its own.
  for (Session* session : ready) {
    const int32_t rows = session->round->rows();
    if (rows > budget && !plan.empty()) return;
    plan.push_back({session, 0});
    budget -= rows;
  }
}

void VerifyEngine::TakePrefill(int32_t budget, std::vector<Share>& plan) const {
  for (const auto& [id, session] : sessions_) {
    if (!session->backend_session.has_value() || !session->needs_prefill()) {
      continue;
    }
    const int64_t left = session->prefill_target() - session->kv_length;
    const int32_t rows = static_cast<int32_t>(std::min<int64_t>(left, budget));
    if (rows == 0) return;
    plan.push_back({session.get(), rows});
    budget -= rows;
  }
}

absl::Status VerifyEngine::ReserveRound(Session& session) {
  while (true) {
    const absl::Status reserved = backend_->Reserve(
        *session.backend_session,
        session.kv_length + 1 + session.round->max_draft_depth);
    if (!absl::IsResourceExhausted(reserved)) return reserved;
    Session* victim = LongestIdle();
    if (victim == nullptr) victim = YoungestAdmitted();
    if (victim != &session || admitted() > 1) {
      Preempt(*victim);
      if (victim == &session) return absl::OkStatus();
    } else if (session.round->max_draft_depth > 0) {
      RoundLimits limits = LimitsOf(session);
      limits.drafts = false;
      LayOutRows(limits, session.tokens.back(), *session.round);
    } else {
      return Annotate(reserved, "KV cache");
    }
  }
}

void VerifyEngine::ReserveRounds(std::vector<Share>& plan, PassReport& report) {
  // Oldest first, so that a victim is never one that was served already.
  std::vector<SessionId> by_age;
  for (const Share& share : plan) by_age.push_back(share.session->id);
  std::sort(by_age.begin(), by_age.end());
  std::vector<SessionId> failed;
  for (const SessionId id : by_age) {
    Session& session = *sessions_.at(id);
    if (!session.backend_session.has_value()) continue;
    const absl::Status reserved = ReserveRound(session);
    if (reserved.ok()) continue;
    ReleaseBackend(session);  // takes it out of the plan below
    failed.push_back(id);
    report.failures.push_back({id, reserved});
  }
  plan.erase(std::remove_if(plan.begin(), plan.end(),
                            [](const Share& share) {
                              return !share.session->backend_session;
                            }),
             plan.end());
  for (const SessionId id : failed) sessions_.erase(id);
}

std::vector<VerifyEngine::Share> VerifyEngine::PlanPass(PassReport& report) {
  int64_t prompt_rows = 0;
  for (const auto& [id, session] : sessions_) {
    if (session->backend_session.has_value() && session->needs_prefill()) {
      prompt_rows += session->prefill_target() - session->kv_length;
    }
  }
  const int32_t budget = RowBudget();
  const int32_t chunk = static_cast<int32_t>(
      std::min<int64_t>({prompt_rows, options_.prefill_chunk, budget - 1}));
  std::vector<Share> plan;
  TakeRounds(budget - chunk, plan);
  ReserveRounds(plan, report);
  int32_t round_rows = 0;
  for (const Share& share : plan) round_rows += share.session->round->rows();
  TakePrefill(plan.empty() ? budget : std::min(chunk, budget - round_rows),
              plan);
  return plan;
}

}  // namespace foretoken::verifier
