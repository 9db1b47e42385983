#include "common/drafting/crest/crest_index.h"

#include <algorithm>
#include <memory>
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
// Records read at a time while a file is validated.
constexpr uint64_t kWindowBytes = uint64_t{1} << 20;

absl::Span<uint8_t> Writable(std::string& bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

// Part of the format: the key of a row in PostgreSQL.
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

absl::Status CrestIndex::OpenHead(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(file_, OpenFile::Open(path));
  std::string head(std::min<uint64_t>(CrestMetaBytes(), file_.size()), '\0');
  // Two reads: the header, which is of fixed length, gives the table's.
  FORETOKEN_ASSIGN_OR_RETURN(size_t got, file_.ReadAt(0, Writable(head)));
  FORETOKEN_ASSIGN_OR_RETURN(const CrestMeta meta,
                             DecodeMeta(AsBytes(head).first(got)));
  // The file's size bounds what a corrupt header can make us allocate.
  head.resize(std::min(CrestMetaBytes() + meta.table_bytes(), file_.size()));
  FORETOKEN_ASSIGN_OR_RETURN(got, file_.ReadAt(0, Writable(head)));
  return ReadHead(AsBytes(head).first(got), file_.size());
}

absl::Status CrestIndex::ReadHead(absl::Span<const uint8_t> head,
                                  uint64_t bytes) {
  FORETOKEN_ASSIGN_OR_RETURN(meta_, DecodeMeta(head));
  // The header gives every length, so a file of any other size was cut off or
  // written by something else.
  const uint64_t head_bytes = CrestMetaBytes() + meta_.table_bytes();
  if (bytes != head_bytes + meta_.record_bytes || head.size() < head_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        bytes, " bytes, the header says ", head_bytes + meta_.record_bytes));
  }
  const auto table = head.subspan(CrestMetaBytes(), meta_.table_bytes());
  FORETOKEN_ASSIGN_OR_RETURN(table_, DecodeTokenTable(table, meta_));
  record_bytes_ = meta_.record_bytes;
  return absl::OkStatus();
}

absl::Status CrestIndex::CheckDigest() const {
  // A pass of its own, before anything is parsed: damage is reported as such
  // and not as an odd record somewhere.
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(
      XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  Window window;
  uint64_t at = 0;
  while (at < record_bytes_) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto bytes, RecordsAt(at, window));
    XXH3_64bits_update(state.get(), bytes.data(), bytes.size());
    at += bytes.size();
  }
  if (XXH3_64bits_digest(state.get()) != meta_.record_digest) {
    return absl::InvalidArgumentError("records: checksum differs");
  }
  return absl::OkStatus();
}

absl::StatusOr<CrestMeta> CrestIndex::ReadMeta(const std::string& path) {
  CrestIndex index;
  FORETOKEN_RETURN_IF_ERROR(Annotate(index.OpenHead(path), path));
  return index.meta_;
}

absl::StatusOr<CrestIndex> CrestIndex::Open(const std::string& path) {
  CrestIndex index;
  FORETOKEN_RETURN_IF_ERROR(Annotate(index.OpenHead(path), path));
  FORETOKEN_RETURN_IF_ERROR(Annotate(index.CheckDigest(), path));
  FORETOKEN_RETURN_IF_ERROR(Annotate(index.Build(), path));
  return index;
}

// A snapshot has hundreds of bytes, so the string is on the heap and moving the
// index leaves records_ valid.
absl::StatusOr<CrestIndex> CrestIndex::FromSnapshot(std::string bytes) {
  CrestIndex index;
  index.owned_ = std::move(bytes);
  const absl::Span<const uint8_t> snapshot = AsBytes(index.owned_);
  FORETOKEN_RETURN_IF_ERROR(index.ReadHead(snapshot, snapshot.size()));
  index.records_ = snapshot.last(index.record_bytes_);
  FORETOKEN_RETURN_IF_ERROR(index.CheckDigest());
  FORETOKEN_RETURN_IF_ERROR(index.Build());
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
  index.record_bytes_ = index.records_.size();
  FORETOKEN_RETURN_IF_ERROR(index.Build());
  return index;
}

