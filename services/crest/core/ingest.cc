#include "services/crest/core/ingest.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest_build/crest_builder.h"
#include "common/drafting/crest_build/memory_use.h"

namespace foretoken::crest {
namespace {

constexpr int32_t kMaxTop = 1'000'000;
// A byte takes at most six in JSON (\u0000), and a row adds its framing: the
// bound on a line of the corpus file.
constexpr int64_t kJsonFactor = 6;
constexpr int64_t kJsonFrame = 64;

absl::Status Over(const char* what, int64_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("ingest: more than ", limit, " ", what));
}

absl::Status Cancelled() {
  return absl::CancelledError("ingest: cancelled, nothing was published");
}

// Forwards to `sink` until cancelled.
class CancellableSink final : public DatastoreSink {
 public:
  CancellableSink(std::unique_ptr<DatastoreSink> sink,
                  const std::function<bool()>& cancelled)
      : sink_(std::move(sink)), cancelled_(cancelled) {}

  absl::Status Add(uint64_t ngram_hash, absl::string_view record) override {
    // Asked at every record, because writing them is what takes longest.
    return cancelled_() ? Cancelled() : sink_->Add(ngram_hash, record);
  }
  absl::StatusOr<int64_t> Publish(const CrestMeta& meta) override {
    if (cancelled_()) return Cancelled();
    return sink_->Publish(meta);
  }

 private:
  const std::unique_ptr<DatastoreSink> sink_;
  const std::function<bool()>& cancelled_;
};

}  // namespace

Ingest::Ingest(const IngestLimits& limits, std::string folder)
    : limits_(limits), folder_(std::move(folder)) {}

absl::StatusOr<std::unique_ptr<Ingest>> Ingest::Begin(
    const IngestLimits& limits, int32_t max_n, int32_t top) {
  if (max_n < 0 || max_n > kMaxCrestN) {
    return absl::InvalidArgumentError(absl::StrCat(
        "config.max_n: ", max_n, ", want 0 (default) or 1..", kMaxCrestN));
  }
  if (top < 0 || top > kMaxTop) {
    return absl::InvalidArgumentError(absl::StrCat(
        "config.top: ", top, ", want 0 (default) or 1..", kMaxTop));
  }
  std::error_code ignored;
  const std::string parent =
      limits.folder.empty()
          ? std::filesystem::temp_directory_path(ignored).string()
          : limits.folder;
  // mkdtemp creates a folder with mode 0700: documents may be private.
  std::string folder = absl::StrCat(parent, "/foretoken-ingest-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "ingest: cannot create a private folder: ", std::strerror(errno)));
  }
  std::unique_ptr<Ingest> ingest(new Ingest(limits, std::move(folder)));
  ingest->max_n_ = max_n;
  ingest->top_ = top;
  ingest->corpus_.open(ingest->File("corpus.jsonl"), std::ios::binary);
  if (!ingest->corpus_) {
    return absl::UnavailableError("ingest: cannot create a file");
  }
  return ingest;
}

Ingest::~Ingest() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

absl::Status Ingest::Add(absl::string_view document) {
  if (document.empty()) return absl::OkStatus();
  const int64_t bytes = static_cast<int64_t>(document.size());
  if (bytes > limits_.document_bytes) {
    return Over("bytes in a document", limits_.document_bytes);
  }
  if (documents_ >= limits_.documents) {
    return Over("documents", limits_.documents);
  }
  // A subtraction, which cannot overflow.
  if (bytes > limits_.bytes - bytes_) return Over("bytes", limits_.bytes);
  ++documents_;
  bytes_ += bytes;
  corpus_ << DumpJson({{"text", std::string(document)}}) << '\n';
  if (!corpus_) {
    return absl::ResourceExhaustedError("ingest: the folder's disk is full");
  }
  return absl::OkStatus();
}

absl::StatusOr<IngestResult> Ingest::Finish(
    const Tokenizer& tokenizer, VersionOrigin& origin,
    const std::function<bool()>& cancelled) {
  // Closing flushes: a full disk may show only here.
  corpus_.close();
  if (!corpus_) {
    return absl::ResourceExhaustedError("ingest: the folder's disk is full");
  }
  if (documents_ == 0) {
    return absl::InvalidArgumentError("ingest: no document, want at least one");
  }
  if (cancelled()) return Cancelled();
  CrestBuildOptions options;
  options.corpus.paths = {File("corpus.jsonl")};
  options.corpus.max_line_bytes =
      static_cast<size_t>(kJsonFactor * limits_.document_bytes + kJsonFrame);
  if (max_n_ > 0) options.max_n = static_cast<uint32_t>(max_n_);
  if (top_ > 0) options.top = static_cast<uint64_t>(top_);
  // The builder's limit is one of the whole process, which already holds the
  // served datastores.
  options.memory_bytes =
      ResidentBytes() + static_cast<uint64_t>(limits_.memory_bytes);
  options.threads = limits_.threads;
  options.work_folder = File("work");
  options.progress = false;
  FORETOKEN_ASSIGN_OR_RETURN(
      const CrestBuildReport report,
      BuildCrest(options, tokenizer,
                 [&](const CrestMeta& meta, const TokenTable& table)
                     -> absl::StatusOr<std::unique_ptr<DatastoreSink>> {
                   if (cancelled()) return Cancelled();
                   FORETOKEN_ASSIGN_OR_RETURN(auto sink,
                                              origin.NewVersion(meta, table));
                   return std::make_unique<CancellableSink>(std::move(sink),
                                                            cancelled);
                 }));
  return IngestResult{report.version,
                      static_cast<int64_t>(report.meta.corpus_documents),
                      static_cast<int64_t>(report.meta.corpus_tokens)};
}

}  // namespace foretoken::crest
