#include "tests/lab/model_replay/recorded_draft_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::model_replay {

TokenId RecordedDraftModel::Token(size_t position, bool right) const {
  // The recording may have been cut short; any token will do then.
  const TokenId token =
      position < turn_->output.size() ? turn_->output[position] : 0;
  if (right) return token;
  return token > 0 ? token - 1 : 1;
}

absl::Status RecordedDraftModel::RunChain(size_t position, int32_t right) {
  // The last token of a draft is never read by the draft model itself.
  for (int32_t i = 0; i + 1 < drafted_; ++i) {
    FORETOKEN_RETURN_IF_ERROR(
        session_->Pass({Token(position + i, i < right)}, {kRootParent}));
    ++passes_;
    if (i >= right) continue;  // a wrong token never becomes context
    FORETOKEN_RETURN_IF_ERROR(session_->Commit({0}));
    ++read_;
  }
  return absl::OkStatus();
}

absl::Status RecordedDraftModel::Start(size_t index, const RecordedTurn& turn) {
  FORETOKEN_ASSIGN_OR_RETURN(session_, ModelSession::Open(backend_, "", {}));
  turn_ = &turn;
  turn_steps_ = &steps_[index];
  next_step_ = 1;
  committed_ = read_ = 0;
  drafted_ = schedule_.First();
  const int32_t right = turn_steps_->front() - 1;
  // The first step drafted before any verification: see the header.
  first_waits_ = right > 0;
  // Reading the prompt is the step's first pass; RunChain runs the others.
  FORETOKEN_RETURN_IF_ERROR(session_->Append(turn.prompt));
  return RunChain(0, right);
}

absl::Status RecordedDraftModel::RunNextStep() {
  if (next_step_ == turn_steps_->size()) {
    return absl::InternalError(absl::StrCat("the recording goes on after its ",
                                            next_step_, " recorded steps"));
  }
  drafted_ = schedule_.Next(drafted_, (*turn_steps_)[next_step_ - 1] - 1);
  const int32_t right = (*turn_steps_)[next_step_++] - 1;
  FORETOKEN_RETURN_IF_ERROR(session_->Append(
      absl::MakeConstSpan(turn_->output).subspan(read_, committed_ - read_)));
  ++passes_;
  read_ = committed_;
  return RunChain(committed_, right);
}

absl::Status RecordedDraftModel::Draft(DraftTree& tree) {
  const bool first = std::exchange(first_waits_, false);
  if (!first) FORETOKEN_RETURN_IF_ERROR(RunNextStep());
  const int32_t right = (*turn_steps_)[next_step_ - 1] - 1;
  tree.Clear();
  // The draft of the first step begins with the token from prefill.
  const size_t position = first ? 0 : committed_;
  for (int32_t i = first ? 1 : 0; i < drafted_; ++i) {
    tree.Add(Token(position + i, i < right), tree.size() - 1, 1.0f);
  }
  return absl::OkStatus();
}

absl::Status RecordedDraftModel::Commit(absl::Span<const TokenId> tokens,
                                        const VerifiedRound*) {
  committed_ += tokens.size();
  return absl::OkStatus();
}

}  // namespace foretoken::model_replay
