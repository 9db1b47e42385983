#include "services/verifier/core/verify_engine.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/range_errors.h"
#include "common/base/status_macros.h"
#include "common/base/token_range.h"
#include "common/infer/self_check.h"
#include "services/verifier/core/round_commit.h"

namespace foretoken::verifier {
namespace {

// A session that has been answered within this time will soon send its next
// round, and a caller its next request: passes are kept short enough for them
// (PassShares).
constexpr absl::Duration kRoundTrip = absl::Milliseconds(50);
// A session that its client has left alone for longer does not decode.
constexpr absl::Duration kMaxPause = absl::Seconds(1);

// Unavailable, so that requests go to other verifiers.
absl::Status FaultOf(const absl::Status& check) {
  return check.ok() ? check : absl::UnavailableError(check.message());
}

// The masks of one constrained session in a pass.
class SessionMasks : public AllowedTokens {
 public:
  // One mask a row; `tokens` and `parents` are the rows of the session's tree.
  SessionMasks(const Clock& clock, Session& session,
               absl::Span<const TokenId> tokens,
               absl::Span<const int32_t> parents)
      : clock_(clock), session_(session), tokens_(tokens), parents_(parents) {}

  // Sets session.mask_status, and the rows of its round that are closed.
  absl::Span<const uint64_t* const> Make() override {
    const absl::Time start = clock_();
    auto masks = session_.text->MaskRows(tokens_, parents_);
    time_ = clock_() - start;
    count_ = static_cast<int32_t>(tokens_.size());
    if (!masks.ok()) {
      // Another verifier would say the same: not ResourceExhausted.
      session_.mask_status = absl::InvalidArgumentError(
          absl::StrCat("constraint: ", masks.status().message()));
      return {};
    }
    held_ = *std::move(masks);
    for (const std::shared_ptr<const grammar::TokenBits>& mask : held_) {
      // A null mask: the row follows a draft that the constraint forbids.
      rows_.push_back(mask == nullptr ? nullptr : mask->data());
    }
    if (session_.round.has_value()) {
      std::vector<bool>& closed = session_.round->closed_rows;
      closed.clear();
      for (const uint64_t* const row : rows_) closed.push_back(row == nullptr);
    }
    return rows_;
  }

  int32_t count() const { return count_; }
  absl::Duration time() const { return time_; }

 private:
  const Clock& clock_;
  Session& session_;
  const absl::Span<const TokenId> tokens_;
  const absl::Span<const int32_t> parents_;
  int32_t count_ = 0;
  absl::Duration time_;
  std::vector<std::shared_ptr<const grammar::TokenBits>> held_;
  std::vector<const uint64_t*> rows_;  // of `held_`
};

}  // namespace

absl::Status VerifyEngineOptions::Validate() const {
  RangeErrors errors;
  errors.Check("max_sessions", max_sessions, 1, 1 << 16);
  errors.Check("max_rows_per_pass", max_rows_per_pass, 2, 1 << 16);
  errors.Check("max_rows_per_session", max_rows_per_session, 1, 1 << 12);
  errors.Check("prefill_chunk", prefill_chunk, 1, 1 << 16);
  errors.Check("admission_reserve", admission_reserve, 1, 1 << 12);
  errors.Check("idle_time in ms", absl::ToInt64Milliseconds(idle_time), 1,
               24 * 3600 * 1000);
  return errors.status();
}

VerifyEngine::VerifyEngine(const VerifyEngineOptions& options,
                           std::unique_ptr<Backend> backend, Clock clock)
    : options_(options),
      backend_(std::move(backend)),
      clock_(std::move(clock)),
      sessions_(options.max_sessions),
      admission_({options.admission_reserve, options.idle_time}, *backend_,
                 sessions_, shares_, clock_),
      shares_(RowBudget(), options_.prefill_chunk),
      chain_(RowBudget()),
      rows_(RowBudget()),
      grammars_(options.vocabulary, options.grammar_bytes),
      pass_timing_(options.pass_timing),
      any_timing_(options.pass_timing),
      guard_(options.guard, options.arm_hook),
      model_fault_(FaultOf(options.model_fault)) {
  FORETOKEN_CHECK(options_.Validate().ok());
  // chain_ is -1, 0, 1, ...: parents of a prompt's rows; rows_ is 0, 1, 2, ....
  std::iota(chain_.begin(), chain_.end(), -1);
  std::iota(rows_.begin(), rows_.end(), 0);
}

int32_t VerifyEngine::RowBudget() const {
  return std::min(options_.max_rows_per_pass, backend_->max_rows());
}

RoundLimits VerifyEngine::LimitsOf(const Session& session) const {
  RoundLimits limits;
  limits.vocab_size = model().vocab_size;
  limits.max_length = session.request.max_length;
  limits.max_positions = model().max_positions;
  // One row of every pass is left for a prompt.
  limits.max_rows =
      std::max(1, std::min(options_.max_rows_per_session, RowBudget() - 1));
  return limits;
}

absl::Status VerifyEngine::CheckLength(const SessionRequest& request) const {
  if (request.max_length > model().max_positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt and max_tokens are ", request.max_length,
        " tokens, the model's context is ", model().max_positions));
  }
  if (request.max_length <= static_cast<int64_t>(request.tokens.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_length is ", request.max_length, ", want above the ",
                     request.tokens.size(), " tokens given"));
  }
  return absl::OkStatus();
}

