#include "common/drafting/crest_build/spill_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "xxhash.h"

namespace foretoken {

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Create(
    const std::string& path) {
  // O_NOFOLLOW: a link in the folder must not lead the writes elsewhere.
  const int fd = open(
      path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": create"));
  return std::unique_ptr<SpillFile>(new SpillFile(path, fd, 0));
}

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Open(
    const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": open"));
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return absl::ErrnoToStatus(error, absl::StrCat(path, ": stat"));
  }
  return std::unique_ptr<SpillFile>(
      new SpillFile(path, fd, static_cast<uint64_t>(info.st_size)));
}

SpillFile::~SpillFile() { close(fd_); }

absl::Status SpillFile::Write(uint64_t offset, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = pwrite(fd_, from, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // pwrite of 0 bytes without an error: the disk is full.
      return absl::ErrnoToStatus(n < 0 ? errno : ENOSPC,
                                 absl::StrCat(path_, ": write"));
    }
    from += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status SpillFile::Read(uint64_t offset, void* data, size_t bytes) const {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = pread(fd_, to, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": read"));
    if (n == 0) {
      // Shorter than it was when it was written: truncated by somebody else.
      return absl::DataLossError(
          absl::StrCat(path_, ": ends at byte ", offset));
    }
    to += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SpillFile::Digest() const {
  constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(
      XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<uint8_t> chunk;
  // Read back from the file: the digest must cover what is on disk.
  for (uint64_t at = 0; at < size(); at += chunk.size()) {
    chunk.resize(std::min(kChunkBytes, size() - at));
    FORETOKEN_RETURN_IF_ERROR(Read(at, chunk.data(), chunk.size()));
    XXH3_64bits_update(state.get(), chunk.data(), chunk.size());
  }
  return XXH3_64bits_digest(state.get());
}

absl::Status SpillFile::Sync() const {
  if (fdatasync(fd_) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": sync"));
  }
  return absl::OkStatus();
}

}  // namespace foretoken
