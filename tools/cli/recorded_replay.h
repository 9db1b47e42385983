// A drafter replayed on recorded outputs (common/drafting/replay.h), as
// `foretoken replay` and `foretoken-lab replay-rest` do it.
#ifndef FORETOKEN_TOOLS_CLI_RECORDED_REPLAY_H_
#define FORETOKEN_TOOLS_CLI_RECORDED_REPLAY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/drafter.h"
#include "common/drafting/recorded_set.h"
#include "common/text/tokenizer.h"
#include "tools/cli/app.h"

namespace foretoken::cli {

struct RecordedReplay {
  std::vector<std::string> recorded;  // files
  int max_tree_nodes = 64;
  bool json = false;
};

// --recorded, required, and --json.
void AddRecordedOptions(Command command, RecordedReplay& replay);

absl::StatusOr<std::vector<RecordedSet>> ReadSets(
    const std::vector<std::string>& paths, const Tokenizer& tokenizer);

// Replays every set and writes the report to stdout. `mode`: the drafter's, as
// the report has it. `history` is the drafter's before the first turn of each.
absl::Status ReplayRecorded(const RecordedReplay& replay,
                            const std::string& mode, Drafter& drafter,
                            absl::Span<const RecordedSet> history,
                            const Tokenizer& tokenizer);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_RECORDED_REPLAY_H_
