#include "tests/lab/model_replay/model_session.h"

#include <algorithm>
#include <numeric>

#include "absl/memory/memory.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace foretoken::model_replay {

absl::StatusOr<std::unique_ptr<ModelSession>> ModelSession::Open(
    Backend& backend, absl::string_view scope, absl::Span<const TokenId> text) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                             backend.Open(scope, text));
  auto session = absl::WrapUnique(new ModelSession(backend, opened));
  text.remove_prefix(static_cast<size_t>(opened.reused_tokens));
  FORETOKEN_RETURN_IF_ERROR(session->Append(text));
  return session;
}

ModelSession::~ModelSession() {
  const absl::Status closed = backend_.Close(session_);
  if (!closed.ok()) FORETOKEN_LOG(kError, closed.ToString());
}

absl::Status ModelSession::Append(absl::Span<const TokenId> tokens) {
  const size_t most = std::min(kChunkRows, backend_.max_rows());
  if (chain_.empty()) {
    chain_.resize(most);
    rows_.resize(most);
    std::iota(chain_.begin(), chain_.end(), kRootParent);
    std::iota(rows_.begin(), rows_.end(), 0);
  }
  FORETOKEN_RETURN_IF_ERROR(backend_.Reserve(
      session_, length_ + static_cast<int64_t>(tokens.size())));
  while (!tokens.empty()) {
    const size_t count = std::min(most, tokens.size());
    PassSession pass;
    pass.session = session_;
    pass.tokens = tokens.first(count);
    pass.parents = absl::MakeConstSpan(chain_).first(count);
    pass.outputs =
        count == tokens.size() ? RowOutputs::kLastRow : RowOutputs::kNone;
    FORETOKEN_RETURN_IF_ERROR(backend_.Forward({pass}, result_));
    FORETOKEN_RETURN_IF_ERROR(Commit(absl::MakeConstSpan(rows_).first(count)));
    tokens.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status ModelSession::Pass(absl::Span<const TokenId> tokens,
                                absl::Span<const int32_t> parents) {
  FORETOKEN_RETURN_IF_ERROR(backend_.Reserve(
      session_, length_ + static_cast<int64_t>(tokens.size())));
  PassSession pass;
  pass.session = session_;
  pass.tokens = tokens;
  pass.parents = parents;
  return backend_.Forward({pass}, result_);
}

absl::Status ModelSession::Commit(absl::Span<const int32_t> rows) {
  length_ += static_cast<int64_t>(rows.size());
  return backend_.Commit(session_, rows);
}

absl::Status ModelSession::Truncate(int64_t length) {
  FORETOKEN_RETURN_IF_ERROR(backend_.Truncate(session_, length));
  length_ = length;
  return absl::OkStatus();
}

}  // namespace foretoken::model_replay
