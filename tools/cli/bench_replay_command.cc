// foretoken bench replay: wall-clock speed-up of a mode on a model of a given
// shape with random weights; a recording decides what is accepted
// (model_replay/model_replayer.h).
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/drafting/drafter_factory.h"
#include "common/drafting/recorded_set.h"
#include "common/drafting/static_prior.h"
#include "common/infer/factory/backend_factory.h"
#include "common/infer/factory/named_shapes.h"
#include "common/infer/pass_timing.h"
#include "common/speculation/modes.h"
#include "common/text/tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/crest_stores.h"
#include "tools/cli/model_replay/model_replay_report.h"
#include "tools/cli/model_replay/model_replayer.h"
#include "tools/cli/model_replay/priced_rounds.h"
#include "tools/cli/model_replay/recorded_draft_model.h"
#include "tools/cli/model_replay/recorded_steps.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

using model_replay::RoundSource;

// Limit on measuring pass costs before the replay.
constexpr absl::Duration kTimingBudget = absl::Minutes(1);
constexpr char kRecordedMode[] = "recorded";
// The draft model of the reference runs. A longer context than its own does not
// change the cost of a pass, and avoids leaving out long turns.
constexpr char kDraftShape[] = "llama-68m,max_positions=8192";

struct ReplayOptions {
  std::string random;
  std::string recorded;
  std::string tokenizer;
  std::string mode;
  std::string prior;
  std::string crest;
  std::string state = "cold";
  std::string node_price = "measured";
  std::string steps;
  std::string method;
  std::string draft_random = kDraftShape;
  int draft_tokens = 0;
  int max_tree_nodes = 64;
  model_replay::Selection selection;
  std::string backend = "auto";
  std::string precision = "bf16";
  int threads = 0;
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
  BackendOptions backend;
  backend.kv_cache_bytes = KvBytes(config, set, options.max_tree_nodes);
  backend.random_model = shape;
  backend.backend = options.backend;
  backend.precision = options.precision;
  backend.threads = options.threads;
  backend.max_rows = std::max(backend.max_rows, options.max_tree_nodes + 1);
  backend.max_sessions = 2;
  backend.prefix_reuse = false;  // every turn pays for its own prefill
  return MakeBackend(backend);
}

// Refuse flags that the mode would ignore: a figure must mean what was asked.
absl::Status CheckFlags(const ReplayOptions& options, const std::string& mode) {
  const bool recorded = mode == kRecordedMode;
  const std::pair<const char*, bool> idle[] = {
      {"--prior", !options.prior.empty() && mode != "auto"},
      {"--state online",
       options.state == "online" && mode != "auto" && mode != "phrase_pool"},
      {"--crest", !options.crest.empty() && mode != "crest"},
      {"--steps", !options.steps.empty() && !recorded},
      {"--method", !options.method.empty() && !recorded},
      {"--draft-tokens", options.draft_tokens > 0 && !recorded},
      {"--draft-random", options.draft_random != kDraftShape && !recorded},
  };
  for (const auto& [flag, is_idle] : idle) {
    if (!is_idle) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": mode \"", mode, "\" has no use for it"));
  }
  if (recorded && options.steps.empty()) {
    return absl::InvalidArgumentError(
        "--mode recorded: want --steps with the runs to replay");
  }
  return absl::OkStatus();
}

// `off` where a recording takes the place of a mode.
absl::StatusOr<Mode> ReadMode(const ReplayOptions& options) {
  FORETOKEN_ASSIGN_OR_RETURN(const ModeSpec spec,
                             ModeSpec::Parse(options.mode));
  FORETOKEN_RETURN_IF_ERROR(CheckFlags(options, spec.name()));
  if (spec.name() != kRecordedMode) {
    return Mode::Create(spec, ModeUse::kReplay);
  }
  if (spec.parameters().empty()) return Mode();
  return absl::InvalidArgumentError("--mode recorded: takes no parameters");
}

class ReplayBench {
 public:
  explicit ReplayBench(const ReplayOptions& options) : options_(options) {}
  absl::StatusOr<Json> Run();

