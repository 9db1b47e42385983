#include "services/verifier/core/verify_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/speculation/acceptance.h"

namespace foretoken::verifier {
namespace {

absl::Status NoSession(SessionId id) {
  return absl::NotFoundError(absl::StrCat("no session ", id));
}

absl::Status CheckTokens(absl::string_view field,
                         const std::vector<TokenId>& tokens,
                         int32_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        field, "[", i, "] is ", tokens[i], ", want 0..", vocab_size - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyEngineOptions::Validate() const {
  std::vector<std::string> errors;
  const auto check = [&](absl::string_view name, int64_t value, int64_t min,
                         int64_t max) {
    if (value >= min && value <= max) return;
    errors.push_back(
        absl::StrCat(name, " is ", value, ", want ", min, "..", max));
  };
  check("max_sessions", max_sessions, 1, 1 << 16);
  check("max_rows_per_pass", max_rows_per_pass, 2, 1 << 16);
  check("max_rows_per_session", max_rows_per_session, 1, 1 << 12);
  check("prefill_chunk", prefill_chunk, 1, 1 << 16);
  check("admission_reserve", admission_reserve, 1, 1 << 12);
  check("idle_time in ms", absl::ToInt64Milliseconds(idle_time), 1,
        24 * 3600 * 1000);
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "; "));
}

VerifyEngine::VerifyEngine(const VerifyEngineOptions& options,
                           std::unique_ptr<Backend> backend, Clock clock)
    : options_(options),
      backend_(std::move(backend)),
      clock_(std::move(clock)),
      pass_timing_(options.pass_timing) {
  FORETOKEN_CHECK(options_.Validate().ok());
  chain_.resize(RowBudget());
  for (int32_t i = 0; i < RowBudget(); ++i) chain_[i] = i - 1;
}

VerifyEngine::~VerifyEngine() {
  for (auto& [id, session] : sessions_) ReleaseBackend(*session);
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

absl::Status VerifyEngine::Check(const SessionRequest& request) const {
  const int64_t length = static_cast<int64_t>(request.tokens.size());
  if (length == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (request.prompt_length < 1 || request.prompt_length > length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt_length is ", request.prompt_length, ", want 1..", length));
  }
  if (request.max_length > model().max_positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prompt and max_tokens are ", request.max_length,
        " tokens, the model's context is ", model().max_positions));
  }
  if (request.max_length <= length) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_length is ", request.max_length, ", want above the ",
                     length, " tokens given"));
  }
  const int32_t vocab_size = model().vocab_size;
  FORETOKEN_RETURN_IF_ERROR(CheckTokens("tokens", request.tokens, vocab_size));
  FORETOKEN_RETURN_IF_ERROR(
      CheckTokens("stop_tokens", request.stop_tokens, vocab_size));
  return request.sampling.Validate(vocab_size);
}

absl::StatusOr<SessionId> VerifyEngine::Open(SessionRequest request) {
  FORETOKEN_RETURN_IF_ERROR(Check(request));
  if (sessions() >= options_.max_sessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", options_.max_sessions, " sessions are in use"));
  }
  if (request.deadline <= clock_()) {
    return absl::DeadlineExceededError("the deadline has passed");
  }
  auto session = std::make_unique<Session>();
  session->id = next_id_++;
  session->tokens = std::move(request.tokens);
  session->request = std::move(request);
  const SessionId id = session->id;
  sessions_.emplace(id, std::move(session));
  return id;
}

