// RecordedDraftModel: chains of a draft model, at what the passes of a model of
// its shape cost, right for as long as a recorded run was.
//
// A step of the run drafted k tokens (DraftSchedule) and committed a of which
// the last was the target's. Here it runs k passes of the draft model, one row
// each, and a tree of k nodes of which the first a - 1 are the recording's. The
// first pass also takes in what the draft model has not read yet. Passes after
// a wrong token hang on the last right one: what they read is a few tokens
// shorter than it was, their cost the same.
//
// The run's first step drafted before the target had read the prompt. Here
// prefill has given the first token by then: the step's passes are paid for,
// and what is left of its draft is verified in the first round, if anything is.
//
// Source: assisted generation, as run for Spec-Bench, arXiv:2401.07851.
// Owned by one thread, which is the backend's.
#ifndef FORETOKEN_TOOLS_CLI_MODEL_REPLAY_RECORDED_DRAFT_MODEL_H_
#define FORETOKEN_TOOLS_CLI_MODEL_REPLAY_RECORDED_DRAFT_MODEL_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/infer/backend.h"
#include "tools/cli/model_replay/model_session.h"
#include "tools/cli/model_replay/recorded_steps.h"
#include "tools/cli/model_replay/round_source.h"

namespace foretoken::model_replay {

class RecordedDraftModel final : public RoundSource {
 public:
  // `draft` outlives the source; `steps` by turn, as JoinSteps made them with
  // this schedule.
  RecordedDraftModel(Backend& draft, std::vector<TurnSteps> steps,
                     const DraftSchedule& schedule)
      : backend_(draft), steps_(std::move(steps)), schedule_(schedule) {}

  absl::Status Start(size_t index, const RecordedTurn& turn) override;
  absl::Status Draft(DraftTree& tree) override;
  absl::Status Commit(absl::Span<const TokenId> tokens,
                      const VerifiedRound* round) override;
  void End() override { session_.reset(); }

  int64_t passes() const { return passes_; }  // of one row; prefills left out

 private:
  // The recorded output's token at `position`, or one that it is not.
  TokenId Token(size_t position, bool right) const;
  // The passes of a step after its first: draft tokens of which the first
  // stands at `position` and the first `right` are the recording's.
  absl::Status RunChain(size_t position, int32_t right);
  // All passes of the step after the last one.
  absl::Status RunNextStep();

  Backend& backend_;
  const std::vector<TurnSteps> steps_;
  const DraftSchedule schedule_;
  int64_t passes_ = 0;

  // Of the request.
  std::unique_ptr<ModelSession> session_;
  const RecordedTurn* turn_ = nullptr;
  const TurnSteps* turn_steps_ = nullptr;
  size_t next_step_ = 0;
  size_t committed_ = 0;      // of the output, by the target
  size_t read_ = 0;           // of the output, by the draft model
  int32_t drafted_ = 0;       // by the last step
  bool first_waits_ = false;  // the first step's draft, for the first round
};

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TOOLS_CLI_MODEL_REPLAY_RECORDED_DRAFT_MODEL_H_
