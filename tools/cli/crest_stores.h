// CREST datastores on the command line: a snapshot file, or a name in the
// PostgreSQL database of FORETOKEN_POSTGRES_URL.
#ifndef FORETOKEN_TOOLS_CLI_CREST_STORES_H_
#define FORETOKEN_TOOLS_CLI_CREST_STORES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"
#include "common/drafting/corpus_reader.h"
#include "common/drafting/crest/crest_source.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "common/text/tokenizer.h"

namespace foretoken::cli {

// True if a file of this path exists, or if the text contains a slash or a dot,
// which datastore names cannot.
bool IsSnapshotPath(const std::string& file_or_name);

// Maximum size of a PostgreSQL datastore that is loaded into memory. A larger
// one is queried in PostgreSQL, one statement per step, behind a cache of this
// size.
inline constexpr uint64_t kDefaultIndexMemory = uint64_t{1} << 30;

// Opens a datastore for look-ups; everything that is loaded is validated.
// `tokenizer`, if given, must be the one that the datastore was built with.
absl::StatusOr<std::shared_ptr<CrestSource>> OpenCrestSource(
    const std::string& file_or_name, const Tokenizer* tokenizer,
    uint64_t index_memory = kDefaultIndexMemory);

// Lists and removes versions in PostgreSQL (pg_store.h).
absl::StatusOr<Json> ListDatastores();
absl::Status DropDatastore(const std::string& name, int64_t version);

// OK if OpenSink could write there now, so that a bad target fails before the
// build instead of after it.
absl::Status CheckTarget(const std::string& out, const std::string& name);

// Reads how a datastore was built and what it contains, without its records.
// Truncated files are refused.
absl::StatusOr<CrestMeta> ReadMeta(const std::string& file_or_name);

// Destination of a build: a new snapshot file `out`, or a new version of
// `name`, whichever is non-empty. `index`: of the rows in PostgreSQL, one of
// btree and hash.
absl::StatusOr<std::unique_ptr<DatastoreSink>> OpenSink(
    const std::string& out, const std::string& name, const std::string& index,
    const CrestMeta& meta, const TokenTable& table);

// Parses "1GiB", "512MiB", "64KiB", "1000000"; an error names `flag`.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view flag,
                                    const std::string& text);

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_CREST_STORES_H_
