#include "common/drafting/corpus_reader.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/drafting/json_rows.h"
#include "common/text/utf8.h"

namespace foretoken {
namespace {

namespace fs = std::filesystem;

// In order of precedence: recorded answers have both `output` and `prompt`.
constexpr const char* kTextFields[] = {"output", "text", "prompt"};

bool IsJsonl(absl::string_view path) {
  absl::ConsumeSuffix(&path, ".gz");
  return absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".ndjson");
}

std::string Where(const std::string& file, int64_t line) {
  return absl::StrCat(file, ":", line);
}

// Returns a row's id as text; recorded sets use numbers or strings.
absl::StatusOr<std::string> IdOf(const Json& row) {
  const auto id = row.find("id");
  if (id == row.end()) return absl::NotFoundError("field \"id\" is missing");
  if (id->is_string()) return id->get<std::string>();
  if (id->is_number_integer()) return id->dump();
  return absl::InvalidArgumentError(absl::StrCat(
      "field \"id\" is a ", id->type_name(), ", want a string or an integer"));
}

absl::StatusOr<std::string> TextOf(Json& row) {
  for (const char* field : kTextFields) {
    const auto text = row.find(field);
    if (text == row.end()) continue;
    if (!text->is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field \"", field, "\" is a ", text->type_name(), ", want a string"));
    }
    return std::move(text->get_ref<std::string&>());
  }
  return absl::InvalidArgumentError(
      "none of the fields \"output\", \"text\", \"prompt\"");
}

// Errors caused by the contents of the corpus, as opposed to reading it.
bool IsBadInput(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
}

}  // namespace

std::vector<std::string> DefaultCorpusSuffixes() {
  return {".py",  ".c",   ".h",  ".cc",    ".cpp",    ".hpp",    ".cu",
          ".rs",  ".go",  ".js", ".ts",    ".java",   ".kt",     ".swift",
          ".cs",  ".rb",  ".pl", ".php",   ".scala",  ".lua",    ".sh",
          ".sql", ".txt", ".md", ".jsonl", ".ndjson", ".txt.gz", ".jsonl.gz"};
}

absl::StatusOr<std::unique_ptr<CorpusReader>> CorpusReader::Open(
    CorpusOptions options) {
  if (options.paths.empty()) {
    return absl::InvalidArgumentError("corpus: no path given");
  }
  std::unique_ptr<CorpusReader> reader(new CorpusReader(std::move(options)));
  FORETOKEN_RETURN_IF_ERROR(reader->ListFiles());
  FORETOKEN_RETURN_IF_ERROR(reader->ReadExcludedIds());
  return reader;
}

absl::Status CorpusReader::ListFiles() {
  for (const std::string& path : options_.paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      FORETOKEN_RETURN_IF_ERROR(AddFolder(path));
    } else {
      FORETOKEN_RETURN_IF_ERROR(AddFile(path));
    }
  }
  return absl::OkStatus();
}

absl::Status CorpusReader::AddFolder(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error);
  for (; !error && entries != fs::recursive_directory_iterator();
       entries.increment(error)) {
    std::error_code unreadable;  // e.g. a dangling link: not a file
    if (!entries->is_regular_file(unreadable)) continue;
    const std::string path = entries->path().string();
    const bool wanted = std::any_of(
        options_.suffixes.begin(), options_.suffixes.end(),
        [&](const std::string& s) { return absl::EndsWith(path, s); });
    if (wanted) found.push_back(path);
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat(folder, ": list"));
  }
  if (found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": no file with a source or text suffix in it"));
  }
  // Directory order depends on the file system; the documents' must not.
  std::sort(found.begin(), found.end());
  for (const std::string& path : found) {
    FORETOKEN_RETURN_IF_ERROR(AddFile(path));
  }
  return absl::OkStatus();
}

absl::Status CorpusReader::AddFile(const std::string& path) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat(path, ": open"));
  }
  files_.push_back(path);
  file_bytes_.push_back(bytes);
  total_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status CorpusReader::ReadExcludedIds() {
  for (const std::string& path : options_.exclude_id_files) {
    FORETOKEN_RETURN_IF_ERROR(ForEachJsonRow(
        path,
        [&](const Json& row) -> absl::Status {
          absl::StatusOr<std::string> id = IdOf(row);
          // A missing id is NotFound for a corpus row, but an error here.
          if (!id.ok()) {
            return absl::InvalidArgumentError(id.status().message());
          }
          excluded_ids_.insert(*std::move(id));
          return absl::OkStatus();
        },
        options_.max_line_bytes));
  }
  return absl::OkStatus();
}

