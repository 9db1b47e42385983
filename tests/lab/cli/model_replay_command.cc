// foretoken-lab replay: wall-clock speed-up of modes on a model of a given
// shape with random weights; a recording decides what is accepted
// (model_replay/model_replayer.h).
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"
#include "common/drafting/drafter_factory.h"
#include "common/drafting/recorded_set.h"
#include "common/infer/factory/backend_factory.h"
#include "common/infer/pass_timing.h"
#include "common/speculation/drafter_id.h"
#include "common/speculation/modes.h"
#include "common/text/tokenizer.h"
#include "tests/lab/cli/command.h"
#include "tests/lab/cli/replay_variants.h"
#include "tests/lab/cli/rest_options.h"
#include "tests/lab/model_replay/model_replay_report.h"
#include "tests/lab/model_replay/model_replayer.h"
#include "tests/lab/model_replay/priced_rounds.h"
#include "tests/lab/model_replay/recorded_draft_model.h"
#include "tests/lab/model_replay/recorded_steps.h"
#include "tests/lab/model_replay/turn_log.h"
#include "tests/lab/rest/rest_mode.h"
#include "tools/cli/shared_options.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

using model_replay::RoundSource;

// A mode of `foretoken replay`, or REST.
using ReplayMode = std::variant<Mode, RestOptions>;

// Limit on measuring pass costs before the replay.
constexpr absl::Duration kTimingBudget = absl::Minutes(1);
constexpr char kRecordedMode[] = "recorded";
// The draft model of the reference runs. A longer context than its own does not
// change the cost of a pass, and avoids leaving out long turns.
constexpr char kDraftShape[] = "llama-68m,max_positions=8192";

struct ReplayOptions {
  ReplayVariant variant;  // of --mode; what its flags share with --variants
  BackendOptions backend;
  std::string random;
  std::string recorded;
  std::string variants;  // file; empty: --mode alone
  std::string turns;     // file; empty: none is kept
  std::string steps;
  std::string method;
  std::string draft_random = kDraftShape;
  int draft_tokens = 0;
  model_replay::Selection selection;
  model_replay::Windows windows;
  bool json = false;
};

// Two models may share a device, so each takes the KV cache that one session of
// the longest turn needs, not all that is free.
int64_t KvBytes(const ModelConfig& config, const RecordedSet& set,
                int max_tree_nodes) {
  constexpr int64_t kSlackTokens = 1024;  // for partly filled pages
  size_t longest = 0;
  for (const RecordedTurn& turn : set.turns) {
    longest = std::max(longest, turn.prompt.size() + turn.output.size());
  }
  const int64_t tokens =
      static_cast<int64_t>(longest) + 2 * max_tree_nodes + kSlackTokens;
  // Keys and values, as f32 at the widest.
  return tokens * 2 * config.n_layers * config.n_kv_heads * config.head_dim *
         static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<std::unique_ptr<Backend>> MakeRandom(
    const ReplayOptions& options, const std::string& shape,
    const RecordedSet& set) {
  FORETOKEN_ASSIGN_OR_RETURN(const ModelConfig config, ParseRandomModel(shape));
  const int max_tree_nodes = options.variant.drafter.max_tree_nodes;
  BackendOptions backend = options.backend;
  backend.kv_cache_bytes = KvBytes(config, set, max_tree_nodes);
  backend.random_model = shape;
  backend.max_rows = std::max(backend.max_rows, max_tree_nodes + 1);
  backend.max_sessions = 2;
  // Every turn pays for its own prefill, unless windows leave it out.
  backend.prefix_reuse = options.windows.tokens > 0;
  return MakeBackend(backend);
}

absl::Status CheckFlags(const ReplayOptions& options,
                        const ReplayVariant& variant, const std::string& mode) {
  DrafterOptions drafter = variant.drafter;
  // A datastore is one more source of auto at a measured price, where trees are
  // merged as in the orchestrator.
  if (mode == "auto" && variant.node_price == kMeasuredPrice) {
    drafter.crest.clear();
    drafter.index_memory.clear();
  } else if (mode == "auto" && !drafter.crest.empty()) {
    return absl::InvalidArgumentError(
        "--crest: mode \"auto\" takes a datastore at --node-price measured");
  }
  if (drafter.online() && options.windows.tokens > 0) {
    return absl::InvalidArgumentError(
        "--state online: want whole outputs to learn from, not --window");
  }
  FORETOKEN_RETURN_IF_ERROR(CheckFlagsOfMode(
      mode, drafter,
      {{"--rest-corpus", !variant.rest.corpus.empty(), {kRestMode}},
       {"--exclude-ids", !variant.rest.exclude_ids.empty(), {kRestMode}},
       {"--steps", !options.steps.empty(), {kRecordedMode}},
       {"--method", !options.method.empty(), {kRecordedMode}},
       {"--draft-tokens", options.draft_tokens > 0, {kRecordedMode}},
       {"--draft-random",
        options.draft_random != kDraftShape,
        {kRecordedMode}}}));
  if (mode == kRecordedMode && !options.variants.empty()) {
    return absl::InvalidArgumentError(
        "--variants: mode recorded leaves turns out; measure it with --mode");
  }
  if (mode == kRecordedMode && options.windows.tokens > 0) {
    return absl::InvalidArgumentError(
        "--window: mode recorded replays the steps of whole outputs");
  }
  if (mode == kRecordedMode && options.steps.empty()) {
    return absl::InvalidArgumentError(
        "--mode recorded: want --steps with the runs to replay");
  }
  return absl::OkStatus();
}

// FailedPrecondition for a log of some of the turns where drafters keep what
// they learn: those that measure the others would not have seen them.
absl::Status CheckGoesOn(const ReplayOptions& options,
                         const std::vector<size_t>& places,
                         const model_replay::TurnLog& log) {
  const auto measured =
      std::count_if(places.begin(), places.end(),
                    [&](size_t place) { return log.turns().count(place) > 0; });
  if (!options.variant.drafter.online() || log.turns().empty() ||
      measured == static_cast<int64_t>(places.size())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      options.turns, ": has ", measured, " of ", places.size(),
      " turns, and --state online cannot go on behind them: want a new file"));
}

