// A read-only memory-mapped file.
//
// Thread-compatible. The bytes stay valid for the object's life. If another
// process truncates the file while it is mapped, access raises SIGBUS, as with
// any mmap: replace model files by rename, never in place.
#ifndef FORETOKEN_COMMON_BASE_MAPPED_FILE_H_
#define FORETOKEN_COMMON_BASE_MAPPED_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace foretoken {

class MappedFile {
 public:
  // Errors name the path: NotFound, PermissionDenied, InvalidArgument (not a
  // regular file) or Internal. An empty file maps to an empty span.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile();

  absl::Span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_MAPPED_FILE_H_
