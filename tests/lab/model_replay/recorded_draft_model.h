// RecordedDraftModel: chains of a draft model, at the cost of a model of its
// shape, accepted as far as in a recorded run.
//
// A step of the run drafted k tokens (DraftSchedule) and committed a tokens,
// the last of which was the target's. Here the step runs k passes of the draft
// model, one row each, and yields a tree of k nodes of which the first a - 1
// are the recording's. The first pass also reads the tokens that the draft
// model has not read yet. Passes after a wrong token attach to the last right
// one: they read a few tokens less than the original did, at the same cost.
//
// The first step of the run drafted before the target had read the prompt. Here
// prefill has produced the first token by then: the passes of that step are
// paid for, and the rest of its draft, if any, is verified in the first round.
//
// Source: assisted generation, as run for Spec-Bench, arXiv:2401.07851.
// Owned by one thread, the backend's.
#ifndef FORETOKEN_TESTS_LAB_MODEL_REPLAY_RECORDED_DRAFT_MODEL_H_
#define FORETOKEN_TESTS_LAB_MODEL_REPLAY_RECORDED_DRAFT_MODEL_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/infer/backend.h"
#include "tests/lab/model_replay/model_session.h"
#include "tests/lab/model_replay/recorded_steps.h"
#include "tests/lab/model_replay/round_source.h"

namespace foretoken::model_replay {

class RecordedDraftModel final : public RoundSource {
 public:
  // `draft` must outlive the source. `steps`: by turn, as returned by JoinSteps
  // for this schedule.
  RecordedDraftModel(Backend& draft, std::vector<TurnSteps> steps,
                     const DraftSchedule& schedule)
      : backend_(draft), steps_(std::move(steps)), schedule_(schedule) {}

  absl::Status Start(size_t index, const RecordedTurn& turn) override;
  absl::Status Draft(DraftTree& tree) override;
  absl::Status Commit(absl::Span<const TokenId> tokens,
                      const VerifiedRound* round) override;
  void End() override { session_.reset(); }

  int64_t passes() const { return passes_; }  // one-row passes, no prefills

 private:
  // Returns the recorded output's token at `position`, or a different one.
  TokenId Token(size_t position, bool right) const;
  // Runs the passes of a step after its first one. The draft tokens start at
  // `position`; the first `right` of them are the recording's.
  absl::Status RunChain(size_t position, int32_t right);
  // Runs all passes of the next step.
  absl::Status RunNextStep();

  Backend& backend_;
  const std::vector<TurnSteps> steps_;
  const DraftSchedule schedule_;
  int64_t passes_ = 0;

  // State of the current request.
  std::unique_ptr<ModelSession> session_;
  const RecordedTurn* turn_ = nullptr;
  const TurnSteps* turn_steps_ = nullptr;
  size_t next_step_ = 0;
  size_t committed_ = 0;      // output tokens committed by the target
  size_t read_ = 0;           // output tokens read by the draft model
  int32_t drafted_ = 0;       // tokens drafted by the last step
  bool first_waits_ = false;  // the first step's draft waits for a round
};

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TESTS_LAB_MODEL_REPLAY_RECORDED_DRAFT_MODEL_H_
