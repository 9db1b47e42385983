#include "common/base/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace foretoken {

absl::StatusOr<OpenFile> OpenFile::Open(const std::string& path) {
  OpenFile file;
  file.path_ = path;
  // A pipe without a writer would block; regular files ignore O_NONBLOCK.
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": open"));
  }
  struct stat info;
  if (fstat(file.fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a regular file"));
  }
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

OpenFile::~OpenFile() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<size_t> OpenFile::ReadAt(uint64_t offset,
                                        absl::Span<uint8_t> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = pread(fd_, out.data() + done, out.size() - done,
                              static_cast<off_t>(offset + done));
    if (got == 0) break;
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": read"));
    }
  }
  return done;
}

}  // namespace foretoken
