// A datastore that is one file, replaced as a whole, of a format that begins
// with a header.
//
// The kinds of files derive from it: they decode their header and load
// themselves.
#ifndef FORETOKEN_SERVICES_CREST_CORE_FILE_ORIGIN_H_
#define FORETOKEN_SERVICES_CREST_CORE_FILE_ORIGIN_H_

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/crest/core/version_origin.h"

namespace foretoken::crest {

class FileOrigin : public VersionOrigin {
 public:
  // Reads the header again when the file's inode, size or time have changed.
  absl::StatusOr<VersionInfo> Current() final;
  absl::StatusOr<std::vector<VersionInfo>> List() final;
  absl::StatusOr<int64_t> Switch(int64_t version) final;

 protected:
  // `header_bytes`: as many as Decode needs; it gets fewer of a shorter file.
  FileOrigin(std::string path, size_t header_bytes);

  // The version that the header describes, its time left out; errors do not
  // name the file.
  virtual absl::StatusOr<VersionInfo> Decode(
      absl::Span<const uint8_t> header) const = 0;

  const std::string& path() const { return path_; }
  // The whole file, or nothing if it has more than `most` bytes.
  absl::StatusOr<std::optional<std::string>> ReadUpTo(uint64_t most) const;
  // Aborted: the file is not the one whose header was read.
  absl::Status Replaced() const;

 private:
  // Distinguishes successive files at the path.
  struct Identity {
    uint64_t device = 0, inode = 0, bytes = 0;
    int64_t changed_ns = 0;
    bool operator==(const Identity&) const = default;
  };

  static Identity IdentityOf(const struct stat& status);
  absl::StatusOr<VersionInfo> ReadHeader(Identity& identity) const;

  const std::string path_;
  const size_t header_bytes_;
  Identity seen_;  // the file that known_ describes
  VersionInfo known_;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_FILE_ORIGIN_H_
