// foretoken replay: measures how many tokens of every draft would have been
// accepted on recorded outputs (common/drafting/replay.h).
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_factory.h"
#include "common/drafting/recorded_set.h"
#include "common/drafting/replay.h"
#include "common/drafting/replay_report.h"
#include "common/drafting/static_prior.h"
#include "common/speculation/modes.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/crest_stores.h"

namespace foretoken::cli {
namespace {

struct Flags {
  std::vector<std::string> recorded;
  std::vector<std::string> history;
  std::string tokenizer;
  std::string mode;
  std::string prior;
  std::string crest;
  std::string index_memory;  // empty: kDefaultIndexMemory
  std::vector<std::string> rest_corpus;
  std::vector<std::string> exclude_ids;
  std::string state = "cold";
  int max_tree_nodes = 64;
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

absl::Status Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fflush(stdout) != 0) {
    return absl::DataLossError("stdout: cannot write");
  }
  return absl::OkStatus();
}

// Refuse flags that the mode would ignore: a figure must mean what was asked.
absl::Status CheckFlagsOfMode(const Flags& flags, const std::string& mode) {
  const auto unused = [&](absl::string_view flag, absl::string_view modes) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": mode \"", mode, "\" has no use for it, only ", modes));
  };
  if (!flags.prior.empty() && mode != "auto") return unused("--prior", "auto");
  // Only these drafters have state that outlives a request.
  const bool keeps = mode == "auto" || mode == "phrase_pool";
  if (!flags.history.empty() && !keeps) {
    return unused("--history", "auto and phrase_pool");
  }
  if (flags.state == "online" && !keeps) {
    return unused("--state online", "auto and phrase_pool");
  }
  if (mode != "crest") {
    if (!flags.crest.empty()) return unused("--crest", "crest");
    if (!flags.index_memory.empty()) return unused("--index-memory", "crest");
  }
  if (mode != "rest") {
    if (!flags.rest_corpus.empty()) return unused("--rest-corpus", "rest");
    if (!flags.exclude_ids.empty()) return unused("--exclude-ids", "rest");
  }
  return absl::OkStatus();
}

absl::Status Replay(const Flags& flags) {
  FORETOKEN_ASSIGN_OR_RETURN(const Mode mode,
                             Mode::Parse(flags.mode, ModeUse::kReplay));
  FORETOKEN_RETURN_IF_ERROR(CheckFlagsOfMode(flags, mode.name()));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(flags.tokenizer));
  DrafterResources resources;
  resources.keep_history = flags.state == "online";
  resources.preloaded_history = !flags.history.empty();
  if (!flags.prior.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        resources.prior,
        StaticPrior::Open(flags.prior, tokenizer->fingerprint()));
  }
  if (!flags.crest.empty()) {
    uint64_t memory = kDefaultIndexMemory;
    if (!flags.index_memory.empty()) {
      FORETOKEN_ASSIGN_OR_RETURN(memory, ParseBytes(flags.index_memory));
    }
    FORETOKEN_ASSIGN_OR_RETURN(
        resources.crest, OpenCrestSource(flags.crest, tokenizer.get(), memory));
  }
  if (!flags.rest_corpus.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        resources.rest,
        BuildRestStore(flags.rest_corpus, flags.exclude_ids, *tokenizer));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Drafter> drafter,
                             MakeDrafter(mode, resources));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<RecordedSet> history,
                             ReadSets(flags.history, *tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<RecordedSet> sets,
                             ReadSets(flags.recorded, *tokenizer));

  Replayer replayer(*drafter, flags.max_tree_nodes);
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
  return Print(
      flags.json
          ? DumpJson(ReplayJson(mode.ToString(), flags.max_tree_nodes, results,
                                costs)) +
                "\n"
          : ReplayTable(mode.ToString(), flags.max_tree_nodes, results, costs));
}

}  // namespace

void AddReplayCommand(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand(
      "replay", "Measure a drafter on recorded outputs, without a model");
  const auto flags = std::make_shared<Flags>();
  command
      ->add_option("--recorded", flags->recorded,
                   "Recorded sets, JSONL, gzip or plain")
      ->required();
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "tokenizer.json, tokenizer.model or a model directory")
      ->required();
  command
      ->add_option("--mode", flags->mode,
                   "MODE[:key=value,...]: " + ModeHelp(ModeUse::kReplay))
      ->required();
  command
      ->add_option("--max-tree-nodes", flags->max_tree_nodes,
                   "Maximum draft nodes per round")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--state", flags->state,
                   "cold: drop all state between turns; online: keep it from "
                   "turn to turn of a set")
      ->check(CLI::IsMember({"cold", "online"}))
      ->capture_default_str();
  command->add_option("--history", flags->history,
                      "Recorded sets whose outputs are in the history before "
                      "the first turn of every set");
  command->add_option("--crest", flags->crest,
                      "CREST datastore for mode crest: snapshot file or name");
  command->add_option("--index-memory", flags->index_memory,
                      "Load a named CREST datastore of up to this size into "
                      "memory (default 1GiB); query PostgreSQL for a larger "
                      "one");
  command->add_option("--rest-corpus", flags->rest_corpus,
                      "Corpus for mode rest: JSONL, text files or folders");
  command->add_option("--exclude-ids", flags->exclude_ids,
                      "JSONL files; rows of the REST corpus with one of their "
                      "ids are left out");
  command->add_option("--prior", flags->prior,
                      "Static prior for mode auto (foretoken prior build)");
  command->add_flag("--json", flags->json, "One line of JSON on stdout");
  command->callback(
      [flags, &run] { run = [flags] { return Replay(*flags); }; });
}

}  // namespace foretoken::cli
