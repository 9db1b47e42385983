// Times passes of a model shape with random weights on a GPU, and writes each
// result as it comes, so that a run that is cut off still tells.
//
//   gpu_bench --shape SHAPE --name NAME --out FILE [--device N] [--twin]
//             [--repeats N]
//             [--stages one,passes,ablations,long,sampled,kernels]
//
// Stages, in the order given:
//   one        one row at context 512, to compare with
//   passes     1 to 320 rows and 32 sessions of 8 at context 512, and a prompt
//              of 2,048 rows; medians, interleaved
//   ablations  without CUDA graphs, without overlapping kernels, without both
//   long       1 and 64 rows at context 8,000
//   sampled    64 rows that are drawn (temperature 0.8, top_k 50, top_p 0.95)
//   kernels    one pass of each count of rows without graphs and overlap, for a
//              profiler to time kernel by kernel; nothing is timed here
// Lines of FILE: {"id": "NAME.rows.64", "ms": median, "least_ms": ...}; an
// {"id", "error"} where a stage failed. --twin and small shapes: the counts of
// rows and contexts are cut to what the shape has room for.
// Exit status: 0, 1 if a stage failed, 2 if there is no GPU.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/infer/cuda/device_module.h"
#include "common/infer/factory/backend_factory.h"
#include "common/sampling/sampler.h"
#include "tests/gpu/gpu_harness.h"

namespace foretoken::gpu_tests {
namespace {

constexpr int32_t kRows[] = {1, 8, 16, 32, 64, 65, 128, 256, 320};
constexpr int32_t kAblationRows[] = {1, 64};
constexpr int32_t kSessions = 32, kSessionRows = 8;
constexpr int32_t kPromptRows = 2048;
constexpr int64_t kContext = 512, kLongContext = 8000;
constexpr int kWarmUps = 3;

struct Options {
  Context context;
  std::string shape, name, out;
  std::vector<std::string> stages = {"passes"};
  int repeats = 21;
};

// One kind of pass and its times in milliseconds.
struct Timed {
  std::string id;
  std::vector<SessionId> sessions;
  int32_t rows = 0;  // of each
  RowOutputs outputs = RowOutputs::kAllRows;
  const SamplingState* sampling = nullptr;
  std::vector<double> ms = {};
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), file_(options.out, std::ios::app) {}

  absl::Status Prepare();
  // Whether every stage worked.
  bool Run();

 private:
  absl::Status RunStage(const std::string& stage);
  // At kContext, one session; every count compared with the first.
  absl::Status Rows(Backend& backend, absl::Span<const int32_t> rows);
  absl::Status Passes(Backend& backend);
  absl::Status Ablations();
  absl::Status LongContext(Backend& backend);
  absl::Status Sampled(Backend& backend);
  absl::Status Kernels();

  absl::StatusOr<std::unique_ptr<Backend>> Make(bool graphs, bool overlap);
  // Made at first use.
  absl::StatusOr<Backend*> Plain();
  absl::StatusOr<SessionId> OpenAt(Backend& backend, int64_t context,
                                   int32_t most_rows);
  absl::Status TimeOnce(Backend& backend, Timed& timed, bool counts);
  absl::Status TimeAll(Backend& backend, std::vector<Timed>& all);
  void Write(const Json& line);
  std::string Id(const std::string& what) const {
    return absl::StrCat(options_.name, ".", what);
  }
  bool Fits(int64_t context, int64_t rows) const {
    return context + rows <= config_.max_positions;
  }

