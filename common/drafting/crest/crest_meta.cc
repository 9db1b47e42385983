#include "common/drafting/crest/crest_meta.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "xxhash.h"

namespace foretoken {
namespace {

constexpr char kMagic[] = "FTCREST1";  // the 8 bytes without the zero
constexpr size_t kMagicBytes = 8;
constexpr uint64_t kDigestBytes = 8;
// Limit of the format; bounds what a header can make a reader allocate.
constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 40;

// Visits the fields in file order, for writing, reading and measuring. Any
// change of them changes the format, whose number is part of kMagic.
template <typename Meta, typename Visit>
void VisitFields(Meta& meta, Visit&& visit) {
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

template <typename T>
void PutLittleEndian(T value, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

uint64_t GetLittleEndian(const uint8_t* at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{at[i]} << (8 * i);
  return value;
}

absl::Status CheckRange(const char* field, uint64_t value, uint64_t low,
                        uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "datastore header: ", field, " is ", value, ", want ", low, "..", high));
}

absl::Status CheckRanges(const CrestMeta& meta) {
  const struct {
    const char* field;
    uint64_t value, low, high;
  } ranges[] = {
      {"vocab_size", meta.vocab_size, 1, (1u << 24) - 1},
      {"max_n", meta.max_n, 1, kMaxCrestN},
      {"min_n", meta.min_n, 1, meta.max_n},
      {"tree_nodes", meta.tree_nodes, 1, kMaxCrestNodes},
      {"selection", static_cast<uint64_t>(meta.selection), 0, 1},
      {"sample", static_cast<uint64_t>(meta.sample), 0, 1},
      {"table_tokens", meta.table_tokens, 0, meta.vocab_size},
      {"record_bytes", meta.record_bytes, 0, kMaxRecordBytes},
      // Rough limits, since every entry and node takes a byte or more;
      // CrestIndex compares the exact totals.
      {"entries", meta.entries, 0, meta.record_bytes},
      {"nodes", meta.nodes, 0, meta.record_bytes},
  };
  for (const auto& range : ranges) {
    const absl::Status status =
        CheckRange(range.field, range.value, range.low, range.high);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

size_t CrestMetaBytes() {
  static const size_t bytes = [] {
    size_t sum = kMagicBytes + kDigestBytes;
    CrestMeta meta;
    VisitFields(meta, [&](auto& field) { sum += sizeof(field); });
    return sum;
  }();
  return bytes;
}

std::string EncodeMeta(const CrestMeta& meta) {
  std::string out(kMagic, kMagicBytes);
  VisitFields(meta, [&](const auto& field) { PutLittleEndian(field, out); });
  PutLittleEndian(XXH3_64bits(out.data(), out.size()), out);
  return out;
}

absl::StatusOr<CrestMeta> DecodeMeta(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < CrestMetaBytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "datastore header: ", bytes.size(), " bytes, want ", CrestMetaBytes()));
  }
  if (!std::equal(kMagic, kMagic + kMagicBytes, bytes.begin())) {
    return absl::InvalidArgumentError(
        "datastore header: not a CREST datastore of format 1");
  }
  // The checksum covers everything before it, the magic included.
  const size_t covered = CrestMetaBytes() - kDigestBytes;
  if (GetLittleEndian(bytes.data() + covered, kDigestBytes) !=
      XXH3_64bits(bytes.data(), covered)) {
    return absl::InvalidArgumentError("datastore header: checksum differs");
  }
  CrestMeta meta;
  const uint8_t* at = bytes.data() + kMagicBytes;
  VisitFields(meta, [&](auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    field = static_cast<Field>(GetLittleEndian(at, sizeof(Field)));
    at += sizeof(Field);
  });
  const absl::Status status = CheckRanges(meta);
  if (!status.ok()) return status;
  return meta;
}

std::string EncodeTokenTable(const TokenTable& table, const CrestMeta& meta) {
  std::string out;
  for (const TokenId token : table.by_rank()) {
    for (int i = 0; i < meta.token_bytes(); ++i) {
      out.push_back(static_cast<char>(token >> (8 * i)));
    }
  }
  return out;
}

absl::StatusOr<TokenTable> DecodeTokenTable(absl::Span<const uint8_t> bytes,
                                            const CrestMeta& meta) {
  if (bytes.size() != meta.table_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token table: ", bytes.size(), " bytes, want ", meta.table_bytes()));
  }
  if (XXH3_64bits(bytes.data(), bytes.size()) != meta.table_digest) {
    return absl::InvalidArgumentError("token table: checksum differs");
  }
  std::vector<TokenId> by_rank(meta.table_tokens);
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    by_rank[rank] = static_cast<TokenId>(GetLittleEndian(
        bytes.data() + rank * meta.token_bytes(), meta.token_bytes()));
  }
  return TokenTable::Create(std::move(by_rank),
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

const char* SelectionName(TreeSelection selection) {
  return selection == TreeSelection::kRest ? "rest" : "best";
}

const char* SampleName(MatchSample sample) {
  return sample == MatchSample::kFirst ? "first" : "uniform";
}

}  // namespace foretoken
