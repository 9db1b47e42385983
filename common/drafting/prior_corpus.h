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

// More tokens than this are refused: a prior's build holds the whole corpus
// and all of its n-grams, about 150 bytes a token.
inline constexpr int64_t kMaxPriorCorpusTokens = int64_t{1} << 28;

// The ids of every document, each followed by the tokenizer's end token, if it
// has one (a document is a finished answer), and by kDocumentBorder.
// `progress` is called now and then with the bytes read so far. Errors are the
// reader's; ResourceExhausted, naming file and line, for too large a corpus.
absl::StatusOr<std::vector<TokenId>> ReadPriorCorpus(
    CorpusReader& reader, const Tokenizer& tokenizer,
    absl::FunctionRef<void(uint64_t)> progress);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_PRIOR_CORPUS_H_