absl::Status VerifyEngine::Submit(SessionId id, RoundRequest request,
                                  std::optional<absl::Time> arrived) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return NoSession(id);
  Session& session = *found->second;
  if (session.finish != FinishReason::kNone) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", id, " has ended"));
  }
  if (!session.prefill_reported || session.round.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", id, " has not yet answered its ",
                     session.prefill_reported ? "round" : "prefill"));
  }
  const int64_t length = static_cast<int64_t>(session.tokens.size());
  if (request.length != length) {
    return absl::FailedPreconditionError(
        absl::StrCat("the round builds on ", request.length,
                     " tokens, session ", id, " has ", length));
  }
  if (!request.probe.empty() &&
      request.probe.size() != static_cast<size_t>(request.tree.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("probe has ", request.probe.size(), " entries for ",
                     request.tree.size(), " nodes"));
  }
  if (request.candidates < 0 || request.candidates > kMaxRowCandidates) {
    return absl::InvalidArgumentError(absl::StrCat(
        "candidates is ", request.candidates, ", want 0..", kMaxRowCandidates));
  }
  PendingRound round;
  round.request = std::move(request);
  round.order = next_order_++;
  round.arrived = arrived.has_value() ? *arrived : clock_();
  LayOutRows(LimitsOf(session), session.tokens.back(), round);
  session.round = std::move(round);
  return absl::OkStatus();
}

absl::Status VerifyEngine::Close(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return NoSession(id);
  ReleaseBackend(*found->second);
  sessions_.erase(found);
  // It may have been the one that blocked the others.
  admission_blocked_ = false;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> VerifyEngine::Length(SessionId id) const {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return NoSession(id);
  return static_cast<int64_t>(found->second->tokens.size());
}

bool VerifyEngine::HasWork() const {
  const absl::Time now = clock_();
  for (const auto& [id, session] : sessions_) {
    if (session->request.deadline <= now) return true;
    if (!session->has_work()) continue;
    if (session->backend_session.has_value() || !admission_blocked_) {
      return true;
    }
  }
  return AnyWaiting() && NextIdle() <= now;
}

absl::Time VerifyEngine::NextDeadline() const {
  absl::Time next = AnyWaiting() ? NextIdle() : absl::InfiniteFuture();
  for (const auto& [id, session] : sessions_) {
    next = std::min(next, session->request.deadline);
  }
  return next;
}

int32_t VerifyEngine::admitted() const {
  return static_cast<int32_t>(std::count_if(
      sessions_.begin(), sessions_.end(),
      [](const auto& entry) { return entry.second->backend_session; }));
}

VerifySnapshot VerifyEngine::snapshot() const {
  VerifySnapshot snapshot;
  snapshot.sessions = sessions();
  snapshot.kv = backend_->kv_usage();
  snapshot.totals = totals_;
  snapshot.pass_timing = pass_timing_;
  return snapshot;
}

PassReport VerifyEngine::RunPass() {
  const absl::Time begin = clock_();
  PassReport report;
  ExpireDeadlines(report);
  AdmitWaiting(report);
  const std::vector<Share> plan = PlanPass(report);
  if (plan.empty()) return report;

  PassResult outputs;
  const absl::Time start = clock_();
  const absl::Status status = Forward(plan, outputs);
  report.stats.forward_time = clock_() - start;
  report.stats.sessions = static_cast<int32_t>(plan.size());
  for (const Share& share : plan) {
    report.stats.prefill_rows += share.prefill_rows;
    report.stats.rows += share.prefill_rows > 0 ? share.prefill_rows
                                                : share.session->round->rows();
    if (share.prefill_rows == 0) {
      share.session->round->queue_time = start - share.session->round->arrived;
    }
  }
  ++totals_.passes;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (absl::IsDataLoss(status)) {
      RunAlone(plan[i], report);
    } else {
      FinishShare(plan[i], status, outputs, i, report);
    }
  }
  // Rows of text have no output: they cost less than those of a tree.
  if (report.stats.prefill_rows == 0) {
    pass_timing_.Observe(report.stats.rows, clock_() - begin);
  }
  return report;
}

