// Tokenises a corpus for a static prior.
#ifndef FORETOKEN_COMMON_DRAFTING_PRIOR_CORPUS_H_
#define FORETOKEN_COMMON_DRAFTING_PRIOR_CORPUS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/drafting/corpus_reader.h"
#include "common/text/tokenizer.h"

namespace foretoken {

// Larger corpora are refused: building a prior holds the whole corpus and all
// its n-grams in memory, about 150 bytes per token.
inline constexpr int64_t kMaxPriorCorpusTokens = int64_t{1} << 28;

// Returns the ids of every document, each followed by the tokenizer's end
// token, if it has one (a document is a finished answer), and by
// kDocumentBorder. Calls `progress` from time to time with the bytes read so
// far. Errors are the reader's; ResourceExhausted names file and line if the
// corpus is too large.
absl::StatusOr<std::vector<TokenId>> ReadPriorCorpus(
    CorpusReader& reader, const Tokenizer& tokenizer,
    absl::FunctionRef<void(uint64_t)> progress);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PRIOR_CORPUS_H_
