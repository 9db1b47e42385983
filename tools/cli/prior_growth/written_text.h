// WrittenText: what a target has written for a prior, as the corpus that
// BuildPrior takes, and, if asked for, as JSONL rows on disk.
//
// Bounded: outputs beyond `max_tokens` are cut, and full() is true.
// Thread-safe.
#ifndef FORETOKEN_TOOLS_CLI_PRIOR_GROWTH_WRITTEN_TEXT_H_
#define FORETOKEN_TOOLS_CLI_PRIOR_GROWTH_WRITTEN_TEXT_H_

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/types.h"

namespace foretoken::cli {

// One output of the target.
struct WrittenOutput {
  int64_t number = 0;           // of its request
  std::string prompt;           // empty for a prompt of token ids
  std::string text;             // empty from a target without a tokenizer
  std::vector<TokenId> tokens;  // end token included
};

class WrittenText {
 public:
  explicit WrittenText(int64_t max_tokens) : max_tokens_(max_tokens) {}

  // Also writes every output to a JSONL file, as it is added: a row has `id`,
  // `prompt`, `output` and `tokens`, the number of its tokens. The rows are a
  // corpus of `foretoken prior build` and `foretoken crest build`. Replaces the
  // file; PermissionDenied if it cannot be written. Call first.
  absl::Status WriteRows(const std::string& path);

  // Empty outputs are left out. An error of the file of rows is reported by
  // Finish.
  void Add(const WrittenOutput& output) ABSL_LOCKS_EXCLUDED(mu_);

  bool full() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t outputs() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t tokens() const ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the outputs, each followed by kDocumentBorder, and forgets them.
  std::vector<TokenId> TakeCorpus() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the file of rows; DataLoss, naming it, if a row could not be written.
  absl::Status Finish() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const int64_t max_tokens_;
  mutable absl::Mutex mu_;
  std::vector<TokenId> corpus_ ABSL_GUARDED_BY(mu_);
  int64_t outputs_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t tokens_ ABSL_GUARDED_BY(mu_) = 0;
  std::string rows_path_ ABSL_GUARDED_BY(mu_);  // empty: no rows
  std::ofstream rows_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_PRIOR_GROWTH_WRITTEN_TEXT_H_