absl::Status VerifyEngine::Check(const SessionRequest& request) const {
  const int64_t length = static_cast<int64_t>(request.tokens.size());
  if (length == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (request.prompt_length < 1 || request.prompt_length > length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt_length is ", request.prompt_length, ", want 1..", length));
  }
  FORETOKEN_RETURN_IF_ERROR(request.pooling == Pooling::kNone
                                ? CheckLength(request)
                                : CheckEmbedding(request));
  FORETOKEN_RETURN_IF_ERROR(admission_.CheckFits(length));
  if (!(request.weight >= kMinCallerWeight &&
        request.weight <= kMaxCallerWeight)) {
    return absl::InvalidArgumentError(absl::StrCat("weight is ", request.weight,
                                                   ", want ", kMinCallerWeight,
                                                   "..", kMaxCallerWeight));
  }
  const int32_t vocab_size = model().vocab_size;
  FORETOKEN_RETURN_IF_ERROR(
      CheckTokenIds("tokens", request.tokens, vocab_size));
  FORETOKEN_RETURN_IF_ERROR(
      CheckTokenIds("stop_tokens", request.stop_tokens, vocab_size));
  return request.sampling.Validate(vocab_size);
}

absl::StatusOr<SessionId> VerifyEngine::Open(SessionRequest request) {
  FORETOKEN_RETURN_IF_ERROR(model_fault_);
  FORETOKEN_RETURN_IF_ERROR(Check(request));
  FORETOKEN_RETURN_IF_ERROR(sessions_.CheckRoom());
  // Before the session takes memory.
  if (request.deadline <= clock_()) {
    return absl::DeadlineExceededError("the deadline has passed");
  }
  Session session;
  if (request.grammar != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(
        session.text,
        grammars_.Begin(std::move(request.grammar), request.sampling.end_tokens,
                        request.caller));
    // A replayed session comes with output: the constraint has to follow it
    // before masks are made.
    session.text->Append(
        absl::MakeConstSpan(request.tokens).subspan(request.prompt_length));
    const absl::Status& kept = session.text->status();
    if (!kept.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("constraint: ", kept.message()));
    }
    if (session.text->complete()) {
      return absl::InvalidArgumentError(
          "constraint: the text is complete and nothing can follow it");
    }
  } else if (!request.constraint.empty()) {
    return absl::InternalError("constraint: it was not compiled");
  }
  // Tokens first; moving the request afterwards leaves it without them.
  session.tokens = std::move(request.tokens);
  session.request = std::move(request);
  if (session.is_embedded()) {
    if (session.request.pooling == Pooling::kModel) {
      session.request.pooling = model().pooling;
    }
    // All of its tokens must be computed, and none are left to others.
    session.request.cache_scope.clear();
    session.request.max_length = session.length();
  }
  admission_.NoteChange();
  return sessions_.Add(std::move(session)).id;
}

absl::Status VerifyEngine::Submit(SessionId id, RoundRequest request,
                                  std::optional<absl::Time> arrived) {
  FORETOKEN_ASSIGN_OR_RETURN(Session* const found, sessions_.Find(id));
  Session& session = *found;
  if (session.finish != FinishReason::kNone) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", id, " has ended"));
  }
  if (!session.prefill_reported || session.round.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", id, " has not yet answered its ",
                     session.prefill_reported ? "round" : "prefill"));
  }
  if (request.length != session.length()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the round builds on ", request.length,
                     " tokens, session ", id, " has ", session.length()));
  }
  if (request.candidates < 0 || request.candidates > kMaxRowCandidates) {
    return absl::InvalidArgumentError(absl::StrCat(
        "candidates is ", request.candidates, ", want 0..", kMaxRowCandidates));
  }
  PendingRound round;
  round.request = std::move(request);
  round.order = next_order_++;
  round.arrived = arrived.has_value() ? *arrived : clock_();
  // Laid out on arrival, so that its number of rows is known when the pass is
  // planned.
  LayOutRows(LimitsOf(session), session.tokens.back(), round);
  session.follows_guard = round.request.arm != DraftArm::kNone;
  session.round = std::move(round);
  return absl::OkStatus();
}

