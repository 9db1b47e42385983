// A regular file open for reading at any offset. It may change or be truncated
// at any time: what is read must be checked, and may be shorter than asked for.
//
// Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_OPEN_FILE_H_
#define FORETOKEN_COMMON_BASE_OPEN_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace foretoken {

class OpenFile {
 public:
  // Errors name the path: NotFound, PermissionDenied, InvalidArgument (not a
  // regular file) or Internal.
  static absl::StatusOr<OpenFile> Open(const std::string& path);

  OpenFile() = default;
  OpenFile(OpenFile&& other) noexcept { *this = std::move(other); }
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~OpenFile();

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  // Bytes at the time of opening.
  uint64_t size() const { return size_; }

  // Reads out.size() bytes from `offset` on. Returns their number, which is
  // smaller only where the file ends; an error names the path.
  absl::StatusOr<size_t> ReadAt(uint64_t offset, absl::Span<uint8_t> out) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_OPEN_FILE_H_
