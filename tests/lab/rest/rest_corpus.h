// The text of a REST store: all documents of a corpus.
#ifndef FORETOKEN_TESTS_LAB_REST_REST_CORPUS_H_
#define FORETOKEN_TESTS_LAB_REST_REST_CORPUS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/types.h"
#include "common/drafting/corpus_reader.h"
#include "common/text/tokenizer.h"
#include "tests/lab/rest/rest_store.h"

namespace foretoken {

struct RestCorpus {
  std::vector<TokenId> tokens;  // each document followed by the end token
  int64_t documents = 0;
};
// ResourceExhausted beyond RestStore::kMaxTokens.
absl::StatusOr<RestCorpus> ReadRestCorpus(const CorpusOptions& options,
                                          const Tokenizer& tokenizer);

// Builds REST's store from the corpus of `paths`.
absl::StatusOr<std::shared_ptr<const RestStore>> BuildRestStore(
    const std::vector<std::string>& paths,
    const std::vector<std::string>& exclude_id_files,
    const Tokenizer& tokenizer);

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_REST_REST_CORPUS_H_
