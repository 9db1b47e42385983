#include "services/crest/core/file_origin.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/status_macros.h"

namespace foretoken::crest {
namespace {

absl::Span<const uint8_t> BytesOf(absl::string_view bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

absl::Status ReadError(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text)
                         : absl::UnavailableError(text);
}

// Passes everything on to the writer, and remembers the number.
class SnapshotSink final : public VersionSink {
 public:
  explicit SnapshotSink(std::unique_ptr<SnapshotWriter> writer)
      : writer_(std::move(writer)) {}

  absl::Status Add(uint64_t ngram_hash, absl::string_view record) override {
    return writer_->Add(ngram_hash, record);
  }
  absl::Status Publish(const CrestMeta& meta) override {
    version_ = SnapshotVersion(meta);
    return writer_->Publish(meta);
  }
  int64_t version() const override { return version_; }

 private:
  const std::unique_ptr<SnapshotWriter> writer_;
  int64_t version_ = 0;
};

}  // namespace

int64_t SnapshotVersion(const CrestMeta& meta) {
  const Sha256Digest digest = Sha256().Update(EncodeMeta(meta)).Finish();
  int64_t version = 0;
  for (int i = 0; i < 6; ++i) version = version << 8 | digest[i];
  return version == 0 ? 1 : version;
}

FileOrigin::FileOrigin(std::string path, uint64_t index_memory)
    : path_(std::move(path)), index_memory_(index_memory) {}

absl::StatusOr<VersionInfo> FileOrigin::ReadHeader(const std::string& path,
                                                   Identity& identity) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ReadError(path, errno);
  struct stat status {};
  std::string header(CrestMetaBytes(), '\0');
  // Both of the one file that is open, whatever the name points at meanwhile.
  const bool good = fstat(fd, &status) == 0;
  const ssize_t got =
      good ? pread(fd, header.data(), header.size(), 0) : ssize_t{-1};
  const int error = errno;
  close(fd);
  if (got < 0) return ReadError(path, error);
  header.resize(static_cast<size_t>(got));
  identity = {
      status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size),
      status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
  absl::StatusOr<CrestMeta> meta = DecodeMeta(BytesOf(header));
  if (!meta.ok()) return Annotate(meta.status(), path);
  return VersionInfo{SnapshotVersion(*meta), true, status.st_mtim.tv_sec,
                     *meta};
}

absl::StatusOr<VersionInfo> FileOrigin::Current() {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) return ReadError(path_, errno);
  const Identity now = {
      status.st_dev, status.st_ino, static_cast<uint64_t>(status.st_size),
      status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
  if (known_.version != 0 && now == seen_) return known_;
  // A header that cannot be read is not remembered: it is asked for again.
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
  const auto load = [&]() -> absl::StatusOr<CrestIndex> {
    FORETOKEN_ASSIGN_OR_RETURN(const CrestMeta meta,
                               DecodeMeta(BytesOf(bytes)));
    const uint64_t head = CrestMetaBytes() + meta.table_bytes();
    if (bytes.size() != head + meta.record_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          bytes.size(), " bytes, the header says ", head + meta.record_bytes));
    }
    FORETOKEN_ASSIGN_OR_RETURN(
        TokenTable table,
        DecodeTokenTable(
            BytesOf(bytes).subspan(CrestMetaBytes(), meta.table_bytes()),
            meta));
    bytes.erase(0, head);
    return CrestIndex::FromRecords(meta, std::move(table), std::move(bytes));
  };
  absl::StatusOr<CrestIndex> index = load();
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

absl::StatusOr<std::unique_ptr<VersionSink>> FileOrigin::NewVersion(
    const CrestMeta& meta, const TokenTable& table) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<SnapshotWriter> writer,
                             SnapshotWriter::Create(path_, meta, table));
  return std::make_unique<SnapshotSink>(std::move(writer));
}

}  // namespace foretoken::crest
