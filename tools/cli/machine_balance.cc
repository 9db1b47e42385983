#include "tools/cli/machine_balance.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/infer/cpu/cpu_isa.h"

namespace foretoken::cli {
namespace {

// Many more slices than threads, so that a thread that starts late does not
// decide the time.
constexpr int64_t kSlices = 512;
constexpr int64_t kSliceUnit = 128;  // stream_sum takes multiples of it
constexpr int kRepeats = 3;
constexpr int64_t kPeakSteps = 50000;

double MultiplyAddsPerSecond(const CpuOps& ops, ActivationType type,
                             ThreadPool& pool) {
  std::atomic<int64_t> done = 0;
  const absl::Time start = MonotonicNow();
  pool.ParallelFor(pool.threads(), [&](int64_t) {
    // The results go somewhere, or the compiler would remove the loop.
    float sink[kPeakSink] = {};
    done += ops.peak[static_cast<int>(type)](kPeakSteps, sink);
  });
  return static_cast<double>(done) /
         absl::ToDoubleSeconds(MonotonicNow() - start);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReadBandwidth>> ReadBandwidth::Create(
    int threads, int64_t bytes) {
  auto self = std::make_unique<ReadBandwidth>(threads);
  FORETOKEN_ASSIGN_OR_RETURN(self->ops_, SelectCpuOps(std::nullopt));
  constexpr int64_t kUnitBytes = kSlices * kSliceUnit * sizeof(float);
  // At least one unit, for sizes smaller than all slices.
  self->slice_ = std::max<int64_t>(1, bytes / kUnitBytes) * kSliceUnit;
  const int64_t count = self->slice_ * kSlices;
  FORETOKEN_ASSIGN_OR_RETURN(
      self->buffer_,
      HugeBuffer::Allocate(count * static_cast<int64_t>(sizeof(float))));
  // Written, not only allocated: untouched pages all map to one page of zeros,
  // which stays in the cache.
  std::fill_n(self->buffer_.as<float>(), count, 1.0f);
  return self;
}

double ReadBandwidth::GigabytesPerSecond() {
  double best = 0.0;
  // The best distance of prefetching differs by processor, so all are tried.
  for (const int64_t ahead : kAhead) best = std::max(best, Read(ahead));
  return best;
}

double ReadBandwidth::Read(int64_t ahead) {
  std::vector<float> sums(kSlices);
  const absl::Time start = MonotonicNow();
  pool_.ParallelFor(kSlices, [&](int64_t i) {
    sums[i] =
        ops_->stream_sum(buffer_.as<const float>() + i * slice_, slice_, ahead);
  });
  const double seconds = absl::ToDoubleSeconds(MonotonicNow() - start);
  return static_cast<double>(kSlices * slice_) * sizeof(float) / seconds * 1e-9;
}

absl::StatusOr<MachineBalance> MeasureMachineBalance(int threads,
                                                     int64_t read_bytes) {
  FORETOKEN_ASSIGN_OR_RETURN(const CpuOps* const ops,
                             SelectCpuOps(std::nullopt));
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<ReadBandwidth> reads,
                             ReadBandwidth::Create(threads, read_bytes));
  ThreadPool pool(threads);
  MachineBalance balance;
  balance.threads = threads;
  // The best of several: other load only ever slows a measurement down.
  for (int i = 0; i < kRepeats; ++i) {
    balance.read_gb_s =
        std::max(balance.read_gb_s, reads->GigabytesPerSecond());
    balance.fp32_multiply_adds_per_s =
        std::max(balance.fp32_multiply_adds_per_s,
                 MultiplyAddsPerSecond(*ops, ActivationType::kFloat32, pool));
    balance.int8_multiply_adds_per_s =
        std::max(balance.int8_multiply_adds_per_s,
                 MultiplyAddsPerSecond(*ops, ActivationType::kInt8, pool));
  }
  return balance;
}

}  // namespace foretoken::cli
