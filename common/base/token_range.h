// Checks that token ids belong to a vocabulary.
// Thread-safe: stateless functions.
#ifndef FORETOKEN_COMMON_BASE_TOKEN_RANGE_H_
#define FORETOKEN_COMMON_BASE_TOKEN_RANGE_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

constexpr bool InVocabulary(TokenId token, int32_t vocab_size) {
  return token >= 0 && token < vocab_size;
}

inline bool AllInVocabulary(absl::Span<const TokenId> tokens,
                            int32_t vocab_size) {
  return std::all_of(tokens.begin(), tokens.end(), [&](TokenId token) {
    return InVocabulary(token, vocab_size);
  });
}

// InvalidArgument names the field and the first token outside the vocabulary.
inline absl::Status CheckTokenIds(absl::string_view field,
                                  absl::Span<const TokenId> tokens,
                                  int32_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (InVocabulary(tokens[i], vocab_size)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": token ", i, " is ", tokens[i],
                     ", the vocabulary is 0..", vocab_size - 1));
  }
  return absl::OkStatus();
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_TOKEN_RANGE_H_
