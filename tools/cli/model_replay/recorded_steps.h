// Recorded steps: how many tokens each target step of a real speculative run
// committed, read from a file of reference runs, and the set that such a run
// replays.
//
// A file holds one JSON object a line, gzip or plain: `method`, `id`,
// `new_tokens` and `decoding_steps` by turn, and `accept_lengths` by step, the
// turns' one after another. An accept length counts the bonus token, so that
// those of a turn sum to its new tokens, the one after the prompt included.
// Rows without accept_lengths (runs that drafted nothing) are passed over.
#ifndef FORETOKEN_TOOLS_CLI_MODEL_REPLAY_RECORDED_STEPS_H_
#define FORETOKEN_TOOLS_CLI_MODEL_REPLAY_RECORDED_STEPS_H_

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

// The one run of `path` whose method contains `method`. InvalidArgument names
// the methods of the file where none or several do, and file and line where a
// row is malformed, repeated, or its numbers do not sum up.
absl::StatusOr<RecordedRun> ReadRecordedRun(const std::string& path,
                                            const std::string& method);

// How many tokens the draft model of a run drafted before each step.
struct DraftSchedule {
  // Above 0: always so many. 0: Hugging Face's heuristic of assisted decoding,
  // which starts every turn at kStart, drafts kMore more after a step that took
  // all, and one less, but at least one, after any other.
  int32_t constant = 0;
  static constexpr int32_t kStart = 5;
  static constexpr int32_t kMore = 2;

  int32_t First() const { return constant > 0 ? constant : kStart; }
  // After a step that drafted `drafted` and accepted `accepted` of them.
  int32_t Next(int32_t drafted, int32_t accepted) const;
};

// The turns of a set that a run has, in the set's order, with the run's steps.
// A run's own words are not recorded: the set's output stands for them,
// repeated or cut to the run's length.
struct StepsSet {
  RecordedSet set;
  std::vector<TurnSteps> steps;  // [set.turns.size()]
  int64_t left_out = 0;          // turns that the run lacks
};

// InvalidArgument, naming turn and step, for a step that accepted more than
// `schedule` drafted or drafts more than `max_tree_nodes`.
absl::StatusOr<StepsSet> JoinSteps(RecordedSet set, const RecordedRun& run,
                                   const DraftSchedule& schedule,
                                   int max_tree_nodes);

}  // namespace foretoken::model_replay

#endif  // FORETOKEN_TOOLS_CLI_MODEL_REPLAY_RECORDED_STEPS_H_