// Returns `off` if a recorded run replaces the mode.
absl::StatusOr<ReplayMode> ReadMode(const ReplayOptions& options,
                                    const ReplayVariant& variant) {
  FORETOKEN_ASSIGN_OR_RETURN(const ModeSpec spec,
                             ModeSpec::Parse(variant.drafter.mode));
  FORETOKEN_RETURN_IF_ERROR(CheckFlags(options, variant, spec.name()));
  if (spec.name() == kRestMode) return ReadRestMode(spec);
  if (spec.name() != kRecordedMode) {
    return Mode::Create(spec, ModeUse::kReplay);
  }
  if (spec.parameters().empty()) return Mode();
  return absl::InvalidArgumentError("--mode recorded: takes no parameters");
}

absl::StatusOr<std::vector<ReplayVariant>> VariantsOf(
    const ReplayOptions& options) {
  if (!options.variants.empty()) {
    return ReadVariants(options.variants, options.variant.drafter);
  }
  ReplayVariant only = options.variant;
  only.name = only.drafter.mode;
  return std::vector<ReplayVariant>{only};
}

class ReplayBench {
 public:
  explicit ReplayBench(const ReplayOptions& options) : options_(options) {}
  // A report of each variant.
  absl::StatusOr<std::vector<Json>> Run();

 private:
  // Sets the turns to replay: `recorded`, reduced to the selection.
  absl::Status SelectTurns(RecordedSet recorded);
  absl::Status OpenBackends();
  absl::StatusOr<std::unique_ptr<RoundSource>> MakeSource(
      const ReplayVariant& variant, const ReplayMode& mode,
      const Tokenizer& tokenizer);
  // What the turns of a log are measurements of.
  Json Header(const std::vector<ReplayVariant>& variants) const;
  // Replays the turns that the log has not, and adds them to it.
  absl::Status Replay(const std::vector<RoundSource*>& sources,
                      model_replay::TurnLog& log);
  Json Report(const ReplayVariant& variant, size_t index,
              const model_replay::TurnLog& log) const;

  bool recorded_mode() const { return !options_.steps.empty(); }

  const ReplayOptions& options_;
  RecordedSet set_;
  std::vector<size_t> places_;  // of the set's turns in the file
  std::vector<model_replay::TurnSteps> steps_;
  model_replay::DraftSchedule schedule_;
  model_replay::ReplaySetup setup_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> draft_;
  PassTiming timing_;
};

