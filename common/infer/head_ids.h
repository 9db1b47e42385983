// The part of the vocabulary whose logits a draft model computes.
//
// The LM head is a large share of a small model's bytes, and most of its rows
// belong to tokens that hardly occur. The draft model never draws an id outside
// the part; the target still may.
//
// Source: FR-Spec, arXiv:2502.14856. Pure functions; thread-safe.
#ifndef FORETOKEN_COMMON_INFER_HEAD_IDS_H_
#define FORETOKEN_COMMON_INFER_HEAD_IDS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken {

// At most `size` ids of a vocabulary, ascending: `ends`, without which no draft
// could end, then those of `first` in their order, then the lowest ids, which
// are the commonest in vocabularies that are ordered by their merges. Ids
// outside the vocabulary are skipped. Empty, which means all, if `size` is 0 or
// not less than the vocabulary's. All of `ends` are taken, whatever `size` is.
std::vector<TokenId> ChooseHeadIds(int32_t vocab_size, int32_t size,
                                   absl::Span<const TokenId> ends,
                                   absl::Span<const TokenId> first);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_HEAD_IDS_H_
