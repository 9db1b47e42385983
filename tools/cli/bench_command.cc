// foretoken bench engine: what a pass costs by its number of rows.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/thread_pool.h"
#include "common/infer/backend.h"
#include "common/infer/cpu/cpu_backend.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/cpu/huge_buffer.h"
#include "common/infer/factory/backend_factory.h"
#include "common/infer/factory/named_shapes.h"
#include "common/infer/model_weights.h"
#include "tools/cli/command.h"
#include "tools/cli/standard_output.h"

namespace foretoken::cli {
namespace {

constexpr int kRepeats = 7;
constexpr int32_t kRowCounts[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int64_t kContexts[] = {0, 1024};
constexpr int32_t kPrefillRows = 512;
constexpr uint64_t kSeed = 1;
// Far more than any cache; reads of it stream from memory.
constexpr int64_t kReadBytes = int64_t{512} << 20;

struct EngineOptions {
  std::string model;
  std::string random;
  std::string precision = "bf16";
  int threads = 0;
  bool json = false;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Seconds(absl::FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  return taken.count();
}

absl::StatusOr<std::unique_ptr<ModelWeights>> OpenWeights(
    const EngineOptions& options, Precision precision) {
  if (!options.model.empty()) return ModelWeights::Load(options.model);
  FORETOKEN_ASSIGN_OR_RETURN(const ModelConfig config,
                             ParseRandomModel(options.random));
  return ModelWeights::Random(config,
                              precision == Precision::kBFloat16
                                  ? WeightType::kBFloat16
                                  : WeightType::kFloat32,
                              kSeed);
}

// Reads a large buffer on all threads, as fast as it goes: each time in every
// way of `kAhead`, since no one of them is the fastest on every machine.
class ReadBandwidth {
 public:
  static absl::StatusOr<std::unique_ptr<ReadBandwidth>> Create(int threads) {
    auto self = std::make_unique<ReadBandwidth>(threads);
    FORETOKEN_ASSIGN_OR_RETURN(self->ops_, SelectCpuOps(std::nullopt));
    FORETOKEN_ASSIGN_OR_RETURN(self->buffer_, HugeBuffer::Allocate(kReadBytes));
    std::fill_n(self->buffer_.as<float>(), kReadBytes / 4, 1.0f);
    return self;
  }
  explicit ReadBandwidth(int threads) : pool_(threads) {}

  // Of the fastest of these reads.
  double GigabytesPerSecond() {
    double best = 0.0;
    for (const int64_t ahead : kAhead) best = std::max(best, Read(ahead));
    return best;
  }

 private:
  // Left to the processor; fetched by hand at two distances, of which the
  // last is the one of the matrix products.
  static constexpr int64_t kAhead[] = {0, 4096, 16384};

  double Read(int64_t ahead) {
    constexpr int64_t kSlices = 512;
    constexpr int64_t kSlice = kReadBytes / 4 / kSlices;
    std::vector<float> sums(kSlices);
    const double seconds = Seconds([&] {
      pool_.ParallelFor(kSlices, [&](int64_t i) {
        sums[i] = ops_->stream_sum(buffer_.as<const float>() + i * kSlice,
                                   kSlice, ahead);
      });
    });
    return kReadBytes / seconds * 1e-9;
  }

  ThreadPool pool_;
  const CpuOps* ops_ = nullptr;
  HugeBuffer buffer_;
};

struct PassTimes {
  int64_t context = 0;
  int32_t rows = 0;
  std::vector<double> seconds;
};

class EngineBench {
 public:
  EngineBench(std::unique_ptr<Backend> backend,
              std::unique_ptr<ReadBandwidth> bandwidth)
      : backend_(std::move(backend)), bandwidth_(std::move(bandwidth)) {
    tokens_.resize(kPrefillRows);
    parents_.resize(kPrefillRows);
    all_rows_.resize(kPrefillRows);
    for (int32_t i = 0; i < kPrefillRows; ++i) {
      tokens_[i] = (i * 7919 + 13) % backend_->config().vocab_size;
      parents_[i] = i - 1;
      all_rows_[i] = i;
    }
  }

  absl::Status Run();
  Json Report() const;

 private:
  absl::StatusOr<SessionId> OpenAt(int64_t context);
  absl::StatusOr<double> TimePass(SessionId session, int32_t rows,
                                  RowOutputs outputs);
  absl::Status OpenPasses();
  absl::Status Repeat(int repeat, SessionId empty);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ReadBandwidth> bandwidth_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> parents_;   // a chain
  std::vector<int32_t> all_rows_;  // 0, 1, 2, ...
  std::vector<PassTimes> passes_;
  std::vector<SessionId> sessions_;  // of the passes
  double best_read_gb_s_ = 0.0;
  std::vector<double> prefill_seconds_;
  int32_t prefill_rows_ = 0;
};

absl::StatusOr<SessionId> EngineBench::OpenAt(int64_t context) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                             backend_->Open("", {}));
  for (int64_t done = 0; done < context;) {
    const int32_t rows =
        static_cast<int32_t>(std::min<int64_t>(prefill_rows_, context - done));
    FORETOKEN_RETURN_IF_ERROR(
        TimePass(opened.session, rows, RowOutputs::kNone).status());
    FORETOKEN_RETURN_IF_ERROR(backend_->Commit(
        opened.session, absl::MakeConstSpan(all_rows_).first(rows)));
    done += rows;
  }
  return opened.session;
}

absl::StatusOr<double> EngineBench::TimePass(SessionId session, int32_t rows,
                                             RowOutputs outputs) {
  PassSession pass;
  pass.session = session;
  pass.tokens = absl::MakeConstSpan(tokens_).first(rows);
  pass.parents = absl::MakeConstSpan(parents_).first(rows);
  pass.outputs = outputs;
  PassResult result;
  absl::Status status;
  const double seconds =
      Seconds([&] { status = backend_->Forward({pass}, result); });
  FORETOKEN_RETURN_IF_ERROR(status);
  return seconds;
}

absl::Status EngineBench::OpenPasses() {
  const int32_t limit = backend_->config().max_positions;
  for (const int64_t context : kContexts) {
    if (context + kRowCounts[std::size(kRowCounts) - 1] > limit) {
      FORETOKEN_LOG(kWarning, "context ", context,
                    " left out: the model's limit is ", limit, " positions");
      continue;
    }
    FORETOKEN_ASSIGN_OR_RETURN(const SessionId session, OpenAt(context));
    for (const int32_t rows : kRowCounts) {
      passes_.push_back({context, rows, {}});
      sessions_.push_back(session);
    }
  }
  return absl::OkStatus();
}

// Everything that is compared is measured in turn, so that a spell of other
// work on the machine falls on all alike; each time from another pass on, so
// that none is always the one after the reads.
absl::Status EngineBench::Repeat(int repeat, SessionId empty) {
  const bool warms_up = repeat == 0;
  const double read = bandwidth_->GigabytesPerSecond();
  // The reads left the caches without a line of the model's.
  FORETOKEN_RETURN_IF_ERROR(TimePass(empty, 1, RowOutputs::kAllRows).status());
  for (size_t step = 0; step < passes_.size(); ++step) {
    const size_t i = (step + 2 * repeat) % passes_.size();
    FORETOKEN_ASSIGN_OR_RETURN(
        const double seconds,
        TimePass(sessions_[i], passes_[i].rows, RowOutputs::kAllRows));
    if (!warms_up) passes_[i].seconds.push_back(seconds);
  }
  FORETOKEN_ASSIGN_OR_RETURN(
      const double prefill,
      TimePass(empty, prefill_rows_, RowOutputs::kLastRow));
  if (warms_up) return absl::OkStatus();
  best_read_gb_s_ = std::max(best_read_gb_s_, read);
  prefill_seconds_.push_back(prefill);
  return absl::OkStatus();
}

absl::Status EngineBench::Run() {
  prefill_rows_ = std::min(
      {kPrefillRows, backend_->max_rows(), backend_->config().max_positions});
  FORETOKEN_RETURN_IF_ERROR(OpenPasses());
  FORETOKEN_ASSIGN_OR_RETURN(const SessionId empty, OpenAt(0));
  // Repeat 0 warms up.
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    FORETOKEN_RETURN_IF_ERROR(Repeat(repeat, empty));
  }
  return absl::OkStatus();
}

Json EngineBench::Report() const {
  Json report;
  report["passes"] = Json::array();
  double one_row = 0.0;
  double first = 0.0;
  for (const PassTimes& pass : passes_) {
    const double seconds = Median(pass.seconds);
    if (pass.rows == 1) one_row = seconds;
    if (first == 0.0) first = seconds;
    report["passes"].push_back({{"context", pass.context},
                                {"rows", pass.rows},
                                {"ms", seconds * 1e3},
                                {"ratio", seconds / one_row}});
  }
  report["read_bandwidth_gb_s"] = best_read_gb_s_;
  report["bandwidth_share"] =
      first > 0.0 ? static_cast<double>(backend_->weight_bytes_per_pass()) /
                        first * 1e-9 / best_read_gb_s_
                  : 0.0;
  report["prefill_tokens_per_s"] = prefill_rows_ / Median(prefill_seconds_);
  return report;
}

std::string Table(const Json& report) {
  std::string table =
      absl::StrFormat("%8s %6s %10s %7s\n", "context", "rows", "ms", "ratio");
  for (const Json& pass : report["passes"]) {
    absl::StrAppendFormat(&table, "%8d %6d %10.2f %7.2f\n",
                          pass["context"].get<int>(), pass["rows"].get<int>(),
                          pass["ms"].get<double>(),
                          pass["ratio"].get<double>());
  }
  absl::StrAppendFormat(
      &table, "read bandwidth  %.1f GB/s, one row uses %.0f %% of it\n",
      report["read_bandwidth_gb_s"].get<double>(),
      report["bandwidth_share"].get<double>() * 100.0);
  absl::StrAppendFormat(&table, "prefill         %.1f tokens/s\n",
                        report["prefill_tokens_per_s"].get<double>());
  return table;
}

absl::Status RunEngine(const EngineOptions& options) {
  if (options.model.empty() == options.random.empty()) {
    return absl::InvalidArgumentError(
        "bench engine: want either --model or --random");
  }
  CpuOptions cpu;
  cpu.precision =
      options.precision == "fp32" ? Precision::kFloat32 : Precision::kBFloat16;
  cpu.threads = options.threads;
  cpu.max_rows = kPrefillRows;
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<ModelWeights> weights,
                             OpenWeights(options, cpu.precision));
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                             MakeCpuBackend(std::move(weights), cpu));
  const int threads =
      options.threads > 0
          ? options.threads
          : static_cast<int>(std::thread::hardware_concurrency());
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<ReadBandwidth> bandwidth,
                             ReadBandwidth::Create(std::max(1, threads)));
  EngineBench bench(std::move(backend), std::move(bandwidth));
  FORETOKEN_RETURN_IF_ERROR(bench.Run());
  const Json report = bench.Report();
  return WriteOut(options.json ? DumpJson(report) + "\n" : Table(report));
}

}  // namespace

void AddBenchCommand(CLI::App& app, Run& run) {
  CLI::App* bench = app.add_subcommand("bench", "Measures parts of Foretoken.");
  bench->require_subcommand(1);
  CLI::App* engine = bench->add_subcommand(
      "engine", "The cost of a forward pass by its number of rows.");
  auto options = std::make_shared<EngineOptions>();
  engine->add_option("--model", options->model, "Model directory");
  engine->add_option(
      "--random", options->random,
      absl::StrCat("Random weights instead, of a shape: ", NamedShapeList(),
                   ", or d_model=2048,layers=12,heads=32,"
                   "kv_heads=4,d_ff=5632,vocab=32000"));
  engine->add_option("--precision", options->precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  engine->add_option("--threads", options->threads, "0: all processors")
      ->check(CLI::Range(0, ThreadPool::kMaxThreads))
      ->capture_default_str();
  engine->add_flag("--json", options->json, "One JSON object on stdout");
  engine->callback(
      [options, &run] { run = [options] { return RunEngine(*options); }; });
  AddBenchReplayCommand(*bench, run);
}

}  // namespace foretoken::cli