absl::Status CrestIndex::Build() {
  if (meta_.entries > record_bytes_ / kLeastRecordBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "datastore: ", meta_.entries, " entries in ", record_bytes_, " bytes"));
  }
  // Every record is parsed with all checks here, once, which is what lets
  // DecodeRecordIf read records in memory without any.
  slots_.assign(SlotsFor(meta_.entries), 0);
  slot_mask_ = slots_.size() - 1;

  uint64_t entries = 0;
  uint64_t nodes = 0;
  uint64_t digest_sum = 0;
  RecordView record;
  CrestTree tree;
  Window window;
  for (uint64_t at = 0; at < record_bytes_; at += record.bytes) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto bytes, RecordsAt(at, window));
    const absl::Status status = ParseRecord(bytes, table_, record, tree);
    if (!status.ok()) return Annotate(status, absl::StrCat("entry ", entries));
    // The table has room for meta_.entries; CheckTotals reports the excess.
    if (++entries > meta_.entries) break;
    nodes += tree.size();
    digest_sum += XXH3_64bits(bytes.data(), record.bytes);
    Insert(HashNgram({record.ngram, static_cast<size_t>(record.n)}), at);
  }
  return CheckTotals(meta_, entries, nodes, digest_sum);
}

void CrestIndex::Insert(uint64_t hash, uint64_t offset) {
  uint64_t slot = hash & slot_mask_;
  while (slots_[slot] != 0) slot = (slot + 1) & slot_mask_;
  // The offset + 1, because 0 marks a free slot. The tag is the hash's upper
  // bits, the slot its lower ones, so tags differ within a run of slots.
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
      // A tag match proves nothing; DecodeAt compares the n-gram itself.
      if ((slots_[slot] & ~kOffsetMask) != tag) continue;
      if (DecodeAt((slots_[slot] & kOffsetMask) - 1, context.last(n),
                   {ranks + longest - n, n}, tree)) {
        return static_cast<int>(n);
      }
    }
  }
  tree.Clear();
  return 0;
}

bool CrestIndex::DecodeAt(uint64_t at, absl::Span<const TokenId> ngram,
                          absl::Span<const uint32_t> ranks,
                          CrestTree& tree) const {
  if (!file_.is_open()) {
    return DecodeRecordIf(records_.data() + at, ranks, table_, tree);
  }
  // The file may have changed since it was validated: parse with all checks. An
  // error is a miss, since drafts are only hints.
  uint8_t bytes[kMaxCrestRecordBytes];
  const uint64_t most = std::min(sizeof(bytes), record_bytes_ - at);
  const auto got = file_.ReadAt(file_.size() - record_bytes_ + at,
                                absl::MakeSpan(bytes, most));
  RecordView record;
  return got.ok() &&
         ParseRecord(absl::MakeConstSpan(bytes, *got), table_, record, tree)
             .ok() &&
         absl::MakeConstSpan(record.ngram, record.n) == ngram;
}

absl::StatusOr<absl::Span<const uint8_t>> CrestIndex::RecordsAt(
    uint64_t at, Window& window) const {
  if (!file_.is_open()) return records_.subspan(at);
  const uint64_t left = record_bytes_ - at;
  // The window holds as much as the longest record takes from `at` on, so that
  // ParseRecord never sees a record cut off by the window.
  const uint64_t want = std::min<uint64_t>(kMaxCrestRecordBytes, left);
  if (at < window.begin || at + want > window.begin + window.bytes.size()) {
    window.begin = at;
    window.bytes.resize(std::min<uint64_t>(kWindowBytes, left));
    FORETOKEN_ASSIGN_OR_RETURN(const size_t got,
                               file_.ReadAt(file_.size() - record_bytes_ + at,
                                            Writable(window.bytes)));
    if (got != window.bytes.size()) {
      return absl::InvalidArgumentError("became shorter while it was read");
    }
  }
  return AsBytes(window.bytes).subspan(at - window.begin);
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
