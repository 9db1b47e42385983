#include "common/drafting/crest/crest_index.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bytes.h"
#include "common/base/status_macros.h"
#include "xxhash.h"

namespace foretoken {
namespace {

// A slot: 24 bits of the hash above a 40-bit record offset.
constexpr int kOffsetBits = 40;
constexpr uint64_t kOffsetMask = (uint64_t{1} << kOffsetBits) - 1;
// Smallest possible record: bounds what a corrupt header can make a reader
// allocate.
constexpr uint64_t kLeastRecordBytes = 4;

}  // namespace

uint64_t HashNgram(absl::Span<const TokenId> ngram) {
  return XXH3_64bits(ngram.data(), ngram.size() * sizeof(TokenId));
}

absl::Status CheckTotals(const CrestMeta& meta, uint64_t entries,
                         uint64_t nodes, uint64_t digest_sum) {
  const struct {
    const char* what;
    uint64_t got, want;
  } totals[] = {{"entries", entries, meta.entries},
                {"nodes", nodes, meta.nodes},
                {"record checksum", digest_sum, meta.record_digest_sum}};
  for (const auto& total : totals) {
    if (total.got != total.want) {
      return absl::InvalidArgumentError(
          absl::StrCat("datastore: ", total.what, " ", total.got,
                       ", the header says ", total.want));
    }
  }
  return absl::OkStatus();
}

absl::Status CrestIndex::Split(absl::Span<const uint8_t> snapshot) {
  FORETOKEN_ASSIGN_OR_RETURN(meta_, DecodeMeta(snapshot));
  const uint64_t head = CrestMetaBytes() + meta_.table_bytes();
  if (snapshot.size() != head + meta_.record_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(snapshot.size(),
                                                   " bytes, the header says ",
                                                   head + meta_.record_bytes));
  }
  const auto table = snapshot.subspan(CrestMetaBytes(), meta_.table_bytes());
  FORETOKEN_ASSIGN_OR_RETURN(table_, DecodeTokenTable(table, meta_));
  records_ = snapshot.subspan(head);
  return absl::OkStatus();
}

absl::Status CrestIndex::Load(absl::Span<const uint8_t> snapshot) {
  FORETOKEN_RETURN_IF_ERROR(Split(snapshot));
  if (XXH3_64bits(records_.data(), records_.size()) != meta_.record_digest) {
    return absl::InvalidArgumentError("records: checksum differs");
  }
  return Build();
}

absl::StatusOr<CrestMeta> CrestIndex::ReadMeta(const std::string& path) {
  CrestIndex index;
  FORETOKEN_ASSIGN_OR_RETURN(index.file_, MappedFile::Open(path));
  FORETOKEN_RETURN_IF_ERROR(Annotate(index.Split(index.file_.bytes()), path));
  return index.meta_;
}

absl::StatusOr<CrestIndex> CrestIndex::Open(const std::string& path) {
  CrestIndex index;
  FORETOKEN_ASSIGN_OR_RETURN(index.file_, MappedFile::Open(path));
  FORETOKEN_RETURN_IF_ERROR(Annotate(index.Load(index.file_.bytes()), path));
  return index;
}

// A snapshot that passes Load has hundreds of bytes, so the string is on the
// heap and moving the index leaves records_ valid.
absl::StatusOr<CrestIndex> CrestIndex::FromSnapshot(std::string bytes) {
  CrestIndex index;
  index.owned_ = std::move(bytes);
  FORETOKEN_RETURN_IF_ERROR(index.Load(AsBytes(index.owned_)));
  return index;
}

absl::StatusOr<CrestIndex> CrestIndex::FromRecords(const CrestMeta& meta,
                                                   TokenTable table,
                                                   std::string records) {
  CrestIndex index;
  index.meta_ = meta;
  index.table_ = std::move(table);
  index.owned_ = std::move(records);
  // A short string may be stored inside the object, which moves: force it to
  // the heap so that records_ stays valid.
  index.owned_.reserve(64);
  index.records_ = AsBytes(index.owned_);
  FORETOKEN_RETURN_IF_ERROR(index.Build());
  return index;
}

