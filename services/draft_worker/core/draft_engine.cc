#include "services/draft_worker/core/draft_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/range_errors.h"
#include "common/base/status_macros.h"
#include "common/base/token_range.h"

namespace foretoken::draft_worker {
namespace {

// Maximum nodes of a draft: those of the verifier's largest tree.
constexpr int32_t kMaxNodes = 256;

// Share of a round's budget for drafting. The rest covers a last pass that
// takes longer than expected and the transport of the answer: a late draft is
// lost as a whole.
constexpr double kShareOfBudget = 0.7;

// Rows are priced by passes of at most this many. At a price a row takes at
// most, and a pass without its further rows at least, a part of the pass.
constexpr double kPricedRows = 64;
constexpr double kMaxRowShare = 0.5;
constexpr double kLeastPassShare = 0.3;

// A row that adds less than this part of a pass of one row is nearly free.
constexpr double kFreeRowShare = 0.002;
constexpr double kLeastRowsForFree = 16;

// Decay of the expected pass time, per draft.
constexpr double kForgetting = 0.8;

absl::Status CheckTokens(absl::string_view field,
                         absl::Span<const TokenId> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, "[", i, "] is ", tokens[i], ", want at least 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckRound(const DraftRound& round) {
  FORETOKEN_RETURN_IF_ERROR(CheckTokens("committed", round.committed));
  if (round.max_nodes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_nodes is ", round.max_nodes, ", want at least 0"));
  }
  const VerifiedTree& verified = round.verified;
  const size_t rows = static_cast<size_t>(verified.tree.size()) + 1;
  if (verified.row_tokens.size() != rows &&
      !(verified.row_tokens.empty() && verified.tree.empty())) {
    return absl::InvalidArgumentError(absl::StrCat("verified.row_tokens has ",
                                                   verified.row_tokens.size(),
                                                   " entries, want ", rows));
  }
  return absl::OkStatus();
}

// Drops parameters that name tokens outside the draft model's vocabulary: it
// never draws those.
void DropForeignTokens(int32_t vocab_size, SamplingParams& params) {
  auto& bias = params.logit_bias;
  // Not an error: the target's vocabulary may be larger than the draft model's.
  bias.erase(std::remove_if(
                 bias.begin(), bias.end(),
                 [&](const auto& entry) { return entry.first >= vocab_size; }),
             bias.end());
  auto& ends = params.end_tokens;
  ends.erase(std::remove_if(ends.begin(), ends.end(),
                            [&](TokenId token) { return token >= vocab_size; }),
             ends.end());
}

}  // namespace

absl::Status DraftEngineOptions::Validate() const {
  RangeErrors errors;
  errors.Check("max_sessions", max_sessions, 1, 1 << 16);
  errors.Check("max_rows_per_pass", max_rows_per_pass, 4, 1 << 16);
  errors.Check("max_rows_per_session", max_rows_per_session, 1, 1 << 12);
  errors.Check("prefill_chunk", prefill_chunk, 1, 1 << 16);
  errors.Check("max_text_rows", max_text_rows, 0, 1 << 16);
  errors.Check("admission_reserve", admission_reserve, 0, 1 << 12);
  errors.Check("max_pool_phrases", max_pool_phrases, 1, 1 << 20);
  errors.Check("vocab_limit", vocab_limit, 0, 1 << 30);
  return errors.status();
}

DraftEngine::DraftEngine(const DraftEngineOptions& options,
                         std::unique_ptr<Backend> backend, Clock clock)
    : options_(options),
      backend_(std::move(backend)),
      clock_(std::move(clock)),
      sessions_(options.max_sessions) {
  FORETOKEN_CHECK(options_.Validate().ok());
  row_budget_ = std::min(options_.max_rows_per_pass, backend_->max_rows());
  FORETOKEN_CHECK(row_budget_ >= 4);
  // One draft with its text always fits a pass.
  // Half of the pass at most, so that a text never crowds out the drafts that
  // share it.
  text_chunk_ = std::min(options_.prefill_chunk, row_budget_ / 2);
  text_rows_ = options_.max_text_rows > 0 ? std::clamp(options_.max_text_rows,
                                                       text_chunk_, row_budget_)
                                          : row_budget_;
  limits_.max_rows =
      std::min(options_.max_rows_per_session, row_budget_ - text_chunk_ - 1);
  limits_.max_phrases = options_.max_pool_phrases;
  limits_.vocab_limit = model().vocab_size;
  if (options_.vocab_limit > 0) {
    limits_.vocab_limit = std::min(limits_.vocab_limit, options_.vocab_limit);
  }
}

DraftSnapshot DraftEngine::snapshot() const {
  DraftSnapshot snapshot;
  snapshot.sessions = sessions_.size();
  snapshot.kv = backend_->kv_usage();
  snapshot.totals = totals_;
  for (const auto& [id, session] : sessions_) {
    snapshot.pool_phrases += session.mode->pool_phrases();
  }
  return snapshot;
}

absl::Status DraftEngine::Check(const DraftOpen& open) const {
  const int64_t length = static_cast<int64_t>(open.tokens.size());
  if (length == 0) return absl::InvalidArgumentError("the prompt is empty");
  FORETOKEN_RETURN_IF_ERROR(CheckTokens("tokens", open.tokens));
  if (open.prompt_length >= 1 && open.prompt_length <= length) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "prompt_length is ", open.prompt_length, ", want 1..", length));
}

