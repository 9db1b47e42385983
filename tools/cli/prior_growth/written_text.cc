#include "tools/cli/prior_growth/written_text.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/drafting/ngram_counts.h"

namespace foretoken::cli {

absl::Status WrittenText::WriteRows(const std::string& path) {
  absl::MutexLock lock(&mu_);
  rows_.open(path, std::ios::binary | std::ios::trunc);
  if (!rows_) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot be written"));
  }
  // Set only now, as it marks that rows are written.
  rows_path_ = path;
  return absl::OkStatus();
}

void WrittenText::Add(const WrittenOutput& output) {
  absl::MutexLock lock(&mu_);
  // A prior has a size: the output that reaches it is cut, and the rest of the
  // running requests is dropped.
  const int64_t size = std::min(static_cast<int64_t>(output.tokens.size()),
                                max_tokens_ - tokens_);
  if (size <= 0) return;
  corpus_.insert(corpus_.end(), output.tokens.begin(),
                 output.tokens.begin() + static_cast<ptrdiff_t>(size));
  // No n-gram may reach across two outputs that never followed each other.
  corpus_.push_back(kDocumentBorder);
  ++outputs_;
  tokens_ += size;
  if (rows_path_.empty()) return;
  Json row = {{"id", absl::StrCat("written/", output.number)},
              {"output", output.text},
              {"tokens", output.tokens.size()}};
  if (!output.prompt.empty()) row["prompt"] = output.prompt;
  // Whole rows, so that what was written outlives a killed process.
  rows_ << absl::StrCat(DumpJson(row), "\n") << std::flush;
}

bool WrittenText::full() const {
  absl::MutexLock lock(&mu_);
  return tokens_ >= max_tokens_;
}

int64_t WrittenText::outputs() const {
  absl::MutexLock lock(&mu_);
  return outputs_;
}

int64_t WrittenText::tokens() const {
  absl::MutexLock lock(&mu_);
  return tokens_;
}

std::vector<TokenId> WrittenText::TakeCorpus() {
  absl::MutexLock lock(&mu_);
  return std::exchange(corpus_, {});
}

absl::Status WrittenText::Finish() {
  absl::MutexLock lock(&mu_);
  if (rows_path_.empty()) return absl::OkStatus();
  rows_.close();
  if (!rows_) {
    return absl::DataLossError(
        absl::StrCat(rows_path_, ": not all rows could be written"));
  }
  return absl::OkStatus();
}

}  // namespace foretoken::cli
