#include "common/infer/head_ids.h"

#include "common/base/token_range.h"

namespace foretoken {

std::vector<TokenId> ChooseHeadIds(int32_t vocab_size, int32_t size,
                                   absl::Span<const TokenId> ends,
                                   absl::Span<const TokenId> first) {
  if (size <= 0 || size >= vocab_size) return {};
  std::vector<bool> chosen(vocab_size, false);
  int32_t left = size;
  const auto choose = [&](TokenId id) {
    if (!InVocabulary(id, vocab_size) || chosen[id]) return;
    chosen[id] = true;
    --left;
  };
  for (const TokenId id : ends) choose(id);
  for (const TokenId id : first) {
    if (left <= 0) break;
    choose(id);
  }
  for (TokenId id = 0; id < vocab_size && left > 0; ++id) choose(id);
  std::vector<TokenId> ids;
  ids.reserve(size);
  for (TokenId id = 0; id < vocab_size; ++id) {
    if (chosen[id]) ids.push_back(id);
  }
  return ids;
}

}  // namespace foretoken
