#include "tools/cli/recorded_replay.h"

#include <unistd.h>

#include <utility>

#include "common/base/json.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"
#include "common/drafting/replay.h"
#include "common/drafting/replay_report.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {

void AddRecordedOptions(Command command, RecordedReplay& replay) {
  command
      .Add("--recorded", replay.recorded, "Recorded sets, JSONL, gzip or plain")
      .Required();
  command.AddFlag("--json", replay.json, "One line of JSON on stdout");
}

absl::StatusOr<std::vector<RecordedSet>> ReadSets(
    const std::vector<std::string>& paths, const Tokenizer& tokenizer) {
  std::vector<RecordedSet> sets;
  for (const std::string& path : paths) {
    FORETOKEN_ASSIGN_OR_RETURN(RecordedSet set,
                               ReadRecordedSet(path, tokenizer));
    sets.push_back(std::move(set));
  }
  return sets;
}

absl::Status ReplayRecorded(const RecordedReplay& replay,
                            const std::string& mode, Drafter& drafter,
                            absl::Span<const RecordedSet> history,
                            const Tokenizer& tokenizer) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<RecordedSet> sets,
                             ReadSets(replay.recorded, tokenizer));
  Replayer replayer(drafter, replay.max_tree_nodes);
  std::vector<ReplaySetResult> results;
  for (const RecordedSet& set : sets) {
    // A bar is drawn only where someone looks: logs would be full of it.
    Progress bar("replay " + set.file, set.turns.size(), "turns",
                 isatty(STDERR_FILENO) != 0);
    FORETOKEN_ASSIGN_OR_RETURN(
        ReplaySetResult result,
        replayer.Replay(set, history, [&](int64_t done) { bar.Set(done); }));
    results.push_back(std::move(result));
  }
  // Over all sets: times of a single one are too few.
  const ReplayCostSummary costs(replayer.costs());
  return replay.json ? WriteJson(ReplayJson(mode, replay.max_tree_nodes,
                                            results, costs))
                     : WriteOut(ReplayTable(mode, replay.max_tree_nodes,
                                            results, costs));
}

}  // namespace foretoken::cli
