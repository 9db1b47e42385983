// CpuOps: the arithmetic of a forward pass, once per instruction set.
//
// One table of plain functions is chosen at start. ops_scalar.cc is the
// definition and runs anywhere; the others (ops_<isa>.cc) are compiled with
// their own flags and include nothing but intrinsics, this header and
// the .inc files, so that no inline function escapes to an older machine. For
// the same reason neither this header nor quant_layout.h has functions.
//
// What makes rows invariant: every function computes each output by one chain
// of operations whose order depends on the sizes of the model alone. Tiles over
// rows, columns and K cut that chain without changing it: a partial sum is
// stored and loaded again as the same fp32.
//
// The chains are the same on every instruction set, so results are equal to the
// bit: multiply-adds are fused, sums run over kCpuPad lanes, lane i taking
// elements i, i + kCpuPad, ..., which are then added by halves (lane i and lane
// i + 8, then i + 4, i + 2, i + 1), and exp is one polynomial. Two exceptions:
// products of bf16 in avx512bf16, whose instruction has an order of its own,
// and stream_sum, which is for measurements.
//
// Lengths named `n` are multiples of 16; what lies past a tensor's real length
// is zero and adds exactly nothing. Buffers need no alignment.
#ifndef FORETOKEN_COMMON_INFER_CPU_OPS_H_
#define FORETOKEN_COMMON_INFER_CPU_OPS_H_

#include <cstdint>

#include "common/infer/cpu/quant_layout.h"

namespace foretoken {

enum class CpuIsa {
  kScalar,
  kAvx2,
  kAvxVnni,
  kAvx512,
  kAvx512Vnni,
  kAvx512Bf16,
};

// By CpuIsa: the names in flags, logs and numerics fingerprints.
inline constexpr const char* kCpuIsaNames[] = {
    "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16"};

// How the weights of a packed matrix are stored.
enum class MatrixType : uint8_t {
  kFloat32,
  kBFloat16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};
inline constexpr int kMatrixTypes = 10;

// The other factor of a product with weights: rows of fp32, bf16 or Int8Block,
// in kInt8Super in super-blocks of one scale. The K types want super-blocks;
// the other quantised types take either.
enum class ActivationType : uint8_t { kFloat32, kBFloat16, kInt8, kInt8Super };
inline constexpr int kActivationTypes = 4;
inline constexpr int kPeakSink = 256;

// Vector lengths are padded to this many elements.
inline constexpr int kCpuPad = 16;
// Output columns of one packed block of weights.
inline constexpr int kGemmColumns = 64;
// Keys of one attention block (equal to kKvPageTokens).
inline constexpr int kAttendKeys = 32;
// Dimensions of a key or value in int8 that share a scale.
inline constexpr int kKvScaleBlock = 32;

// tile[r][c] = sum over k, ascending, of x[r][k] * w[k][c].
//
// fp32 and bf16, fused, x of the same type: one step of K is 4 bytes of a row
// and 256 bytes of weights: for bf16 a pair of k (w: [k/2][64][2], the even k
// first), for fp32 one k (w: [k][64]). bf16: the products of a pair are added
// even k first on every ISA but avx512bf16, whose instruction has its own
// order.
//
// Quantised types: two strips of units (quant_layout.h), x as Int8Blocks. Sums
// over a block are integers and so exact; the sum takes up block by block
//   fma(integer, scale of the weights * scale of x, sum), then
//   fma(minimum, scale of x * integer sum of x, sum) if the type has minima,
// rounded so on every ISA: the products are equal bit for bit.
//
// K types: the same with x in super-blocks, whose sums over the parts, times
// the parts' own scales or minima, are integers too. The sum takes up unit by
// unit
//   fma(-integer, unit's minimum * scale of x, sum) if the type has minima,
//   then fma(integer, unit's scale * scale of x, sum).
struct GemmArgs {
  const void* x;         // [rows], rows x_stride bytes apart
  int64_t x_stride;      // bytes
  const void* weights;   // one packed block, 64-byte aligned
  int64_t weight_bytes;  // of the block; as many may follow it, for prefetch
  int32_t rows;          // >= 1
  float* tile;           // [rows][64]
  // Whether few rows, which run at the speed of memory, fetch weights ahead as
  // well: see FewRowsFetchAhead (cpu_isa.h). More rows always do. Sums are the
  // same either way.
  bool few_rows_fetch = true;
};

// One block of keys for some queries of one kv head, merged into their state
// by online softmax. Key j's score is the chain over ascending dimensions of
// query * key; values are added in ascending j.
//
// In int8, element d of a key or value is its int8 times the scale of block
// d / 32. A score is, block by block, fma(chain over the block's dimensions of
// fma(query, int8, sum), scale of the key, score); values are added as
// fma(weight * scale of the value, int8, sum).
struct AttendArgs {
  const void* keys;    // [head_dim][32]: transposed
  const void* values;  // [32][n]
  int32_t head_dim;
  int32_t n;                  // head_dim padded
  int32_t queries;            // >= 1
  const float* const* query;  // [queries] -> [head_dim], scaled
  const int32_t* key_count;   // [queries], 1..32: keys past it do not exist
  float* const* state;        // [queries] -> [2 + n]: max, sum, weighted values
  // int8 only: [n / 32, rounded up][32], by block and key.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
};

struct CpuOps {
  CpuIsa isa;
  const char* name;

