// Tokenises a corpus into a token file, on all threads of a pool.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CORPUS_TOKENS_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CORPUS_TOKENS_H_

#include "absl/status/status.h"
#include "common/base/progress_bar.h"
#include "common/base/thread_pool.h"
#include "common/drafting/corpus_reader.h"
#include "common/drafting/crest_build/token_file.h"
#include "common/text/tokenizer.h"

namespace foretoken {

// Writes the tokens and the end token of every document of `corpus`, in order.
// `progress` advances by the corpus's bytes on disk. Holds a few megabytes of
// text at a time.
absl::Status WriteCorpusTokens(CorpusReader& corpus, const Tokenizer& tokenizer,
                               ThreadPool& pool, TokenFileWriter& writer,
                               Progress& progress);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CORPUS_TOKENS_H_