 private:
  // Sets the turns to replay: `recorded`, reduced to the selection.
  absl::Status SelectTurns(RecordedSet recorded);
  absl::Status OpenBackends();
  absl::StatusOr<std::unique_ptr<RoundSource>> MakeSource(
      const Mode& mode, const Tokenizer& tokenizer);

  bool recorded_mode() const { return !options_.steps.empty(); }

  const ReplayOptions& options_;
  RecordedSet set_;
  std::vector<model_replay::TurnSteps> steps_;
  model_replay::DraftSchedule schedule_;
  model_replay::ReplaySetup setup_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> draft_;
  PassTiming timing_;
};

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
                                options_.max_tree_nodes));
    recorded = std::move(joined.set);
    steps = std::move(joined.steps);
    setup_.method = run.method;
    setup_.draft_shape = options_.draft_random;
    setup_.turns_left_out = joined.left_out;
  }
  set_ = std::move(recorded);
  // Selected after joining, so that each turn keeps its steps.
  const std::vector<size_t> stood =
      model_replay::Select(options_.selection, set_);
  for (const size_t i : stood) {
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
  FORETOKEN_RETURN_IF_ERROR(
      model_replay::CheckFits(set_, config, options_.max_tree_nodes));
  if (recorded_mode()) {
    FORETOKEN_ASSIGN_OR_RETURN(const ModelConfig draft,
                               ParseRandomModel(options_.draft_random));
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(model_replay::CheckFits(set_, draft, options_.max_tree_nodes),
                 "--draft-random"));
    FORETOKEN_ASSIGN_OR_RETURN(
        draft_, MakeRandom(options_, options_.draft_random, set_));
  }
  FORETOKEN_ASSIGN_OR_RETURN(backend_,
                             MakeRandom(options_, options_.random, set_));
  FORETOKEN_ASSIGN_OR_RETURN(
      timing_, PassTiming::Measure(*backend_, options_.max_tree_nodes + 1,
                                   kTimingBudget));
  for (const PassTiming::Point& point : timing_.points()) {
    setup_.pass_ms.emplace_back(point.rows, point.seconds * 1e3);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RoundSource>> ReplayBench::MakeSource(
    const Mode& mode, const Tokenizer& tokenizer) {
  setup_.node_price = "none";
  if (recorded_mode()) {
    return std::make_unique<model_replay::RecordedDraftModel>(*draft_, steps_,
                                                              schedule_);
  }
  DrafterResources resources;
  resources.keep_history = options_.state == "online";
  if (!options_.prior.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(
        resources.prior,
        StaticPrior::Open(options_.prior, tokenizer.fingerprint()));
  }
  if (!options_.crest.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(resources.crest,
                               OpenCrestSource(options_.crest, &tokenizer));
  }
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter,
                             MakeDrafter(mode, resources));
  if (mode.name() != "auto" || options_.node_price == "none") {
    return std::make_unique<model_replay::DrafterRounds>(
        std::move(drafter), options_.max_tree_nodes);
  }
  setup_.node_price = options_.node_price;
  return std::make_unique<model_replay::PricedRounds>(
      std::move(drafter), timing_, backend_->config().vocab_size,
      options_.max_tree_nodes);
}

absl::StatusOr<Json> ReplayBench::Run() {
  FORETOKEN_ASSIGN_OR_RETURN(const Mode mode, ReadMode(options_));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                             Tokenizer::Load(options_.tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(RecordedSet recorded,
                             ReadRecordedSet(options_.recorded, *tokenizer));
  FORETOKEN_RETURN_IF_ERROR(SelectTurns(std::move(recorded)));
  FORETOKEN_RETURN_IF_ERROR(OpenBackends());
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<RoundSource> source,
                             MakeSource(mode, *tokenizer));
  setup_.mode = options_.mode;
  setup_.state = options_.state;
  setup_.shape = options_.random;
  setup_.backend = backend_->numerics_fingerprint();
  setup_.file = options_.recorded;
  setup_.max_tree_nodes = options_.max_tree_nodes;

  Progress bar(absl::StrCat("replay ", options_.recorded), set_.turns.size(),
               "turns", isatty(STDERR_FILENO) != 0);
  model_replay::ModelReplayer replayer(*backend_, *source,
                                       options_.max_tree_nodes);
  FORETOKEN_ASSIGN_OR_RETURN(
      const std::vector<model_replay::TurnResult> turns,
      replayer.Replay(set_, [&](int64_t done) { bar.Set(done); }));
  return model_replay::ModelReplayJson(setup_, turns);
}

