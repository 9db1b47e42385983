#include "services/crest/core/snapshot_origin.h"

#include <utility>

#include "common/base/status_macros.h"

namespace foretoken::crest {

SnapshotOrigin::SnapshotOrigin(std::string path, uint64_t index_memory)
    : FileOrigin(std::move(path), CrestMetaBytes()),
      index_memory_(index_memory) {}

absl::StatusOr<VersionInfo> SnapshotOrigin::Decode(
    absl::Span<const uint8_t> header) const {
  VersionInfo info;
  FORETOKEN_ASSIGN_OR_RETURN(info.meta, DecodeMeta(header));
  info.version = SnapshotVersion(info.meta);
  return info;
}

absl::StatusOr<CrestIndex> SnapshotOrigin::Open() const {
  // A file that fits is copied to memory; look-ups in a larger one read the
  // file.
  FORETOKEN_ASSIGN_OR_RETURN(std::optional<std::string> bytes,
                             ReadUpTo(index_memory_));
  if (!bytes.has_value()) return CrestIndex::Open(path());
  absl::StatusOr<CrestIndex> index =
      CrestIndex::FromSnapshot(*std::move(bytes));
  if (!index.ok()) return Annotate(index.status(), path());
  return index;
}

absl::StatusOr<std::unique_ptr<ServedVersion>> SnapshotOrigin::Load(
    const VersionInfo& version) {
  FORETOKEN_ASSIGN_OR_RETURN(CrestIndex index, Open());
  // Replaced between Current and this read.
  if (SnapshotVersion(index.meta()) != version.version) return Replaced();
  auto served = std::make_unique<ServedVersion>();
  served->info = version;
  served->index = std::make_unique<const CrestIndex>(std::move(index));
  return served;
}

absl::StatusOr<std::unique_ptr<DatastoreSink>> SnapshotOrigin::NewVersion(
    const CrestMeta& meta, const TokenTable& table) {
  return SnapshotWriter::Create(path(), meta, table);
}

}  // namespace foretoken::crest
