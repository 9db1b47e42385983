// foretoken bench: measures parts of Foretoken.
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/infer/backend.h"
#include "common/infer/factory/backend_factory.h"
#include "common/infer/factory/draft_loading.h"
#include "tools/cli/command.h"
#include "tools/cli/engine_bench.h"
#include "tools/cli/shared_options.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

struct EngineOptions {
  BackendOptions backend;
  // As stored, unless the passes of a draft worker are asked for.
  DraftLoading draft = {.weights = "keep", .vocabulary = 0};
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
  // Known here, not left at 0, because the bandwidth is measured with the same
  // threads as the passes.
  options.bench.threads =
      backend.threads > 0 ? backend.threads : AllProcessors();
  // Engine buffers are sized by this, so the largest pass must fit.
  backend.max_rows = options.bench.max_rows();
  options.draft.ApplyTo(backend);
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> made,
                             MakeBackend(backend));
  // The backend is moved in: the benchmark opens sessions that end with it.
  FORETOKEN_ASSIGN_OR_RETURN(const Json report,
                             RunEngineBench(std::move(made), options.bench));
  return options.json ? WriteJson(report) : WriteOut(EngineBenchTable(report));
}

void AddEngine(Command bench) {
  const auto [engine, options] = bench.AddCommand<EngineOptions>(
      "engine", "Measures a forward pass by its number of rows.", RunEngine);
  engine.Add("--model", options.backend.model,
             "Hugging Face directory or GGUF file");
  AddRandomOption(engine, options.backend.random_model);
  AddRandomWeightsOption(engine, options.backend.random_weights);
  AddBackendOptions(engine, options.backend);
  AddDraftLoadingOptions(engine, options.draft);
  engine
      .Add("--contexts", options.bench.contexts,
           "Tokens committed before the pass")
      .CommaSeparated()
      .InRange(0, 1 << 20);
  engine.Add("--rows", options.bench.rows, "Rows per pass")
      .CommaSeparated()
      .InRange(1, 4096);
  engine.Add("--batch", options.batches,
             "Also time passes of many sessions, at the last context: "
             "SESSIONSxROWS,...");
  engine.Add("--prefill", options.bench.prefill_rows, "Prompt rows per pass")
      .InRange(1, 4096);
  engine.Add("--repeats", options.bench.repeats, "Runs of each pass")
      .InRange(1, 1000);
  engine.AddFlag("--json", options.json, "One JSON object on stdout");
}

}  // namespace

void AddBenchCommand(Command root) {
  const Command bench = root.AddGroup("bench", "Measures parts of Foretoken.");
  AddEngine(bench);
  AddBenchModesCommand(bench);
}

}  // namespace foretoken::cli