absl::StatusOr<SessionId> DraftEngine::Open(DraftOpen open) {
  FORETOKEN_RETURN_IF_ERROR(Check(open));
  // Before Validate, which would refuse ids beyond the draft model's
  // vocabulary.
  DropForeignTokens(model().vocab_size, open.sampling);
  FORETOKEN_RETURN_IF_ERROR(open.sampling.Validate(model().vocab_size));
  ModeLimits limits = limits_;
  limits.end_tokens = open.sampling.end_tokens;
  limits.temperature = open.sampling.temperature;
  limits.seed = open.sampling.seed;
  limits.free_rows = HasFreeRows();
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<DraftMode> mode,
                             MakeDraftMode(open.mode, limits, open.phrases));
  // After the checks of the request: a bad request is refused as such even if
  // there is no room.
  FORETOKEN_RETURN_IF_ERROR(sessions_.CheckRoom());
  Session session;
  session.length = static_cast<int64_t>(open.tokens.size());
  session.mode = std::move(mode);
  // A text that the draft model cannot read is no error of the client: the
  // session stays and proposes nothing.
  if (AllInVocabulary(open.tokens, model().vocab_size) &&
      session.length <= model().max_positions) {
    FORETOKEN_RETURN_IF_ERROR(Admit(session, open));
  } else {
    Mute(session);
  }
  Session& added = sessions_.Add(std::move(session));
  Count(added);
  return added.id;
}

absl::Status DraftEngine::Admit(Session& session, DraftOpen& open) {
  const int64_t room = std::min<int64_t>(
      session.length + options_.admission_reserve, model().max_positions);
  const auto admit = [&] {
    return session.kv.Open(*backend_, open.cache_scope, open.tokens, room,
                           open.sampling, open.prompt_length);
  };
  absl::Status admitted = admit();
  // Drafted KV is a guess; text of an admitted session is not.
  if (absl::IsResourceExhausted(admitted) && DropDrafted({})) {
    admitted = admit();
  }
  FORETOKEN_RETURN_IF_ERROR(Annotate(admitted, "KV cache"));
  session.kv.set_logprobs(session.mode->logprobs());
  session.text = std::move(open.tokens);
  totals_.reused_tokens += session.kv.length();
  return absl::OkStatus();
}

void DraftEngine::Mute(Session& session) {
  session.kv.Close();
  session.drafted.clear();
  session.muted = true;
  // Assigned, not cleared: the memory goes back as well.
  session.text = {};
  ++totals_.muted;
}

