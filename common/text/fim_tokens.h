// Fill-in-the-middle tokens: a model that was trained with them writes what
// belongs between a prefix and a suffix.
//
//   PREFIX text before SUFFIX text after MIDDLE -> the text between
//
// Source: Bavarian et al., "Efficient Training of Language Models to Fill in
// the Middle", arXiv:2207.14255 (prefix-suffix-middle order); Hui et al.,
// "Qwen2.5-Coder Technical Report", arXiv:2409.12186 (files of a repository).
// Pure functions, thread-safe.
#ifndef FORETOKEN_COMMON_TEXT_FIM_TOKENS_H_
#define FORETOKEN_COMMON_TEXT_FIM_TOKENS_H_

#include <cstddef>
#include <vector>

#include "common/base/types.h"
#include "common/text/vocabulary.h"

namespace foretoken {

// -1: the model has no such token.
struct FimTokens {
  TokenId prefix = -1;
  TokenId suffix = -1;
  TokenId middle = -1;
  TokenId pad = -1;
  TokenId repository = -1;  // before a repository's name
  TokenId file = -1;        // before a file's name
  // Ends the middle even where the end token of the model's chats is another.
  TokenId end_of_text = -1;

  // Whether the model fills in the middle at all.
  bool complete() const { return prefix >= 0 && suffix >= 0 && middle >= 0; }
  // The tokens that the model has. Each of them ends a middle.
  std::vector<TokenId> ends() const;
};

// At most so many ids are in ends().
inline constexpr size_t kMaxFimEnds = 7;

// Those that `vocabulary` has under the names that Qwen2.5-Coder, StarCoder2,
// Granite and DeepSeek-Coder give them, with those that `named` has in their
// place. Prefix, suffix and middle are of one family.
FimTokens FindFimTokens(const Vocabulary& vocabulary, const FimTokens& named);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_TEXT_FIM_TOKENS_H_
