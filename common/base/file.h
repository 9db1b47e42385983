// Whole-file and line-by-line reads (gzip or plain, with size limits), atomic
// writes, and lock files.
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

// Returns the whole file, decompressed if it begins with the gzip magic bytes.
// Errors name the path: NotFound; InvalidArgument for a gzip file that is
// damaged or truncated, for a .gz file that is not gzip, or for a path that is
// no regular file ("-" is stdin): a pipe in a model's folder would block for
// ever; ResourceExhausted above max_bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t max_bytes = kMaxWholeFileBytes);

// Writes to a temporary file beside `path`, syncs it, and renames it: readers
// see the old file or the new one, never a partial write.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view bytes);

// Opens `path` (created with mode 0600 if missing) and takes an exclusive lock,
// which the kernel releases when the process ends. Symbolic links are not
// followed. Returns the descriptor, which the caller closes; Aborted if another
// process holds the lock.
absl::StatusOr<int> OpenLocked(const std::string& path);

// Reads a text file line by line, gzip or plain ("-" is stdin), without loading
// it whole. The file may be a pipe. Owned by one thread.
class LineReader {
 public:
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(
      const std::string& path, size_t max_line_bytes = kMaxLineBytes);
  virtual ~LineReader() = default;

  // Reads the next line, without its newline; returns false at the end.
  // ResourceExhausted names file and line for a line over `max_line_bytes`; the
  // next call continues with the line after it. InvalidArgument names the file
  // for a broken gzip stream, which cannot be read any further.
  virtual absl::StatusOr<bool> Next(std::string& line) = 0;

  // Number of the last line read, from 1.
  virtual int64_t line_number() const = 0;

  // Whether the last line read ended in a newline; only the last line of a file
  // may lack one.
  virtual bool terminated() const = 0;

  // Bytes of the file on disk (compressed, if it is gzip) consumed so far, for
  // progress bars.
  virtual int64_t file_offset() const = 0;

  static constexpr size_t kMaxLineBytes = size_t{64} << 20;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_FILE_H_
