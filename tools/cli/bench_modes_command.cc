// foretoken bench modes: speed and latency of drafting modes, by concurrency or
// under an arrival trace (mode_bench/mode_bench.h).
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"
#include "common/speculation/modes.h"
#include "common/text/model_tokenizer.h"
#include "tools/cli/command.h"
#include "tools/cli/generation_target.h"
#include "tools/cli/local_generator.h"
#include "tools/cli/machine_balance.h"
#include "tools/cli/mode_bench/arrival_trace.h"
#include "tools/cli/mode_bench/mode_bench.h"
#include "tools/cli/mode_bench/mode_bench_report.h"
#include "tools/cli/mode_bench/ratio_plot.h"
#include "tools/cli/prompt_file.h"
#include "tools/cli/shared_options.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

struct TargetFlags : RemoteServerFlags {
  LocalModelFlags model;  // without a server
};

struct ModesOptions {
  TargetFlags target;
  std::string prompts;
  std::string chat = "none";
  std::string tokenizer;
  std::string modes = "off,auto";
  std::string trace;
  std::string until;
  mode_bench::ModeBenchOptions bench;
  bool json = false;
  bool markdown = false;
  std::string svg;
};

// Parses "2%", or "2", as 0.02.
absl::StatusOr<double> ParsePercent(const char* flag, absl::string_view text) {
  double percent = 0;
  // Negated, so that NaN is refused as well.
  if (!absl::SimpleAtod(absl::StripSuffix(text, "%"), &percent) ||
      !(percent > 0 && percent <= 100)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": '", text.substr(0, 32),
                     "', want a percentage above 0, such as 2%"));
  }
  return percent / 100;
}

// A prefix of cache scopes that no other run uses.
std::string DrawScope() {
  std::random_device device;
  // Random, so that two runs against one server do not share drafts: the second
  // would find the first one's answers in the drafters' histories.
  return absl::StrCat("bench-", absl::Hex(device(), absl::kZeroPad8),
                      absl::Hex(device(), absl::kZeroPad8));
}

// The balance of this machine's processors; null if they do not run the model.
absl::StatusOr<Json> MeasureMachine(const TargetFlags& target) {
  const BackendOptions& backend = target.model.backend;
  // A server's processors cannot be measured from here, and a GPU does not use
  // these.
  if (!target.server.empty() || backend.backend == "cuda") return Json();
  FORETOKEN_ASSIGN_OR_RETURN(
      const MachineBalance balance,
      MeasureMachineBalance(backend.threads > 0 ? backend.threads
                                                : AllProcessors()));
  return Json({{"threads", balance.threads},
               {"read_gb_s", balance.read_gb_s},
               {"fp32_multiply_adds_per_s", balance.fp32_multiply_adds_per_s},
               {"int8_multiply_adds_per_s", balance.int8_multiply_adds_per_s}});
}

// InvalidArgument unless the flags name either a server or a model.
absl::StatusOr<std::shared_ptr<Generator>> OpenGenerator(
    const TargetFlags& flags) {
  const LocalModelFlags& model = flags.model;
  if (flags.server.empty() == model.backend.model.empty()) {
    return absl::InvalidArgumentError("want either --server or --model");
  }
  if (!flags.server.empty()) {
    FORETOKEN_RETURN_IF_ERROR(CheckNoLocalModel(model));
    return ConnectToServer(flags);
  }
  FORETOKEN_ASSIGN_OR_RETURN(auto tokenizer,
                             LoadModelTokenizer(model.backend.model));
  // tokens 0: the engine chooses the size of the KV cache, as prompts differ.
  return StartLocalGenerator(model, /*tokens=*/0, model.backend.max_sessions,
                             std::move(tokenizer));
}

absl::Status RunBenchModes(ModesOptions options) {
  mode_bench::ModeBenchOptions& bench = options.bench;
  bench.modes = mode_bench::SplitModes(options.modes);
  bench.scope = DrawScope();
  if (!options.until.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(bench.pairs.until,
                               ParsePercent("--until", options.until));
  }
  if (!options.trace.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(bench.arrivals,
                               mode_bench::ReadArrivalTrace(options.trace));
  }
  // Before anything is loaded or connected: all faults of the flags are
  // reported within a second.
  FORETOKEN_RETURN_IF_ERROR(mode_bench::ModeBench::Check(bench));
  if (options.target.server.empty() && !options.tokenizer.empty()) {
    return absl::InvalidArgumentError(
        "--tokenizer: a model has its own, want this flag only with --server");
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const ChatFormat chat,
      ChatFormat::Open(options.chat,
                       ModelOfChat(options.target.model, options.tokenizer)));
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<FilePrompt> prompts,
                             ReadPromptFile(options.prompts, chat));
  // Before the model is loaded, so that its threads and memory do not disturb
  // the measurement.
  FORETOKEN_ASSIGN_OR_RETURN(Json machine, MeasureMachine(options.target));
  // The services' own lines would break the progress bar.
  SetMinLogLevel(LogLevel::kWarning);
  FORETOKEN_ASSIGN_OR_RETURN(const std::shared_ptr<Generator> generator,
                             OpenGenerator(options.target));
  mode_bench::LoadOptions load;
  std::unique_ptr<Progress> bar;
  // The bar is made later, as its length is known only then; no request runs
  // before.
  load.on_done = [&bar] { bar->Advance(1); };
  mode_bench::ModeBench modes(bench, prompts, *generator, load);
  bar = std::make_unique<Progress>("bench modes", modes.MostRequests(),
                                   "requests", isatty(STDERR_FILENO) != 0);
  absl::StatusOr<mode_bench::ModeBenchResult> result = modes.Run();
  // Ends its line before the report is written.
  bar.reset();
  if (!options.target.server.empty()) {
    FORETOKEN_RETURN_IF_ERROR(Annotate(result.status(), options.target.server));
  }
  FORETOKEN_RETURN_IF_ERROR(result.status());
  const Json report = mode_bench::ModeBenchJson(bench, prompts.size(), *result,
                                                std::move(machine));
  FORETOKEN_RETURN_IF_ERROR(
      options.json ? WriteJson(report)
                   : WriteOut(mode_bench::ModeBenchMarkdown(report)));
  // After the numbers, which a bad path must not cost.
  if (!options.svg.empty()) {
    FORETOKEN_RETURN_IF_ERROR(WriteFileAtomically(
        options.svg, mode_bench::RatioPlot(report["runs"])));
  }
  const std::set<std::string> left_out = mode_bench::ModesLeftOut(*result);
  // The report is still whole and on stdout; the exit code tells scripts that
  // some modes are missing from it.
  if (left_out.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("bench modes: drafts came late or were cut off, so the "
                   "report leaves out ",
                   absl::StrJoin(left_out, ", ")));
}

