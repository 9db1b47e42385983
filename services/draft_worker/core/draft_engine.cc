#include "services/draft_worker/core/draft_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace foretoken::draft_worker {
namespace {

// Nodes of a draft that a round may ask for; as the verifier's largest tree.
constexpr int32_t kMaxNodes = 256;

// Of a round's budget, for drafting. The rest is for a last pass that takes
// longer than foreseen and for the answer's way: what comes late is lost whole.
constexpr double kShareOfBudget = 0.7;

absl::Status NoSession(SessionId id) {
  return absl::NotFoundError(absl::StrCat("no session ", id));
}

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

bool Knows(absl::Span<const TokenId> tokens, int32_t vocab_size) {
  return std::all_of(tokens.begin(), tokens.end(), [&](TokenId token) {
    return token >= 0 && token < vocab_size;
  });
}

// The target's parameters as far as they name tokens of the draft model: it
// never draws the others.
void DropForeignTokens(int32_t vocab_size, SamplingParams& params) {
  auto& bias = params.logit_bias;
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
  std::vector<std::string> errors;
  const auto check = [&](absl::string_view name, int64_t value, int64_t min,
                         int64_t max) {
    if (value >= min && value <= max) return;
    errors.push_back(
        absl::StrCat(name, " is ", value, ", want ", min, "..", max));
  };
  check("max_sessions", max_sessions, 1, 1 << 16);
  check("max_rows_per_pass", max_rows_per_pass, 4, 1 << 16);
  check("max_rows_per_session", max_rows_per_session, 1, 1 << 12);
  check("prefill_chunk", prefill_chunk, 1, 1 << 16);
  check("admission_reserve", admission_reserve, 0, 1 << 12);
  check("max_pool_phrases", max_pool_phrases, 1, 1 << 20);
  check("vocab_limit", vocab_limit, 0, 1 << 30);
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "; "));
}

DraftEngine::DraftEngine(const DraftEngineOptions& options,
                         std::unique_ptr<Backend> backend, Clock clock)
    : options_(options),
      backend_(std::move(backend)),
      clock_(std::move(clock)) {
  FORETOKEN_CHECK(options_.Validate().ok());
  row_budget_ = std::min(options_.max_rows_per_pass, backend_->max_rows());
  FORETOKEN_CHECK(row_budget_ >= 4);
  // One draft with its text always fits a pass.
  text_chunk_ = std::min(options_.prefill_chunk, row_budget_ / 2);
  limits_.max_rows =
      std::min(options_.max_rows_per_session, row_budget_ - text_chunk_ - 1);
  limits_.max_phrases = options_.max_pool_phrases;
  limits_.vocab_limit = model().vocab_size;
  if (options_.vocab_limit > 0) {
    limits_.vocab_limit = std::min(limits_.vocab_limit, options_.vocab_limit);
  }
}

DraftEngine::~DraftEngine() {
  for (auto& [id, session] : sessions_) ReleaseBackend(*session);
}

DraftSnapshot DraftEngine::snapshot() const {
  DraftSnapshot snapshot;
  snapshot.sessions = sessions();
  snapshot.kv = backend_->kv_usage();
  snapshot.totals = totals_;
  snapshot.pool_phrases = pool_phrases_;
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
  DropForeignTokens(model().vocab_size, open.sampling);
  FORETOKEN_RETURN_IF_ERROR(open.sampling.Validate(model().vocab_size));
  ModeLimits limits = limits_;
  limits.end_tokens = open.sampling.end_tokens;
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<DraftMode> mode,
                             MakeDraftMode(open.mode, limits, open.phrases));
  if (sessions() >= options_.max_sessions) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", options_.max_sessions, " sessions are in use"));
  }
  auto session = std::make_unique<Session>();
  session->length = static_cast<int64_t>(open.tokens.size());
  session->mode = std::move(mode);
  if (Knows(open.tokens, model().vocab_size) &&
      session->length <= model().max_positions) {
    FORETOKEN_RETURN_IF_ERROR(Admit(*session, open));
  } else {
    Mute(*session);
  }
  session->id = next_id_++;
  Count(*session);
  const SessionId id = session->id;
  sessions_.emplace(id, std::move(session));
  return id;
}

absl::Status DraftEngine::Admit(Session& session, DraftOpen& open) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                             backend_->Open(open.cache_scope, open.tokens));
  session.backend_session = opened.session;
  const int64_t room = std::min<int64_t>(
      session.length + options_.admission_reserve, model().max_positions);
  const absl::Status reserved = backend_->Reserve(opened.session, room);
  if (!reserved.ok()) {
    ReleaseBackend(session);
    return Annotate(reserved, "KV cache");
  }
  session.text = std::move(open.tokens);
  session.sampling.emplace(std::move(open.sampling), open.prompt_length,
                           model().vocab_size);
  session.sampling->set_logprobs(session.mode->wants_logprobs() ? 0 : -1);
  session.sampling->Append(
      absl::MakeConstSpan(session.text).first(opened.reused_tokens));
  session.kv_length = opened.reused_tokens;
  totals_.reused_tokens += opened.reused_tokens;
  return absl::OkStatus();
}