  const Options& options_;
  std::ofstream file_;
  ModelConfig config_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<Backend> plain_;
  std::string device_;  // its name, once there is a backend
  std::vector<TokenId> tokens_;
  std::vector<int32_t> parents_, all_rows_;
};

double Since(std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  return taken.count();
}

absl::Status Bench::Prepare() {
  if (!file_) return absl::NotFoundError(absl::StrCat("open ", options_.out));
  FORETOKEN_ASSIGN_OR_RETURN(config_, ParseRandomModel(options_.shape));
  const auto start = std::chrono::steady_clock::now();
  FORETOKEN_ASSIGN_OR_RETURN(
      weights_, ModelWeights::Random(config_, WeightType::kBFloat16, 1));
  Write({{"id", Id("weights")}, {"seconds", Since(start)}});
  for (int32_t i = 0; i < kPromptRows; ++i) {
    tokens_.push_back((i * 7919 + 13) % config_.vocab_size);
    parents_.push_back(i - 1);
    all_rows_.push_back(i);
  }
  return absl::OkStatus();
}

void Bench::Write(const Json& line) {
  const std::string text = line.dump();
  file_ << text << std::endl;
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

absl::StatusOr<std::unique_ptr<Backend>> Bench::Make(bool graphs,
                                                     bool overlap) {
  CudaOptions options;
  options.max_rows = kPromptRows;
  options.graphs = graphs;
  options.overlap = overlap;
  // Room for the sessions of the batch and some more.
  const int64_t tokens =
      std::max<int64_t>(kLongContext, (kSessions + 2) * (kContext + 64));
  options.kv_cache_tokens = std::min<int64_t>(tokens, config_.max_positions);
  return MakeGpuBackend(options_.context, *weights_, options, &device_);
}

absl::StatusOr<Backend*> Bench::Plain() {
  if (plain_ == nullptr) {
    const auto start = std::chrono::steady_clock::now();
    FORETOKEN_ASSIGN_OR_RETURN(plain_, Make(true, true));
    Json line = {{"id", Id("device")},
                 {"load_s", Since(start)},
                 {"device", device_},
                 {"numerics", plain_->numerics_fingerprint()},
                 {"weight_bytes", plain_->weight_bytes_per_pass()}};
    FORETOKEN_ASSIGN_OR_RETURN(const double copies,
                               plain_->MeasureCopyBandwidth());
    line["copy_gb_s"] = copies * 1e-9;
    Write(line);
  }
  return plain_.get();
}

absl::StatusOr<SessionId> Bench::OpenAt(Backend& backend, int64_t context,
                                        int32_t most_rows) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened, backend.Open("", {}));
  for (int64_t done = 0; done < context;) {
    const int32_t rows =
        static_cast<int32_t>(std::min<int64_t>(kContext, context - done));
    FORETOKEN_RETURN_IF_ERROR(RunRows(backend, opened.session,
                                      absl::MakeConstSpan(tokens_).first(rows),
                                      absl::MakeConstSpan(parents_).first(rows),
                                      nullptr, RowOutputs::kNone)
                                  .status());
    FORETOKEN_RETURN_IF_ERROR(backend.Commit(
        opened.session, absl::MakeConstSpan(all_rows_).first(rows)));
    done += rows;
  }
  // The pages of the rows, as a service has them before its rounds.
  FORETOKEN_RETURN_IF_ERROR(
      backend.Reserve(opened.session, context + most_rows));
  return opened.session;
}

absl::Status Bench::TimeOnce(Backend& backend, Timed& timed, bool counts) {
  std::vector<PassSession> pass(timed.sessions.size());
  for (size_t s = 0; s < pass.size(); ++s) {
    pass[s].session = timed.sessions[s];
    pass[s].tokens = absl::MakeConstSpan(tokens_).first(timed.rows);
    pass[s].parents = absl::MakeConstSpan(parents_).first(timed.rows);
    pass[s].sampling = timed.sampling;
    pass[s].outputs = timed.outputs;
  }
  PassResult result;
  const auto start = std::chrono::steady_clock::now();
  FORETOKEN_RETURN_IF_ERROR(backend.Forward(pass, result));
  if (counts) timed.ms.push_back(Since(start) * 1e3);
  return absl::OkStatus();
}