void AddTargetOptions(Command command, TargetFlags& target) {
  const Option server =
      command.Add("--server", target.server,
                  "Address of an orchestrator: HOST:PORT or unix:/PATH");
  AddServerFlags(command, target.server_access);
  command
      .Add("--server-token-file", target.server_token_file,
           "File with the bearer token to send")
      .Needs(server);
  AddLocalModelFlags(command, target.model);
  AddBackendOptions(command, target.model.backend);
}

void AddRequestOptions(Command command, ModesOptions& options) {
  command
      .Add("--prompts", options.prompts,
           "JSONL, gzip or plain: {\"prompt\": TEXT}, {\"prompt_ids\": "
           "[ID, ...]} or {\"messages\": [{\"role\", \"content\"}, "
           "...]} in each line, and a \"constraint\" on the output "
           "({\"json_schema\": {...}}, regex, grammar, choice). A slice "
           "that is longer than the file repeats prompts, which drafters "
           "copy from the first answer")
      .Required();
  AddChatOption(command, options.chat);
  AddServerTokenizerOption(command, options.tokenizer);
  command
      .Add("--max-tokens", options.bench.max_tokens,
           "Maximum output tokens of a request")
      .InRange(int64_t{1}, int64_t{1} << 20);
  command
      .Add("--temperature", options.bench.temperature,
           "0: greedy; above, each prompt has a seed of its own")
      .InRange(0.0, 10.0);
  command.AddFlag("--ignore-eos", options.bench.ignore_eos,
                  "Do not end outputs at the model's end tokens");
  command
      .Add("--requests", options.bench.requests,
           "Requests of a slice; 0: twice the concurrency and at least "
           "8, or the whole trace")
      .InRange(0, 1'000'000);
}

void AddLoadOptions(Command command, ModesOptions& options) {
  command.Add("--modes", options.modes,
              "Modes to compare; off, which must be among them, may be "
              "given twice to show the noise: " +
                  ModeHelp(ModeUse::kRequest));
  const Option concurrency =
      command
          .Add("--concurrency", options.bench.concurrency,
               "Clients, each of which sends one request after the "
               "other")
          .CommaSeparated()
          .InRange(1, 256);
  const Option trace =
      command
          .Add("--trace", options.trace,
               "Send requests at the times of a CSV file with the "
               "columns TIMESTAMP and GeneratedTokens, gzip or plain; "
               "outputs are as long as the trace's, up to --max-tokens")
          .Excludes(concurrency);
  command
      .Add("--speed", options.bench.speed,
           "Play the trace this many times as fast")
      .Needs(trace)
      .InRange(1e-3, 1e6);
}

void AddPairOptions(Command command, mode_bench::PairOptions& pairs,
                    std::string& until) {
  command
      .Add("--pairs", pairs.pairs,
           "Runs of every mode over the same slice of requests, in "
           "changing order")
      .InRange(1, 1000);
  const Option width = command.Add(
      "--until", until,
      "Add pairs until each mode's 95 % interval of its ratio to off is within "
      "this distance, such as 2%, of the ratio");
  command.Add("--max-pairs", pairs.max_pairs, "Maximum pairs with --until")
      .Needs(width)
      .InRange(1, 1000);
  command.Add("--seed", pairs.seed,
              "Seed of the order of modes and of sampling");
}

}  // namespace

void AddBenchModesCommand(Command bench) {
  const auto [command, options] = bench.AddCommand<ModesOptions>(
      "modes",
      "Compares drafting modes: tokens per second, relative to off, with 95 % "
      "intervals, accept length, and percentiles of latency. Every output is "
      "compared with the other modes'; a different token is an error.",
      RunBenchModes);
  AddTargetOptions(command, options.target);
  AddRequestOptions(command, options);
  AddLoadOptions(command, options);
  AddPairOptions(command, options.bench.pairs, options.until);
  const Option json =
      command.AddFlag("--json", options.json, "One JSON object on stdout");
  command
      .AddFlag("--markdown", options.markdown,
               "Tables in Markdown on stdout, the default")
      .Excludes(json);
  command.Add("--svg", options.svg,
              "Also write a plot of the ratios to this file");
}

}  // namespace foretoken::cli
