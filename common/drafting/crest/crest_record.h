// Encoding of a CREST datastore entry: an n-gram and its token tree.
//
//   record  n:1  rank*n  matches:varint  nodes:varint  count of node 0:varint
//           node*nodes
//   node    rank  code:1  [parent:varint]  [fall:varint]
//
// Tokens are stored as ranks in a token table, most frequent first: one byte
// for ranks below 192, two below 16064, four above. A node's code byte holds
// its parent index + 1 in the upper six bits (63: a varint holds the excess
// over 63) and, in the lower two, the decrease of its count from the previous
// node's (3: a varint holds the excess over 3). Nodes come most frequent first,
// so parents are small and decreases mostly 0. About 2.7 bytes per node on chat
// text; the paper's pickled trees take 5 or more.
//
// Snapshot files, PostgreSQL rows and the index all use these bytes.
// Thread-safe: stateless functions.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_CREST_RECORD_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_CREST_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/drafting/crest/crest_tree.h"

namespace foretoken {

inline constexpr int kMaxCrestN = 8;
// Tokens of a context that a look-up is asked with: the longest n-gram's, or
// those of REST's longest match.
inline constexpr int kMaxLookupContext = 16;
inline constexpr int kMaxCrestNodes = 256;
inline constexpr uint32_t kNoRank = UINT32_MAX;
// Maximum length of a record: ranks take up to 4 bytes, varints up to 5.
inline constexpr size_t kMaxCrestRecordBytes =
    1 + kMaxCrestN * 4 + 3 * 5 + kMaxCrestNodes * (4 + 1 + 2 * 5);

// Maps ranks to tokens and tokens to ranks.
class TokenTable {
 public:
  TokenTable() = default;
  // `by_rank`: distinct tokens in 0..vocab_size-1. InvalidArgument names the
  // first rank that violates this.
  static absl::StatusOr<TokenTable> Create(std::vector<TokenId> by_rank,
                                           int32_t vocab_size);

  absl::Span<const TokenId> by_rank() const { return by_rank_; }
  // Returns kNoRank for a token that is not in the table.
  uint32_t RankOf(TokenId token) const {
    return token >= 0 && static_cast<size_t>(token) < ranks_.size()
               ? ranks_[token]
               : kNoRank;
  }
  size_t bytes() const {
    return by_rank_.capacity() * sizeof(TokenId) +
           ranks_.capacity() * sizeof(uint32_t);
  }

 private:
  std::vector<TokenId> by_rank_;
  std::vector<uint32_t> ranks_;  // [vocab_size]
};

// Appends the record of `ngram` (1..kMaxCrestN tokens) and `tree` (at most
// kMaxCrestNodes nodes, counts non-increasing) to `out`. Every token must be in
// the table.
void AppendRecord(absl::Span<const TokenId> ngram, const CrestTree& tree,
                  const TokenTable& table, std::string& out);

struct RecordView {
  int n = 0;
  TokenId ngram[kMaxCrestN];
  size_t bytes = 0;  // length of the record
};

// Parses the record at the front of `bytes` with full validation; never reads
// beyond the span, whatever it contains. InvalidArgument names the defect.
absl::Status ParseRecord(absl::Span<const uint8_t> bytes,
                         const TokenTable& table, RecordView& record,
                         CrestTree& tree);

// Unchecked decoder for bytes that ParseRecord has accepted with this table.
// Returns false, without touching `tree`, if the record's n-gram is not
// `ngram`.
bool DecodeRecordIf(const uint8_t* record, absl::Span<const uint32_t> ranks,
                    const TokenTable& table, CrestTree& tree);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_CREST_RECORD_H_
