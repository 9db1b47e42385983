#include "common/drafting/crest/crest_meta.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/drafting/crest/snapshot_header.h"
#include "xxhash.h"

namespace foretoken {
namespace {

// Limit of the format; bounds what a header can make a reader allocate.
constexpr int64_t kMaxRecordBytes = int64_t{1} << 40;

struct CrestFormat {
  using Meta = CrestMeta;
  static constexpr char kMagic[] = "FTCREST1";
  static constexpr char kName[] = "datastore header";
  static constexpr char kFile[] = "a CREST datastore of format 1";

  template <typename Fields, typename Visit>
  static void VisitFields(Fields& meta, Visit&& visit) {
    // This order is that of the bytes in files and rows: another order, or
    // another field, needs another magic.
    for (auto& byte : meta.tokenizer_fingerprint) visit(byte);
    visit(meta.vocab_size);
    visit(meta.min_n);
    visit(meta.max_n);
    visit(meta.top);
    visit(meta.min_count);
    visit(meta.tree_nodes);
    visit(meta.max_matches);
    visit(meta.continuation);
    visit(meta.selection);
    visit(meta.sample);
    visit(meta.seed);
    visit(meta.corpus_documents);
    visit(meta.corpus_tokens);
    for (auto& level : meta.levels) {
      visit(level.distinct);
      visit(level.occurrences);
      visit(level.kept);
      visit(level.least_count);
    }
    visit(meta.entries);
    visit(meta.nodes);
    visit(meta.table_tokens);
    visit(meta.record_bytes);
    visit(meta.table_digest);
    visit(meta.record_digest);
    visit(meta.record_digest_sum);
  }
};
using Header = SnapshotHeader<CrestFormat>;

absl::Status CheckRanges(const CrestMeta& meta) {
  RangeErrors errors;
  meta.Check(errors);
  errors.Check("vocab_size", meta.vocab_size, 1, kMaxPackedVocabSize);
  errors.Check("table_tokens", meta.table_tokens, 0, meta.vocab_size);
  errors.Check("record_bytes", meta.record_bytes, 0, kMaxRecordBytes);
  // Rough limits, since every entry and node takes a byte or more; CrestIndex
  // compares the exact totals.
  errors.Check("entries", meta.entries, 0, meta.record_bytes);
  errors.Check("nodes", meta.nodes, 0, meta.record_bytes);
  return Annotate(errors.status(), CrestFormat::kName);
}

}  // namespace

void CrestRecipe::Check(RangeErrors& errors) const {
  errors.Check("max_n", max_n, 1, kMaxCrestN);
  errors.Check("min_n", min_n, 1, max_n);
  errors.Check("top", top, 1, kMaxTop);
  errors.Check("min_count", min_count, 1, kMaxTop);
  errors.Check("tree_nodes", tree_nodes, 1, kMaxCrestNodes);
  errors.Check("max_matches", max_matches, 1, kMaxMatches);
  errors.Check("continuation", continuation, 1, kMaxContinuation);
  errors.Check("selection", static_cast<int64_t>(selection), 0, 1);
  errors.Check("sample", static_cast<int64_t>(sample), 0, 1);
}

Json RecipeJson(const CrestRecipe& recipe) {
  const bool rest = recipe.selection == TreeSelection::kRest;
  const bool first = recipe.sample == MatchSample::kFirst;
  return {{"min_n", recipe.min_n},
          {"max_n", recipe.max_n},
          {"top", recipe.top},
          {"min_count", recipe.min_count},
          {"tree_nodes", recipe.tree_nodes},
          {"max_matches", recipe.max_matches},
          {"continuation", recipe.continuation},
          {"selection", rest ? "rest" : "best"},
          {"sample", first ? "first" : "uniform"},
          {"seed", recipe.seed}};
}

size_t CrestMetaBytes() { return Header::Bytes(); }

std::string EncodeMeta(const CrestMeta& meta) { return Header::Encode(meta); }

absl::StatusOr<CrestMeta> DecodeMeta(absl::Span<const uint8_t> bytes) {
  FORETOKEN_ASSIGN_OR_RETURN(const CrestMeta meta, Header::Decode(bytes));
  // The checksum only says that the bytes are those that were written: a writer
  // with a fault, or an attacker, can give any numbers.
  FORETOKEN_RETURN_IF_ERROR(CheckRanges(meta));
  return meta;
}

std::string EncodeTokenTable(const TokenTable& table, const CrestMeta& meta) {
  return PackTokens(table.by_rank(), meta.token_bytes());
}

absl::StatusOr<TokenTable> DecodeTokenTable(absl::Span<const uint8_t> bytes,
                                            const CrestMeta& meta) {
  if (bytes.size() != meta.table_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token table: ", bytes.size(), " bytes, want ", meta.table_bytes()));
  }
  // Apart from that of the records, because an index over PostgreSQL reads the
  // table alone.
  if (XXH3_64bits(bytes.data(), bytes.size()) != meta.table_digest) {
    return absl::InvalidArgumentError("token table: checksum differs");
  }
  return TokenTable::Create(UnpackTokens(bytes, meta.token_bytes()),
                            static_cast<int32_t>(meta.vocab_size));
}

absl::Status CheckTokenizer(const CrestMeta& meta,
                            const Sha256Digest& fingerprint) {
  if (meta.tokenizer_fingerprint == fingerprint) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("datastore belongs to the tokenizer with fingerprint ",
                   HexDigest(meta.tokenizer_fingerprint).substr(0, 16),
                   "..., the tokenizer given has ",
                   HexDigest(fingerprint).substr(0, 16), "..."));
}

absl::Status CheckTokenizer(const CrestMeta& meta,
                            absl::string_view fingerprint) {
  Sha256Digest digest;
  if (fingerprint.size() != digest.size()) return absl::OkStatus();
  std::copy(fingerprint.begin(), fingerprint.end(), digest.begin());
  return CheckTokenizer(meta, digest);
}

}  // namespace foretoken
