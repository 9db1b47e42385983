// Whole files, gzip or plain, and line readers with a bound.
#ifndef FORETOKEN_COMMON_BASE_FILE_H_
#define FORETOKEN_COMMON_BASE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken {

// Files larger than this (after decompression) are refused by ReadFile.
inline constexpr uint64_t kMaxWholeFileBytes = uint64_t{1} << 30;

// The whole file, decompressed if it begins with the gzip magic bytes.
// NotFound, InvalidArgument (broken gzip: damaged, cut off, or only named .gz),
// ResourceExhausted (over max_bytes); each names the path.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t max_bytes = kMaxWholeFileBytes);

// Writes to a temporary name beside `path`, syncs, and renames: a reader sees
// the old file or the new one, never half of one.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes);

// Opens the file `path`, made with mode 0600 where it is missing, for this
// process alone: a lock that dies with the process. Links are not followed.
// Gives the descriptor, the caller's to close; Aborted where another holds it.
absl::StatusOr<int> OpenLocked(const std::string& path);

// Reads a text file line by line, gzip or plain ("-" is stdin), without
// holding it whole. Owned by one thread.
class LineReader {
 public:
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(
      const std::string& path, size_t max_line_bytes = kMaxLineBytes);
  virtual ~LineReader() = default;

  // True and the next line without its newline; false at the end.
  // ResourceExhausted for a line over `max_line_bytes`, by file and line: the
  // next call gives the line after it. InvalidArgument, by file, for a broken
  // gzip stream: nothing more can be read.
  virtual absl::StatusOr<bool> Next(std::string& line) = 0;

  // Of the line that Next gave last, from 1.
  virtual int64_t line_number() const = 0;

  // True where the line that Next gave last ended in a newline: only the last
  // line of a file may lack one.
  virtual bool terminated() const = 0;

  // Bytes of the file, as it lies on disk, that were consumed so far: for
  // progress bars.
  virtual int64_t file_offset() const = 0;

  static constexpr size_t kMaxLineBytes = size_t{64} << 20;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_FILE_H_
