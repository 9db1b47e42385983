// Tokenises a corpus into a token file, on all cores.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CORPUS_TOKENS_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CORPUS_TOKENS_H_

#include "absl/status/status.h"
#include "common/base/progress.h"
#include "common/base/thread_pool.h"
#include "common/drafting/corpus_reader.h"
#include "common/drafting/crest_build/token_file.h"
#include "common/text/tokenizer.h"

namespace foretoken {

// Every document of `corpus`, its tokens and the end token, in order.
// `progress` advances by the corpus' bytes on disk. Memory: some megabytes of
// text at a time.
absl::Status WriteCorpusTokens(CorpusReader& corpus, const Tokenizer& tokenizer,
                               ThreadPool& pool, TokenFileWriter& writer,
                               Progress& progress);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_CORPUS_TOKENS_H_
