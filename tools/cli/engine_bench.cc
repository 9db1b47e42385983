#include "tools/cli/engine_bench.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "tools/cli/machine_balance.h"

namespace foretoken::cli {
namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  // The upper median of an even number: a time that was measured, not a mean of
  // two.
  return values[values.size() / 2];
}

double Seconds(absl::FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  return taken.count();
}

// Processor time of this process, all threads, in seconds.
// Beside the wall time it tells waiting from computing.
double ProcessorSeconds() {
  timespec now{};
  FORETOKEN_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

struct PassTime {
  double seconds = 0;
  double cpu_seconds = 0;
};

// Sessions with one context length, and the times of passes over them.
struct PassTimes {
  int64_t context = 0;
  int32_t rows = 0;  // per session
  std::vector<SessionId> sessions;
  std::vector<double> seconds;
  bool batch = false;
  std::vector<double> cpu_seconds;
};

class EngineBench {
 public:
  EngineBench(std::unique_ptr<Backend> backend,
              const EngineBenchOptions& options)
      : backend_(std::move(backend)), options_(options) {
    const int32_t rows = options_.max_rows();
    for (int32_t i = 0; i < rows; ++i) {
      // Arbitrary tokens; the cost does not depend on them.
      tokens_.push_back((i * 7919 + 13) % backend_->config().vocab_size);
      // A chain: each row attends to all rows before it, the most work that a
      // tree of this size can be.
      parents_.push_back(i - 1);
      all_rows_.push_back(i);
    }
  }

  absl::Status Run();
  Json Report() const;

 private:
  absl::StatusOr<SessionId> OpenAt(int64_t context);
  absl::StatusOr<PassTime> TimePass(absl::Span<const SessionId> sessions,
                                    int32_t rows, RowOutputs outputs);
  absl::Status OpenPasses(int64_t context, absl::Span<const int32_t> rows,
                          int32_t sessions, bool batch);
  absl::Status Repeat(int repeat, SessionId empty);
  absl::Status MeasureYardstick();
  bool Fits(int64_t context, int32_t rows) const;
  double OneRow(int64_t context) const;
  double Floor(const PassTimes& pass) const;

  std::unique_ptr<Backend> backend_;
  const EngineBenchOptions options_;
  std::unique_ptr<ReadBandwidth> reads_;  // for backends in main memory
  std::vector<TokenId> tokens_;
  std::vector<int32_t> parents_;   // a chain
  std::vector<int32_t> all_rows_;  // 0, 1, 2, ...
  std::vector<PassTimes> passes_;
  double best_gb_s_ = 0.0;
  double product_seconds_ = 0.0;  // per row, at the measured peak
  std::vector<double> prefill_seconds_;
  int32_t prefill_rows_ = 0;
};

absl::StatusOr<SessionId> EngineBench::OpenAt(int64_t context) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenedSession opened,
                             backend_->Open("", {}));
  // In passes of prefill size: one pass per row would take hours at long
  // contexts.
  for (int64_t done = 0; done < context;) {
    const int32_t rows =
        static_cast<int32_t>(std::min<int64_t>(prefill_rows_, context - done));
    // No outputs: the prompt's logits are not wanted.
    FORETOKEN_RETURN_IF_ERROR(
        TimePass({opened.session}, rows, RowOutputs::kNone).status());
    FORETOKEN_RETURN_IF_ERROR(backend_->Commit(
        opened.session, absl::MakeConstSpan(all_rows_).first(rows)));
    done += rows;
  }
  return opened.session;
}

absl::StatusOr<PassTime> EngineBench::TimePass(
    absl::Span<const SessionId> sessions, int32_t rows, RowOutputs outputs) {
  std::vector<PassSession> pass(sessions.size());
  for (size_t s = 0; s < sessions.size(); ++s) {
    pass[s].session = sessions[s];
    pass[s].tokens = absl::MakeConstSpan(tokens_).first(rows);
    pass[s].parents = absl::MakeConstSpan(parents_).first(rows);
    pass[s].outputs = outputs;
  }
  PassResult result;
  absl::Status status;
  PassTime time;
  // Read outside the timed part, since the call itself takes a microsecond.
  const double before = ProcessorSeconds();
  time.seconds = Seconds([&] { status = backend_->Forward(pass, result); });
  time.cpu_seconds = ProcessorSeconds() - before;
  FORETOKEN_RETURN_IF_ERROR(status);
  return time;
}

bool EngineBench::Fits(int64_t context, int32_t rows) const {
  const int32_t limit = backend_->config().max_positions;
  // The rows are positions too.
  if (context + rows <= limit) return true;
  FORETOKEN_LOG(kWarning, "context ", context,
                " skipped: the model's limit is ", limit, " positions");
  return false;
}

