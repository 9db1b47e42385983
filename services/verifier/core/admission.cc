#include "services/verifier/core/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/infer/kv_cache.h"

namespace foretoken::verifier {

absl::Status Admission::CheckFits(int64_t length) const {
  const int64_t tokens = backend_.kv_usage().pages_total * kKvPageTokens;
  if (length <= tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      length, " tokens are more than the whole KV cache holds, ", tokens));
}

absl::StatusOr<bool> Admission::Admit(Session& session, int64_t reserve) {
  const int64_t target = session.prefill_target();
  FORETOKEN_CHECK(target > 0);
  // The last token's KV is never computed.
  const int64_t room = std::max(
      target, std::min(target + reserve, session.request.max_length - 1));
  const absl::Status opened =
      session.kv.Open(backend_, session.request.cache_scope,
                      absl::MakeConstSpan(session.tokens).first(target), room,
                      session.request.sampling, session.request.prompt_length);
  if (absl::IsResourceExhausted(opened)) return false;
  FORETOKEN_RETURN_IF_ERROR(opened);
  session.reused_tokens = session.kv.length();
  totals_.reused_tokens += session.reused_tokens;
  totals_.replays += session.was_preempted;
  return true;
}

void Admission::AdmitWaiting(std::vector<SessionFailure>& failures) {
  if (blocked_ && LongestIdle() == nullptr) return;
  std::vector<Session*> waiting;
  for (auto& [id, session] : sessions_) {
    if (session.is_waiting()) waiting.push_back(&session);
  }
  std::stable_sort(waiting.begin(), waiting.end(),
                   [this](const Session* a, const Session* b) {
                     if (a->was_preempted || b->was_preempted) {
                       return a->was_preempted && !b->was_preempted;
                     }
                     return shares_.Served(a->request.caller) <
                            shares_.Served(b->request.caller);
                   });
  for (Session* session : waiting) {
    int64_t reserve = options_.reserve;
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
    if (done.ok() && !*done && alone) {
      done = absl::ResourceExhaustedError(
          absl::StrCat(session->tokens.size(),
                       " tokens are more than the whole KV cache holds"));
    }
    if (!done.ok()) {
      sessions_.Fail(session->id, done.status(), failures);
      blocked_ = false;
    } else if (!*done) {
      blocked_ = true;
      return;
    }
  }
}

absl::Status Admission::Reserve(Session& session, int64_t length) {
  while (true) {
    const absl::Status reserved = session.kv.Reserve(length);
    if (!absl::IsResourceExhausted(reserved) || admitted() == 1) {
      return reserved;
    }
    Session* victim = LongestIdle();
    if (victim == nullptr) victim = YoungestAdmitted();
    Preempt(*victim);
    if (victim == &session) return absl::OkStatus();
  }
}

void Admission::Release(Session& session) {
  if (!session.kv.is_open()) return;
  session.kv.Close();
  blocked_ = false;
}

void Admission::Preempt(Session& session) {
  Release(session);
  session.was_preempted = true;
  ++totals_.preemptions;
}

Session* Admission::YoungestAdmitted() {
  for (auto entry = sessions_.rbegin(); entry != sessions_.rend(); ++entry) {
    if (entry->second.kv.is_open()) return &entry->second;
  }
  return nullptr;
}

bool Admission::any_waiting() const {
  return std::any_of(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return entry.second.is_waiting();
  });
}

int32_t Admission::admitted() const {
  return static_cast<int32_t>(std::count_if(
      sessions_.begin(), sessions_.end(),
      [](const auto& entry) { return entry.second.kv.is_open(); }));
}

absl::Time Admission::NextIdle() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, session] : sessions_) {
    if (!session.kv.is_open() || session.has_work()) continue;
    next = std::min(next, session.idle_since + options_.idle_time);
  }
  return next;
}

Session* Admission::LongestIdle() {
  const absl::Time next = NextIdle();
  if (next > clock_()) return nullptr;
  for (auto& [id, session] : sessions_) {
    if (session.kv.is_open() && !session.has_work() &&
        session.idle_since + options_.idle_time == next) {
      return &session;
    }
  }
  return nullptr;
}

}  // namespace foretoken::verifier
