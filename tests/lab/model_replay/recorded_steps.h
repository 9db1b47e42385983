// Recorded steps: the number of tokens that each target step of a real
// speculative run committed, read from a file of reference runs, and the set
// that such a run replays.
//
// A file has one JSON object per line, gzip or plain: `method`, `id`,
// `new_tokens` and `decoding_steps` by turn, and `accept_lengths` by step, for
// all turns in order. An accept length includes the bonus token, so those of a
// turn sum to its new tokens, including the first one after the prompt. Rows
// without accept_lengths (runs without drafts) are skipped.
#ifndef FORETOKEN_TESTS_LAB_MODEL_REPLAY_RECORDED_STEPS_H_
#define FORETOKEN_TESTS_LAB_MODEL_REPLAY_RECORDED_STEPS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/drafting/recorded_set.h"

namespace foretoken::model_replay {

using TurnSteps = std::vector<int32_t>;  // accept lengths of one turn

struct RecordedRun {
  std::string method;
  std::map<std::string, std::vector<TurnSteps>> turns;  // by id, then by turn
};

// Returns the one run in `path` whose method contains `method`. InvalidArgument
// lists the file's methods if none or several match, and names file and line of
// a row that is malformed, repeated, or whose numbers do not add up.
absl::StatusOr<RecordedRun> ReadRecordedRun(const std::string& path,
                                            const std::string& method);

// Number of tokens that the draft model of a run drafted before each step.
struct DraftSchedule {
  // Above 0: always this many. 0: Hugging Face's heuristic for assisted
  // decoding, which starts every turn at kStart, drafts kMore more after a
  // fully accepted step, and one less (but at least one) after any other.
  int32_t constant = 0;
  static constexpr int32_t kStart = 5;
  static constexpr int32_t kMore = 2;

  int32_t First() const { return constant > 0 ? constant : kStart; }
  // The number after a step that drafted `drafted` tokens and accepted
  // `accepted`.
  int32_t Next(int32_t drafted, int32_t accepted) const;
};

// The turns of a set that a run contains, in the set's order, with the run's
// steps. The run's own text is not recorded: the set's output stands in for it,
// repeated or cut to the run's length.
struct StepsSet {
  RecordedSet set;
  std::vector<TurnSteps> steps;  // [set.turns.size()]
  int64_t left_out = 0;          // turns that the run lacks
};

// InvalidArgument names turn and step if a step accepted more tokens than
// `schedule` drafted, or drafts more than `max_tree_nodes`.
absl::StatusOr<StepsSet> JoinSteps(RecordedSet set, const RecordedRun& run,
                                   const DraftSchedule& schedule,
                                   int max_tree_nodes);

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TESTS_LAB_MODEL_REPLAY_RECORDED_STEPS_H_
