// Layouts of quantised weights and activations, as the kernels read them.
//
// A weight is quant * scale + minimum, quant a small unsigned integer less the
// type's offset. 32 output columns form a strip: all of K, one unit after the
// other, so that a pass streams it front to back. A unit holds 32 elements of K
// (256 in the K types) of every column: scales as the file has them, then the
// quants, four consecutive elements of a column side by side, as the
// instructions multiply them. Bytes per weight are those of the file, except
// that the six-bit scales of Q4_K and Q5_K take eight bits.
//
// The K types multiply activations that share a scale over a whole unit, so
// that their products with the scales of the parts are sums of integers.
//
// Like ops.h, this header has no functions and includes no others of ours.
#ifndef FORETOKEN_COMMON_INFER_CPU_QUANT_LAYOUT_H_
#define FORETOKEN_COMMON_INFER_CPU_QUANT_LAYOUT_H_

#include <cstdint>

namespace foretoken {

// Columns of a strip; two strips are one block of kGemmColumns.
inline constexpr int kQuantColumns = 32;
// Elements of K in a block of activations.
inline constexpr int kQuantBlock = 32;
// Blocks of a unit in the K types.
inline constexpr int kSuperBlockParts = 8;
inline constexpr int kSuperBlock = kQuantBlock * kSuperBlockParts;

// 32 activations: x[i] ~ q[i] * scale, q in -127..127. The scale is the largest
// magnitude over 127, and q is rounded to nearest, ties to even, of x times 127
// over that magnitude. Magnitudes below 2^-100 count as zero; a block that is
// not finite has the scale NaN. The magnitude is that of the block, or in a
// super-block that of its kSuperBlockParts blocks.
struct Int8Block {
  int8_t q[kQuantBlock];
  float scale;
  float scaled_sum;            // scale * sum of q
  int32_t minus_sum;           // of all q
  int16_t minus_half_sums[2];  // of the first 16 q and of the others
  // The minus_sum of blocks 2i and 2i + 1 of a super-block, in both of them;
  // zeros in other blocks.
  int16_t minus_pair_sums[2];
};

// Element 4 s + j of column c: [s][c][j].
using QuantBytes = uint8_t[kQuantBlock / 4][kQuantColumns][4];
// Four bits: elements 4 s + j in the low nibble, 16 + 4 s + j in the high one.
using QuantNibbles = uint8_t[kQuantBlock / 8][kQuantColumns][4];
// The fifth bits: bit s of [c][j].
using QuantFifthBits = uint8_t[kQuantColumns][4];
// Bits five and six: bits 2 s and 2 s + 1 of [h][c][j], element 16 h + 4 s + j.
using QuantHighPairs = uint8_t[2][kQuantColumns][4];
using QuantHalves = uint16_t[kQuantColumns];  // fp16
// Minima of two consecutive parts, and scales of the two halves of a part. The
// instructions multiply these pairs by pairs of sums of activations.
using QuantMinPairs = uint8_t[kQuantColumns][2];
using QuantScalePairs = int8_t[kQuantColumns][2];

struct UnitQ8_0 {
  QuantHalves scale;
  QuantBytes quants;  // + 128
};
struct UnitQ4_0 {
  QuantHalves scale;
  QuantNibbles low;  // + 8
};
struct UnitQ4_1 {
  QuantHalves scale, min;
  QuantNibbles low;
};
struct UnitQ5_0 {
  QuantHalves scale;
  QuantNibbles low;  // + 16
  QuantFifthBits fifth;
};
struct UnitQ5_1 {
  QuantHalves scale, min;
  QuantNibbles low;
  QuantFifthBits fifth;
};
// The scale of a part is the unit's times the part's; so is the minimum, which
// is subtracted.
struct UnitQ4K {
  QuantHalves scale, min;
  QuantMinPairs mins[kSuperBlockParts / 2];
  uint8_t scales[kSuperBlockParts][kQuantColumns];
  struct Part {
    QuantNibbles low;
  } parts[kSuperBlockParts];
};
struct UnitQ5K {
  QuantHalves scale, min;
  QuantMinPairs mins[kSuperBlockParts / 2];
  uint8_t scales[kSuperBlockParts][kQuantColumns];
  struct Part {
    QuantNibbles low;
    QuantFifthBits fifth;
  } parts[kSuperBlockParts];
};
struct UnitQ6K {
  QuantHalves scale;
  QuantScalePairs scales[kSuperBlockParts];
  struct Part {
    QuantNibbles low;  // + 32
    QuantHighPairs high;
  } parts[kSuperBlockParts];
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_QUANT_LAYOUT_H_