absl::Status VerifyEngine::Close(SessionId id) {
  FORETOKEN_ASSIGN_OR_RETURN(Session* const session, sessions_.Find(id));
  admission_.NoteGivenUp(*session);
  FORETOKEN_RETURN_IF_ERROR(sessions_.Remove(id));
  admission_.NoteChange();
  return absl::OkStatus();
}

bool VerifyEngine::HasWork() const {
  const absl::Time now = clock_();
  for (const auto& [id, session] : sessions_) {
    // An expired deadline is work: the session has to be told.
    if (session.request.deadline <= now) return true;
    if (!session.has_work()) continue;
    if (session.kv.is_open() || admission_.may_admit()) return true;
  }
  return admission_.any_waiting() && admission_.NextIdle() <= now;
}

absl::Time VerifyEngine::NextDeadline() const {
  absl::Time next =
      admission_.any_waiting() ? admission_.NextIdle() : absl::InfiniteFuture();
  for (const auto& [id, session] : sessions_) {
    next = std::min(next, session.request.deadline);
  }
  return next;
}

VerifySnapshot VerifyEngine::snapshot() const {
  VerifySnapshot snapshot;
  snapshot.sessions = sessions_.size();
  snapshot.kv = backend_->kv_usage();
  snapshot.grammar_bytes = grammars_.bytes();
  snapshot.totals = totals_;
  static_cast<AdmissionTotals&>(snapshot.totals) = admission_.totals();
  snapshot.pass_timing = pass_timing_;
  snapshot.guard = guard_.numbers();
  snapshot.model_fault = model_fault_;
  snapshot.largest_pass = absl::Seconds(any_timing_.Seconds(RowBudget()));
  snapshot.idle_time = options_.idle_time;
  return snapshot;
}

PassReport VerifyEngine::RunPass() {
  const absl::Time begin = clock_();
  PassReport report;
  ExpireDeadlines(report);
  admission_.AdmitWaiting(report.failures);
  const std::vector<Share> plan = PlanPass(report);
  if (plan.empty()) return report;

  GuardPass guarded;
  std::tie(guarded.sessions, guarded.followers) = CountDecoding();
  PassResult outputs;
  const absl::Time start = clock_();
  const absl::Status status = Forward(plan, outputs, report.stats);
  report.stats.forward_time = clock_() - start;
  report.stats.sessions = static_cast<int32_t>(plan.size());
  for (const Share& share : plan) {
    report.stats.prefill_rows += share.prefill_rows;
    report.stats.rows += share.prefill_rows > 0 ? share.prefill_rows
                                                : share.session->round->rows();
    if (share.prefill_rows == 0) {
      PendingRound& round = *share.session->round;
      round.queue_time = start - round.arrived;
      const DraftArm arm = round.request.arm;
      if (arm != DraftArm::kNone) ++guarded.rounds[static_cast<size_t>(arm)];
    }
  }
  ++totals_.passes;
  for (size_t i = 0; i < plan.size(); ++i) {
    // NaN of one session fails the pass of all: each is run again alone, so
    // that only the session that causes it fails.
    if (absl::IsDataLoss(status)) {
      RunAlone(plan[i], report);
    } else {
      FinishShare(plan[i], status, outputs, i, report);
    }
  }
  CheckStates(report);
  // Passes with prompt rows are not timed: rows without output cost less than
  // those of a tree.
  const absl::Duration took = clock_() - begin;
  if (report.stats.prefill_rows == 0) {
    pass_timing_.Observe(report.stats.rows, took);
  }
  // Pooling costs by the text, whatever rows the next pass has.
  any_timing_.Observe(
      report.stats.rows,
      took - std::exchange(pooling_time_, absl::ZeroDuration()));
  guarded.begin = begin;
  guarded.end = begin + took;
  Guard(guarded, report);
  return report;
}

