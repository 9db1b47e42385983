#include "services/verifier/core/admission.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/infer/kv_cache.h"

namespace foretoken::verifier {
namespace {

// How long a text that was given up counts as its caller's, and the number of
// such texts that are remembered. Each has cost others a preemption, so that
// there are few.
constexpr absl::Duration kGivenUpTime = absl::Seconds(10);
constexpr size_t kMaxGivenUp = 256;

// Ignores rounding: equal holdings must not preempt each other.
constexpr double kLeastLead = 1 + 1e-9;

int64_t PagesFor(int64_t tokens) {
  return (tokens + kKvPageTokens - 1) / kKvPageTokens;
}

}  // namespace

absl::Status Admission::CheckFits(int64_t length) const {
  const int64_t tokens = backend_.kv_usage().pages_total * kKvPageTokens;
  if (length <= tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      length, " tokens are more than the whole KV cache holds, ", tokens));
}

int64_t Admission::RoomFor(const Session& session, int64_t reserve) const {
  const int64_t target = session.prefill_target();
  // Output needs KV for all but its last token, which is committed without a
  // pass; a text that is embedded needs it for all, and has no output.
  return std::max(target,
                  std::min(target + reserve, session.request.max_length - 1));
}

Admission::Claim Admission::ClaimOf(const Session& session, int64_t reserve) {
  Claim claim;
  claim.shared = backend_.kv_cache().PagesInUse(
      session.request.cache_scope,
      absl::MakeConstSpan(session.tokens).first(session.prefill_target()));
  // Pages that only other callers list count whole, as they will once they are
  // the caller's: with a smaller claim, two callers could take the room in
  // turns.
  const int64_t wanted = NextMark();
  for (const int32_t page : claim.shared) marks_[page] = wanted;
  int64_t own = 0;
  for (const auto& [id, other] : sessions_) {
    if (!other.kv.is_open() || other.request.caller != session.request.caller) {
      continue;
    }
    for (const int32_t page : other.kv.pages()) {
      // Sessions of one caller may list the same page: it is its own once.
      if (marks_[page] != wanted) continue;
      marks_[page] = 0;
      ++own;
    }
  }
  const int64_t pages = PagesFor(RoomFor(session, reserve));
  const int64_t shared = std::ssize(claim.shared);
  claim.room = (pages - own) * kKvPageTokens;
  claim.free = (pages - shared) * kKvPageTokens;
  return claim;
}

absl::StatusOr<bool> Admission::Admit(Session& session, int64_t reserve) {
  const int64_t target = session.prefill_target();
  FORETOKEN_CHECK(target > 0);
  const absl::Status opened =
      session.kv.Open(backend_, session.request.cache_scope,
                      absl::MakeConstSpan(session.tokens).first(target),
                      RoomFor(session, reserve), session.request.sampling,
                      session.request.prompt_length);
  if (absl::IsResourceExhausted(opened)) return false;
  FORETOKEN_RETURN_IF_ERROR(opened);
  session.reused_tokens = session.kv.length();
  totals_.reused_tokens += session.reused_tokens;
  totals_.replays += session.was_preempted;
  return true;
}

void Admission::AdmitWaiting(std::vector<SessionFailure>& failures) {
  // Blocked: nothing has become free since the last attempt, and no session is
  // idle enough to be preempted.
  if (!any_waiting() || (blocked_ && LongestIdle() == nullptr)) return;
  ++calls_;
  while (Session* const session = NextWaiting()) {
    const absl::StatusOr<bool> done = AdmitAndPreempt(*session);
    if (!done.ok()) {
      sessions_.Fail(session->id, done.status(), failures);
      // The failed session may have been what others waited behind.
      blocked_ = false;
    } else if (!*done) {
      blocked_ = true;
      return;
    }
  }
}

