// Seeded random tensors; filling a gigabyte takes about a second.
//
// Element i depends on (key, i) alone: a counter-based generator makes the
// result independent of filling order and thread count.
#ifndef FORETOKEN_COMMON_INFER_RANDOM_WEIGHTS_H_
#define FORETOKEN_COMMON_INFER_RANDOM_WEIGHTS_H_

#include <cstdint>

#include "common/infer/model_config.h"
#include "common/infer/tensor_layout.h"
#include "common/infer/weight_types.h"

namespace foretoken {

// Increment with every change that may change an element: the digest of random
// weights names it in the place of their bytes.
inline constexpr int kRandomWeightsVersion = 1;

// A well-mixed function of both words (the finaliser of splitmix64).
uint64_t MixRandom(uint64_t key, uint64_t counter);

// Writes rows * cols elements of `type`, whole blocks, to `data`, which must be
// 4-byte aligned. Matrices are uniform around 0, norms around 1; quantised
// types are for matrices only.
void FillRandomTensor(const TensorSlot& slot, const ModelConfig& config,
                      WeightType type, uint64_t key, uint8_t* data);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_RANDOM_WEIGHTS_H_