// In turn, so that whatever else happens meets all of them alike.
absl::Status Bench::TimeAll(Backend& backend, std::vector<Timed>& all) {
  for (int i = -kWarmUps; i < options_.repeats; ++i) {
    for (Timed& timed : all) {
      FORETOKEN_RETURN_IF_ERROR(TimeOnce(backend, timed, i >= 0));
    }
  }
  for (Timed& timed : all) {
    std::sort(timed.ms.begin(), timed.ms.end());
    Write({{"id", Id(timed.id)},
           {"ms", timed.ms[timed.ms.size() / 2]},
           {"least_ms", timed.ms.front()},
           {"most_ms", timed.ms.back()}});
  }
  return absl::OkStatus();
}

absl::Status Bench::Rows(Backend& backend, absl::Span<const int32_t> rows) {
  FORETOKEN_ASSIGN_OR_RETURN(const SessionId session,
                             OpenAt(backend, kContext, rows.back()));
  std::vector<Timed> all;
  for (const int32_t count : rows) {
    if (!Fits(kContext, count)) continue;
    all.push_back({absl::StrCat("rows.", count), {session}, count});
  }
  FORETOKEN_RETURN_IF_ERROR(TimeAll(backend, all));
  return backend.Close(session);
}

absl::Status Bench::Passes(Backend& backend) {
  FORETOKEN_RETURN_IF_ERROR(Rows(backend, kRows));
  std::vector<SessionId> sessions;
  for (int32_t s = 0; s < kSessions; ++s) {
    FORETOKEN_ASSIGN_OR_RETURN(const SessionId one,
                               OpenAt(backend, kContext, kSessionRows));
    sessions.push_back(one);
  }
  std::vector<Timed> batch = {{"batch.32x8", sessions, kSessionRows}};
  FORETOKEN_RETURN_IF_ERROR(TimeAll(backend, batch));
  for (const SessionId one : sessions) {
    FORETOKEN_RETURN_IF_ERROR(backend.Close(one));
  }

  FORETOKEN_ASSIGN_OR_RETURN(const SessionId empty, OpenAt(backend, 0, 0));
  const int32_t rows = std::min(kPromptRows, config_.max_positions);
  std::vector<Timed> prompt = {
      {"prefill.2048", {empty}, rows, RowOutputs::kLastRow}};
  FORETOKEN_RETURN_IF_ERROR(TimeAll(backend, prompt));
  return backend.Close(empty);
}

absl::Status Bench::Ablations() {
  plain_.reset();  // two models may not fit
  const struct {
    const char* name;
    bool graphs, overlap;
  } cases[] = {{"no_overlap", true, false},
               {"no_graphs", false, true},
               {"neither", false, false}};
  for (const auto& c : cases) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                               Make(c.graphs, c.overlap));
    FORETOKEN_ASSIGN_OR_RETURN(const SessionId session,
                               OpenAt(*backend, kContext, 64));
    std::vector<Timed> all;
    for (const int32_t rows : kAblationRows) {
      all.push_back({absl::StrCat(c.name, ".", rows), {session}, rows});
    }
    FORETOKEN_RETURN_IF_ERROR(TimeAll(*backend, all));
  }
  return absl::OkStatus();
}

absl::Status Bench::LongContext(Backend& backend) {
  const int64_t context =
      std::min<int64_t>(kLongContext, config_.max_positions - 64);
  FORETOKEN_ASSIGN_OR_RETURN(const SessionId session,
                             OpenAt(backend, context, 64));
  std::vector<Timed> all = {{"long.1", {session}, 1},
                            {"long.64", {session}, 64}};
  FORETOKEN_RETURN_IF_ERROR(TimeAll(backend, all));
  return backend.Close(session);
}

absl::Status Bench::Sampled(Backend& backend) {
  SamplingParams params;
  params.temperature = 0.8f;
  params.top_k = 50;
  params.top_p = 0.95f;
  params.seed = 7;
  SamplingState state(params, kContext, config_.vocab_size);
  state.Append(absl::MakeConstSpan(tokens_).first(kContext));
  FORETOKEN_ASSIGN_OR_RETURN(const SessionId session,
                             OpenAt(backend, kContext, 64));
  std::vector<Timed> all = {
      {"sampled.1", {session}, 1, RowOutputs::kAllRows, &state},
      {"sampled.64", {session}, 64, RowOutputs::kAllRows, &state}};
  FORETOKEN_RETURN_IF_ERROR(TimeAll(backend, all));
  return backend.Close(session);
}

