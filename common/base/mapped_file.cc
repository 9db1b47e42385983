#include "common/base/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/open_file.h"
#include "common/base/status_macros.h"

namespace foretoken {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenFile opened, OpenFile::Open(path));
  // MAP_SHARED: pages come from the page cache, so processes that load the
  // same model share one copy of its weights.
  return Map(opened, PROT_READ, MAP_SHARED, opened.fd());
}

absl::StatusOr<MappedFile> MappedFile::Read(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenFile opened, OpenFile::Open(path));
  FORETOKEN_ASSIGN_OR_RETURN(
      MappedFile file,
      Map(opened, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
  const absl::Span<uint8_t> bytes(const_cast<uint8_t*>(file.data_), file.size_);
  FORETOKEN_ASSIGN_OR_RETURN(const size_t got, opened.ReadAt(0, bytes));
  if (got != bytes.size()) {
    return absl::AbortedError(
        absl::StrCat(path, ": became shorter while it was read"));
  }
  return file;
}

absl::StatusOr<MappedFile> MappedFile::Map(const OpenFile& opened, int access,
                                           int flags, int fd) {
  MappedFile file;
  file.path_ = opened.path();
  if (opened.size() == 0) return file;  // mmap rejects a length of 0
  void* data = mmap(nullptr, opened.size(), access, flags, fd, 0);
  if (data == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat(opened.path(), ": mmap"));
  }
  file.data_ = static_cast<const uint8_t*>(data);
  file.size_ = opened.size();
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace foretoken
