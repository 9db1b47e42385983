// Encoding of weights in the types that `foretoken quantize` writes.
//
// Source: ggml, ggml-quants.c (quantize_row_*_ref). Pure functions;
// thread-safe.
#ifndef FORETOKEN_COMMON_INFER_BLOCK_ENCODING_H_
#define FORETOKEN_COMMON_INFER_BLOCK_ENCODING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/infer/weight_types.h"

namespace foretoken {

// Encodes `in`, whole blocks of finite values, into WeightTypeBytes(type,
// in.size()) bytes. Types: F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K, Q6_K. False
// if a value is too large for the type, so that an element or a scale became
// infinite; the bytes then mean nothing.
bool EncodeWeights(WeightType type, absl::Span<const float> in, uint8_t* out);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_BLOCK_ENCODING_H_
