// The in-memory index of a CREST datastore: n-gram to token tree.
//
// Records stay as they are encoded (crest_record.h), in memory or in a mapped
// file; an open-addressing table of 8-byte slots points at them. A slot holds
// 24 bits of the hash, and the n-gram that stands in the record is compared
// before it is believed, so that a hit is never another n-gram's.
//
// Source: CREST, arXiv:2408.04678. All n from m down to 1 are looked up at
// once: their slots are fetched together, the longest hit wins.
// Thread-safe once made: Lookup is const.
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
  // Maps the snapshot file and checks every byte of it: checksums, and each
  // record on its own. InvalidArgument names file and fault.
  static absl::StatusOr<CrestIndex> Open(const std::string& path);

  // How the snapshot file was built and what it holds: header, length and token
  // table are checked, the records are not read. Errors as Open's.
  static absl::StatusOr<CrestMeta> ReadMeta(const std::string& path);

  // Takes records that came in any order, from PostgreSQL say. `meta` tells how
  // many they are and their digest.
  static absl::StatusOr<CrestIndex> FromRecords(const CrestMeta& meta,
                                                TokenTable table,
                                                std::string records);

  CrestIndex(CrestIndex&&) = default;
  CrestIndex& operator=(CrestIndex&&) = default;

  // Looks up the last max_n..min_n tokens of `context` and decodes the tree of
  // the longest stored one. Returns its n; 0, with an empty tree, for none.
  int Lookup(absl::Span<const TokenId> context, CrestTree& tree) const;

  const CrestMeta& meta() const { return meta_; }
  const TokenTable& table() const { return table_; }
  // What an index of this datastore will hold in memory.
  static uint64_t BytesFor(const CrestMeta& meta);
  // Bytes held or mapped: records, slots, token table.
  size_t bytes() const;

  // Calls visit(ngram, tree, encoded record) for every entry, in stored order.
  template <typename Visit>
  void ForEach(Visit visit) const;

 private:
  CrestIndex() = default;

  // Maps the file and checks all but the records.
  absl::Status Map(const std::string& path);
  // Checks the records and fills the slots.
  absl::Status Build();
  static uint64_t SlotsFor(uint64_t entries);
  void Insert(uint64_t hash, uint64_t offset);

  CrestMeta meta_;
  TokenTable table_;
  MappedFile file_;
  std::string owned_;
  absl::Span<const uint8_t> records_;  // in file_ or owned_
  // hash tag << 40 | offset + 1; 0 is empty. A power of two long, at most
  // 5/8 full.
  std::vector<uint64_t> slots_;
  uint64_t slot_mask_ = 0;
};

// Of n-grams as sequences of token ids: index slots, PostgreSQL keys.
uint64_t HashNgram(absl::Span<const TokenId> ngram);

// Sum of the records' XXH3s, and their number, must equal what `meta` says;
// `digest_sum`, `entries` and `nodes` are what was found.
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