absl::Status CrestIndex::Build() {
  if (meta_.entries > records_.size() / kLeastRecordBytes) {
    return absl::InvalidArgumentError(absl::StrCat("datastore: ", meta_.entries,
                                                   " entries in ",
                                                   records_.size(), " bytes"));
  }
  slots_.assign(SlotsFor(meta_.entries), 0);
  slot_mask_ = slots_.size() - 1;

  uint64_t entries = 0;
  uint64_t nodes = 0;
  uint64_t digest_sum = 0;
  RecordView record;
  CrestTree tree;
  for (size_t at = 0; at < records_.size(); at += record.bytes) {
    const absl::Status status =
        ParseRecord(records_.subspan(at), table_, record, tree);
    if (!status.ok()) return Annotate(status, absl::StrCat("entry ", entries));
    // The table has room for meta_.entries; CheckTotals reports the excess.
    if (++entries > meta_.entries) break;
    nodes += tree.size();
    digest_sum += XXH3_64bits(records_.data() + at, record.bytes);
    Insert(HashNgram({record.ngram, static_cast<size_t>(record.n)}), at);
  }
  return CheckTotals(meta_, entries, nodes, digest_sum);
}

void CrestIndex::Insert(uint64_t hash, uint64_t offset) {
  uint64_t slot = hash & slot_mask_;
  while (slots_[slot] != 0) slot = (slot + 1) & slot_mask_;
  slots_[slot] = (hash & ~kOffsetMask) | (offset + 1);
}

int CrestIndex::Lookup(absl::Span<const TokenId> context,
                       CrestTree& tree) const {
  // Prefetch the slots of all n first: the cache misses overlap.
  const size_t longest = std::min<size_t>(meta_.max_n, context.size());
  // DecodeMeta requires min_n >= 1, so n does not wrap in these loops.
  uint64_t hashes[kMaxCrestN + 1];
  for (size_t n = longest; n >= meta_.min_n; --n) {
    hashes[n] = HashNgram(context.last(n));
    __builtin_prefetch(&slots_[hashes[n] & slot_mask_]);
  }
  // Records hold ranks. A token outside the table gets kNoRank, which no record
  // has.
  uint32_t ranks[kMaxCrestN];
  for (size_t i = 0; i < longest; ++i) {
    ranks[i] = table_.RankOf(context[context.size() - longest + i]);
  }
  for (size_t n = longest; n >= meta_.min_n; --n) {
    const uint64_t tag = hashes[n] & ~kOffsetMask;
    for (uint64_t slot = hashes[n] & slot_mask_; slots_[slot] != 0;
         slot = (slot + 1) & slot_mask_) {
      // A tag match is no proof; DecodeRecordIf compares the n-gram itself.
      if ((slots_[slot] & ~kOffsetMask) != tag) continue;
      const uint8_t* record =
          records_.data() + (slots_[slot] & kOffsetMask) - 1;
      if (DecodeRecordIf(record, {ranks + longest - n, n}, table_, tree)) {
        return static_cast<int>(n);
      }
    }
  }
  tree.Clear();
  return 0;
}

uint64_t CrestIndex::SlotsFor(uint64_t entries) {
  // An empty slot ends every probe, so the table must never be full.
  uint64_t slots = 16;
  while (slots * 5 / 8 < entries) slots *= 2;
  return slots;
}

uint64_t CrestIndex::BytesFor(const CrestMeta& meta) {
  return meta.record_bytes + SlotsFor(meta.entries) * sizeof(uint64_t) +
         meta.table_tokens * sizeof(TokenId) +
         meta.vocab_size * sizeof(uint32_t);
}

size_t CrestIndex::bytes() const {
  return records_.size() + slots_.size() * sizeof(uint64_t) + table_.bytes();
}

}  // namespace foretoken
