// CorpusReader: streams the documents of a corpus in a fixed order.
//
// A corpus is a list of paths. Each path is one of
//   - a JSONL file (.jsonl, .ndjson, gzip or plain): one object per line. The
//     text is the first of the string fields `output`, `text`, `prompt` that is
//     present; rows may be excluded by their `id`;
//   - any other file, gzip or plain: text, one document; larger files are cut
//     at line ends into documents of about kTextDocumentBytes;
//   - a folder: its files whose names end in one of `suffixes`, sorted by path,
//     each as above. Links to files are followed, links to folders are not.
//
// Memory is bounded by the maximum line length, whatever the corpus size. The
// same corpus yields the same documents in the same order every time.
// Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_CORPUS_READER_H_
#define FORETOKEN_COMMON_DRAFTING_CORPUS_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/file.h"

namespace foretoken {

// Default suffixes of the files taken from a folder.
std::vector<std::string> DefaultCorpusSuffixes();

struct CorpusOptions {
  std::vector<std::string> paths;
  // JSONL files whose rows have an `id` (recorded sets). Corpus rows with one
  // of these ids are left out, so that no drafter is measured on its own text.
  std::vector<std::string> exclude_id_files;
  std::vector<std::string> suffixes = DefaultCorpusSuffixes();
  size_t max_line_bytes = size_t{16} << 20;
  // Skip and count invalid input instead of failing: JSON lines that do not
  // parse or are too long; documents of a text file that are not valid UTF-8 or
  // contain a line that is too long; and the rest of a damaged or truncated
  // gzip stream, which is also logged.
  bool skip_invalid = false;
};

struct CorpusDocument {
  std::string text;    // valid UTF-8, never empty
  std::string source;  // the file it came from
  int64_t line = 0;    // line of its first byte in that file, from 1
};

class CorpusReader {
 public:
  static constexpr size_t kTextDocumentBytes = size_t{1} << 20;

  // Lists the files and reads the excluded ids. NotFound names a missing path;
  // InvalidArgument a folder without matching files, or an id file with a row
  // that has no id.
  static absl::StatusOr<std::unique_ptr<CorpusReader>> Open(
      CorpusOptions options);

  // Reads the next document and returns true; false at the end of the corpus.
  // Errors name file, line and field: InvalidArgument (bad JSON, no text field,
  // invalid UTF-8, broken gzip), ResourceExhausted (line over the limit).
  absl::StatusOr<bool> Next(CorpusDocument& document);

  const std::vector<std::string>& files() const { return files_; }

  // Progress, in bytes on disk.
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t done_bytes() const;

  int64_t documents() const { return documents_; }  // returned so far
  int64_t excluded() const { return excluded_; }    // skipped by id
  int64_t invalid() const { return invalid_; }      // skipped by skip_invalid
  // Number of files that could not be read to their end.
  int64_t broken_files() const { return broken_files_; }

 private:
  explicit CorpusReader(CorpusOptions options) : options_(std::move(options)) {}

  absl::Status ListFiles();
  absl::Status AddFolder(const std::string& folder);
  absl::Status AddFile(const std::string& path);
  absl::Status ReadExcludedIds();
  absl::StatusOr<bool> NextOfFile(CorpusDocument& document);
  absl::StatusOr<bool> NextRow(CorpusDocument& document);
  absl::StatusOr<bool> NextText(CorpusDocument& document);
  // Parses one JSONL line; false if its id is excluded or its text is empty.
  absl::StatusOr<bool> TakeRow(CorpusDocument& document);
  absl::Status CheckUtf8() const;  // checks line_

  CorpusOptions options_;
  std::vector<std::string> files_;
  std::vector<uint64_t> file_bytes_;  // [files]
  absl::flat_hash_set<std::string> excluded_ids_;
  uint64_t total_bytes_ = 0;
  uint64_t finished_bytes_ = 0;  // bytes of the files before the current one
  size_t file_ = 0;              // index of the current file
  std::unique_ptr<LineReader> lines_;
  std::string line_;
  bool rest_is_sound_ = false;  // the last error concerns one document only
  int64_t documents_ = 0;
  int64_t excluded_ = 0;
  int64_t invalid_ = 0;
  int64_t broken_files_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CORPUS_READER_H_
