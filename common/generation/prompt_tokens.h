// Tokens of a prompt that is not encoded yet, as quotas count them until the
// real number is known.
#ifndef FORETOKEN_COMMON_GENERATION_PROMPT_TOKENS_H_
#define FORETOKEN_COMMON_GENERATION_PROMPT_TOKENS_H_

#include <cstddef>
#include <cstdint>

#include "common/base/types.h"

namespace foretoken {

inline constexpr int64_t kTextBytesPerToken = 4;

// Estimate for `text_bytes` bytes of text or for `token_ids` ids, rounded
// down.
inline int64_t EstimatedTokens(size_t text_bytes, size_t token_ids) {
  return static_cast<int64_t>(text_bytes + token_ids * sizeof(TokenId)) /
         kTextBytesPerToken;
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_GENERATION_PROMPT_TOKENS_H_