absl::StatusOr<bool> Admission::AdmitAndPreempt(Session& session) {
  int64_t reserve = options_.reserve;
  if (session.round.has_value()) {
    reserve = std::max<int64_t>(reserve, 1 + session.round->max_draft_depth);
  }
  // One attempt for each preemption, until there is room or no session is left
  // to preempt.
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool done, Admit(session, reserve));
    if (done) return true;
    Session* victim = LongestIdle();
    if (victim == nullptr) {
      const Claim claim = ClaimOf(session, reserve);
      // Only if preempting would free enough: otherwise others would lose their
      // KV and this session still not fit.
      if (Reclaimable(session, claim) >= claim.free) {
        victim = HeaviestElsewhere(session, claim.room);
      }
      if (victim != nullptr) session.taken_room = claim.room;
    }
    if (victim == nullptr) break;
    Preempt(*victim);
  }
  // Sessions that run will end and free their pages; wait for that.
  if (admitted() > 0) return false;
  // Alone in the cache with the smallest reserve: if that fails, it can never
  // run.
  FORETOKEN_ASSIGN_OR_RETURN(const bool done, Admit(session, 1));
  if (done) return true;
  return absl::ResourceExhaustedError(absl::StrCat(
      session.tokens.size(), " tokens are more than the whole KV cache holds"));
}

Session* Admission::NextWaiting() {
  const Holdings held = Held();
  const auto rank = [&](const Session& session) {
    const auto found = held.find(session.request.caller);
    // The caller that holds least, then a session that lost its place, then the
    // caller that was served least.
    return std::tuple(found == held.end() ? 0.0 : found->second,
                      !session.was_preempted,
                      shares_.Served(session.request.caller));
  };
  Session* next = nullptr;
  std::tuple<double, bool, double> least;
  for (auto& [id, session] : sessions_) {
    // One that was preempted in this call waits for the next: else two could
    // take the room in turns.
    if (!session.is_waiting() || session.preempted_in == calls_) continue;
    const auto own = rank(session);
    if (next != nullptr && own >= least) continue;
    next = &session;
    least = own;
  }
  return next;
}

absl::Status Admission::Reserve(Session& session, int64_t length) {
  while (true) {
    const absl::Status reserved = session.kv.Reserve(length);
    // Alone, the session cannot take pages from anyone: its failure is final.
    if (!absl::IsResourceExhausted(reserved) || admitted() == 1) {
      return reserved;
    }
    Session* victim = LongestIdle();
    if (victim == nullptr) {
      victim = HeaviestElsewhere(
          session,
          (PagesFor(length) - std::ssize(session.kv.pages())) * kKvPageTokens);
    }
    if (victim == nullptr) {
      victim = Youngest(&session.request.caller, /*spared=*/nullptr);
      // Alone among its caller's sessions, the oldest takes from anybody.
      if (victim == Oldest()) victim = Youngest(nullptr, victim);
    }
    Preempt(*victim);
    // The session gave up its own pages: it waits again, its round stays.
    if (victim == &session) return absl::OkStatus();
  }
}

int64_t Admission::NextMark() {
  marks_.resize(backend_.kv_usage().pages_total, 0);
  counts_.resize(marks_.size(), 0);
  // Marks compare equal only within one count, so the arrays need no clearing
  // between counts.
  return ++mark_;
}

Admission::Holdings Admission::Held() {
  const KvCache& cache = backend_.kv_cache();
  std::map<absl::string_view, std::vector<const Session*>> by_caller;
  for (const auto& [id, session] : sessions_) {
    if (!session.kv.is_open()) continue;
    by_caller[session.request.caller].push_back(&session);
  }
  Holdings held;
  for (const auto& [caller, sessions] : by_caller) {
    const int64_t counted = NextMark();
    double& tokens = held[std::string(caller)];
    for (const Session* const session : sessions) {
      int64_t pages = 0;
      for (const int32_t page : session->kv.pages()) {
        if (cache.SessionsOf(page) > 1 &&
            std::exchange(marks_[page], counted) == counted) {
          continue;
        }
        ++pages;
      }
      // Divided by weight: a caller with twice the weight may hold twice as
      // much.
      tokens +=
          static_cast<double>(pages * kKvPageTokens) / session->request.weight;
    }
  }
  const absl::Time now = clock_();
  for (const GivenUp& prompt : given_up_) {
    if (prompt.until > now) held[prompt.caller] += prompt.tokens;
  }
  return held;
}

