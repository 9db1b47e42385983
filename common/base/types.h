// Vocabulary types that every part of Foretoken shares.
#ifndef FORETOKEN_COMMON_BASE_TYPES_H_
#define FORETOKEN_COMMON_BASE_TYPES_H_

#include <cstdint>

namespace foretoken {

// Index into a model's vocabulary, 0 .. vocab_size-1. Negative is never a
// token.
using TokenId = int32_t;

// Parent index of a row that hangs on the committed context itself.
inline constexpr int32_t kRootParent = -1;

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_TYPES_H_
