#include "common/drafting/rest/rest_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/drafting/rest/suffix_array.h"

namespace foretoken {

absl::StatusOr<RestStore> RestStore::Create(const std::vector<TokenId>& tokens,
                                            int32_t vocab_size) {
  if (tokens.empty() || tokens.size() > INT32_MAX - 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "REST store: ", tokens.size(), " tokens, want 1..", INT32_MAX - 1));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "REST store: token ", token, ", want 0..", vocab_size - 1));
    }
  }
  RestStore store;
  store.suffixes_ = BuildSuffixArray(tokens, vocab_size);
  // The packed copy halves the memory of the tokens.
  if (vocab_size <= 0x10000) {
    store.narrow_.assign(tokens.begin(), tokens.end());
  } else {
    store.wide_ = tokens;
  }
  return store;
}

int RestStore::Compare(int64_t i, absl::Span<const TokenId> pattern) const {
  for (size_t k = 0; k < pattern.size(); ++k) {
    const TokenId token = TokenAt(i, static_cast<int64_t>(k));
    if (token != pattern[k]) return token < pattern[k] ? -1 : 1;
  }
  return 0;
}

// Two bisections: the first suffix not below the pattern, then the first above
// it.
RestStore::Range RestStore::Find(absl::Span<const TokenId> pattern) const {
  Range range{0, size()};
  int64_t high = range.end;
  while (range.begin < high) {
    const int64_t middle = range.begin + (high - range.begin) / 2;
    if (Compare(middle, pattern) < 0) {
      range.begin = middle + 1;
    } else {
      high = middle;
    }
  }
  int64_t low = range.begin;
  while (low < range.end) {
    const int64_t middle = low + (range.end - low) / 2;
    if (Compare(middle, pattern) <= 0) {
      low = middle + 1;
    } else {
      range.end = middle;
    }
  }
  return range;
}

}  // namespace foretoken