void DraftEngine::Mute(Session& session) {
  ReleaseBackend(session);
  session.muted = true;
  session.text = {};
  ++totals_.muted;
}

void DraftEngine::ReleaseBackend(Session& session) {
  if (!session.backend_session.has_value()) return;
  const absl::Status closed = backend_->Close(*session.backend_session);
  FORETOKEN_CHECK(closed.ok());  // opened by us, closed once
  session.backend_session.reset();
  session.sampling.reset();
  session.held_rows.reset();
  session.kv_length = 0;
}

absl::Status DraftEngine::Close(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return NoSession(id);
  ReleaseBackend(*found->second);
  pool_phrases_ -= found->second->counted_phrases;
  sessions_.erase(found);
  return absl::OkStatus();
}

absl::Status DraftEngine::Submit(SessionId id, const DraftRound& round,
                                 std::optional<absl::Time> arrived) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return NoSession(id);
  Session& session = *found->second;
  if (session.draft.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", id, " has not yet answered its round"));
  }
  FORETOKEN_RETURN_IF_ERROR(CheckFollows(session.length, round));
  FORETOKEN_RETURN_IF_ERROR(CheckRound(round));
  if (!session.muted) FORETOKEN_RETURN_IF_ERROR(Learn(session, round));
  session.length = round.length;
  if (!session.muted && (!Knows(round.committed, model().vocab_size) ||
                         session.length > model().max_positions)) {
    Mute(session);
  }
  Draft draft;
  draft.max_nodes = std::min(round.max_nodes, kMaxNodes);
  draft.arrived = arrived.has_value() ? *arrived : clock_();
  draft.deadline = draft.arrived + round.budget * kShareOfBudget;
  draft.order = next_order_++;
  session.draft = draft;
  if (session.muted || draft.max_nodes == 0) return absl::OkStatus();
  const DraftRoom room = {draft.max_nodes,
                          model().max_positions - session.length};
  if (session.draft_base == session.length) {
    session.mode->Resume(room);
  } else {
    session.mode->Begin(session.text, room);
    session.draft_base = session.length;
  }
  return absl::OkStatus();
}

absl::Status DraftEngine::Learn(Session& session, const DraftRound& round) {
  Observation observation;
  observation.committed = round.committed;
  observation.follows_draft =
      session.draft_base == session.length && !round.committed.empty();
  // A verified tree is that of the last round alone.
  if (!round.verified.row_tokens.empty() &&
      round.committed.size() == round.verified.path.size() + 1) {
    observation.verified = &round.verified;
  }
  session.text.insert(session.text.end(), round.committed.begin(),
                      round.committed.end());
  FORETOKEN_RETURN_IF_ERROR(
      KeepAccepted(session, round, observation.follows_draft));
  session.mode->Observe(observation);
  Count(session);
  return absl::OkStatus();
}

// The last pass was this session's draft: what was accepted of it stays.
absl::Status DraftEngine::KeepAccepted(Session& session,
                                       const DraftRound& round,
                                       bool follows_draft) {
  if (!session.held_rows.has_value()) return absl::OkStatus();
  const int32_t text = *session.held_rows;
  session.held_rows.reset();
  int32_t accepted = 0;
  if (follows_draft &&
      session.length + static_cast<int64_t>(round.committed.size()) <=
          model().max_positions) {
    const absl::Span<const TokenId> chain = session.mode->chain();
    // The last token is the next draft's first row.
    const size_t most = std::min({chain.size(), round.committed.size() - 1,
                                  session.mode->chain_rows().size()});
    while (static_cast<size_t>(accepted) < most &&
           chain[accepted] == round.committed[accepted]) {
      ++accepted;
    }
  }
  const absl::Status committed = CommitRows(session, text, accepted);
  if (committed.ok()) totals_.kept_rows += accepted;
  // Short of pages: they are rows of the next pass, which will say so.
  return absl::IsResourceExhausted(committed) ? absl::OkStatus() : committed;
}

absl::Status DraftEngine::CommitRows(Session& session, int32_t text,
                                     int32_t drafted) {
  std::vector<int32_t> rows(text);
  for (int32_t i = 0; i < text; ++i) rows[i] = i;
  const auto accepted = session.mode->chain_rows().first(drafted);
  rows.insert(rows.end(), accepted.begin(), accepted.end());
  if (rows.empty()) return absl::OkStatus();
  const int64_t count = static_cast<int64_t>(rows.size());
  FORETOKEN_RETURN_IF_ERROR(
      backend_->Reserve(*session.backend_session, session.kv_length + count));
  FORETOKEN_RETURN_IF_ERROR(backend_->Commit(*session.backend_session, rows));
  session.sampling->Append(
      absl::MakeConstSpan(session.text).subspan(session.kv_length, count));
  session.kv_length += count;
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
  const int64_t phrases = session.mode->pool_phrases();
  pool_phrases_ += phrases - session.counted_phrases;
  session.counted_phrases = phrases;
}

}  // namespace foretoken::draft_worker