uint64_t CorpusReader::done_bytes() const {
  if (lines_ == nullptr) return finished_bytes_;
  return finished_bytes_ + static_cast<uint64_t>(lines_->file_offset());
}

absl::StatusOr<bool> CorpusReader::Next(CorpusDocument& document) {
  while (file_ < files_.size()) {
    rest_is_sound_ = false;
    const absl::StatusOr<bool> found = NextOfFile(document);
    if (found.ok() && *found) {
      ++documents_;
      return true;
    }
    // In a sound file the next call goes on after the bad document; otherwise
    // the rest of the file cannot be read.
    if (!found.ok()) {
      if (!options_.skip_invalid || !IsBadInput(found.status())) return found;
      ++invalid_;
      if (rest_is_sound_) continue;
      ++broken_files_;
      FORETOKEN_LOG(kWarning, "corpus: skipping the rest of a file: ",
                    std::string(found.status().message()));
    }
    finished_bytes_ += file_bytes_[file_];
    ++file_;
    lines_.reset();
  }
  return false;
}

absl::StatusOr<bool> CorpusReader::NextOfFile(CorpusDocument& document) {
  if (lines_ == nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(
        lines_, LineReader::Open(files_[file_], options_.max_line_bytes));
  }
  return IsJsonl(files_[file_]) ? NextRow(document) : NextText(document);
}

absl::StatusOr<bool> CorpusReader::NextRow(CorpusDocument& document) {
  while (true) {
    const absl::StatusOr<bool> more = lines_->Next(line_);
    // LineReader goes on after a line that is too long, not after other errors.
    rest_is_sound_ = absl::IsResourceExhausted(more.status());
    if (!more.ok() || !*more) return more;
    if (IsBlankRow(line_)) continue;
    const absl::StatusOr<bool> taken = TakeRow(document);
    if (!taken.ok()) {
      rest_is_sound_ = true;
      return Annotate(taken.status(),
                      Where(files_[file_], lines_->line_number()));
    }
    if (*taken) return true;
  }
}

absl::StatusOr<bool> CorpusReader::TakeRow(CorpusDocument& document) {
  FORETOKEN_ASSIGN_OR_RETURN(Json row, ParseJsonRow(line_));
  if (!excluded_ids_.empty()) {
    const absl::StatusOr<std::string> id = IdOf(row);
    if (!id.ok() && !absl::IsNotFound(id.status())) return id.status();
    if (id.ok() && excluded_ids_.contains(*id)) {
      ++excluded_;
      return false;
    }
  }
  FORETOKEN_ASSIGN_OR_RETURN(document.text, TextOf(row));
  document.source = files_[file_];
  document.line = lines_->line_number();
  return !document.text.empty();
}

absl::StatusOr<bool> CorpusReader::NextText(CorpusDocument& document) {
  document.text.clear();
  document.source = files_[file_];
  document.line = 0;
  absl::Status bad;  // a bad document is skipped whole: read it to its end
  size_t bytes = 0;
  while (bytes < kTextDocumentBytes) {
    const absl::StatusOr<bool> more = lines_->Next(line_);
    if (!more.ok() && !absl::IsResourceExhausted(more.status())) return more;
    absl::Status status = more.status();
    if (more.ok()) {
      if (!*more) break;
      status = CheckUtf8();
    }
    if (!status.ok() && !options_.skip_invalid) return status;
    bad.Update(status);
    bytes += line_.size() + 1;
    if (!bad.ok()) continue;
    if (document.line == 0) document.line = lines_->line_number();
    document.text += line_;
    if (lines_->terminated()) document.text += '\n';
  }
  rest_is_sound_ = true;
  if (!bad.ok()) return bad;
  return !document.text.empty();
}

absl::Status CorpusReader::CheckUtf8() const {
  const size_t valid = ValidUtf8Prefix(line_);
  if (valid == line_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Where(files_[file_], lines_->line_number()),
                   ": invalid UTF-8 at byte ", valid + 1));
}

}  // namespace foretoken