absl::Status DraftEngine::Submit(SessionId id, const DraftRound& round,
                                 std::optional<absl::Time> arrived) {
  FORETOKEN_ASSIGN_OR_RETURN(Session* const found, sessions_.Find(id));
  Session& session = *found;
  if (session.draft.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", id, " has not yet answered its round"));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckFollows(session.length, round));
  FORETOKEN_RETURN_IF_ERROR(CheckRound(round));
  // Before the length changes: what was drafted is compared with what was
  // committed at the old one.
  if (!session.muted) FORETOKEN_RETURN_IF_ERROR(Learn(session, round));
  session.length = round.length;
  if (!session.muted &&
      (!AllInVocabulary(round.committed, model().vocab_size) ||
       session.length > model().max_positions)) {
    Mute(session);
  }
  PendingDraft draft;
  draft.max_nodes = std::min(round.max_nodes, kMaxNodes);
  draft.arrived = arrived.has_value() ? *arrived : clock_();
  draft.deadline = draft.arrived + round.budget * kShareOfBudget;
  draft.token_time = round.token_time;
  draft.row_ms = round.row_ms;
  draft.order = next_order_++;
  session.pace.Note(draft.arrived,
                    static_cast<int64_t>(round.committed.size()));
  session.draft = std::move(draft);
  if (session.muted || session.draft->max_nodes == 0) return absl::OkStatus();
  const DraftRoom room = {session.draft->max_nodes,
                          model().max_positions - session.length,
                          PricesOf(session)};
  // A round without new tokens, after a draft that was cut off by its deadline:
  // it goes on instead of starting again.
  if (session.draft_base == session.length) {
    session.mode->Resume(room);
    return session.KeepChain();
  }
  session.mode->Begin(session.text, room);
  if (round.hints.size() > 0) session.mode->TakeHints(round.hints);
  session.draft_base = session.length;
  return absl::OkStatus();
}

absl::Status DraftEngine::Learn(Session& session, const DraftRound& round) {
  Observation observation;
  observation.committed = round.committed;
  observation.follows_draft =
      session.draft_base == session.length && !round.committed.empty();
  // A verified tree covers only the last round.
  // Only if the tree explains all that was committed: after rounds that were
  // not told one by one, its rows belong to an earlier text.
  if (!round.verified.row_tokens.empty() &&
      round.committed.size() == round.verified.path.size() + 1) {
    observation.verified = &round.verified;
  }
  // KV first, then text: the accepted rows become text without being computed
  // again.
  FORETOKEN_RETURN_IF_ERROR(KeepAccepted(session, round.committed));
  session.text.insert(session.text.end(), round.committed.begin(),
                      round.committed.end());
  session.mode->Observe(observation);
  for (const TokenId token : round.committed) {
    // Tokens that the draft model's cut vocabulary does not hold: the price of
    // a small head.
    if (!backend_->Draws(token)) ++totals_.vocabulary_misses;
  }
  Count(session);
  return absl::OkStatus();
}

absl::Status DraftEngine::KeepAccepted(Session& session,
                                       absl::Span<const TokenId> committed) {
  std::vector<TokenId>& drafted = session.drafted;
  if (drafted.empty()) return absl::OkStatus();
  if (committed.empty()) {
    // The draft goes on: the last token of its chain is the next pass's row.
    return session.KeepDrafted(session.mode->chain().size() - 1);
  }
  // The last committed token is the next draft's first row.
  const size_t most = std::min(drafted.size(), committed.size() - 1);
  size_t accepted = 0;
  while (accepted < most && drafted[accepted] == committed[accepted]) {
    ++accepted;
  }
  FORETOKEN_RETURN_IF_ERROR(session.KeepDrafted(accepted));
  totals_.kept_rows += static_cast<int64_t>(accepted);
  drafted.clear();  // what is left of it is text
  return absl::OkStatus();
}

void DraftEngine::Count(Session& session) {
  const ModeTotals now = session.mode->totals();
  ModeTotals& sums = totals_.modes;
  sums.phrases_made += now.phrases_made - session.counted.phrases_made;
  sums.phrases_tried += now.phrases_tried - session.counted.phrases_tried;
  sums.phrase_tokens += now.phrase_tokens - session.counted.phrase_tokens;
  sums.inspired += now.inspired - session.counted.inspired;
  sums.refined += now.refined - session.counted.refined;
  session.counted = now;
}

bool DraftEngine::HasWork() const {
  return std::any_of(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return entry.second.draft.has_value() || entry.second.wants_prefill();
  });
}

bool DraftEngine::has_drafts() const {
  return std::any_of(sessions_.begin(), sessions_.end(),
                     [&](const auto& entry) {
                       const Session& session = entry.second;
                       return session.draft.has_value() && Wants(session) &&
                              !session.reads(text_chunk_);
                     });
}

// True if no further pass would help: nothing is wanted, nothing can be added,
// or the answer would be late.
bool DraftEngine::IsDue(const Session& session) const {
  // The expected end of another pass, by what the last one of this kind took.
  return !Wants(session) || clock_() + session.pass_time[kind_of_pass()] >=
                                session.draft->deadline;
}

bool DraftEngine::Wants(const Session& session) const {
  return !session.muted && session.draft->max_nodes > 0 &&
         !session.mode->done();
}

// --- Prices ------------------------------------------------------------------

