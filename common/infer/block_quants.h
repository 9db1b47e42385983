// Quantised blocks of GGUF files: decoding of every supported type, encoding of
// those that `foretoken quantize` writes.
//
// A block stores 32 elements with one scale (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1) or
// 256 in sub-blocks whose own scales are quantised, too (Q4_K, Q5_K, Q6_K).
//
// Source: ggml, ggml-quants.c (dequantize_row_*, quantize_row_*_ref) and
// ggml-common.h (layouts). Decoded values equal those of ggml and of the Python
// package `gguf` bit for bit: products and sums are rounded one by one.
// Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_BLOCK_QUANTS_H_
#define FORETOKEN_COMMON_INFER_BLOCK_QUANTS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/infer/weight_types.h"

namespace foretoken {

// Decodes out.size() elements, whole blocks, of a Q type.
void DequantiseBlocks(WeightType type, const uint8_t* data,
                      absl::Span<float> out);

// Encodes `in`, whole blocks of finite values, into WeightTypeBytes(type,
// in.size()) bytes. Types: F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K, Q6_K.
void EncodeWeights(WeightType type, absl::Span<const float> in, uint8_t* out);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_BLOCK_QUANTS_H_