int64_t Admission::Reclaimable(const Session& session, const Claim& claimed) {
  const Holdings held = Held();
  const std::string& caller = session.request.caller;
  double claim = static_cast<double>(claimed.room) / session.request.weight;
  if (const auto own = held.find(caller); own != held.end()) {
    claim += own->second;
  }
  // What every other caller has beyond the claim, in whole sessions, the
  // youngest first.
  std::map<std::string, double> excess;
  for (const auto& [name, tokens] : held) {
    // As HeaviestElsewhere will choose, or the estimate would promise room that
    // it does not take.
    if (name != caller) excess[name] = tokens - claim * kLeastLead;
  }
  int64_t tokens = backend_.kv_usage().pages_free * kKvPageTokens;
  // Sessions that would still list a page that several list.
  const KvCache& cache = backend_.kv_cache();
  const int64_t known = NextMark();
  const auto listed = [&](int32_t page) -> int32_t& {
    if (std::exchange(marks_[page], known) != known) {
      counts_[page] = cache.SessionsOf(page);
    }
    return counts_[page];
  };
  for (const int32_t page : claimed.shared) ++listed(page);
  const auto freed_by = [&](const Session& other) {
    int64_t pages = 0;
    // A page is free only when the last session that lists it is gone.
    for (const int32_t page : other.kv.pages()) pages += --listed(page) == 0;
    return pages * kKvPageTokens;
  };
  const Session* const oldest = Oldest();
  for (auto entry = sessions_.rbegin(); entry != sessions_.rend(); ++entry) {
    const Session& other = entry->second;
    // The oldest session is never a victim of another caller, so that some
    // session always gets on.
    if (!other.kv.is_open() || &other == oldest) continue;
    const auto found = excess.find(other.request.caller);
    if (found == excess.end() || found->second <= 0) continue;
    const int64_t freed = freed_by(other);
    found->second -= static_cast<double>(freed) / other.request.weight;
    tokens += freed;
  }
  return tokens;
}

Session* Admission::HeaviestElsewhere(const Session& session, int64_t room) {
  const Holdings held = Held();
  const std::string& caller = session.request.caller;
  double most = static_cast<double>(room) / session.request.weight;
  if (const auto own = held.find(caller); own != held.end()) {
    most += own->second;
  }
  Session* const oldest = Oldest();
  Session* victim = nullptr;
  for (const auto& [name, tokens] : held) {
    if (name == caller || tokens <= most * kLeastLead) continue;
    Session* const youngest = Youngest(&name, oldest);
    if (youngest == nullptr) continue;
    victim = youngest;
    most = tokens;
  }
  return victim;
}

void Admission::NoteGivenUp(const Session& session) {
  if (session.taken_room == 0 || session.is_read()) return;
  const absl::Time now = clock_();
  while (!given_up_.empty() &&
         (given_up_.front().until <= now || given_up_.size() >= kMaxGivenUp)) {
    given_up_.pop_front();
  }
  given_up_.push_back(
      {session.request.caller,
       static_cast<double>(session.taken_room) / session.request.weight,
       now + kGivenUpTime});
}

void Admission::Release(Session& session) {
  if (!session.kv.is_open()) return;
  if (session.is_read()) session.taken_room = 0;
  session.kv.Close();
  // Room has come: those that wait may try again.
  blocked_ = false;
}

void Admission::Preempt(Session& session) {
  Release(session);
  session.was_preempted = true;
  session.preempted_in = calls_;
  ++totals_.preemptions;
}

Session* Admission::Youngest(const std::string* caller, const Session* spared) {
  for (auto entry = sessions_.rbegin(); entry != sessions_.rend(); ++entry) {
    Session& session = entry->second;
    if (!session.kv.is_open() || &session == spared) continue;
    if (caller == nullptr || session.request.caller == *caller) return &session;
  }
  return nullptr;
}

Session* Admission::Oldest() {
  for (auto& [id, session] : sessions_) {
    if (session.kv.is_open()) return &session;
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
