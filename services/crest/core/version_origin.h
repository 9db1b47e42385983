// The source of one datastore's versions: a file, or PostgreSQL.
#ifndef FORETOKEN_SERVICES_CREST_CORE_VERSION_ORIGIN_H_
#define FORETOKEN_SERVICES_CREST_CORE_VERSION_ORIGIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_tree.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "services/crest/core/row_worker.h"

namespace foretoken::crest {

struct VersionInfo {
  int64_t version = 0;  // > 0
  bool current = false;
  int64_t created_unix_seconds = 0;
  CrestMeta meta;
};

// A store in memory of another kind than CrestIndex. Thread-safe.
class MemoryStore {
 public:
  virtual ~MemoryStore() = default;

  // Returns the length of the longest stored end of `context`, 0 for none, and
  // fills `tree`, which may have more than `max_nodes` nodes. Called in the
  // handler of a stream: takes a millisecond or so at most.
  virtual int Lookup(absl::Span<const TokenId> context, int max_nodes,
                     CrestTree& tree) const = 0;
};

// One version, ready to answer: exactly one of `index`, `other` and `rows` is
// set.
struct ServedVersion {
  VersionInfo info;
  std::unique_ptr<const CrestIndex> index;  // answers in about a microsecond
  // From an origin outside this service.
  std::unique_ptr<const MemoryStore> other;
  std::unique_ptr<RowWorker> rows;  // asks the store, on its own thread

  bool in_memory() const { return rows == nullptr; }
  // Whether look-ups can be answered now.
  bool answers() const { return in_memory() || rows->up(); }

  // For a version in memory: n of the longest stored end of the context, 0 for
  // none; its tree may have more than `max_nodes` nodes.
  int Lookup(absl::Span<const TokenId> context, int max_nodes,
             CrestTree& tree) const;
};

// Current and Load are called by the watcher's thread alone; List, Switch and
// NewVersion by any thread at any time.
class VersionOrigin {
 public:
  virtual ~VersionOrigin() = default;

  // The version to serve now; cheap, because the watcher polls it. NotFound if
  // nothing is published, Unavailable or DeadlineExceeded if the store does not
  // answer.
  virtual absl::StatusOr<VersionInfo> Current() = 0;

  // Reads and validates the version, and every record if it is held in memory.
  // Returns errors of CrestIndex and of the store.
  virtual absl::StatusOr<std::unique_ptr<ServedVersion>> Load(
      const VersionInfo& version) = 0;

  // All versions, newest first.
  virtual absl::StatusOr<std::vector<VersionInfo>> List() = 0;

  // Makes a published version the current one; returns the previous one, 0 for
  // none. NotFound names a version that does not exist; FailedPrecondition for
  // a store that keeps only one.
  virtual absl::StatusOr<int64_t> Switch(int64_t version) = 0;

  // Opens a new version; the sink's Publish makes it current.
  virtual absl::StatusOr<std::unique_ptr<DatastoreSink>> NewVersion(
      const CrestMeta& meta, const TokenTable& table) = 0;
};

}  // namespace foretoken::crest

#endif  // FORETOKEN_SERVICES_CREST_CORE_VERSION_ORIGIN_H_