// Opens `sessions` sessions and times passes over them of every count of rows.
// Reserves the rows' KV pages before timing, as a service does.
absl::Status EngineBench::OpenPasses(int64_t context,
                                     absl::Span<const int32_t> rows,
                                     int32_t sessions, bool batch) {
  const int32_t most = *std::max_element(rows.begin(), rows.end());
  if (!Fits(context, most)) return absl::OkStatus();
  std::vector<SessionId> opened;
  for (int32_t s = 0; s < sessions; ++s) {
    FORETOKEN_ASSIGN_OR_RETURN(const SessionId session, OpenAt(context));
    // Once for the largest pass, so that no timed pass allocates pages. Nothing
    // is committed, so every pass runs at the same context.
    FORETOKEN_RETURN_IF_ERROR(backend_->Reserve(session, context + most));
    opened.push_back(session);
  }
  for (const int32_t count : rows) {
    passes_.push_back({context, count, opened, {}, batch, {}});
  }
  return absl::OkStatus();
}

absl::Status EngineBench::MeasureYardstick() {
  double gb_s = 0.0;
  if (reads_ != nullptr) {
    gb_s = reads_->GigabytesPerSecond();
  } else {
    FORETOKEN_ASSIGN_OR_RETURN(const double bytes_per_second,
                               backend_->MeasureCopyBandwidth());
    gb_s = bytes_per_second * 1e-9;
  }
  // The best of all repeats: other load can only lower a measurement.
  best_gb_s_ = std::max(best_gb_s_, gb_s);
  const double products = backend_->MeasureProductSeconds();
  // The least of all repeats, for the same reason.
  if (product_seconds_ == 0.0 || products < product_seconds_) {
    product_seconds_ = products;
  }
  return absl::OkStatus();
}

// Measures everything that is compared in turn, so that other load on the
// machine affects all of it alike. Each repeat starts with another pass, so
// that no pass always follows the bandwidth reads.
absl::Status EngineBench::Repeat(int repeat, SessionId empty) {
  const bool warms_up = repeat == 0;  // measured, but not counted
  FORETOKEN_RETURN_IF_ERROR(MeasureYardstick());
  // The reads evicted the model from the caches.
  FORETOKEN_RETURN_IF_ERROR(
      TimePass({empty}, 1, RowOutputs::kAllRows).status());
  for (size_t step = 0; step < passes_.size(); ++step) {
    PassTimes& pass = passes_[(step + 2 * repeat) % passes_.size()];
    FORETOKEN_ASSIGN_OR_RETURN(
        const PassTime time,
        TimePass(pass.sessions, pass.rows, RowOutputs::kAllRows));
    if (warms_up) continue;
    pass.seconds.push_back(time.seconds);
    pass.cpu_seconds.push_back(time.cpu_seconds);
  }
  // Row outputs of the last row alone, as a prefill has them.
  FORETOKEN_ASSIGN_OR_RETURN(
      const PassTime prefill,
      TimePass({empty}, prefill_rows_, RowOutputs::kLastRow));
  if (!warms_up) prefill_seconds_.push_back(prefill.seconds);
  return absl::OkStatus();
}

absl::Status EngineBench::Run() {
  prefill_rows_ = std::min({options_.prefill_rows, backend_->max_rows(),
                            backend_->config().max_positions});
  FORETOKEN_ASSIGN_OR_RETURN(const double copies,
                             backend_->MeasureCopyBandwidth());
  // 0: the backend computes in main memory, so measure that instead.
  if (copies == 0.0) {
    FORETOKEN_ASSIGN_OR_RETURN(reads_, ReadBandwidth::Create(options_.threads));
  }
  for (const int64_t context : options_.contexts) {
    FORETOKEN_RETURN_IF_ERROR(OpenPasses(context, options_.rows, 1, false));
  }
  for (const EngineBenchOptions::Batch& batch : options_.batches) {
    // Batches use the last context, so there has to be one.
    if (options_.contexts.empty()) break;
    FORETOKEN_RETURN_IF_ERROR(OpenPasses(options_.contexts.back(), {batch.rows},
                                         batch.sessions, true));
  }
  if (passes_.empty()) {
    return absl::InvalidArgumentError(
        "bench engine: every context is too long");
  }
  FORETOKEN_ASSIGN_OR_RETURN(const SessionId empty, OpenAt(0));
  // Repeat 0 warms up.
  for (int repeat = 0; repeat <= options_.repeats; ++repeat) {
    FORETOKEN_RETURN_IF_ERROR(Repeat(repeat, empty));
  }
  return absl::OkStatus();
}

// Median time of the smallest pass at `context`: one row, unless other counts
// were requested.
double EngineBench::OneRow(int64_t context) const {
  for (const PassTimes& pass : passes_) {
    if (!pass.batch && pass.context == context) return Median(pass.seconds);
  }
  return 0.0;
}

// Lower bound on the time of a pass, in seconds.
double EngineBench::Floor(const PassTimes& pass) const {
  const double sessions = static_cast<double>(pass.sessions.size());
  const double bytes = static_cast<double>(backend_->weight_bytes_per_pass()) +
                       sessions * static_cast<double>(pass.context) *
                           static_cast<double>(backend_->kv_bytes_per_token());
  const double rows = sessions * static_cast<double>(pass.rows);
  // A pass has to read the weights once and the KV of each session, and to
  // multiply every weight for every row; neither can be faster than the
  // machine, and they may overlap, so the larger of the two is the bound.
  return std::max(bytes * 1e-9 / best_gb_s_, rows * product_seconds_);
}

