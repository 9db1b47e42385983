#include "tests/lab/rest/rest_corpus.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"

namespace foretoken {

absl::StatusOr<RestCorpus> ReadRestCorpus(const CorpusOptions& options,
                                          const Tokenizer& tokenizer) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusReader> reader,
                             CorpusReader::Open(options));
  Progress progress("read REST corpus", reader->total_bytes(), "B",
                    isatty(STDERR_FILENO) != 0);
  RestCorpus corpus;
  CorpusDocument document;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, reader->Next(document));
    if (!more) return corpus;
    const std::vector<TokenId> ids = tokenizer.Encode(document.text);
    if (corpus.tokens.size() + ids.size() >= RestStore::kMaxTokens) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "REST corpus: want at most ", RestStore::kMaxTokens, " tokens"));
    }
    corpus.tokens.insert(corpus.tokens.end(), ids.begin(), ids.end());
    if (tokenizer.eos_token() >= 0) {
      corpus.tokens.push_back(tokenizer.eos_token());
    }
    ++corpus.documents;
    progress.Set(reader->done_bytes());
  }
}

absl::StatusOr<std::shared_ptr<const RestStore>> BuildRestStore(
    const std::vector<std::string>& paths,
    const std::vector<std::string>& exclude_id_files,
    const Tokenizer& tokenizer) {
  CorpusOptions options;
  options.paths = paths;
  options.exclude_id_files = exclude_id_files;
  FORETOKEN_ASSIGN_OR_RETURN(const RestCorpus corpus,
                             ReadRestCorpus(options, tokenizer));
  FORETOKEN_ASSIGN_OR_RETURN(
      RestStore store,
      RestStore::Create(corpus.tokens, tokenizer.vocab_size()));
  return std::make_shared<const RestStore>(std::move(store));
}

}  // namespace foretoken