void VerifyEngine::FinishShare(const Share& share, absl::Status status,
                               PassResult& result, size_t index,
                               PassReport& report) {
  Session& session = *share.session;
  if (status.ok()) {
    std::vector<SampledToken>& outputs = result.outputs[index];
    status = share.prefill_rows > 0
                 ? FinishPrefill(session, share.prefill_rows, outputs, report)
                 : FinishRound(session, outputs, report);
  }
  session.idle_since = clock_();
  if (!status.ok()) {
    Fail(session.id, Annotate(status, "forward pass"), report);
  } else if (session.finish != FinishReason::kNone) {
    ReleaseBackend(session);
  }
}

void VerifyEngine::RunAlone(const Share& share, PassReport& report) {
  PassResult outputs;
  absl::Status status = Forward({share}, outputs);
  if (absl::IsDataLoss(status) && share.prefill_rows == 0 &&
      share.session->round->rows() > 1) {
    // The row at fault may be a draft, and drafts are hints.
    RoundLimits limits = LimitsOf(*share.session);
    limits.max_rows = 1;
    LayOutRows(limits, share.session->tokens.back(), *share.session->round);
    status = Forward({share}, outputs);
  }
  FinishShare(share, std::move(status), outputs, 0, report);
}

absl::Status VerifyEngine::Forward(const std::vector<Share>& plan,
                                   PassResult& result) {
  std::vector<PassSession> pass;
  pass.reserve(plan.size());
  for (const Share& share : plan) {
    Session& session = *share.session;
    PassSession& part = pass.emplace_back();
    part.session = *session.backend_session;
    part.sampling = &*session.sampling;
    int32_t candidates = -1;
    if (share.prefill_rows > 0) {
      part.tokens = absl::MakeConstSpan(session.tokens)
                        .subspan(session.kv_length, share.prefill_rows);
      part.parents = absl::MakeConstSpan(chain_).first(share.prefill_rows);
      const bool gives_token =
          !session.is_replay() &&
          session.kv_length + share.prefill_rows == session.prefill_target();
      part.outputs = gives_token ? RowOutputs::kLastRow : RowOutputs::kNone;
    } else {
      part.tokens = session.round->row_tokens;
      part.parents = session.round->row_parents;
      part.outputs = RowOutputs::kAllRows;
      if (session.round->request.candidates > 0) {
        candidates = session.round->request.candidates;
      }
    }
    session.sampling->set_logprobs(
        std::max(session.request.sampling.logprobs, candidates));
  }
  return backend_->Forward(pass, result);
}

absl::Status VerifyEngine::FinishPrefill(Session& session, int32_t rows,
                                         std::vector<SampledToken>& outputs,
                                         PassReport& report) {
  std::vector<int32_t> all(rows);
  for (int32_t i = 0; i < rows; ++i) all[i] = i;
  FORETOKEN_RETURN_IF_ERROR(backend_->Commit(*session.backend_session, all));
  session.sampling->Append(
      absl::MakeConstSpan(session.tokens).subspan(session.kv_length, rows));
  session.kv_length += rows;
  totals_.prefill_rows += rows;
  if (session.was_preempted) totals_.replayed_rows += rows;
  if (session.needs_prefill() || session.prefill_reported) {
    return absl::OkStatus();
  }
  session.prefill_reported = true;
  PrefillResult result;
  result.reused_tokens = session.reused_tokens;
  if (!session.is_replay()) {
    CommitToken(session, outputs.back().token);
    result.tokens.push_back(std::move(outputs.back()));
  }
  result.length = static_cast<int64_t>(session.tokens.size());
  result.finish = session.finish;
  report.prefilled.push_back({session.id, std::move(result)});
  return absl::OkStatus();
}

void VerifyEngine::CommitToken(Session& session, TokenId token) {
  session.tokens.push_back(token);
  ++totals_.committed;
  const auto& stops = session.request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    session.finish = FinishReason::kStop;
  } else if (static_cast<int64_t>(session.tokens.size()) ==
             session.request.max_length) {
    session.finish = FinishReason::kLength;
  }
}

