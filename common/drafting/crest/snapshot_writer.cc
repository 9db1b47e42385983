#include "common/drafting/crest/snapshot_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kVersionBytes = 6;

// A rename is durable only after its folder has been synced.
absl::Status SyncFolderOf(const std::string& path) {
  const std::filesystem::path parent =
      std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::ErrnoToStatus(error, absl::StrCat(folder, ": sync"));
  }
  close(fd);
  return absl::OkStatus();
}

}  // namespace

int64_t HeaderVersion(absl::string_view header) {
  const Sha256Digest digest = Sha256().Update(header).Finish();
  const uint64_t version =
      FromBigEndian(absl::MakeConstSpan(digest).first(kVersionBytes));
  // 48 bits are positive in int64_t and exact in a metric's double. 0 means
  // that there is no version.
  return version == 0 ? 1 : static_cast<int64_t>(version);
}

int64_t SnapshotVersion(const CrestMeta& meta) {
  return HeaderVersion(EncodeMeta(meta));
}

absl::Status SnapshotWriter::CheckTarget(const std::string& path) {
  // The writer goes out of scope here, which removes the temporary file.
  return Open(path).status();
}

absl::StatusOr<std::unique_ptr<SnapshotWriter>> SnapshotWriter::Open(
    const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a folder, want a file name"));
  }
  std::string temporary = absl::StrCat(path, ".partial");
  FORETOKEN_ASSIGN_OR_RETURN(const int fd, OpenLocked(temporary));
  std::unique_ptr<SnapshotWriter> writer(
      new SnapshotWriter(path, std::move(temporary), fd));
  // Only now that the lock is held: the file may have been another writer's.
  if (ftruncate(fd, 0) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat(writer->temporary_, ": truncate"));
  }
  return writer;
}

absl::StatusOr<std::unique_ptr<SnapshotWriter>> SnapshotWriter::Create(
    const std::string& path, const CrestMeta& meta, const TokenTable& table) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<SnapshotWriter> writer,
                             Open(path));
  // Zeros in place of the header until Publish knows the totals.
  writer->buffer_.assign(CrestMetaBytes(), '\0');
  writer->buffer_ += EncodeTokenTable(table, meta);
  return writer;
}

SnapshotWriter::SnapshotWriter(std::string path, std::string temporary, int fd)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      fd_(fd),
      offset_(0) {}

SnapshotWriter::~SnapshotWriter() {
  if (fd_ < 0) return;
  unlink(temporary_.c_str());  // while still holding the lock
  close(fd_);
}

absl::Status SnapshotWriter::Add(uint64_t, absl::string_view record) {
  buffer_.append(record.data(), record.size());
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
}

absl::StatusOr<int64_t> SnapshotWriter::Publish(const CrestMeta& meta) {
  FORETOKEN_CHECK(fd_ >= 0);
  FORETOKEN_RETURN_IF_ERROR(Flush());
  // The valid header is written last: until then readers reject the file.
  FORETOKEN_RETURN_IF_ERROR(WriteAll(EncodeMeta(meta), 0));
  // Other users, such as the service's, may read it from now on. Synced before
  // it is renamed, or a crash could leave the name on a file whose blocks were
  // never written.
  if (fchmod(fd_, 0644) != 0 || fsync(fd_) != 0 ||
      rename(temporary_.c_str(), path_.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": publish"));
  }
  close(std::exchange(fd_, -1));
  FORETOKEN_RETURN_IF_ERROR(SyncFolderOf(path_));
  return SnapshotVersion(meta);
}

absl::Status SnapshotWriter::Flush() {
  FORETOKEN_RETURN_IF_ERROR(WriteAll(buffer_, offset_));
  offset_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status SnapshotWriter::WriteAll(absl::string_view bytes, int64_t offset) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = pwrite(fd_, bytes.data() + done, bytes.size() - done,
                             offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    // A write of nothing without an error: the disk is full.
    if (n <= 0) {
      return absl::ErrnoToStatus(n < 0 ? errno : ENOSPC,
                                 absl::StrCat(temporary_, ": write"));
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace foretoken
