// REST snapshot: the file of a REST store.
//
// A header (RestMeta, little-endian, of fixed length, ending in a checksum of
// its own), then the token ids, 2 or 3 bytes each, little-endian. The suffix
// array is not in the file: loading computes it.
// Thread-safe: functions without state.
#ifndef FORETOKEN_TESTS_LAB_REST_REST_SNAPSHOT_H_
#define FORETOKEN_TESTS_LAB_REST_REST_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/base/types.h"
#include "common/drafting/crest/snapshot_header.h"
#include "tests/lab/rest/rest_store.h"

namespace foretoken {

struct RestMeta {
  Sha256Digest tokenizer_fingerprint{};
  uint32_t vocab_size = 0;
  uint64_t documents = 0;
  uint64_t tokens = 0;  // end tokens included
  uint64_t digest = 0;  // XXH3 of the token ids' bytes

  int token_bytes() const { return PackedTokenBytes(vocab_size); }
  uint64_t file_bytes() const;
  // Bytes of the loaded store.
  uint64_t store_bytes() const {
    return RestStore::BytesFor(tokens, static_cast<int32_t>(vocab_size));
  }
};

// Length of the header.
size_t RestMetaBytes();

// InvalidArgument names field and value if the bytes are too short, of another
// format or version, damaged, or out of range.
absl::StatusOr<RestMeta> DecodeRestMeta(absl::Span<const uint8_t> bytes);

// As SnapshotVersion: a digest of the header, the same on every replica.
int64_t RestSnapshotVersion(const RestMeta& meta);

// Replaces `path` at once by the snapshot of these tokens; `meta.tokens` and
// `meta.digest` are set here. Returns the header written. InvalidArgument as of
// RestStore::Create.
absl::StatusOr<RestMeta> WriteRestSnapshot(const std::string& path,
                                           RestMeta meta,
                                           absl::Span<const TokenId> tokens);

// The store in a whole snapshot, and its header in `meta`. InvalidArgument for
// a damaged file, or one that is shorter or longer than its header says.
absl::StatusOr<RestStore> DecodeRestSnapshot(std::string bytes, RestMeta& meta);

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_REST_REST_SNAPSHOT_H_
