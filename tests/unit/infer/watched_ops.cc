#include "tests/unit/infer/watched_ops.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/infer/cpu/cpu_isa.h"
#include "common/infer/weight_types.h"

namespace foretoken::testing {
namespace {

struct Kept {
  const CpuOps* kernels = nullptr;
  absl::Mutex mu;
  std::vector<Int8Block> int8 ABSL_GUARDED_BY(mu);
  std::vector<std::array<uint16_t, WatchedOps::kBlock>> bf16
      ABSL_GUARDED_BY(mu);
};

Kept& TheKept() {
  static Kept* const kept = new Kept;
  return *kept;
}

void ToInt8(const float* x, int n, Int8Block* out) {
  Kept& kept = TheKept();
  kept.kernels->to_int8(x, n, out);
  absl::MutexLock lock(&kept.mu);
  kept.int8.insert(kept.int8.end(), out, out + n / kQuantBlock);
}

void ToInt8Super(const float* x, int n, Int8Block* out) {
  Kept& kept = TheKept();
  kept.kernels->to_int8_super(x, n, out);
  absl::MutexLock lock(&kept.mu);
  kept.int8.insert(kept.int8.end(), out, out + n / kQuantBlock);
}

void ToBf16(const float* x, int n, uint16_t* out) {
  Kept& kept = TheKept();
  kept.kernels->to_bf16(x, n, out);
  absl::MutexLock lock(&kept.mu);
  for (int i = 0; i + WatchedOps::kBlock <= n; i += WatchedOps::kBlock) {
    std::copy_n(out + i, WatchedOps::kBlock, kept.bf16.emplace_back().begin());
  }
}

double Largest(absl::Span<const double> values) {
  double largest = 0;
  for (const double value : values) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

bool Fits(const Int8Block& block, absl::Span<const double> values,
          double largest) {
  constexpr double kMost = 0.5 + 127 * WatchedOps::kNoise;
  for (int i = 0; i < WatchedOps::kBlock; ++i) {
    const double scaled = largest > 0 ? values[i] * 127 / largest : 0;
    if (!(std::abs(scaled - block.q[i]) <= kMost)) return false;
  }
  return std::abs(block.scale * 127.0 - largest) <=
         WatchedOps::kNoise * largest;
}

bool Fits(absl::Span<const uint16_t> block, absl::Span<const double> values,
          double largest) {
  for (int i = 0; i < WatchedOps::kBlock; ++i) {
    // The distance of the eight-bit significands around the value.
    const double step =
        values[i] == 0 ? 0 : std::ldexp(1.0, std::ilogb(values[i]) - 7);
    const double difference = std::abs(FloatFromBFloat16(block[i]) - values[i]);
    if (!(difference <= step / 2 + WatchedOps::kNoise * largest)) return false;
  }
  return true;
}

}  // namespace

WatchedOps::WatchedOps(CpuIsa isa) {
  const auto kernels = SelectCpuOps(isa);
  FORETOKEN_CHECK(kernels.ok());
  FORETOKEN_CHECK(TheKept().kernels == nullptr);
  TheKept().kernels = *kernels;
  ops_ = **kernels;
  ops_.to_int8 = ToInt8;
  ops_.to_int8_super = ToInt8Super;
  ops_.to_bf16 = ToBf16;
}

WatchedOps::~WatchedOps() {
  Clear();
  TheKept().kernels = nullptr;
}

void WatchedOps::Clear() {
  Kept& kept = TheKept();
  absl::MutexLock lock(&kept.mu);
  kept.int8.clear();
  kept.bf16.clear();
}

absl::StatusOr<std::vector<double>> WatchedOps::Int8(
    absl::Span<const double> values, absl::Span<const double> scaled) const {
  const double largest = Largest(scaled);
  Kept& kept = TheKept();
  absl::MutexLock lock(&kept.mu);
  for (const Int8Block& block : kept.int8) {
    if (!Fits(block, values, largest)) continue;
    std::vector<double> rounded(kBlock);
    for (int i = 0; i < kBlock; ++i) rounded[i] = block.q[i] * largest / 127;
    return rounded;
  }
  return absl::NotFoundError("no such block was rounded to int8");
}

absl::StatusOr<std::vector<double>> WatchedOps::BFloat16(
    absl::Span<const double> values) const {
  const double largest = Largest(values);
  Kept& kept = TheKept();
  absl::MutexLock lock(&kept.mu);
  for (const auto& block : kept.bf16) {
    if (!Fits(absl::MakeConstSpan(block), values, largest)) continue;
    std::vector<double> rounded(kBlock);
    for (int i = 0; i < kBlock; ++i) rounded[i] = FloatFromBFloat16(block[i]);
    return rounded;
  }
  return absl::NotFoundError("no such block was rounded to bf16");
}

}  // namespace foretoken::testing