absl::Status RunBenchReplay(const ReplayOptions& options) {
  FORETOKEN_ASSIGN_OR_RETURN(const Json report, ReplayBench(options).Run());
  return WriteOut(options.json ? DumpJson(report) + "\n"
                               : model_replay::ModelReplayTable(report));
}

void AddModeOptions(CLI::App& command, ReplayOptions& options) {
  command
      .add_option("--mode", options.mode,
                  "recorded: a draft model, as far as --steps says; or "
                  "MODE[:key=value,...]: " +
                      ModeHelp(ModeUse::kReplay))
      ->required();
  command
      .add_option("--max-tree-nodes", options.max_tree_nodes,
                  "Maximum draft nodes per round")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      .add_option("--state", options.state,
                  "cold: drop all state between turns; online: keep it from "
                  "turn to turn")
      ->check(CLI::IsMember({"cold", "online"}))
      ->capture_default_str();
  command.add_option("--prior", options.prior,
                     "Static prior of mode auto (foretoken prior build)");
  command.add_option("--crest", options.crest,
                     "CREST datastore for mode crest: snapshot file or name");
  command
      .add_option(
          "--node-price", options.node_price,
          "Mode auto: measured cuts each tree to the nodes that pay "
          "off, as the orchestrator does; none verifies whole trees, as "
          "replay does")
      ->check(CLI::IsMember({"measured", "none"}))
      ->capture_default_str();
  command.add_option("--steps", options.steps,
                     "Mode recorded: accept lengths of real runs by step, "
                     "JSONL, gzip or plain");
  command.add_option("--method", options.method,
                     "Mode recorded: part of the run's name, if --steps "
                     "contains several");
  command
      .add_option("--draft-random", options.draft_random,
                  "Mode recorded: shape of the draft model, see --random")
      ->capture_default_str();
  command
      .add_option(
          "--draft-tokens", options.draft_tokens,
          "Mode recorded: tokens drafted per round; 0: Hugging Face's "
          "heuristic, which starts at 5 and changes by +2 after a fully "
          "accepted round, else by -1")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void AddSelectionOptions(CLI::App& command, ReplayOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 40;
  command
      .add_option("--max-requests", options.selection.max_requests,
                  "Replay only the first turns of the set; 0: all")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  command
      .add_option("--requests-per-category",
                  options.selection.requests_per_category,
                  "Replay only the first turns of each category; 0: all")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  command
      .add_option("--max-new-tokens", options.selection.max_new_tokens,
                  "Cut outputs to this length; 0: no limit")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
}

}  // namespace

void AddBenchReplayCommand(CLI::App& bench, Run& run) {
  CLI::App* command = bench.add_subcommand(
      "replay",
      "Measures the wall-clock speed-up of a mode: real passes of a model with "
      "random weights; a recording decides what is accepted.");
  const auto options = std::make_shared<ReplayOptions>();
  command
      ->add_option("--random", options->random,
                   absl::StrCat("Shape of the model: ", NamedShapeList(),
                                ", or d_model=2048,layers=12,heads=32,"
                                "kv_heads=4,d_ff=5632,vocab=32000"))
      ->required();
  command
      ->add_option("--recorded", options->recorded,
                   "Recorded set, JSONL, gzip or plain")
      ->required();
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "tokenizer.json, tokenizer.model or a model directory")
      ->required();
  AddModeOptions(*command, *options);
  AddSelectionOptions(*command, *options);
  command->add_option("--backend", options->backend, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--precision", options->precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "0: all processors")
      ->check(CLI::Range(0, ThreadPool::kMaxThreads))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on stdout");
  command->callback([options, &run] {
    run = [options] { return RunBenchReplay(*options); };
  });
}

}  // namespace foretoken::cli
