// Datastores as a command line names them: a snapshot file, or a name in the
// PostgreSQL database of FORETOKEN_POSTGRES_URL.
#ifndef FORETOKEN_TOOLS_CLI_CREST_STORES_H_
#define FORETOKEN_TOOLS_CLI_CREST_STORES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "common/drafting/crest/crest_source.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "common/drafting/rest/rest_store.h"
#include "common/text/tokenizer.h"

namespace foretoken::cli {

// A file where there is one of this path, or where the text has a slash or a
// dot, which names have not.
bool IsSnapshotPath(const std::string& file_or_name);

// What of a datastore in PostgreSQL may be held in memory: one that is larger
// is looked up through PostgreSQL, a statement a step, behind a cache of this
// size.
inline constexpr uint64_t kDefaultIndexMemory = uint64_t{1} << 30;

// Opens it for look-ups; what is held in memory is checked whole. `tokenizer`,
// where given, must be the one that the datastore was built with.
absl::StatusOr<std::shared_ptr<CrestSource>> OpenCrestSource(
    const std::string& file_or_name, const Tokenizer* tokenizer,
    uint64_t index_memory = kDefaultIndexMemory);

// All versions in PostgreSQL, and removing them (pg_store.h).
absl::StatusOr<Json> ListDatastores();
absl::Status DropDatastore(const std::string& name, int64_t version);

// OK where a build could write there now (OpenSink): better before the work
// than after it.
absl::Status CheckTarget(const std::string& out, const std::string& name);

// How it was built and what it holds, without reading its records. A file that
// is cut off is refused.
absl::StatusOr<CrestMeta> ReadMeta(const std::string& file_or_name);

// Where a build writes: a new snapshot file `out`, or a new version of `name`,
// whichever is not empty.
absl::StatusOr<std::unique_ptr<DatastoreSink>> OpenSink(
    const std::string& out, const std::string& name, const CrestMeta& meta,
    const TokenTable& table);

// REST's store of all documents of `paths`, each with the end token.
absl::StatusOr<std::shared_ptr<const RestStore>> BuildRestStore(
    const std::vector<std::string>& paths,
    const std::vector<std::string>& exclude_id_files,
    const Tokenizer& tokenizer);

// "1GiB", "512MiB", "64KiB", "1000000".
absl::StatusOr<uint64_t> ParseBytes(const std::string& text);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_CREST_STORES_H_
