#include "common/infer/planned_backend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace foretoken {

absl::Status PlannedOptions::Check(absl::string_view backend) const {
  if (max_rows < 1 || max_rows > kMaxRows) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: max_rows %d, want 1..%d", backend, max_rows, kMaxRows));
  }
  if (max_sessions < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: max_sessions %d, want at least 1", backend, max_sessions));
  }
  if (kv_cache_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: kv_cache_bytes %d, want at least 0", backend, kv_cache_bytes));
  }
  if (kv_cache_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: kv_cache_tokens %d, want at least 0", backend, kv_cache_tokens));
  }
  return absl::OkStatus();
}

PlannedBackend::PlannedBackend(const ModelConfig& config,
                               std::string fingerprint,
                               const PlannedOptions& options, int64_t pages)
    : config_(config),
      fingerprint_(std::move(fingerprint)),
      max_rows_(options.max_rows),
      cache_({pages, options.max_sessions, options.prefix_reuse}) {}

absl::StatusOr<OpenedSession> PlannedBackend::Open(
    absl::string_view cache_scope, absl::Span<const TokenId> prompt) {
  return cache_.Open(cache_scope, prompt);
}

absl::Status PlannedBackend::Close(SessionId session) {
  // The rows' plan may name a page that the close gives back.
  last_pass_.erase(session);
  return cache_.Close(session);
}

absl::StatusOr<int64_t> PlannedBackend::CommittedLength(
    SessionId session) const {
  return cache_.CommittedLength(session);
}

absl::Status PlannedBackend::Reserve(SessionId session, int64_t length) {
  if (length > config_.max_positions) {
    return absl::InvalidArgumentError(
        absl::StrFormat("session %d: %d tokens, the model's limit is %d",
                        session, length, config_.max_positions));
  }
  return cache_.Reserve(session, length);
}

absl::Status PlannedBackend::Truncate(SessionId session, int64_t length) {
  FORETOKEN_RETURN_IF_ERROR(cache_.Truncate(
      session, length, [&](int32_t from, int32_t to, int32_t tokens) {
        return CopyPage(from, to, tokens);
      }));
  // The rows of the last pass were computed after another context.
  last_pass_.erase(session);
  return absl::OkStatus();
}

void PlannedBackend::MakeMasks(absl::Span<const PassSession> pass) {
  masks_.assign(pass.size(), {});
  for (size_t s = 0; s < pass.size(); ++s) {
    if (pass[s].allowed != nullptr) masks_[s] = pass[s].allowed->Make();
  }
}

absl::Status PlannedBackend::Forward(absl::Span<const PassSession> pass,
                                     PassResult& result) {
  // From here on nothing of the last pass can be committed, whatever happens to
  // this one.
  last_pass_.clear();
  result.outputs.clear();
  FORETOKEN_RETURN_IF_ERROR(plan_.Build(pass, config_, cache_, max_rows_));
  if (plan_.rows.empty()) return absl::OkStatus();
  for (const PlanSession& session : plan_.sessions) {
    result.outputs.emplace_back(session.outputs);
  }
  if (absl::Status ran = RunPlan(pass, result.outputs); !ran.ok()) {
    result.outputs.clear();
    return ran;
  }
  for (size_t s = 0; s < plan_.sessions.size(); ++s) {
    last_pass_[plan_.sessions[s].id].index = static_cast<int32_t>(s);
  }
  return absl::OkStatus();
}

absl::Status PlannedBackend::Commit(SessionId session,
                                    absl::Span<const int32_t> rows) {
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t length,
                             cache_.CommittedLength(session));
  const auto last = last_pass_.find(session);
  // Once: the rows' slots belong to the session now.
  if (last == last_pass_.end() || last->second.committed) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "session %d: nothing to commit, %s", session,
        last == last_pass_.end() ? "it was not in the last pass"
                                 : "its rows were committed before"));
  }
  const PlanSession& planned = plan_.sessions[last->second.index];
  FORETOKEN_RETURN_IF_ERROR(plan_.CheckPath(planned, rows));
  // Before any KV is moved, so that a lack of pages leaves the session as it
  // was.
  FORETOKEN_RETURN_IF_ERROR(
      cache_.Reserve(session, length + static_cast<int64_t>(rows.size())));
  FORETOKEN_RETURN_IF_ERROR(
      CommitRows(last->second.index, rows, *cache_.PageTable(session)));
  last->second.committed = true;
  std::vector<TokenId> tokens;
  for (const int32_t row : rows) {
    tokens.push_back(plan_.rows[planned.first_row + row].token);
  }
  return cache_.Append(session, tokens);
}

absl::StatusOr<absl::Span<const float>> PlannedBackend::Logits(
    SessionId session, int32_t row) {
  const auto last = last_pass_.find(session);
  if (last == last_pass_.end()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "session %d: no logits, it was not in the last pass", session));
  }
  const PlanSession& planned = plan_.sessions[last->second.index];
  const auto found =
      std::find(plan_.output_rows.begin(), plan_.output_rows.end(),
                planned.first_row + row);
  if (row < 0 || row >= planned.rows || found == plan_.output_rows.end()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "session %d: row %d was no output of the last pass", session, row));
  }
  return OutputLogits(static_cast<int32_t>(found - plan_.output_rows.begin()));
}

absl::Status PlannedBackend::States(SessionId session, int32_t first,
                                    int32_t count, absl::Span<float> states) {
  const auto last = last_pass_.find(session);
  if (last == last_pass_.end()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "session %d: no states, it was not in the last pass", session));
  }
  const PlanSession& planned = plan_.sessions[last->second.index];
  if (first < 0 || count < 1 || count > planned.rows - first ||
      static_cast<int64_t>(states.size()) != int64_t{count} * config_.d_model) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "session %d: %d states from row %d on into %d numbers, the last pass "
        "had %d rows of %d",
        session, count, first, states.size(), planned.rows, config_.d_model));
  }
  return RowStates(planned.first_row + first, count, states.data());
}

absl::Status PlannedBackend::NoNumbers(int32_t row) const {
  const PlanSession& session = plan_.sessions[plan_.rows[row].session];
  return absl::DataLossError(absl::StrFormat(
      "session %d: the model's logits of row %d are not numbers", session.id,
      row - session.first_row));
}

}  // namespace foretoken
