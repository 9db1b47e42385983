// Arrival traces: when requests came, and how long their outputs were. CSV,
// gzip or plain, with a header that names the columns, in any order:
//
//   TIMESTAMP         2023-11-16 18:17:03.9799600, never earlier than the row
//                     before
//   GeneratedTokens   tokens of the output, at least 1
//
// Other columns are ignored (the published Azure traces also have
// ContextTokens; prompts are those of the caller).
//
// Source: Azure LLM inference traces 2023, "Splitwise", arXiv 2311.18677.
// Thread-safe: functions without state.
#ifndef FORETOKEN_TOOLS_CLI_MODE_BENCH_ARRIVAL_TRACE_H_
#define FORETOKEN_TOOLS_CLI_MODE_BENCH_ARRIVAL_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace foretoken::mode_bench {

inline constexpr size_t kMaxArrivals = 1'000'000;

struct Arrival {
  absl::Duration at;  // since the first
  int64_t output_tokens = 0;
};

// InvalidArgument names file, line and column, or the file if it has no rows;
// ResourceExhausted for more than kMaxArrivals.
absl::StatusOr<std::vector<Arrival>> ReadArrivalTrace(const std::string& path);

}  // namespace foretoken::mode_bench

#endif  // FORETOKEN_TOOLS_CLI_MODE_BENCH_ARRIVAL_TRACE_H_
