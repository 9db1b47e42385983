#include "services/crest/core/file_origin.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/open_file.h"
#include "common/base/status_macros.h"

namespace foretoken::crest {
namespace {

absl::Status ReadError(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text)
                         : absl::UnavailableError(text);
}

}  // namespace

FileOrigin::FileOrigin(std::string path, size_t header_bytes)
    : path_(std::move(path)), header_bytes_(header_bytes) {}

// Tells whether a path names the same file with the same contents as before: a
// replacement by rename changes the inode, a rewrite in place the time.
FileOrigin::Identity FileOrigin::IdentityOf(const struct stat& status) {
  return {
      status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size),
      status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
}

absl::StatusOr<VersionInfo> FileOrigin::ReadHeader(Identity& identity) const {
  // O_NONBLOCK: opening a pipe without a writer would block for ever. It does
  // not affect regular files.
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ReadError(path_, errno);
  struct stat status {};
  std::string header(header_bytes_, '\0');
  // Status and header are read from the same open file, even if the name is
  // switched to another one meanwhile.
  const bool good = fstat(fd, &status) == 0;
  const ssize_t got =
      good ? pread(fd, header.data(), header.size(), 0) : ssize_t{-1};
  const int error = errno;
  close(fd);
  if (good && !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": not a regular file"));
  }
  if (got < 0) return ReadError(path_, error);
  header.resize(static_cast<size_t>(got));
  identity = IdentityOf(status);
  absl::StatusOr<VersionInfo> info = Decode(AsBytes(header));
  if (!info.ok()) return Annotate(info.status(), path_);
  info->current = true;
  info->created_unix_seconds = status.st_mtim.tv_sec;
  return info;
}

absl::StatusOr<VersionInfo> FileOrigin::Current() {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) return ReadError(path_, errno);
  // The usual case costs no read.
  if (known_.version != 0 && IdentityOf(status) == seen_) return known_;
  // A header that cannot be read is not remembered: the next call retries.
  Identity identity;
  FORETOKEN_ASSIGN_OR_RETURN(known_, ReadHeader(identity));
  seen_ = identity;
  return known_;
}

absl::StatusOr<std::optional<std::string>> FileOrigin::ReadUpTo(
    uint64_t most) const {
  FORETOKEN_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path_));
  if (file.size() > most) return std::nullopt;
  std::string bytes(file.size(), '\0');
  FORETOKEN_ASSIGN_OR_RETURN(
      const size_t got,
      file.ReadAt(0, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}));
  // The file was truncated after its size was read.
  if (got < bytes.size()) return ReadError(path_, EIO);
  return bytes;
}

absl::Status FileOrigin::Replaced() const {
  return absl::AbortedError(
      absl::StrCat(path_, ": replaced while it was read"));
}

absl::StatusOr<std::vector<VersionInfo>> FileOrigin::List() {
  Identity identity;
  FORETOKEN_ASSIGN_OR_RETURN(VersionInfo info, ReadHeader(identity));
  return std::vector<VersionInfo>{std::move(info)};
}

absl::StatusOr<int64_t> FileOrigin::Switch(int64_t version) {
  // Switching to the version that the file holds changes nothing and succeeds.
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<VersionInfo> versions, List());
  if (versions.front().version == version) return version;
  return absl::FailedPreconditionError(
      "the datastore is a snapshot file, which holds one version: replace the "
      "file, or keep versions in PostgreSQL");
}

}  // namespace foretoken::crest
