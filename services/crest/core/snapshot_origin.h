// A datastore that is one CREST snapshot file.
#ifndef FORETOKEN_SERVICES_CREST_CORE_SNAPSHOT_ORIGIN_H_
#define FORETOKEN_SERVICES_CREST_CORE_SNAPSHOT_ORIGIN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "services/crest/core/file_origin.h"

namespace foretoken::crest {

class SnapshotOrigin final : public FileOrigin {
 public:
  // A file of up to `index_memory` bytes is read into memory, so that later
  // changes to it cannot affect look-ups. The records of a larger one are read
  // as they are looked up: replace it by rename, because one that is changed in
  // place loses hits until the next version.
  SnapshotOrigin(std::string path, uint64_t index_memory);

  absl::StatusOr<std::unique_ptr<ServedVersion>> Load(
      const VersionInfo& version) override;
  // Replaces the file.
  absl::StatusOr<std::unique_ptr<DatastoreSink>> NewVersion(
      const CrestMeta& meta, const TokenTable& table) override;

 private:
  absl::StatusOr<VersionInfo> Decode(
      absl::Span<const uint8_t> header) const override;
  absl::StatusOr<CrestIndex> Open() const;

  const uint64_t index_memory_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_SNAPSHOT_ORIGIN_H_