  // By MatrixType.
  void (*gemm[kMatrixTypes])(const GemmArgs& args);
  // Keys and values in bf16, fp32 or int8.
  void (*attend_bf16)(const AttendArgs& args);
  void (*attend_fp32)(const AttendArgs& args);
  void (*attend_int8)(const AttendArgs& args);

  // out[i] = x[i] * (1 / rms(x)) * weight[i], the mean taken over `size`
  // elements.
  void (*rms_norm)(const float* x, const float* weight, int n, int size,
                   float eps, float* out);
  // Nearest bf16, ties to even; NaN stays NaN.
  void (*to_bf16)(const float* x, int n, uint16_t* out);
  // Quantises n / 32 blocks; n is a multiple of 32. Equal on every ISA.
  void (*to_int8)(const float* x, int n, Int8Block* out);
  // As above, in super-blocks; n is a multiple of 256.
  void (*to_int8_super)(const float* x, int n, Int8Block* out);
  // acc[i] += x[i]
  void (*add)(float* acc, const float* x, int n);
  // x[i] *= factor
  void (*scale)(float* x, float factor, int n);
  // out[i] = silu(gate[i]) * up[i]
  void (*swiglu)(const float* gate, const float* up, int n, float* out);
  // Rotates the pairs (x[i], x[i + half]); half is any length.
  void (*rope)(float* x, const float* cosines, const float* sines, int half);
  // Index of the largest, ties to the lowest; NaN never wins. size is any
  // length >= 1.
  int32_t (*arg_max)(const float* x, int size);
  // e^x with x clamped to [-87, 88]; at most 2 units in the last place off.
  void (*exp)(const float* x, int n, float* out);
  // Sum of x in any order, size a multiple of 128: as fast as memory is read.
  // Fetches what lies `ahead` bytes further on, where that is not 0; memory
  // past x is never read, so it need not be there.
  float (*stream_sum)(const float* x, int64_t size, int64_t ahead);
  // By ActivationType: multiplies and adds in registers only, as fast as
  // possible; returns the number of multiply-adds. sink, [kPeakSink], takes the
  // result.
  int64_t (*peak[kActivationTypes])(int64_t steps, float* sink);
};

// Each is nullptr where this build has no such file.
const CpuOps* ScalarOps();
const CpuOps* Avx2Ops();
const CpuOps* AvxVnniOps();
const CpuOps* Avx512Ops();
const CpuOps* Avx512VnniOps();
const CpuOps* Avx512Bf16Ops();

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_OPS_H_
