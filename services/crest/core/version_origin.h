// Where the versions of one datastore come from: a snapshot file, PostgreSQL.
#ifndef FORETOKEN_SERVICES_CREST_CORE_VERSION_ORIGIN_H_
#define FORETOKEN_SERVICES_CREST_CORE_VERSION_ORIGIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "services/crest/core/row_worker.h"

namespace foretoken::crest {

struct VersionInfo {
  int64_t version = 0;  // > 0
  bool current = false;
  int64_t created_unix_seconds = 0;
  CrestMeta meta;
};

// One version, ready to answer: exactly one of `index` and `rows` is set.
struct ServedVersion {
  VersionInfo info;
  std::unique_ptr<const CrestIndex> index;  // answers in about a microsecond
  std::unique_ptr<RowWorker> rows;          // asks the store, on its own thread

  // It can be asked now.
  bool answers() const { return index != nullptr || rows->up(); }
};

// A sink that knows the number of what it publishes.
class VersionSink : public DatastoreSink {
 public:
  // Valid once published.
  virtual int64_t version() const = 0;
};

// Current and Load are for one thread, the watcher's; List, Switch and
// NewVersion may be called by any thread at any time.
class VersionOrigin {
 public:
  virtual ~VersionOrigin() = default;

  // What is to be served now; cheap, since it is asked again and again.
  // NotFound where nothing is published, Unavailable or DeadlineExceeded where
  // the store cannot be asked.
  virtual absl::StatusOr<VersionInfo> Current() = 0;

  // Reads and checks the version, every record of it where it is held in
  // memory. Errors as those of CrestIndex and of the store.
  virtual absl::StatusOr<std::unique_ptr<ServedVersion>> Load(
      const VersionInfo& version) = 0;

  // Newest first.
  virtual absl::StatusOr<std::vector<VersionInfo>> List() = 0;

  // Makes a published version the current one; returns the one before, 0 for
  // none. NotFound names a version that is not there, FailedPrecondition a
  // store that keeps only one.
  virtual absl::StatusOr<int64_t> Switch(int64_t version) = 0;

  // Takes a new version, which its Publish makes current.
  virtual absl::StatusOr<std::unique_ptr<VersionSink>> NewVersion(
      const CrestMeta& meta, const TokenTable& table) = 0;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_VERSION_ORIGIN_H_
