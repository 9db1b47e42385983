#include "common/infer/cpu/packed_matrix.h"

#include <algorithm>
#include <vector>

#include "common/base/status_macros.h"
#include "common/infer/weight_types.h"

namespace foretoken {

absl::StatusOr<PackedMatrix> PackedMatrix::Pack(
    Precision precision, int64_t columns, int64_t k, ThreadPool& pool,
    absl::FunctionRef<void(int64_t, float*)> column) {
  PackedMatrix matrix;
  const bool bf16 = precision == Precision::kBFloat16;
  matrix.blocks_ = PadTo(columns, kGemmColumns) / kGemmColumns;
  matrix.k_ = PadTo(k, kCpuPad);
  matrix.block_bytes_ = matrix.k_ * kGemmColumns * (bf16 ? 2 : 4);
  FORETOKEN_ASSIGN_OR_RETURN(matrix.data_,
                             HugeBuffer::Allocate(matrix.bytes()));
  const int64_t padded = matrix.k_;
  std::vector<std::vector<float>> rows(pool.threads());
  pool.ParallelForThreads(matrix.blocks_, [&](int64_t block, int thread) {
    std::vector<float>& source = rows[thread];
    source.assign(padded * kGemmColumns, 0.0f);
    const int64_t first = block * kGemmColumns;
    const int64_t used = std::min<int64_t>(kGemmColumns, columns - first);
    for (int64_t c = 0; c < used; ++c) {
      column(first + c, source.data() + c * padded);
    }
    uint8_t* out = matrix.data_.data() + block * matrix.block_bytes_;
    if (bf16) {
      uint16_t* to = reinterpret_cast<uint16_t*>(out);
      for (int64_t i = 0; i < padded; i += 2) {
        for (int64_t c = 0; c < kGemmColumns; ++c, to += 2) {
          to[0] = BFloat16FromFloat(source[c * padded + i]);
          to[1] = BFloat16FromFloat(source[c * padded + i + 1]);
        }
      }
    } else {
      float* to = reinterpret_cast<float*>(out);
      for (int64_t i = 0; i < padded; ++i) {
        for (int64_t c = 0; c < kGemmColumns; ++c) {
          *to++ = source[c * padded + i];
        }
      }
    }
  });
  return matrix;
}

}  // namespace foretoken
