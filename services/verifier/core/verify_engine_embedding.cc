// Sessions that read a text for its embedding.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/verifier/core/verify_engine.h"

namespace foretoken::verifier {
namespace {

// Rows whose states are copied out of the backend at a time.
constexpr int32_t kStateRows = 64;

}  // namespace

absl::Status VerifyEngine::CheckEmbedding(const SessionRequest& request) const {
  const int64_t length = static_cast<int64_t>(request.tokens.size());
  if (request.prompt_length != length) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_length is ", request.prompt_length, ", want ",
                     length, ": an embedding has no output"));
  }
  if (!request.constraint.empty() || request.grammar != nullptr) {
    return absl::InvalidArgumentError("constraint: an embedding has no output");
  }
  if (length > model().max_positions) {
    // The words by which the gateway knows it (api_error.cc).
    return absl::InvalidArgumentError(
        absl::StrCat("prompt: it has ", length,
                     " tokens: this model's maximum context length is ",
                     model().max_positions, " tokens"));
  }
  if (request.pooling == Pooling::kModel && model().pooling == Pooling::kNone) {
    return absl::InvalidArgumentError(
        "pooling: that of the model's file is not served, want mean or last");
  }
  return absl::OkStatus();
}

absl::Status VerifyEngine::PoolStates(Session& session, int32_t rows) {
  // Also after a preemption, when the text is read from its beginning again.
  if (session.kv.length() == 0) {
    session.pool.emplace(session.request.pooling, model().d_model);
  }
  int32_t first = 0;
  if (session.request.pooling == Pooling::kLast) {
    if (rows < session.prefill_left()) return absl::OkStatus();
    first = rows - 1;
  }
  const absl::Time start = clock_();
  for (; first < rows; first += kStateRows) {
    const int32_t count = std::min(kStateRows, rows - first);
    states_.resize(static_cast<size_t>(count) * model().d_model);
    FORETOKEN_RETURN_IF_ERROR(
        session.kv.States(first, count, absl::MakeSpan(states_)));
    session.pool->Add(states_);
  }
  pooling_time_ += clock_() - start;
  return absl::OkStatus();
}

}  // namespace foretoken::verifier
