#include "tests/lab/rest/rest_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/token_range.h"
#include "tests/lab/rest/suffix_array.h"

namespace foretoken {

absl::Status RestStore::CheckTokens(absl::Span<const TokenId> tokens,
                                    int32_t vocab_size) {
  if (tokens.empty() || tokens.size() > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        "REST store: ", tokens.size(), " tokens, want 1..", kMaxTokens));
  }
  for (const TokenId token : tokens) {
    if (!InVocabulary(token, vocab_size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "REST store: token ", token, ", want 0..", vocab_size - 1));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RestStore> RestStore::Create(const std::vector<TokenId>& tokens,
                                            int32_t vocab_size) {
  FORETOKEN_RETURN_IF_ERROR(CheckTokens(tokens, vocab_size));
  RestStore store;
  store.suffixes_ = BuildSuffixArray(tokens, vocab_size);
  // The packed copy halves the memory of the tokens.
  if (vocab_size <= kNarrowVocab) {
    store.narrow_.assign(tokens.begin(), tokens.end());
  } else {
    store.wide_ = tokens;
  }
  return store;
}

int RestStore::Compare(int64_t at, absl::Span<const TokenId> pattern) const {
  for (const TokenId wanted : pattern) {
    const TokenId token = Token(at++);
    if (token != wanted) return token < wanted ? -1 : 1;
  }
  return 0;
}

RestStore::Range RestStore::Find(absl::Span<const TokenId> pattern) const {
  // In suffix order: those below the pattern, those that start with it, those
  // above it.
  const auto begin = std::partition_point(
      suffixes_.begin(), suffixes_.end(),
      [&](int32_t at) { return Compare(at, pattern) < 0; });
  const auto end = std::partition_point(
      begin, suffixes_.end(),
      [&](int32_t at) { return Compare(at, pattern) == 0; });
  return {begin - suffixes_.begin(), end - suffixes_.begin()};
}

}  // namespace foretoken