std::pair<int32_t, int32_t> VerifyEngine::CountDecoding() const {
  const absl::Time now = clock_();
  int32_t decoding = 0, followers = 0;
  for (const auto& [id, session] : sessions_) {
    if (!session.prefill_reported || session.finish != FinishReason::kNone) {
      continue;
    }
    // A client that does not come back does not count as load.
    if (!session.round.has_value() && now - session.idle_since > kMaxPause) {
      continue;
    }
    ++decoding;
    followers += session.follows_guard;
  }
  return {decoding, followers};
}

// Prompt rows count with what they add to the price of the rounds alone.
void VerifyEngine::Guard(GuardPass pass, PassReport& report) {
  const int32_t rows = report.stats.rows;
  const int32_t round_rows = rows - report.stats.prefill_rows;
  if (round_rows == 0) {
    pass.rounds_share = 0;
  } else if (round_rows < rows) {
    pass.rounds_share = any_timing_.Seconds(round_rows) /
                        std::max(any_timing_.Seconds(rows), 1e-9);
  }
  for (const auto& [id, result] : report.rounds) {
    pass.tokens += static_cast<int64_t>(result.tokens.size());
  }
  pass.goes_on = CountDecoding().first > 0;
  guard_.Note(pass);
  for (auto& [id, result] : report.rounds) result.arm = guard_.arm();
  for (auto& [id, result] : report.prefilled) result.arm = guard_.arm();
}

void VerifyEngine::Fail(SessionId id, absl::Status status, PassReport& report) {
  sessions_.Fail(id, std::move(status), report.failures);
  admission_.NoteChange();
}

void VerifyEngine::ExpireDeadlines(PassReport& report) {
  const absl::Time now = clock_();
  std::vector<SessionId> expired;
  for (const auto& [id, session] : sessions_) {
    if (session.request.deadline > now) continue;
    admission_.NoteGivenUp(session);
    expired.push_back(id);
  }
  // In a second step, since failing a session erases it from the map.
  for (const SessionId id : expired) {
    Fail(id, absl::DeadlineExceededError("the deadline has passed"), report);
  }
}

std::vector<VerifyEngine::Share> VerifyEngine::PlanPass(PassReport& report) {
  const absl::Time now = clock_();
  std::vector<Session*> admitted;
  std::vector<PassDemand> demands;
  for (auto& [id, session] : sessions_) {
    if (!session.kv.is_open()) continue;
    admitted.push_back(&session);
    PassDemand& demand = demands.emplace_back();
    demand.caller = session.request.caller;
    demand.weight = session.request.weight;
    if (session.is_ready()) {
      demand.round_rows = session.round->rows();
      demand.order = session.round->order;
    } else if (session.is_prefilling()) {
      demand.text_rows = session.prefill_left();
    } else {
      demand.in_flight = session.finish == FinishReason::kNone &&
                         now - session.idle_since < kRoundTrip;
    }
  }
  AddRecentCallers(now, demands);
  // Rounds first, then prompts in what is left.
  std::vector<Share> plan;
  std::map<Session*, size_t> chosen;
  for (const size_t i : shares_.ChooseRounds(demands, any_timing_)) {
    plan.push_back({admitted[i], 0});
    chosen[admitted[i]] = i;
  }
  ReserveRounds(plan, report);
  for (const Share& share : plan) chosen.erase(share.session);
  // Charges of rounds that fell out of the plan are given back, or their
  // callers would pay for rows that did not run.
  for (const auto& [session, i] : chosen) shares_.Drop(demands[i]);
  for (size_t i = 0; i < admitted.size(); ++i) {
    // Reserving may have preempted it; sessions with text are never removed.
    if (demands[i].text_rows > 0 && !admitted[i]->is_prefilling()) {
      demands[i].text_rows = 0;
    }
  }
  const std::vector<int32_t> text = shares_.ChooseText(demands);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] > 0) plan.push_back({admitted[i], text[i]});
  }
  return plan;
}

void VerifyEngine::AddRecentCallers(absl::Time now,
                                    std::vector<PassDemand>& demands) {
  absl::erase_if(recent_callers_, [now](const auto& caller) {
    return now - caller.second.answered >= kRoundTrip;
  });
  if (recent_callers_.empty()) return;
  // A single caller, present already, delays nobody: its limits need no second
  // entry.
  if (recent_callers_.size() == 1 && !demands.empty() &&
      recent_callers_.contains(demands.front().caller)) {
    return;
  }
  absl::flat_hash_set<absl::string_view> present;
  for (const auto& [id, session] : sessions_) {
    if (session.kv.is_open()) present.insert(session.request.caller);
  }
  for (const auto& [name, recent] : recent_callers_) {
    if (present.contains(name)) continue;
    PassDemand& demand = demands.emplace_back();
    demand.caller = name;
    demand.weight = recent.weight;
    demand.in_flight = true;
  }
}