bool Priced(const ReplayVariant& variant) {
  return ModeSpec::Parse(variant.drafter.mode)->name() == "auto" &&
         variant.node_price == kMeasuredPrice;
}

absl::Status ReplayBench::SelectTurns(RecordedSet recorded) {
  schedule_.constant = options_.draft_tokens;
  std::vector<model_replay::TurnSteps> steps;
  if (recorded_mode()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const model_replay::RecordedRun run,
        model_replay::ReadRecordedRun(options_.steps, options_.method));
    FORETOKEN_ASSIGN_OR_RETURN(
        model_replay::StepsSet joined,
        model_replay::JoinSteps(std::move(recorded), run, schedule_,
                                options_.variant.drafter.max_tree_nodes));
    recorded = std::move(joined.set);
    steps = std::move(joined.steps);
    setup_.method = run.method;
    setup_.draft_shape = options_.draft_random;
    setup_.turns_left_out = joined.left_out;
  }
  set_ = std::move(recorded);
  // Selected after joining, so that each turn keeps its steps.
  places_ = model_replay::Select(options_.selection, set_);
  for (const size_t i : places_) {
    if (recorded_mode()) steps_.push_back(std::move(steps[i]));
  }
  if (!set_.turns.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(options_.recorded, ": no turn is left to replay"));
}

absl::Status ReplayBench::OpenBackends() {
  // Validate the texts before generating weights, which takes long.
  FORETOKEN_ASSIGN_OR_RETURN(const ModelConfig config,
                             ParseRandomModel(options_.random));
  FORETOKEN_RETURN_IF_ERROR(model_replay::CheckFits(
      set_, config, options_.variant.drafter.max_tree_nodes));
  if (recorded_mode()) {
    FORETOKEN_ASSIGN_OR_RETURN(const ModelConfig draft,
                               ParseRandomModel(options_.draft_random));
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(model_replay::CheckFits(
                     set_, draft, options_.variant.drafter.max_tree_nodes),
                 "--draft-random"));
    FORETOKEN_ASSIGN_OR_RETURN(
        draft_, MakeRandom(options_, options_.draft_random, set_));
  }
  FORETOKEN_ASSIGN_OR_RETURN(backend_,
                             MakeRandom(options_, options_.random, set_));
  FORETOKEN_ASSIGN_OR_RETURN(
      timing_, PassTiming::Measure(*backend_,
                                   options_.variant.drafter.max_tree_nodes + 1,
                                   kTimingBudget));
  for (const PassTiming::Point& point : timing_.points()) {
    setup_.pass_ms.emplace_back(point.rows, point.seconds * 1e3);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RoundSource>> ReplayBench::MakeSource(
    const ReplayVariant& variant, const ReplayMode& mode,
    const Tokenizer& tokenizer) {
  const int max_tree_nodes = variant.drafter.max_tree_nodes;
  if (recorded_mode()) {
    return std::make_unique<model_replay::RecordedDraftModel>(*draft_, steps_,
                                                              schedule_);
  }
  if (const auto* rest = std::get_if<RestOptions>(&mode)) {
    FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter,
                               MakeRestDrafter(*rest, variant.rest, tokenizer));
    return std::make_unique<model_replay::DrafterRounds>(std::move(drafter),
                                                         max_tree_nodes);
  }
  FORETOKEN_ASSIGN_OR_RETURN(const DrafterResources resources,
                             OpenDrafterResources(variant.drafter, tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter,
                             MakeDrafter(std::get<Mode>(mode), resources));
  if (!Priced(variant)) {
    return std::make_unique<model_replay::DrafterRounds>(std::move(drafter),
                                                         max_tree_nodes);
  }
  std::vector<model_replay::PricedRounds::Source> drafters;
  if (resources.crest != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(const Mode crest,
                               Mode::Parse("crest", ModeUse::kReplay));
    FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> datastore,
                               MakeDrafter(crest, resources));
    drafters.push_back({DrafterId::kCrest, std::move(datastore)});
  }
  drafters.push_back({DrafterId::kFused, std::move(drafter)});
  return std::make_unique<model_replay::PricedRounds>(
      std::move(drafters), timing_, backend_->config().vocab_size,
      max_tree_nodes);
}

