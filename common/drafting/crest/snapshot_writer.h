// Writes a CREST datastore to a file: header, token table, records.
//
// The file appears under its name only when it is complete and on disk: it is
// written as PATH.partial, synced and renamed. The next writer overwrites what
// a killed writer left. CrestIndex::Open reads the file. Owned by one thread.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_SNAPSHOT_WRITER_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_SNAPSHOT_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_record.h"

namespace foretoken {

// Destination of a finished datastore, record by record: a file or PostgreSQL.
class DatastoreSink {
 public:
  virtual ~DatastoreSink() = default;

  // `ngram_hash`: HashNgram of the record's n-gram.
  virtual absl::Status Add(uint64_t ngram_hash, absl::string_view record) = 0;

  // Makes the datastore visible as a whole and returns the number of its
  // version. The totals in `meta` (entries, nodes, bytes, digests) must match
  // what was added. A sink destroyed without Publish leaves nothing behind.
  virtual absl::StatusOr<int64_t> Publish(const CrestMeta& meta) = 0;
};

// The version of a file: 48 bits of a SHA-256 over its header, which holds the
// digests of everything else. The same file has the same number on every
// replica, and a metric can show it exactly.
int64_t HeaderVersion(absl::string_view header);
int64_t SnapshotVersion(const CrestMeta& meta);

class SnapshotWriter : public DatastoreSink {
 public:
  // OK if a snapshot can be written to `path` now; leaves nothing behind.
  static absl::Status CheckTarget(const std::string& path);

  // Errors name the path; Aborted if another process is writing to it. `meta`
  // and `table` determine the length of what precedes the records.
  static absl::StatusOr<std::unique_ptr<SnapshotWriter>> Create(
      const std::string& path, const CrestMeta& meta, const TokenTable& table);
  ~SnapshotWriter() override;
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  absl::Status Add(uint64_t ngram_hash, absl::string_view record) override;
  absl::StatusOr<int64_t> Publish(const CrestMeta& meta) override;

 private:
  SnapshotWriter(std::string path, std::string temporary, int fd);
  static absl::StatusOr<std::unique_ptr<SnapshotWriter>> Open(
      const std::string& path);

  absl::Status Flush();
  absl::Status WriteAll(absl::string_view bytes, int64_t offset);

  const std::string path_;
  const std::string temporary_;
  int fd_;
  std::string buffer_;
  int64_t offset_;  // offset of buffer_'s first byte in the file
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_SNAPSHOT_WRITER_H_
