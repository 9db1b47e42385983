// foretoken replay: measures how many tokens of every draft would have been
// accepted on recorded outputs (common/drafting/replay.h).
#include <memory>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "common/drafting/drafter_factory.h"
#include "common/drafting/recorded_set.h"
#include "common/speculation/modes.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/recorded_replay.h"
#include "tools/cli/shared_options.h"

namespace foretoken::cli {
namespace {

struct ReplayOptions {
  DrafterOptions drafter;
  RecordedReplay replay;
  std::vector<std::string> history;
};

absl::Status Replay(ReplayOptions options) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const Mode mode, Mode::Parse(options.drafter.mode, ModeUse::kReplay));
  // Before the tokenizer and the datastore are read, which may take a minute.
  FORETOKEN_RETURN_IF_ERROR(CheckFlagsOfMode(
      mode.name(), options.drafter,
      {{"--history", !options.history.empty(), {"auto", "phrase_pool"}}}));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(options.drafter.tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(DrafterResources resources,
                             OpenDrafterResources(options.drafter, *tokenizer));
  resources.preloaded_history = !options.history.empty();
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Drafter> drafter,
                             MakeDrafter(mode, resources));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<RecordedSet> history,
                             ReadSets(options.history, *tokenizer));
  options.replay.max_tree_nodes = options.drafter.max_tree_nodes;
  return ReplayRecorded(options.replay, mode.ToString(), *drafter, history,
                        *tokenizer);
}

}  // namespace

void AddReplayCommand(Command root) {
  const auto [command, options] = root.AddCommand<ReplayOptions>(
      "replay", "Measure a drafter on recorded outputs, without a model",
      Replay);
  AddRecordedOptions(command, options.replay);
  AddDrafterOptions(command, options.drafter);
  command.Add("--history", options.history,
              "Recorded sets whose outputs are in the history before "
              "the first turn of every set");
}

}  // namespace foretoken::cli
