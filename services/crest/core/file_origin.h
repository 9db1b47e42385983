// A datastore that is one snapshot file, replaced as a whole.
#ifndef FORETOKEN_SERVICES_CREST_CORE_FILE_ORIGIN_H_
#define FORETOKEN_SERVICES_CREST_CORE_FILE_ORIGIN_H_

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/crest/core/version_origin.h"

namespace foretoken::crest {

class FileOrigin final : public VersionOrigin {
 public:
  // A file of up to `index_memory` bytes is read into memory, so that later
  // changes to it cannot affect look-ups. The records of a larger one are read
  // as they are looked up: replace it by rename, because one that is changed in
  // place loses hits until the next version.
  FileOrigin(std::string path, uint64_t index_memory);

  // Reads the header again when the file's inode, size or time have changed.
  absl::StatusOr<VersionInfo> Current() override;
  absl::StatusOr<std::unique_ptr<ServedVersion>> Load(
      const VersionInfo& version) override;
  absl::StatusOr<std::vector<VersionInfo>> List() override;
  absl::StatusOr<int64_t> Switch(int64_t version) override;
  // Replaces the file.
  absl::StatusOr<std::unique_ptr<DatastoreSink>> NewVersion(
      const CrestMeta& meta, const TokenTable& table) override;

 private:
  // Distinguishes successive files at the path.
  struct Identity {
    uint64_t device = 0, inode = 0, bytes = 0;
    int64_t changed_ns = 0;
    bool operator==(const Identity&) const = default;
  };

  static Identity IdentityOf(const struct stat& status);
  absl::StatusOr<CrestIndex> Open() const;
  static absl::StatusOr<VersionInfo> ReadHeader(const std::string& path,
                                                Identity& identity);

  const std::string path_;
  const uint64_t index_memory_;
  Identity seen_;  // the file that known_ describes
  VersionInfo known_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_FILE_ORIGIN_H_
