// Types shared by every part of Foretoken.
#ifndef FORETOKEN_COMMON_BASE_TYPES_H_
#define FORETOKEN_COMMON_BASE_TYPES_H_

#include <cstdint>

namespace foretoken {

// Index into a model's vocabulary, 0..vocab_size-1. Negative values are never
// tokens.
using TokenId = int32_t;

// Parent index of a row directly below the committed context.
inline constexpr int32_t kRootParent = -1;

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_TYPES_H_
