// WatchedOps: the kernels of one instruction set, which also keep every block
// that they round to int8 or bf16.
//
// Rounding jumps: where an activation lies at a tie, fp32's own error decides
// whether it goes up or down, and everything after it differs by a step. A
// reference in higher precision therefore takes the decision of the kernels
// where it is within kNoise of a tie, and only there: a block that the kernels
// rounded in no such way is an error, found at the first product it enters.
//
// Thread-safe. One object at a time: kernels are plain functions.
#ifndef FORETOKEN_TESTS_UNIT_INFER_WATCHED_OPS_H_
#define FORETOKEN_TESTS_UNIT_INFER_WATCHED_OPS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/infer/cpu/ops.h"

namespace foretoken::testing {

class WatchedOps {
 public:
  // Elements of a block.
  static constexpr int kBlock = kQuantBlock;
  // What fp32 may add to an element before it is rounded, over the largest
  // magnitude of its block: 1e-3 of a step of int8.
  static constexpr double kNoise = 1e-3 / 127;

  // The machine runs `isa`.
  explicit WatchedOps(CpuIsa isa);
  ~WatchedOps();
  WatchedOps(const WatchedOps&) = delete;
  WatchedOps& operator=(const WatchedOps&) = delete;

  const CpuOps* ops() const { return &ops_; }

  // Forgets the blocks kept so far.
  void Clear();

  // What the kernels rounded these kBlock values to. NotFound if they rounded
  // no block to neighbours of these values. In int8 they share a scale with
  // those of `scaled`, which contains them.
  absl::StatusOr<std::vector<double>> Int8(
      absl::Span<const double> values, absl::Span<const double> scaled) const;
  absl::StatusOr<std::vector<double>> BFloat16(
      absl::Span<const double> values) const;

 private:
  CpuOps ops_;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_UNIT_INFER_WATCHED_OPS_H_
