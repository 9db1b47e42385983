// Suffix array of a token sequence, in linear time.
//
// Source: Nong, Zhang, Chan, "Two Efficient Algorithms for Linear Time Suffix
// Array Construction" (2011), induced sorting.
#ifndef FORETOKEN_TESTS_LAB_REST_SUFFIX_ARRAY_H_
#define FORETOKEN_TESTS_LAB_REST_SUFFIX_ARRAY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

// Returns the start positions of all suffixes of `tokens` in ascending order, a
// suffix before the longer ones that it begins. Tokens are in 0..vocab_size-1;
// at most 2^31 - 2 of them. Needs about 13 bytes per token while running.
std::vector<int32_t> BuildSuffixArray(absl::Span<const TokenId> tokens,
                                      int32_t vocab_size);

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_REST_SUFFIX_ARRAY_H_