DraftPrices DraftEngine::PricesOf(const Session& session) const {
  DraftPrices prices;
  const PendingDraft& draft = *session.draft;
  const double token_seconds = absl::ToDoubleSeconds(
      draft.token_time > absl::ZeroDuration() ? draft.token_time
                                              : session.pace.token_time());
  // Negated, for NaN; nothing is priced until the pace of the target is known.
  if (!(token_seconds > 0.0) || !std::isfinite(token_seconds)) return prices;
  prices.nodes.reserve(draft.row_ms.size());
  for (const float row_ms : draft.row_ms) {
    prices.nodes.push_back(static_cast<double>(row_ms) / 1e3 / token_seconds);
  }
  const double pass_seconds =
      absl::ToDoubleSeconds(session.pass_time[kind_of_pass()]);
  if (!(pass_seconds > 0.0)) return prices;
  // A slope from few points may be wild; it is kept within a share of the pass.
  const double row_seconds =
      std::clamp(RowSeconds(), 0.0, pass_seconds * kMaxRowShare);
  // Its first pass may have read text and hints, which the next one does not.
  prices.pass = std::max(pass_seconds - row_seconds * (session.pass_rows - 1),
                         pass_seconds * kLeastPassShare) /
                token_seconds;
  // Not known yet: a guess that makes rows neither free nor forbidding.
  prices.row = RowSeconds() < 0.0 ? prices.pass * DraftPrices::kUnknownRowShare
                                  : row_seconds / token_seconds;
  // The sessions that share a pass share its price, but a row delays all.
  int drafting = 0;
  for (const auto& [id, other] : sessions_) {
    drafting +=
        &other == &session ||
        (other.draft.has_value() && !other.reads(text_chunk_) && Wants(other));
  }
  // At most the pass itself: a row never costs more than a pass of its own
  // would.
  prices.row = std::min(prices.row * drafting, prices.pass);
  return prices;
}

double DraftEngine::RowSeconds() const {
  PassTiming::Point least, most;
  for (const PassTiming::Point& point : timing_.points()) {
    if (point.rows > kPricedRows) break;
    if (least.rows == 0) least = point;
    most = point;
  }
  // One point has no slope.
  if (most.rows <= least.rows) return -1.0;
  return std::max(most.seconds - least.seconds, 0.0) / (most.rows - least.rows);
}

bool DraftEngine::HasFreeRows() const {
  // A slope between counts close together is noise, and so is a falling one.
  double most = 0.0;
  for (const PassTiming::Point& point : timing_.points()) {
    if (point.rows <= kPricedRows) most = point.rows;
  }
  const double row = RowSeconds();
  return most >= kLeastRowsForFree && row > 0.0 &&
         row < kFreeRowShare * timing_.Seconds(1);
}

void DraftEngine::AnswerReady(DraftReport& report) {
  for (auto& [id, session] : sessions_) {
    if (session.draft.has_value() && IsDue(session)) Answer(session, report);
  }
}

void DraftEngine::Answer(Session& session, DraftReport& report) {
  const absl::Time now = clock_();
  const bool late =
      now + session.pass_time[kind_of_pass()] >= session.draft->deadline;
  // While the estimate forbids a pass, no pass can correct it: let it decay.
  session.pass_time[kind_of_pass()] *= kForgetting;
  DraftReport::Answer& answer = report.answers.emplace_back();
  answer.session = session.id;
  answer.answer.length = session.length;
  if (!session.muted) {
    if (session.draft->max_nodes > 0) session.mode->Finish(answer.answer.tree);
    answer.answer.phrases = session.mode->TakeGained();
  }
  answer.answer.draft_time = now - session.draft->arrived;
  // Told to the orchestrator: the tree is less than the session wanted.
  answer.answer.shortened = late && Wants(session);
  totals_.drafts += answer.answer.tree.size() > 0;
  totals_.draft_tokens += answer.answer.tree.size();
  session.draft.reset();
}

void DraftEngine::NoteText() {
  const bool waited = std::exchange(
      text_waits_, std::any_of(sessions_.begin(), sessions_.end(),
                               [this](const auto& entry) {
                                 return entry.second.reads_much(text_chunk_);
                               }));
  if (waited || !text_waits_) return;
  // The cost of an earlier text says little about this one.
  for (auto& [id, session] : sessions_) {
    session.pass_time[1] = absl::ZeroDuration();
  }
}

DraftReport DraftEngine::RunPass() {
  DraftReport report;
  NoteText();
  AnswerReady(report);
  // Answers go out before another pass begins, since the client waits for them.
  if (!report.answers.empty() || !HasWork()) return report;
  std::vector<Share> plan =
      PlanPass(sessions_, row_budget_, text_chunk_, text_rows_);
  ReserveShares(plan, report);
  if (plan.empty()) return report;

  RunShares(plan, report);
  return report;
}

