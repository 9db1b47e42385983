#include "services/crest/core/file_origin.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/status_macros.h"

namespace foretoken::crest {
namespace {

absl::Status ReadError(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text)
                         : absl::UnavailableError(text);
}

}  // namespace

FileOrigin::FileOrigin(std::string path, uint64_t index_memory)
    : path_(std::move(path)), index_memory_(index_memory) {}

FileOrigin::Identity FileOrigin::IdentityOf(const struct stat& status) {
  return {
      status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size),
      status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
}

absl::StatusOr<VersionInfo> FileOrigin::ReadHeader(const std::string& path,
                                                   Identity& identity) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ReadError(path, errno);
  struct stat status {};
  std::string header(CrestMetaBytes(), '\0');
  // Status and header of the same open file, even if the name is switched to
  // another one meanwhile.
  const bool good = fstat(fd, &status) == 0;
  const ssize_t got =
      good ? pread(fd, header.data(), header.size(), 0) : ssize_t{-1};
  const int error = errno;
  close(fd);
  if (got < 0) return ReadError(path, error);
  header.resize(static_cast<size_t>(got));
  identity = IdentityOf(status);
  absl::StatusOr<CrestMeta> meta = DecodeMeta(AsBytes(header));
  if (!meta.ok()) return Annotate(meta.status(), path);
  return VersionInfo{SnapshotVersion(*meta), true, status.st_mtim.tv_sec,
                     *meta};
}

absl::StatusOr<VersionInfo> FileOrigin::Current() {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) return ReadError(path_, errno);
  if (known_.version != 0 && IdentityOf(status) == seen_) return known_;
  // A header that cannot be read is not remembered: the next call retries.
  Identity identity;
  FORETOKEN_ASSIGN_OR_RETURN(known_, ReadHeader(path_, identity));
  seen_ = identity;
  return known_;
}

absl::StatusOr<CrestIndex> FileOrigin::Open() const {
  std::ifstream file(path_, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (!file || size < 0) return ReadError(path_, ENOENT);
  if (static_cast<uint64_t>(size) > index_memory_) {
    return CrestIndex::Open(path_);
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), size)) return ReadError(path_, EIO);
  absl::StatusOr<CrestIndex> index = CrestIndex::FromSnapshot(std::move(bytes));
  if (!index.ok()) return Annotate(index.status(), path_);
  return index;
}

absl::StatusOr<std::unique_ptr<ServedVersion>> FileOrigin::Load(
    const VersionInfo& version) {
  FORETOKEN_ASSIGN_OR_RETURN(CrestIndex index, Open());
  if (SnapshotVersion(index.meta()) != version.version) {
    return absl::AbortedError(
        absl::StrCat(path_, ": replaced while it was read"));
  }
  auto served = std::make_unique<ServedVersion>();
  served->info = version;
  served->index = std::make_unique<const CrestIndex>(std::move(index));
  return served;
}

absl::StatusOr<std::vector<VersionInfo>> FileOrigin::List() {
  Identity identity;
  FORETOKEN_ASSIGN_OR_RETURN(VersionInfo info, ReadHeader(path_, identity));
  return std::vector<VersionInfo>{std::move(info)};
}

absl::StatusOr<int64_t> FileOrigin::Switch(int64_t version) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<VersionInfo> versions, List());
  if (versions.front().version == version) return version;
  return absl::FailedPreconditionError(
      "the datastore is a snapshot file, which holds one version: replace the "
      "file, or keep versions in PostgreSQL");
}

absl::StatusOr<std::unique_ptr<DatastoreSink>> FileOrigin::NewVersion(
    const CrestMeta& meta, const TokenTable& table) {
  return SnapshotWriter::Create(path_, meta, table);
}

}  // namespace foretoken::crest
