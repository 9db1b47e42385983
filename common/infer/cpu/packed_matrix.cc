#include "common/infer/cpu/packed_matrix.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/infer/cpu/quant_pack.h"

namespace foretoken {
namespace {

int64_t BlockBytes(MatrixType type, int64_t k) {
  switch (type) {
    case MatrixType::kFloat32:
      return k * kGemmColumns * 4;
    case MatrixType::kBFloat16:
      return k * kGemmColumns * 2;
    default:
      return kGemmColumns / kQuantColumns * QuantStripBytes(type, k);
  }
}

// [k/2][64][2]: pairs of K.
void PackPairs(const float* columns, int64_t k, uint16_t* out) {
  for (int64_t i = 0; i < k; i += 2) {
    for (int64_t c = 0; c < kGemmColumns; ++c, out += 2) {
      out[0] = BFloat16FromFloat(columns[c * k + i]);
      out[1] = BFloat16FromFloat(columns[c * k + i + 1]);
    }
  }
}

// [k][64].
void PackPlain(const float* columns, int64_t k, float* out) {
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < kGemmColumns; ++c) *out++ = columns[c * k + i];
  }
}

}  // namespace

int64_t ActivationBytes(ActivationType type, int64_t n) {
  switch (type) {
    case ActivationType::kFloat32:
      return n * 4;
    case ActivationType::kBFloat16:
      return n * 2;
    case ActivationType::kInt8:
    case ActivationType::kInt8Super:
      return n / kQuantBlock * static_cast<int64_t>(sizeof(Int8Block));
  }
  return 0;
}

std::optional<MatrixType> QuantisedMatrixType(WeightType type) {
  switch (type) {
    case WeightType::kQ8_0:
      return MatrixType::kQ8_0;
    case WeightType::kQ4_0:
      return MatrixType::kQ4_0;
    case WeightType::kQ4_1:
      return MatrixType::kQ4_1;
    case WeightType::kQ5_0:
      return MatrixType::kQ5_0;
    case WeightType::kQ5_1:
      return MatrixType::kQ5_1;
    case WeightType::kQ4_K:
      return MatrixType::kQ4_K;
    case WeightType::kQ5_K:
      return MatrixType::kQ5_K;
    case WeightType::kQ6_K:
      return MatrixType::kQ6_K;
    case WeightType::kFloat32:
    case WeightType::kFloat16:
    case WeightType::kBFloat16:
      break;
  }
  return std::nullopt;
}

absl::Status PackedMatrix::Allocate(int64_t k, ActivationType input,
                                    absl::Span<const MatrixType> types,
                                    WeightArena& arena) {
  // A remainder is padded with zeros in both operands.
  k_ = PadTo(k, kCpuPad);
  input_ = input;
  for (const MatrixType type : types) {
    blocks_.push_back({type, bytes_, BlockBytes(type, k_)});
    bytes_ += blocks_.back().bytes;
  }
  FORETOKEN_ASSIGN_OR_RETURN(data_, arena.Allocate(bytes_));
  return absl::OkStatus();
}

absl::StatusOr<PackedMatrix> PackedMatrix::Pack(
    MatrixType type, int64_t columns, int64_t k, ThreadPool& pool,
    WeightArena& arena, absl::FunctionRef<void(int64_t, float*)> column) {
  const bool bf16 = type == MatrixType::kBFloat16;
  FORETOKEN_CHECK(bf16 || type == MatrixType::kFloat32);
  PackedMatrix matrix;
  const std::vector<MatrixType> types(
      PadTo(columns, kGemmColumns) / kGemmColumns, type);
  FORETOKEN_RETURN_IF_ERROR(matrix.Allocate(
      k, bf16 ? ActivationType::kBFloat16 : ActivationType::kFloat32, types,
      arena));
  const int64_t padded = matrix.k_;
  std::vector<std::vector<float>> rows(pool.threads());
  pool.ParallelForThreads(matrix.blocks(), [&](int64_t block, int thread) {
    std::vector<float>& source = rows[thread];
    // Zeros: columns beyond the matrix and elements beyond k stay so.
    source.assign(padded * kGemmColumns, 0.0f);
    const int64_t first = block * kGemmColumns;
    const int64_t used = std::min<int64_t>(kGemmColumns, columns - first);
    for (int64_t c = 0; c < used; ++c) {
      column(first + c, source.data() + c * padded);
    }
    uint8_t* out = matrix.data_ + matrix.blocks_[block].offset;
    if (bf16) {
      PackPairs(source.data(), padded, reinterpret_cast<uint16_t*>(out));
    } else {
      PackPlain(source.data(), padded, reinterpret_cast<float*>(out));
    }
  });
  return matrix;
}

void PackedMatrix::CopyColumn(int64_t column, absl::Span<float> out) const {
  const Block& block = blocks_[column / kGemmColumns];
  const int64_t c = column % kGemmColumns;
  const uint8_t* const data = data_ + block.offset;
  const int64_t n = static_cast<int64_t>(out.size());
  if (block.type == MatrixType::kBFloat16) {
    const uint16_t* const pairs = reinterpret_cast<const uint16_t*>(data);
    for (int64_t i = 0; i < n; ++i) {
      out[i] = FloatFromBFloat16(pairs[(i / 2 * kGemmColumns + c) * 2 + i % 2]);
    }
    return;
  }
  if (block.type != MatrixType::kFloat32) {
    const int64_t strip_bytes = block.bytes * kQuantColumns / kGemmColumns;
    UnpackQuantColumn(block.type, data + c / kQuantColumns * strip_bytes, n,
                      static_cast<int>(c % kQuantColumns), out.data());
    return;
  }
  const float* const values = reinterpret_cast<const float*>(data);
  for (int64_t i = 0; i < n; ++i) out[i] = values[i * kGemmColumns + c];
}

absl::StatusOr<PackedMatrix> PackedMatrix::PackStored(
    int64_t columns, int64_t k, ThreadPool& pool, WeightArena& arena,
    absl::FunctionRef<StoredColumn(int64_t)> column) {
  PackedMatrix matrix;
  // One block of a K type decides for all: they read the same rows.
  ActivationType input = ActivationType::kInt8;
  std::vector<WeightType> stored;
  std::vector<MatrixType> types;
  for (int64_t c = 0; c < columns; c += kGemmColumns) {
    stored.push_back(column(c).type);
    const auto type = QuantisedMatrixType(stored.back());
    FORETOKEN_CHECK(type.has_value() &&
                    k % WeightTypeFormat(stored.back()).block == 0);
    types.push_back(*type);
    if (WeightTypeFormat(stored.back()).block == kSuperBlock) {
      input = ActivationType::kInt8Super;
    }
  }
  FORETOKEN_RETURN_IF_ERROR(matrix.Allocate(k, input, types, arena));
  pool.ParallelFor(matrix.blocks(), [&](int64_t block) {
    uint8_t* out = matrix.data_ + matrix.blocks_[block].offset;
    const uint8_t* strip[kQuantColumns];
    int64_t c = block * kGemmColumns;
    for (const int64_t end = c + kGemmColumns; c < end;) {
      for (const uint8_t*& data : strip) {
        data = nullptr;
        if (c < columns) {
          const StoredColumn source = column(c);
          // A block of 64 columns has one type; the joins of matrices are at
          // block borders.
          FORETOKEN_CHECK(source.type == stored[block]);
          data = source.data;
        }
        ++c;
      }
      PackQuantStrip(stored[block], strip, k, out);
      out += QuantStripBytes(matrix.blocks_[block].type, k);
    }
  });
  return matrix;
}

}  // namespace foretoken