void DraftEngine::RunShares(absl::Span<const Share> plan, DraftReport& report) {
  PassResult outputs;
  const absl::Time start = clock_();
  const absl::Status status = Forward(plan, outputs);
  const absl::Duration took = clock_() - start;
  ++totals_.passes;
  if (absl::IsDataLoss(status) && plan.size() > 1) {
    // The logits of one session are not numbers: run each session alone, so
    // that the others go on.
    // Recursion of depth one: each call has one session.
    for (const Share& share : plan) RunShares({&share, 1}, report);
    return;
  }
  report.stats.forward_time += took;
  report.stats.sessions += static_cast<int32_t>(plan.size());
  const size_t kind = kind_of_pass();
  // Passes with long texts are another kind: their rows say nothing about the
  // price of a draft's.
  if (status.ok() && kind == 0) {
    int32_t rows = 0;
    for (const Share& share : plan) rows += share.session->rows.size();
    timing_.Observe(rows, took);
  }
  const auto finish = [&](bool drafts) {
    for (size_t i = 0; i < plan.size(); ++i) {
      if (plan[i].drafts != drafts) continue;
      if (drafts && status.ok()) {
        plan[i].session->pass_time[kind] = took;
        plan[i].session->pass_rows = plan[i].session->rows.size();
      }
      FinishShare(
          plan[i], status,
          status.ok() ? outputs.outputs[i] : absl::Span<const SampledToken>(),
          report);
    }
  };
  // Texts first: the text left over decides how long the next pass is.
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
  // A failed draft costs this round its last pass only; its earlier tokens are
  // good.
  if (absl::IsDataLoss(status) && share.drafts) {
    Answer(session, report);  // answers with the tokens drafted before
    return;
  }
  absl::Status done = status;
  if (done.ok()) done = Take(share, outputs, report);
  if (done.ok()) return;
  sessions_.Fail(session.id, Annotate(done, "draft pass"), report.failures);
}

void DraftEngine::ReserveShares(std::vector<Share>& plan, DraftReport& report) {
  std::vector<Share> kept;
  for (const Share& share : plan) {
    Session& session = *share.session;
    const int64_t length = session.text_known() + session.text_rows;
    absl::Status reserved = session.kv.Reserve(length);
    // Drafts of sessions that are not in this pass may be dropped, their texts
    // may not.
    if (absl::IsResourceExhausted(reserved) && DropDrafted(plan)) {
      reserved = session.kv.Reserve(length);
    }
    if (reserved.ok()) {
      kept.push_back(share);
    } else {
      sessions_.Fail(session.id, Annotate(reserved, "KV cache"),
                     report.failures);
    }
  }
  plan.swap(kept);
}

bool DraftEngine::DropDrafted(absl::Span<const Share> plan) {
  bool dropped = false;
  for (auto& [id, session] : sessions_) {
    const bool planned = std::any_of(
        plan.begin(), plan.end(),
        [&](const Share& share) { return share.session == &session; });
    if (planned || session.drafted.empty()) continue;
    // A session that has no page for a copy keeps its draft.
    dropped |= session.KeepDrafted(0).ok();
  }
  return dropped;
}

absl::Status DraftEngine::Forward(absl::Span<const Share> plan,
                                  PassResult& result) {
  std::vector<PassSession> pass;
  pass.reserve(plan.size());
  for (const Share& share : plan) {
    const Session& session = *share.session;
    PassSession& part = pass.emplace_back(session.kv.Share());
    part.tokens = session.rows.tokens;
    part.parents = session.rows.parents;
    part.outputs = RowOutputs::kListedRows;
    part.output_rows = session.rows.outputs;
  }
  return backend_->Forward(pass, result);
}

absl::Status DraftEngine::Take(const Share& share,
                               absl::Span<const SampledToken> outputs,
                               DraftReport& report) {
  Session& session = *share.session;
  if (!share.drafts) return session.CommitText();
  by_row_.assign(session.rows.size(), SampledToken());
  for (size_t i = 0; i < outputs.size(); ++i) {
    by_row_[session.rows.outputs[i]] = outputs[i];
  }
  session.mode->SetPrices(PricesOf(session));
  session.mode->Take(by_row_);
  Count(session);
  const bool due = IsDue(session);
  // KV of the draft is kept if it may be needed: when the draft goes on, or if
  // options say that chains are.
  FORETOKEN_RETURN_IF_ERROR(due || options_.keep_chain ? session.CommitDraft()
                                                       : session.CommitText());
  if (!due) return session.KeepChain();
  Answer(session, report);
  return absl::OkStatus();
}

}  // namespace foretoken::draft_worker
