// Packing of quantised columns into strips (quant_layout.h), and back.
//
// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CPU_QUANT_PACK_H_
#define FORETOKEN_COMMON_INFER_CPU_QUANT_PACK_H_

#include <cstdint>

#include "common/infer/cpu/ops.h"
#include "common/infer/weight_types.h"

namespace foretoken {

// Bytes of a strip of a quantised type; k is a multiple of its block size.
int64_t QuantStripBytes(MatrixType type, int64_t k);

// Packs columns[0..kQuantColumns), each k elements of the quantised `type`, or
// zeros where the pointer is null. `out` is zeroed.
void PackQuantStrip(WeightType type, const uint8_t* const* columns, int64_t k,
                    uint8_t* out);

// Decodes column [0, kQuantColumns) of a strip to the values that
// DequantiseBlocks gives for what was packed: out is [k].
void UnpackQuantColumn(MatrixType type, const uint8_t* strip, int64_t k,
                       int column, float* out);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_CPU_QUANT_PACK_H_