Json ReplayBench::Header(const std::vector<ReplayVariant>& variants) const {
  Json header = {{"label", model_replay::kLabel},
                 {"shape", options_.random},
                 {"backend", backend_->numerics_fingerprint()},
                 {"file", options_.recorded},
                 {"state", options_.variant.drafter.state},
                 {"max_tree_nodes", options_.variant.drafter.max_tree_nodes},
                 {"max_new_tokens", options_.selection.max_new_tokens},
                 {"window", options_.windows.tokens},
                 {"window_seed", options_.windows.seed},
                 {"threads", options_.backend.threads},
                 {"variants", Json::array()}};
  if (recorded_mode()) {
    header["draft_shape"] = setup_.draft_shape;
    header["method"] = setup_.method;
    header["draft_tokens"] = options_.draft_tokens;
  }
  for (const ReplayVariant& variant : variants) {
    header["variants"].push_back(VariantJson(variant));
  }
  return header;
}

absl::Status ReplayBench::Replay(const std::vector<RoundSource*>& sources,
                                 model_replay::TurnLog& log) {
  Progress bar(absl::StrCat("replay ", options_.recorded), set_.turns.size(),
               "turns", isatty(STDERR_FILENO) != 0);
  model_replay::Windows windows = options_.windows;
  windows.places = places_;
  model_replay::ModelReplayer replayer(*backend_, sources,
                                       options_.variant.drafter.max_tree_nodes,
                                       windows);
  int64_t done = 0;
  return replayer.Replay(
      set_,
      [&](size_t index) {
        if (log.turns().count(places_[index]) == 0) return true;
        bar.Set(++done);
        return false;
      },
      [&](size_t index, absl::Span<const model_replay::TurnResult> results) {
        bar.Set(++done);
        return log.Add(places_[index], results);
      });
}

Json ReplayBench::Report(const ReplayVariant& variant, size_t index,
                         const model_replay::TurnLog& log) const {
  model_replay::ReplaySetup setup = setup_;
  setup.mode = variant.drafter.mode;
  setup.max_tree_nodes = variant.drafter.max_tree_nodes;
  setup.node_price = Priced(variant) ? kMeasuredPrice : kNoPrice;
  std::vector<model_replay::TurnResult> turns;
  for (const size_t place : places_) {
    turns.push_back(log.turns().at(place)[index]);
  }
  Json report = model_replay::ModelReplayJson(setup, turns);
  if (!options_.variants.empty()) report["name"] = variant.name;
  return report;
}

absl::StatusOr<std::vector<Json>> ReplayBench::Run() {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<ReplayVariant> variants,
                             VariantsOf(options_));
  std::vector<ReplayMode> modes;
  for (const ReplayVariant& variant : variants) {
    absl::StatusOr<ReplayMode> mode = ReadMode(options_, variant);
    if (!mode.ok()) {
      return options_.variants.empty() ? mode.status()
                                       : Annotate(mode.status(), variant.name);
    }
    modes.push_back(*std::move(mode));
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::unique_ptr<Tokenizer> tokenizer,
      Tokenizer::Load(options_.variant.drafter.tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(RecordedSet recorded,
                             ReadRecordedSet(options_.recorded, *tokenizer));
  FORETOKEN_RETURN_IF_ERROR(SelectTurns(std::move(recorded)));
  FORETOKEN_RETURN_IF_ERROR(OpenBackends());
  FORETOKEN_ASSIGN_OR_RETURN(
      model_replay::TurnLog log,
      model_replay::TurnLog::Open(options_.turns, Header(variants),
                                  variants.size()));
  FORETOKEN_RETURN_IF_ERROR(CheckGoesOn(options_, places_, log));
  std::vector<std::unique_ptr<RoundSource>> sources;
  std::vector<RoundSource*> borrowed;
  for (size_t i = 0; i < variants.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<RoundSource> source,
                               MakeSource(variants[i], modes[i], *tokenizer));
    borrowed.push_back(source.get());
    sources.push_back(std::move(source));
  }
  FORETOKEN_RETURN_IF_ERROR(Replay(borrowed, log));

  setup_.state = options_.variant.drafter.state;
  setup_.window = options_.windows.tokens;
  setup_.window_seed = options_.windows.seed;
  setup_.shape = options_.random;
  setup_.backend = backend_->numerics_fingerprint();
  setup_.file = options_.recorded;
  std::vector<Json> reports;
  for (size_t i = 0; i < variants.size(); ++i) {
    reports.push_back(Report(variants[i], i, log));
  }
  return reports;
}