void VerifyEngine::ReserveRounds(std::vector<Share>& plan, PassReport& report) {
  // Oldest first, so that a victim of the same caller is never one that was
  // reserved already. One taken from another caller may have been: its KV is
  // closed then, and it leaves the plan below.
  std::vector<Session*> by_age;
  for (const Share& share : plan) by_age.push_back(share.session);
  std::sort(by_age.begin(), by_age.end(),
            [](const Session* a, const Session* b) { return a->id < b->id; });
  std::vector<SessionId> failed;
  for (Session* session : by_age) {
    if (!session->kv.is_open()) continue;
    const absl::Status reserved = ReserveRound(*session);
    if (reserved.ok()) continue;
    admission_.Release(*session);  // removes it from the plan below
    failed.push_back(session->id);
    report.failures.push_back({session->id, Annotate(reserved, "KV cache")});
  }
  plan.erase(std::remove_if(plan.begin(), plan.end(),
                            [](const Share& share) {
                              return !share.session->kv.is_open();
                            }),
             plan.end());
  for (const SessionId id : failed) sessions_.Remove(id).IgnoreError();
}

absl::Status VerifyEngine::ReserveRound(Session& session) {
  PendingRound& round = *session.round;
  absl::Status reserved = admission_.Reserve(
      session, session.kv.length() + 1 + round.max_draft_depth);
  if (absl::IsResourceExhausted(reserved) && round.max_draft_depth > 0) {
    RoundLimits limits = LimitsOf(session);
    limits.drafts = false;
    // Without drafts a round needs room for one token; it commits that
    // instead of failing.
    LayOutRows(limits, session.tokens.back(), round);
    reserved = admission_.Reserve(session, session.kv.length() + 1);
  }
  return reserved;
}

void VerifyEngine::FinishShare(const Share& share, absl::Status status,
                               PassResult& result, size_t index,
                               PassReport& report) {
  Session& session = *share.session;
  if (!status.ok()) {
    status = Annotate(status, "forward pass");
  } else if (!session.mask_status.ok()) {
    status = session.mask_status;
  } else {
    std::vector<SampledToken>& outputs = result.outputs[index];
    status = share.prefill_rows > 0
                 ? FinishPrefill(session, share.prefill_rows, outputs, report)
                 : FinishRound(session, outputs, report);
    lost_states_ |= absl::IsDataLoss(status);
    status = Annotate(status, "forward pass");
  }
  // From the answer on, the client is waited for.
  session.idle_since = clock_();
  recent_callers_[session.request.caller] = {session.request.weight,
                                             session.idle_since};
  if (!status.ok()) {
    Fail(session.id, std::move(status), report);
  } else if (session.finish != FinishReason::kNone) {
    admission_.Release(session);
  }
}

absl::Status VerifyEngine::CheckModel(absl::Status data_loss) {
  if (model_fault_.ok()) model_fault_ = FaultOf(CheckLogits(*backend_));
  // If the model itself yields no numbers, every session fails the same way,
  // and the verifier should stop serving.
  return model_fault_.ok() ? std::move(data_loss) : model_fault_;
}

// After all shares: passes of the check drop the rows that they commit.
void VerifyEngine::CheckStates(PassReport& report) {
  if (!std::exchange(lost_states_, false)) return;
  const absl::Status fault = CheckModel(absl::OkStatus());
  if (fault.ok()) return;
  for (SessionFailure& failure : report.failures) {
    if (absl::IsDataLoss(failure.status)) failure.status = fault;
  }
}

void VerifyEngine::RunAlone(const Share& share, PassReport& report) {
  PassResult outputs;
  absl::Status status = Forward({share}, outputs, report.stats);
  if (absl::IsDataLoss(status) && share.prefill_rows == 0 &&
      share.session->round->rows() > 1) {
    // The bad row may be a draft, and drafts are only hints: retry without
    // them.
    RoundLimits limits = LimitsOf(*share.session);
    limits.max_rows = 1;
    LayOutRows(limits, share.session->tokens.back(), *share.session->round);
    status = Forward({share}, outputs, report.stats);
  }
  if (absl::IsDataLoss(status)) status = CheckModel(std::move(status));
  FinishShare(share, std::move(status), outputs, 0, report);
}

