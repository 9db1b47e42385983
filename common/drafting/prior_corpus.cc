#include "common/drafting/prior_corpus.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/drafting/ngram_counts.h"

namespace foretoken {

absl::StatusOr<std::vector<TokenId>> ReadPriorCorpus(
    CorpusReader& reader, const Tokenizer& tokenizer,
    absl::FunctionRef<void(uint64_t)> progress) {
  std::vector<TokenId> corpus;
  CorpusDocument document;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, reader.Next(document));
    if (!more) return corpus;
    const std::vector<TokenId> ids = tokenizer.Encode(document.text);
    // Room for the end token and the border as well.
    if (static_cast<int64_t>(corpus.size() + ids.size()) + 2 >
        kMaxPriorCorpusTokens) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%s:%d: the corpus has more than %d tokens", document.source,
          document.line, kMaxPriorCorpusTokens));
    }
    corpus.insert(corpus.end(), ids.begin(), ids.end());
    if (tokenizer.eos_token() >= 0) corpus.push_back(tokenizer.eos_token());
    corpus.push_back(kDocumentBorder);
    progress(reader.done_bytes());
  }
}

}  // namespace foretoken
