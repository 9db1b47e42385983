// PackedMatrix: one weight matrix in the order in which the GEMM reads it.
//
// Columns are outputs, in blocks of kGemmColumns; a block holds all of K, one
// step after the other (layout: GemmArgs in ops.h), so that a pass streams each
// block once, front to back. Columns and K are padded with zeros.
//
// Immutable after Pack; then thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CPU_PACKED_MATRIX_H_
#define FORETOKEN_COMMON_INFER_CPU_PACKED_MATRIX_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/huge_buffer.h"
#include "common/base/thread_pool.h"
#include "common/infer/backend.h"
#include "common/infer/cpu/ops.h"

namespace foretoken {

inline int64_t PadTo(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

class PackedMatrix {
 public:
  PackedMatrix() = default;

  // `column(c, values)` fills values[0..k) with column c, one output's weights;
  // values come zeroed. It may be called from any thread of `pool`.
  static absl::StatusOr<PackedMatrix> Pack(
      Precision precision, int64_t columns, int64_t k, ThreadPool& pool,
      absl::FunctionRef<void(int64_t, float*)> column);

  int64_t blocks() const { return blocks_; }
  int64_t k() const { return k_; }  // padded to kCpuPad
  int64_t block_bytes() const { return block_bytes_; }
  int64_t bytes() const { return blocks_ * block_bytes_; }
  const uint8_t* block(int64_t index) const {
    return data_.data() + index * block_bytes_;
  }

 private:
  int64_t blocks_ = 0;
  int64_t k_ = 0;
  int64_t block_bytes_ = 0;
  HugeBuffer data_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_PACKED_MATRIX_H_
