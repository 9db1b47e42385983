// Measures the cost of a forward pass by number of rows, sessions and context,
// and the memory bandwidth for comparison.
//
// Owned by one thread.
#ifndef FORETOKEN_TOOLS_CLI_ENGINE_BENCH_H_
#define FORETOKEN_TOOLS_CLI_ENGINE_BENCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/json_fwd.h"
#include "common/infer/backend.h"

namespace foretoken::cli {

struct EngineBenchOptions {
  std::vector<int64_t> contexts = {0, 1024};
  std::vector<int32_t> rows = {1, 2, 4, 8, 16, 32, 64};
  // Passes over several sessions, each at the last of `contexts`.
  struct Batch {
    int32_t sessions = 0;
    int32_t rows = 0;  // per session
  };
  std::vector<Batch> batches;
  int32_t prefill_rows = 512;  // per pass, limited by the backend's maximum
  int repeats = 7;
  int threads = 1;           // for reading main memory
  int32_t max_rows() const;  // per pass
};

// Parses "32x8,64x4".
absl::StatusOr<std::vector<EngineBenchOptions::Batch>> ParseBatches(
    const std::string& text);

// Report: passes (context, rows, ms, cpu_ms: processor time of all threads,
// which with one thread hardly depends on what else the machine does; ratio to
// one row at that context); batches (sessions, rows, context, ms, ratio to one
// row likewise); the yardstick, read_bandwidth_gb_s (main memory) or
// copy_bandwidth_gb_s (the device's memory, counting reads and writes);
// bandwidth_share, the share of it that one row achieves at the first context;
// on the CPU also roofline_share of every pass, the larger of two floors over
// its time: the bytes of the weights and of the sessions' committed KV at the
// read bandwidth, and the rows' products at the measured peak of the
// processor's multiply-adds, product_ms_per_row; kv_bytes_per_token (0 if
// unknown); numerics, the fingerprint of the backend; prefill_tokens_per_s.
// Contexts beyond the model's limit are skipped, with a log line.
absl::StatusOr<Json> RunEngineBench(std::unique_ptr<Backend> backend,
                                    const EngineBenchOptions& options);

std::string EngineBenchTable(const Json& report);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_ENGINE_BENCH_H_