Json EngineBench::Report() const {
  Json report;
  report["passes"] = Json::array();
  Json batches = Json::array();
  for (const PassTimes& pass : passes_) {
    const double seconds = Median(pass.seconds);
    Json row = {{"context", pass.context},
                {"rows", pass.rows},
                {"ms", seconds * 1e3},
                {"cpu_ms", Median(pass.cpu_seconds) * 1e3},
                {"ratio", seconds / OneRow(pass.context)}};
    // Only where both yardsticks are of the same memory that the engine uses.
    if (reads_ != nullptr) row["roofline_share"] = Floor(pass) / seconds;
    if (pass.batch) row["sessions"] = pass.sessions.size();
    (pass.batch ? batches : report["passes"]).push_back(std::move(row));
  }
  if (!batches.empty()) report["batches"] = std::move(batches);
  report[reads_ != nullptr ? "read_bandwidth_gb_s" : "copy_bandwidth_gb_s"] =
      best_gb_s_;
  const double first = Median(passes_[0].seconds);
  // A pass reads every weight once, so this is the share of the bandwidth that
  // one row achieves.
  report["bandwidth_share"] =
      first > 0.0 ? static_cast<double>(backend_->weight_bytes_per_pass()) /
                        first * 1e-9 / best_gb_s_
                  : 0.0;
  if (reads_ != nullptr) report["product_ms_per_row"] = product_seconds_ * 1e3;
  report["kv_bytes_per_token"] = backend_->kv_bytes_per_token();
  report["numerics"] = backend_->numerics_fingerprint();
  report["prefill_tokens_per_s"] = prefill_rows_ / Median(prefill_seconds_);
  return report;
}

}  // namespace

int32_t EngineBenchOptions::max_rows() const {
  int32_t most = prefill_rows;
  for (const int32_t count : rows) most = std::max(most, count);
  for (const Batch& batch : batches) {
    most = std::max(most, batch.sessions * batch.rows);
  }
  return most;
}

absl::StatusOr<std::vector<EngineBenchOptions::Batch>> ParseBatches(
    const std::string& text) {
  std::vector<EngineBenchOptions::Batch> batches;
  if (text.empty()) return batches;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('x', 1));
    EngineBenchOptions::Batch batch;
    // Both numbers are bounded: their product is the size of the engine's
    // buffers.
    if (!absl::SimpleAtoi(pair.first, &batch.sessions) ||
        !absl::SimpleAtoi(pair.second, &batch.rows) || batch.sessions < 1 ||
        batch.sessions > 256 || batch.rows < 1 || batch.rows > 1024) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--batch: \"", part, "\", want SESSIONSxROWS, at most 256x1024"));
    }
    batches.push_back(batch);
  }
  return batches;
}

absl::StatusOr<Json> RunEngineBench(std::unique_ptr<Backend> backend,
                                    const EngineBenchOptions& options) {
  EngineBench bench(std::move(backend), options);
  FORETOKEN_RETURN_IF_ERROR(bench.Run());
  return bench.Report();
}

std::string EngineBenchTable(const Json& report) {
  std::string table = absl::StrFormat("%8s %6s %10s %7s %9s\n", "context",
                                      "rows", "ms", "ratio", "roofline");
  const auto add = [&](const Json& pass, const std::string& rows) {
    absl::StrAppendFormat(
        &table, "%8d %6s %10.2f %7.2f", pass["context"].get<int>(), rows,
        pass["ms"].get<double>(), pass["ratio"].get<double>());
    if (pass.contains("roofline_share")) {
      absl::StrAppendFormat(&table, " %7.0f %%",
                            pass["roofline_share"].get<double>() * 100.0);
    }
    table += '\n';
  };
  for (const Json& pass : report["passes"]) {
    add(pass, absl::StrCat(pass["rows"].get<int>()));
  }
  if (report.contains("batches")) {
    for (const Json& pass : report["batches"]) {
      add(pass, absl::StrCat(pass["sessions"].get<int>(), "x",
                             pass["rows"].get<int>()));
    }
  }
  const bool copies = report.contains("copy_bandwidth_gb_s");
  absl::StrAppendFormat(
      &table, "%s bandwidth  %.1f GB/s, one row uses %.0f %% of it\n",
      copies ? "copy" : "read",
      report[copies ? "copy_bandwidth_gb_s" : "read_bandwidth_gb_s"]
          .get<double>(),
      report["bandwidth_share"].get<double>() * 100.0);
  if (report.contains("product_ms_per_row")) {
    absl::StrAppendFormat(&table,
                          "products        %.2f ms a row at their peak\n",
                          report["product_ms_per_row"].get<double>());
  }
  absl::StrAppendFormat(&table, "prefill         %.1f tokens/s\n",
                        report["prefill_tokens_per_s"].get<double>());
  return table;
}

}  // namespace foretoken::cli
