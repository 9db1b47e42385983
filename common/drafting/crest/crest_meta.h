// Metadata of a CREST datastore: how it was built, from what, and its
// checksums.
//
// The same bytes are the header of a snapshot file and a column of a version's
// row in PostgreSQL. Little-endian, of fixed length, ending in a checksum of
// their own.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_CREST_META_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_CREST_META_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/base/json_fwd.h"
#include "common/base/range_errors.h"
#include "common/drafting/crest/crest_record.h"
#include "common/drafting/crest/snapshot_header.h"

namespace foretoken {

enum class TreeSelection : uint8_t { kBest = 0, kRest = 1 };
enum class MatchSample : uint8_t { kUniform = 0, kFirst = 1 };

// Statistics of the n-grams of one length.
struct CrestLevelMeta {
  uint64_t distinct = 0;     // in the corpus
  uint64_t occurrences = 0;  // in the corpus
  uint64_t kept = 0;         // in the datastore
  uint64_t least_count = 0;  // lowest count of those kept
};

// Options of a build that decide what a datastore contains.
struct CrestRecipe {
  static constexpr int64_t kMaxTop = int64_t{1} << 40;
  static constexpr int kMaxMatches = 10'000'000;
  static constexpr int kMaxContinuation = 64;

  uint32_t min_n = 1;  // n-grams of min_n..max_n tokens
  uint32_t max_n = 3;
  uint64_t top = 16000;         // n-grams kept per n
  uint64_t min_count = 2;       // drops rarer n-grams
  uint32_t tree_nodes = 64;     // maximum per tree
  uint32_t max_matches = 5000;  // continuations gathered per n-gram
  uint32_t continuation = 10;   // tokens per continuation
  TreeSelection selection = TreeSelection::kBest;
  MatchSample sample = MatchSample::kUniform;
  uint64_t seed = 1;  // of the uniform sample

  // Reports every field out of range.
  void Check(RangeErrors& errors) const;
};

// The recipe as a JSON object, field by field.
Json RecipeJson(const CrestRecipe& recipe);

struct CrestMeta : CrestRecipe {
  Sha256Digest tokenizer_fingerprint{};
  uint32_t vocab_size = 0;

  // Corpus.
  uint64_t corpus_documents = 0;
  uint64_t corpus_tokens = 0;                       // end tokens included
  std::array<CrestLevelMeta, kMaxCrestN> levels{};  // [n - 1]

  // Contents.
  uint64_t entries = 0;
  uint64_t nodes = 0;
  uint64_t table_tokens = 0;   // tokens in the token table
  uint64_t record_bytes = 0;   // of all records
  uint64_t table_digest = 0;   // XXH3 of the token table's bytes
  uint64_t record_digest = 0;  // XXH3 of all records' bytes, in stored order
  // Sum of the XXH3 of each record, independent of their order: PostgreSQL
  // returns rows in any order.
  uint64_t record_digest_sum = 0;

  int token_bytes() const { return PackedTokenBytes(vocab_size); }
  uint64_t table_bytes() const { return table_tokens * token_bytes(); }
};

// Length of EncodeMeta's result.
size_t CrestMetaBytes();
std::string EncodeMeta(const CrestMeta& meta);

// InvalidArgument names field and value if the bytes are too short, of another
// format or version, damaged, or out of range.
absl::StatusOr<CrestMeta> DecodeMeta(absl::Span<const uint8_t> bytes);

// The token table: token ids by rank, 2 or 3 bytes each, little-endian.
std::string EncodeTokenTable(const TokenTable& table, const CrestMeta& meta);
// Checks length and digest against `meta`.
absl::StatusOr<TokenTable> DecodeTokenTable(absl::Span<const uint8_t> bytes,
                                            const CrestMeta& meta);

// FailedPrecondition, with both fingerprints, unless the datastore was built
// for this tokenizer.
absl::Status CheckTokenizer(const CrestMeta& meta,
                            const Sha256Digest& fingerprint);
// The same for the raw SHA-256 of a request; without one (or with bytes of
// another length) there is nothing to check: drafts are hints.
absl::Status CheckTokenizer(const CrestMeta& meta,
                            absl::string_view fingerprint);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_CREST_META_H_