absl::Status VerifyEngine::Forward(const std::vector<Share>& plan,
                                   PassResult& result, PassStats& stats) {
  std::vector<PassSession> pass;
  pass.reserve(plan.size());
  std::deque<SessionMasks> masks;  // they do not move
  const auto limit = [&](Session& session, PassSession& part,
                         absl::Span<const TokenId> tokens,
                         absl::Span<const int32_t> parents) {
    if (session.text == nullptr) return;
    part.allowed = &masks.emplace_back(clock_, session, tokens, parents);
  };
  for (const Share& share : plan) {
    Session& session = *share.session;
    session.mask_status = absl::OkStatus();
    PassSession& part = pass.emplace_back(session.kv.Share());
    int32_t candidates = 0;
    if (share.prefill_rows > 0) {
      // Only what the cache did not have.
      part.tokens = absl::MakeConstSpan(session.tokens)
                        .subspan(session.kv.length(), share.prefill_rows);
      part.parents = absl::MakeConstSpan(chain_).first(share.prefill_rows);
      const bool gives_token = !session.is_replay() && !session.is_embedded() &&
                               share.prefill_rows == session.prefill_left();
      // A replay's last token is committed already, so no token is drawn.
      part.outputs = gives_token ? RowOutputs::kLastRow : RowOutputs::kNone;
      if (gives_token) {
        limit(session, part, absl::MakeConstSpan(&session.tokens.back(), 1),
              absl::MakeConstSpan(chain_).first(1));
      }
    } else {
      part.tokens = session.round->row_tokens;
      part.parents = session.round->row_parents;
      part.outputs = RowOutputs::kAllRows;
      limit(session, part, part.tokens, part.parents);
      candidates = session.round->request.candidates;
    }
    session.kv.set_candidates(candidates);
  }
  absl::Status status = backend_->Forward(pass, result);
  for (const SessionMasks& made : masks) {
    stats.masks += made.count();
    stats.mask_time += made.time();
    totals_.masks += made.count();
  }
  return status;
}

absl::Status VerifyEngine::FinishPrefill(Session& session, int32_t rows,
                                         std::vector<SampledToken>& outputs,
                                         PassReport& report) {
  if (session.is_embedded()) {
    FORETOKEN_RETURN_IF_ERROR(PoolStates(session, rows));
  }
  FORETOKEN_RETURN_IF_ERROR(session.kv.Commit(
      absl::MakeConstSpan(rows_).first(rows), session.tokens));
  totals_.prefill_rows += rows;
  if (session.was_preempted) totals_.replayed_rows += rows;
  // Reported once, though a preempted session reads its text again.
  if (session.prefill_left() > 0 || session.prefill_reported) {
    return absl::OkStatus();
  }
  session.prefill_reported = true;
  PrefillResult result;
  result.reused_tokens = session.reused_tokens;
  if (session.is_embedded()) {
    FORETOKEN_ASSIGN_OR_RETURN(result.embedding, session.pool->Finish());
    session.finish = FinishReason::kStop;
  } else if (!session.is_replay()) {
    CommitToken(session, outputs.back().token);
    ++totals_.committed;
    result.tokens.push_back(std::move(outputs.back()));
  }
  result.length = session.length();
  result.finish = session.finish;
  report.prefilled.push_back({session.id, std::move(result)});
  return absl::OkStatus();
}

absl::Status VerifyEngine::FinishRound(Session& session,
                                       std::vector<SampledToken>& outputs,
                                       PassReport& report) {
  // Row 0 and the accepted drafts; the last new token has no KV yet.
  std::vector<int32_t> rows;
  RoundResult result = CommitRound(session, report.stats, outputs, rows);
  // After CommitRound, which has appended the tokens whose KV this keeps.
  FORETOKEN_RETURN_IF_ERROR(session.kv.Commit(rows, session.tokens));
  ++totals_.rounds;
  totals_.rounds_with_drafts += result.stats.draft_rows > 0;
  totals_.draft_rows += result.stats.draft_rows;
  totals_.probe_rows += result.stats.probe_rows;
  totals_.dropped_nodes += result.stats.dropped_nodes;
  totals_.accepted += result.stats.accepted;
  totals_.committed += static_cast<int64_t>(result.tokens.size());
  session.round.reset();
  report.rounds.push_back({session.id, std::move(result)});
  return absl::OkStatus();
}

}  // namespace foretoken::verifier
