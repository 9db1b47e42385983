// The bytes of a file, read-only: mapped, or read into memory.
//
// Mapped pages are shared and cost nothing until they are read, but raise
// SIGBUS if the file is truncated in place: fit for what a process looks at
// once, before it serves. What is served comes from Read, or from an OpenFile.
//
// Thread-compatible. The bytes stay valid for the object's life.
#ifndef FORETOKEN_COMMON_BASE_MAPPED_FILE_H_
#define FORETOKEN_COMMON_BASE_MAPPED_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/open_file.h"

namespace foretoken {

class MappedFile {
 public:
  // Maps the file. Errors as OpenFile::Open's. An empty file maps to an empty
  // span.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  // Reads the file into memory: later changes to it do not reach the bytes.
  // Besides, ResourceExhausted if it does not fit, and Aborted if it became
  // shorter meanwhile.
  static absl::StatusOr<MappedFile> Read(const std::string& path);

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
  // As many bytes as the file has, with these arguments of mmap.
  static absl::StatusOr<MappedFile> Map(const OpenFile& opened, int access,
                                        int flags, int fd);

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_MAPPED_FILE_H_
