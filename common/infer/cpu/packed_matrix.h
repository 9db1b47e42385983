// PackedMatrix: one weight matrix in the order in which the GEMM reads it.
//
// Columns are outputs, in blocks of kGemmColumns; a block holds all of K, one
// step after the other (layout: GemmArgs in ops.h), so that a pass streams each
// block once, front to back. Columns and K are padded with zeros. Every block
// has a type of its own: the parts of a joined matrix may differ.
//
// Immutable after Pack; then thread-safe. The arena it was packed into owns its
// memory.
#ifndef FORETOKEN_COMMON_INFER_CPU_PACKED_MATRIX_H_
#define FORETOKEN_COMMON_INFER_CPU_PACKED_MATRIX_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/thread_pool.h"
#include "common/infer/cpu/ops.h"
#include "common/infer/cpu/weight_arena.h"
#include "common/infer/weight_types.h"

namespace foretoken {

inline int64_t PadTo(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Bytes of `n` activations, whole blocks of kQuantBlock in the int8 types.
int64_t ActivationBytes(ActivationType type, int64_t n);

// The type that weights of `type` are packed in without a change of their
// values, if they are quantised.
std::optional<MatrixType> QuantisedMatrixType(WeightType type);

class PackedMatrix {
 public:
  // One column in the blocks of its file; without data all zeros.
  struct StoredColumn {
    WeightType type = WeightType::kFloat32;
    const uint8_t* data = nullptr;
  };

  PackedMatrix() = default;

  // In fp32 or bf16. `column(c, values)` fills values[0..k) with column c, one
  // output's weights; values come zeroed. It may be called from any thread of
  // `pool`.
  static absl::StatusOr<PackedMatrix> Pack(
      MatrixType type, int64_t columns, int64_t k, ThreadPool& pool,
      WeightArena& arena, absl::FunctionRef<void(int64_t, float*)> column);
  // In the quantised types of the columns, which change only between blocks of
  // kGemmColumns. K is a multiple of the types' block sizes.
  static absl::StatusOr<PackedMatrix> PackStored(
      int64_t columns, int64_t k, ThreadPool& pool, WeightArena& arena,
      absl::FunctionRef<StoredColumn(int64_t)> column);

  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t k() const { return k_; }  // padded to kCpuPad
  int64_t bytes() const { return bytes_; }
  ActivationType input() const { return input_; }
  // Weights, padding included.
  int64_t elements() const { return blocks() * kGemmColumns * k_; }
  MatrixType type(int64_t block) const { return blocks_[block].type; }
  int64_t block_bytes(int64_t block) const { return blocks_[block].bytes; }
  const uint8_t* block(int64_t index) const {
    return data_ + blocks_[index].offset;
  }
  // The values of a column: out is [<= k], whole blocks of a quantised type.
  void CopyColumn(int64_t column, absl::Span<float> out) const;

 private:
  struct Block {
    MatrixType type;
    int64_t offset;
    int64_t bytes;
  };

  absl::Status Allocate(int64_t k, ActivationType input,
                        absl::Span<const MatrixType> types, WeightArena& arena);

  int64_t k_ = 0;
  int64_t bytes_ = 0;
  ActivationType input_ = ActivationType::kFloat32;
  std::vector<Block> blocks_;
  uint8_t* data_ = nullptr;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_PACKED_MATRIX_H_
