// CrestIndex: the in-memory index of a CREST datastore, from n-gram to token
// tree.
//
// Records stay encoded (crest_record.h), in memory or in a mapped file; an
// open-addressing table of 8-byte slots points to them. A slot stores 24 bits
// of the hash, and the n-gram in the record is always compared, so a hit is
// never another n-gram's.
//
// Source: CREST, arXiv:2408.04678. All n from m down to 1 are looked up at
// once: their slots are prefetched together, and the longest hit wins.
// Thread-safe after construction: Lookup is const.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_CREST_INDEX_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_CREST_INDEX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/mapped_file.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_record.h"
#include "common/drafting/crest/crest_tree.h"

namespace foretoken {

class CrestIndex {
 public:
  // Maps the snapshot file and validates all of it: checksums, and each record
  // by itself. InvalidArgument names file and defect.
  static absl::StatusOr<CrestIndex> Open(const std::string& path);

  // As Open, for a snapshot that was read into memory. InvalidArgument names
  // the defect.
  static absl::StatusOr<CrestIndex> FromSnapshot(std::string bytes);

  // Reads how a snapshot file was built and what it contains: validates header,
  // length and token table, and does not read the records. Errors as in Open.
  static absl::StatusOr<CrestMeta> ReadMeta(const std::string& path);

  // Builds the index from records in any order, e.g. from PostgreSQL. `meta`
  // holds their number and digest.
  static absl::StatusOr<CrestIndex> FromRecords(const CrestMeta& meta,
                                                TokenTable table,
                                                std::string records);

  CrestIndex(CrestIndex&&) = default;
  CrestIndex& operator=(CrestIndex&&) = default;

  // Looks up the last max_n..min_n tokens of `context` and decodes the tree of
  // the longest stored n-gram. Returns its n, or 0 and an empty tree if there
  // is none.
  int Lookup(absl::Span<const TokenId> context, CrestTree& tree) const;

  const CrestMeta& meta() const { return meta_; }
  const TokenTable& table() const { return table_; }
  // Memory that an index of this datastore will take, in bytes.
  static uint64_t BytesFor(const CrestMeta& meta);
  // Bytes held or mapped: records, slots and token table.
  size_t bytes() const;

  // Calls visit(ngram, tree, encoded record) for every entry, in stored order.
  template <typename Visit>
  void ForEach(Visit visit) const;

 private:
  CrestIndex() = default;

  // Splits a snapshot into header, token table and records; validates
  // everything but the records.
  absl::Status Split(absl::Span<const uint8_t> snapshot);
  // Validates the whole snapshot and fills the slots.
  absl::Status Load(absl::Span<const uint8_t> snapshot);
  // Validates the records and fills the slots.
  absl::Status Build();
  static uint64_t SlotsFor(uint64_t entries);
  void Insert(uint64_t hash, uint64_t offset);

  CrestMeta meta_;
  TokenTable table_;
  MappedFile file_;
  std::string owned_;
  absl::Span<const uint8_t> records_;  // in file_ or owned_
  // hash tag << 40 | offset + 1; 0 is empty. Size is a power of two; at most
  // 5/8 full.
  std::vector<uint64_t> slots_;
  uint64_t slot_mask_ = 0;
};

// Hash of an n-gram's token ids, for index slots and PostgreSQL keys.
uint64_t HashNgram(absl::Span<const TokenId> ngram);

// Compares the totals found with those in `meta`: number of entries and nodes,
// and the sum of the records' XXH3 digests.
absl::Status CheckTotals(const CrestMeta& meta, uint64_t entries,
                         uint64_t nodes, uint64_t digest_sum);

template <typename Visit>
void CrestIndex::ForEach(Visit visit) const {
  RecordView record;
  CrestTree tree;
  for (size_t at = 0; at < records_.size(); at += record.bytes) {
    if (!ParseRecord(records_.subspan(at), table_, record, tree).ok()) return;
    visit(absl::Span<const TokenId>(record.ngram, record.n), tree,
          records_.subspan(at, record.bytes));
  }
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_CREST_INDEX_H_
