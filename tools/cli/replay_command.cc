// foretoken replay: measures how many tokens of every draft would have been
// accepted on recorded outputs (common/drafting/replay.h).
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_factory.h"
#include "common/drafting/recorded_set.h"
#include "common/drafting/replay.h"
#include "common/drafting/replay_report.h"
#include "common/speculation/modes.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/shared_options.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

struct ReplayOptions {
  DrafterOptions drafter;
  std::vector<std::string> recorded;
  std::vector<std::string> history;
  bool json = false;
};

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

absl::Status Replay(const ReplayOptions& options) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const Mode mode, Mode::Parse(options.drafter.mode, ModeUse::kReplay));
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
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<RecordedSet> sets,
                             ReadSets(options.recorded, *tokenizer));

  const int max_tree_nodes = options.drafter.max_tree_nodes;
  Replayer replayer(*drafter, max_tree_nodes);
  std::vector<ReplaySetResult> results;
  for (const RecordedSet& set : sets) {
    Progress bar("replay " + set.file, set.turns.size(), "turns",
                 isatty(STDERR_FILENO) != 0);
    FORETOKEN_ASSIGN_OR_RETURN(
        ReplaySetResult result,
        replayer.Replay(set, history, [&](int64_t done) { bar.Set(done); }));
    results.push_back(std::move(result));
  }
  const ReplayCostSummary costs(replayer.costs());
  return options.json ? WriteJson(ReplayJson(mode.ToString(), max_tree_nodes,
                                             results, costs))
                      : WriteOut(ReplayTable(mode.ToString(), max_tree_nodes,
                                             results, costs));
}

}  // namespace

void AddReplayCommand(CLI::App& app, Run& run) {
  const auto [command, options] = AddCommand<ReplayOptions>(
      app, run, "replay",
      "Measure a drafter on recorded outputs, without a model", Replay);
  command
      .add_option("--recorded", options.recorded,
                  "Recorded sets, JSONL, gzip or plain")
      ->required();
  AddDrafterOptions(command, options.drafter, "");
  command.add_option("--history", options.history,
                     "Recorded sets whose outputs are in the history before "
                     "the first turn of every set");
  command.add_flag("--json", options.json, "One line of JSON on stdout");
}

}  // namespace foretoken::cli
