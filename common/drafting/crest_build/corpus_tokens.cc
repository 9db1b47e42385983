#include "common/drafting/crest_build/corpus_tokens.h"

#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// Two batches are in memory: one is encoded while the next is read.
constexpr size_t kBatchBytes = size_t{2} << 20;
// Overhead of a document besides its text, including its list of ids.
constexpr size_t kBytesPerDocument = 128;

struct Batch {
  std::vector<std::string> texts;
  absl::Status status;
  bool last = false;
};

void ReadBatch(CorpusReader& corpus, Batch& batch) {
  batch.texts.clear();
  size_t bytes = 0;
  CorpusDocument document;
  while (bytes < kBatchBytes) {
    const absl::StatusOr<bool> more = corpus.Next(document);
    if (!more.ok() || !*more) {
      batch.status = more.status();
      batch.last = true;
      return;
    }
    bytes += document.text.size() + kBytesPerDocument;
    batch.texts.push_back(std::move(document.text));
  }
}

}  // namespace

absl::Status WriteCorpusTokens(CorpusReader& corpus, const Tokenizer& tokenizer,
                               ThreadPool& pool, TokenFileWriter& writer,
                               Progress& progress) {
  Batch batch;
  Batch next;
  ReadBatch(corpus, batch);
  std::vector<std::vector<TokenId>> ids;
  while (true) {
    FORETOKEN_RETURN_IF_ERROR(batch.status);
    ids.resize(batch.texts.size());
    // One task reads ahead while the others encode.
    pool.ParallelFor(
        static_cast<int64_t>(batch.texts.size()) + 1, [&](int64_t i) {
          if (i == 0) {
            if (!batch.last) ReadBatch(corpus, next);
            return;
          }
          std::vector<TokenId> encoded = tokenizer.Encode(batch.texts[i - 1]);
          // Outputs end in this token as well, so that it may be drafted.
          if (tokenizer.eos_token() >= 0) {
            encoded.push_back(tokenizer.eos_token());
          }
          ids[i - 1] = std::move(encoded);
        });
    // In corpus order: the result must not depend on the threads.
    for (const std::vector<TokenId>& document : ids) {
      FORETOKEN_RETURN_IF_ERROR(writer.AddDocument(document));
    }
    progress.Set(corpus.done_bytes());
    if (batch.last) return writer.Finish();
    std::swap(batch, next);
  }
}

}  // namespace foretoken