std::vector<int32_t> VerifyEngine::CommitPath(
    Session& session, std::vector<SampledToken>& outputs, RoundResult& result) {
  const PendingRound& round = *session.round;
  const TokenTree& tree = round.request.tree;
  result.row_tokens.assign(tree.size() + 1, -1);
  result.row_tokens[0] = outputs[0].token;
  std::vector<bool> acceptable(tree.size(), false);
  for (size_t i = 0; i < round.kept_nodes.size(); ++i) {
    const int32_t node = round.kept_nodes[i];
    const bool is_probe =
        !round.request.probe.empty() && round.request.probe[node];
    result.row_tokens[node + 1] = outputs[i + 1].token;
    acceptable[node] = !is_probe;
    ++(is_probe ? result.stats.probe_rows : result.stats.draft_rows);
  }
  result.stats.dropped_nodes =
      tree.size() - static_cast<int32_t>(round.kept_nodes.size());
  const Acceptance accepted = Accept(tree, result.row_tokens, acceptable);

  std::vector<int32_t> rows = {0};
  for (const int32_t node : accepted.path) {
    CommitToken(session, tree.tokens()[node]);
    result.tokens.push_back(outputs[rows.back()]);
    if (session.finish != FinishReason::kNone) return rows;
    result.path.push_back(node);
    rows.push_back(round.row_of_node[node]);
  }
  CommitToken(session, accepted.bonus_token);
  result.tokens.push_back(outputs[rows.back()]);
  return rows;
}

absl::Status VerifyEngine::FinishRound(Session& session,
                                       std::vector<SampledToken>& outputs,
                                       PassReport& report) {
  const int64_t length = static_cast<int64_t>(session.tokens.size());
  const int32_t candidates = session.round->request.candidates;
  RoundResult result;
  const std::vector<int32_t> rows = CommitPath(session, outputs, result);
  FORETOKEN_RETURN_IF_ERROR(backend_->Commit(*session.backend_session, rows));
  // Row 0 and the accepted drafts; the last new token has no KV yet.
  session.sampling->Append(
      absl::MakeConstSpan(session.tokens).subspan(length - 1, rows.size()));
  session.kv_length += static_cast<int64_t>(rows.size());

  if (candidates > 0) {
    result.row_candidates.resize(result.row_tokens.size());
    for (int32_t row = 0; row < session.round->rows(); ++row) {
      const int32_t node = row == 0 ? -1 : session.round->kept_nodes[row - 1];
      std::vector<TokenLogprob>& top = outputs[row].top_logprobs;
      if (top.size() > static_cast<size_t>(candidates)) top.resize(candidates);
      result.row_candidates[node + 1] = std::move(top);
    }
  }
  const int32_t logprobs = session.request.sampling.logprobs;
  for (SampledToken& token : result.tokens) {
    if (logprobs < 0) token.logprob = 0.0f;
    const size_t wanted = static_cast<size_t>(std::max(logprobs, 0));
    if (token.top_logprobs.size() > wanted) token.top_logprobs.resize(wanted);
  }
  result.length = static_cast<int64_t>(session.tokens.size());
  result.finish = session.finish;
  result.stats.accepted = static_cast<int32_t>(result.path.size());
  result.stats.pass_rows = report.stats.rows;
  result.stats.pass_sessions = report.stats.sessions;
  result.stats.queue_time = session.round->queue_time;
  result.stats.pass_time = report.stats.forward_time;

  ++totals_.rounds;
  totals_.rounds_with_drafts += result.stats.draft_rows > 0;
  totals_.draft_rows += result.stats.draft_rows;
  totals_.probe_rows += result.stats.probe_rows;
  totals_.dropped_nodes += result.stats.dropped_nodes;
  totals_.accepted += result.stats.accepted;
  session.round.reset();
  report.rounds.push_back({session.id, std::move(result)});
  return absl::OkStatus();
}

}  // namespace foretoken::verifier
