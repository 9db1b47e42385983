// CrestIndex: the in-memory index of a CREST datastore, from n-gram to token
// tree.
//
// Records stay encoded (crest_record.h), in memory or in their file; an
// open-addressing table of 8-byte slots points to them. A slot stores 24 bits
// of the hash, and the n-gram in the record is always compared, so a hit is
// never another n-gram's.
//
// Source: CREST, arXiv:2408.04678. All n from m down to 1 are looked up at
// once: their slots are prefetched together, and the longest hit wins.
//
// A record in a file is read when it is looked up, and validated again: the
// file may be truncated or overwritten in place while it is served, which
// loses hits and nothing else.
//
// Thread-safe after construction: Lookup is const.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_CREST_INDEX_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_CREST_INDEX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/open_file.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_record.h"
#include "common/drafting/crest/crest_tree.h"

namespace foretoken {

class CrestIndex {
 public:
  // Validates all of the snapshot file: checksums, and each record by itself.
  // Its records stay there. InvalidArgument names file and defect.
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
  // Bytes held: slots, token table, and the records unless they stay in a file.
  size_t bytes() const;

  // Calls visit(ngram, tree, encoded record) for every entry, in stored order.
  template <typename Visit>
  void ForEach(Visit visit) const;

 private:
  CrestIndex() = default;

  // Part of the records, read from the file.
  struct Window {
    uint64_t begin = 0;
    std::string bytes;
  };

  // Opens a snapshot file, whose records stay there; validates everything but
  // the records.
  absl::Status OpenHead(const std::string& path);
  // Validates all but the records of a snapshot of `bytes` bytes, `head` being
  // its front: header and token table, if that is as long as it says.
  absl::Status ReadHead(absl::Span<const uint8_t> head, uint64_t bytes);
  // Compares the checksum of all records with the header's.
  absl::Status CheckDigest() const;
  // Validates the records and fills the slots.
  absl::Status Build();
  // The records from `at` on, the first of them whole; those in a file are read
  // through `window`. An error if the file became shorter.
  absl::StatusOr<absl::Span<const uint8_t>> RecordsAt(uint64_t at,
                                                      Window& window) const;
  // Decodes the tree of the record at `at` if it is the n-gram's.
  bool DecodeAt(uint64_t at, absl::Span<const TokenId> ngram,
                absl::Span<const uint32_t> ranks, CrestTree& tree) const;
  static uint64_t SlotsFor(uint64_t entries);
  void Insert(uint64_t hash, uint64_t offset);

  CrestMeta meta_;
  TokenTable table_;
  OpenFile file_;                      // if the records stay in it
  std::string owned_;                  // otherwise
  absl::Span<const uint8_t> records_;  // in owned_
  uint64_t record_bytes_ = 0;
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
  Window window;
  for (uint64_t at = 0; at < record_bytes_; at += record.bytes) {
    const auto bytes = RecordsAt(at, window);
    if (!bytes.ok() || !ParseRecord(*bytes, table_, record, tree).ok()) return;
    visit(absl::Span<const TokenId>(record.ngram, record.n), tree,
          bytes->first(record.bytes));
  }
}

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_CREST_INDEX_H_