absl::Status Bench::Kernels() {
  plain_.reset();
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                             Make(false, false));
  FORETOKEN_ASSIGN_OR_RETURN(const SessionId session,
                             OpenAt(*backend, kContext, 320));
  Json rows_of_passes = Json::array({kContext});
  for (const int32_t rows : kRows) {
    if (!Fits(kContext, rows)) continue;
    Timed timed = {"", {session}, rows};
    FORETOKEN_RETURN_IF_ERROR(TimeOnce(*backend, timed, false));
    rows_of_passes.push_back(rows);
  }
  FORETOKEN_ASSIGN_OR_RETURN(const SessionId empty, OpenAt(*backend, 0, 0));
  const int32_t prompt = std::min(kPromptRows, config_.max_positions);
  Timed timed = {"", {empty}, prompt, RowOutputs::kLastRow};
  FORETOKEN_RETURN_IF_ERROR(TimeOnce(*backend, timed, false));
  rows_of_passes.push_back(prompt);
  Write({{"id", Id("kernels")},
         {"layers", config_.n_layers},
         {"rows", std::move(rows_of_passes)}});
  return absl::OkStatus();
}

absl::Status Bench::RunStage(const std::string& stage) {
  if (stage == "ablations") return Ablations();
  if (stage == "kernels") return Kernels();
  FORETOKEN_ASSIGN_OR_RETURN(Backend* const backend, Plain());
  if (stage == "one") return Rows(*backend, {1});
  if (stage == "passes") return Passes(*backend);
  if (stage == "long") return LongContext(*backend);
  if (stage == "sampled") return Sampled(*backend);
  return absl::InvalidArgumentError(absl::StrCat("no stage ", stage));
}

bool Bench::Run() {
  bool good = true;
  for (const std::string& stage : options_.stages) {
    const absl::Status status = RunStage(stage);
    if (status.ok()) continue;
    good = false;
    Write({{"id", Id(stage)}, {"error", status.ToString()}});
  }
  return good;
}

absl::StatusOr<Options> Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--twin") {
      options.context.twin = true;
      continue;
    }
    if (i + 1 == argc) return absl::InvalidArgumentError(flag);
    const std::string value = argv[++i];
    if (flag == "--shape") {
      options.shape = value;
    } else if (flag == "--name") {
      options.name = value;
    } else if (flag == "--out") {
      options.out = value;
    } else if (flag == "--device") {
      options.context.device = std::atoi(value.c_str());
    } else if (flag == "--repeats") {
      options.repeats = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--stages") {
      options.stages = absl::StrSplit(value, ',');
    } else {
      return absl::InvalidArgumentError(flag);
    }
  }
  if (options.shape.empty() || options.name.empty() || options.out.empty()) {
    return absl::InvalidArgumentError("want --shape, --name and --out");
  }
  return options;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<Options> options = Parse(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n",
                 options.status().ToString().c_str());
    return 1;
  }
  if (!options->context.twin) {
    const auto module = DeviceModule::Load();
    const absl::Status status =
        module.ok() ? module->Probe(options->context.device) : module.status();
    if (!status.ok()) {
      std::fprintf(stderr, "gpu_bench: %s\n", status.ToString().c_str());
      return 2;
    }
  }
  Bench bench(*options);
  if (const absl::Status status = bench.Prepare(); !status.ok()) {
    std::fprintf(stderr, "gpu_bench: %s\n", status.ToString().c_str());
    return 1;
  }
  return bench.Run() ? 0 : 1;
}

}  // namespace
}  // namespace foretoken::gpu_tests

int main(int argc, char** argv) {
  return foretoken::gpu_tests::Main(argc, argv);
}