absl::Status RunModelReplay(const ReplayOptions& options) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<Json> reports,
                             ReplayBench(options).Run());
  for (const Json& report : reports) {
    FORETOKEN_RETURN_IF_ERROR(
        options.json ? WriteJson(report)
                     : WriteOut(model_replay::ModelReplayTable(report)));
  }
  return absl::OkStatus();
}

void AddModeOptions(Command command, ReplayOptions& options) {
  AddDrafterOptions(
      command, options.variant.drafter,
      absl::StrCat("recorded: a draft model, as far as --steps says; ",
                   RestModeHelp(), "; or "));
  AddRestCorpusOptions(command, options.variant.rest);
  const Option mode = command.Get("--mode").Optional();
  const Option variants = command.Add(
      "--variants", options.variants,
      "JSON array of modes to measure beside one another, in place of --mode: "
      "[{\"name\", \"mode\", and as the flags of these names: \"prior\", "
      "\"crest\", \"index_memory\", \"rest_corpus\", \"exclude_ids\", "
      "\"node_price\", \"max_tree_nodes\"}]");
  mode.Excludes(variants);
  for (const char* flag : {"--prior", "--crest", "--index-memory",
                           "--rest-corpus", "--exclude-ids"}) {
    variants.Excludes(command.Get(flag));
  }
  command
      .Add("--node-price", options.variant.node_price,
           "Mode auto: measured cuts each tree to the nodes that pay "
           "off, as the orchestrator does; none verifies whole trees, "
           "as replay does")
      .Excludes(variants)
      .OneOf({kMeasuredPrice, kNoPrice});
  command.Add("--steps", options.steps,
              "Mode recorded: accept lengths of real runs by step, "
              "JSONL, gzip or plain");
  command.Add("--method", options.method,
              "Mode recorded: part of the run's name, if --steps "
              "contains several");
  command.Add("--draft-random", options.draft_random,
              "Mode recorded: shape of the draft model, see --random");
  command
      .Add("--draft-tokens", options.draft_tokens,
           "Mode recorded: tokens drafted per round; 0: Hugging Face's "
           "heuristic, which starts at 5 and changes by +2 after a "
           "fully accepted round, else by -1")
      .InRange(0, 1024);
}

void AddSelectionOptions(Command command, model_replay::Selection& selection) {
  constexpr int64_t kMost = int64_t{1} << 40;
  command
      .Add("--max-requests", selection.max_requests,
           "Replay only the first turns of the set; 0: all")
      .InRange(int64_t{0}, kMost);
  command
      .Add("--requests-per-category", selection.requests_per_category,
           "Replay only the first turns of each category; 0: all")
      .InRange(int64_t{0}, kMost);
  command
      .Add("--max-new-tokens", selection.max_new_tokens,
           "Cut outputs to this length; 0: no limit")
      .InRange(int64_t{0}, kMost);
}

void AddWindowOptions(Command command, model_replay::Windows& windows) {
  const Option window =
      command
          .Add("--window", windows.tokens,
               "Decode this many tokens of each output, at a random "
               "place, and time no prefill; 0: whole outputs")
          .InRange(0, 1 << 20);
  command
      .Add("--window-seed", windows.seed, "Another seed decodes other places")
      .Needs(window);
}

}  // namespace

void AddModelReplayCommand(Command root) {
  const auto [command, options] = root.AddCommand<ReplayOptions>(
      "replay",
      "Measures the wall-clock speed-up of a mode, or of several beside one "
      "another: real passes of a model with "
      "random weights; a recording decides what is accepted.",
      RunModelReplay);
  AddRandomOption(command, options.random).Required();
  AddRandomWeightsOption(command, options.backend.random_weights);
  command
      .Add("--recorded", options.recorded, "Recorded set, JSONL, gzip or plain")
      .Required();
  AddModeOptions(command, options);
  AddSelectionOptions(command, options.selection);
  AddWindowOptions(command, options.windows);
  command.Add("--turns", options.turns,
              "File of each turn's times, JSONL; what it holds already "
              "is not measured again (with --state online: all turns "
              "or none)");
  AddBackendOptions(command, options.backend);
  command.AddFlag("--json", options.json, "One JSON object on stdout");
}

}  // namespace foretoken::cli
