// Quantised blocks of GGUF files: decoding and unpacking of every supported
// type (encoding: block_encoding.h).
//
// A block stores 32 elements with one scale (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1) or
// 256 in sub-blocks whose own scales are quantised, too (Q4_K, Q5_K, Q6_K).
//
// Source: ggml, ggml-quants.c (dequantize_row_*) and ggml-common.h (layouts).
// Decoded values equal those of ggml and of the Python package `gguf` bit for
// bit: products and sums are rounded one by one. Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_BLOCK_QUANTS_H_
#define FORETOKEN_COMMON_INFER_BLOCK_QUANTS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/infer/weight_types.h"

namespace foretoken {

// Decodes out.size() elements, whole blocks, of a Q type.
void DequantiseBlocks(WeightType type, const uint8_t* data,
                      absl::Span<float> out);

// 32 elements of quantised blocks as integers. Element i is scale * (quants[i]
// - offset) + min, where `scale` is scales[i / 16] times the scale of the
// block, and `min` that of the block, or minus `min` times it in Q4_K and Q5_K.
// The offset is 128, 8, 16 and 32 in Q8_0, Q4_0, Q5_0 and Q6_K, else 0.
struct QuantPart {
  uint8_t quants[32];
  uint16_t block_scale = 0;  // fp16
  uint16_t block_min = 0;    // fp16
  int8_t scales[2] = {1, 1};
  uint8_t min = 0;
};

// Elements [32 part, 32 part + 32) of the blocks at `data`.
QuantPart UnpackQuants(WeightType type, const uint8_t* data, int64_t part);

// Decodes such a part to the values that DequantiseBlocks gives: out is [32].
void DequantisePart(WeightType type, const QuantPart& part, float* out);

// Sets the scales of a block whose quants are random bits so that its elements
// are uniform in [-half_width, half_width] (but for half a step).
void SetUniformScales(WeightType type, float half_width, uint8_t* block);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_BLOCK_QUANTS_H_
