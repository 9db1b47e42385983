// foretoken bench: measures parts of Foretoken.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/infer/backend.h"
#include "common/infer/factory/backend_factory.h"
#include "common/infer/factory/named_shapes.h"
#include "tools/cli/command.h"
#include "tools/cli/engine_bench.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

struct EngineOptions {
  BackendOptions backend;
  EngineBenchOptions bench;
  std::string batches;
  bool json = false;
};

absl::Status RunEngine(EngineOptions options) {
  BackendOptions& backend = options.backend;
  if (backend.model.empty() == backend.random_model.empty()) {
    return absl::InvalidArgumentError(
        "bench engine: want either --model or --random");
  }
  FORETOKEN_ASSIGN_OR_RETURN(options.bench.batches,
                             ParseBatches(options.batches));
  options.bench.threads =
      backend.threads > 0
          ? backend.threads
          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  // Engine buffers are sized by this, so the largest pass must fit.
  backend.max_rows = options.bench.max_rows();
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> made,
                             MakeBackend(backend));
  FORETOKEN_ASSIGN_OR_RETURN(const Json report,
                             RunEngineBench(std::move(made), options.bench));
  return WriteOut(options.json ? DumpJson(report) + "\n"
                               : EngineBenchTable(report));
}

void AddEngine(CLI::App& bench, Run& run) {
  CLI::App* engine = bench.add_subcommand(
      "engine", "The cost of a forward pass by its number of rows.");
  engine->option_defaults()->always_capture_default();
  auto options = std::make_shared<EngineOptions>();
  BackendOptions& backend = options->backend;
  engine->add_option("--model", backend.model, "Model directory");
  engine->add_option(
      "--random", backend.random_model,
      absl::StrCat("Random weights of a shape instead: ", NamedShapeList(),
                   ", or d_model=2048,layers=12,heads=32,"
                   "kv_heads=4,d_ff=5632,vocab=32000"));
  engine->add_option("--backend", backend.backend, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  engine->add_option("--device", backend.device, "GPU index")
      ->check(CLI::Range(0, 1023));
  engine->add_option("--precision", backend.precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  engine->add_option("--threads", backend.threads, "0: all processors")
      ->check(CLI::Range(0, ThreadPool::kMaxThreads));
  engine
      ->add_option("--contexts", options->bench.contexts,
                   "Tokens committed before the pass")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20));
  engine->add_option("--rows", options->bench.rows, "Rows per pass")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  engine->add_option("--batch", options->batches,
                     "Also time passes of many sessions, at the last context: "
                     "SESSIONSxROWS,...");
  engine
      ->add_option("--prefill", options->bench.prefill_rows,
                   "Prompt rows per pass")
      ->check(CLI::Range(1, 4096));
  engine->add_option("--repeats", options->bench.repeats, "Runs of each pass")
      ->check(CLI::Range(1, 1000));
  engine->add_flag("--json", options->json, "One JSON object on stdout");
  engine->callback(
      [options, &run] { run = [options] { return RunEngine(*options); }; });
}

}  // namespace

void AddBenchCommand(CLI::App& app, Run& run) {
  CLI::App* bench = app.add_subcommand("bench", "Measures parts of Foretoken.");
  bench->require_subcommand(1);
  AddEngine(*bench, run);
  AddBenchReplayCommand(*bench, run);
}

}  // namespace foretoken::cli
