// The balance of this machine: how fast its processors read memory, and how
// fast they multiply. A pass of few rows is bounded by the first, one of many
// by the second.
#ifndef FORETOKEN_TOOLS_CLI_MACHINE_BALANCE_H_
#define FORETOKEN_TOOLS_CLI_MACHINE_BALANCE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/huge_buffer.h"
#include "common/base/thread_pool.h"
#include "common/infer/cpu/ops.h"

namespace foretoken::cli {

// Far larger than any cache, so that reading it streams from memory.
inline constexpr int64_t kReadBytes = int64_t{512} << 20;

// Reads a large buffer on all threads as fast as possible: each time with every
// prefetch distance in `kAhead`, since no single one is the fastest on every
// machine. Owned by one thread.
class ReadBandwidth {
 public:
  // `bytes`: of the buffer, rounded down to whole slices.
  static absl::StatusOr<std::unique_ptr<ReadBandwidth>> Create(
      int threads, int64_t bytes = kReadBytes);
  explicit ReadBandwidth(int threads) : pool_(threads) {}

  // Bandwidth of the fastest of these reads.
  double GigabytesPerSecond();

 private:
  // Hardware prefetching only, then two distances of software prefetching, of
  // which the last is that of the matrix products.
  static constexpr int64_t kAhead[] = {0, 4096, 16384};

  double Read(int64_t ahead);

  ThreadPool pool_;
  const CpuOps* ops_ = nullptr;
  int64_t slice_ = 0;  // numbers that a thread reads at a time
  HugeBuffer buffer_;
};

struct MachineBalance {
  int threads = 0;
  double read_gb_s = 0;  // of main memory
  // Multiply-adds a second in registers, with the instructions that products
  // with fp32 and with quantised activations use.
  double fp32_multiply_adds_per_s = 0;
  double int8_multiply_adds_per_s = 0;
};

// The best of a few measurements: other load can only lower one. Takes about a
// second.
absl::StatusOr<MachineBalance> MeasureMachineBalance(
    int threads, int64_t read_bytes = kReadBytes);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_MACHINE_BALANCE_H_
