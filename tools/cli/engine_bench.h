// What a forward pass costs by its number of rows, sessions and context, beside
// the speed of the memory that it reads.
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
#include "common/base/json.h"
#include "common/infer/backend.h"

namespace foretoken::cli {

struct EngineBenchOptions {
  std::vector<int64_t> contexts = {0, 1024};
  std::vector<int32_t> rows = {1, 2, 4, 8, 16, 32, 64};
  // Passes of several sessions, each at the last of `contexts`.
  struct Batch {
    int32_t sessions = 0;
    int32_t rows = 0;  // of each
  };
  std::vector<Batch> batches;
  int32_t prefill_rows = 512;  // in one pass, as far as the backend takes them
  int repeats = 7;
  int threads = 1;  // that read where memory is the processor's

  int32_t max_rows() const;  // of one pass
};

// "32x8,64x4".
absl::StatusOr<std::vector<EngineBenchOptions::Batch>> ParseBatches(
    const std::string& text);

// passes: context, rows, ms, ratio to one row of that context; batches:
// sessions, rows, context, ms, ratio to one row of the same; the yardstick,
// read_bandwidth_gb_s (of the processor's memory) or copy_bandwidth_gb_s (of
// the device's, read and write counted); bandwidth_share, what one row at the
// first context makes of it; prefill_tokens_per_s. Contexts past the model's
// limit are left out, which the log says.
absl::StatusOr<Json> RunEngineBench(std::unique_ptr<Backend> backend,
                                    const EngineBenchOptions& options);

std::string EngineBenchTable(const Json& report);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_ENGINE_BENCH_H_
