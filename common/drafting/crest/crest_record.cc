#include "common/drafting/crest/crest_record.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/token_range.h"

namespace foretoken {
namespace {

// A token is written as its rank by frequency, so that common ones take a byte:
// lead bytes 0..191 are the rank itself, 192..253 begin two bytes, 255 begins
// four.
constexpr uint32_t kOneByteRanks = 192;
constexpr uint32_t kTwoByteLeads = 62;  // lead bytes 192..253
constexpr uint32_t kTwoByteRanks = kOneByteRanks + kTwoByteLeads * 256;
constexpr uint8_t kLongRank = 255;  // three bytes follow, little-endian
// One byte of a node: its parent + 1 in the upper 6 bits, the fall of its count
// from the node before in the lower 2. The highest value of either means that a
// varint with the rest follows.
constexpr uint32_t kParentEscape = 63;
constexpr uint32_t kFallEscape = 3;

void AppendRank(uint32_t rank, std::string& out) {
  if (rank < kOneByteRanks) {
    out.push_back(static_cast<char>(rank));
  } else if (rank < kTwoByteRanks) {
    const uint32_t rest = rank - kOneByteRanks;
    out.push_back(static_cast<char>(kOneByteRanks + (rest >> 8)));
    out.push_back(static_cast<char>(rest & 0xff));
  } else {
    out.push_back(static_cast<char>(kLongRank));
    for (int shift = 0; shift < 24; shift += 8) {
      out.push_back(static_cast<char>(rank >> shift & 0xff));
    }
  }
}

void AppendVarint(uint32_t value, std::string& out) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

// Reads records. With kChecked false, the bytes are known to be valid and `end`
// is ignored.
template <bool kChecked>
class Cursor {
 public:
  Cursor(const uint8_t* begin, const uint8_t* end) : at_(begin), end_(end) {}

  // Stays false after the first error; reads go on and give any values, so that
  // callers check once a node and not once a byte.
  bool ok() const { return ok_; }
  const uint8_t* at() const { return at_; }

  uint32_t Byte() {
    if (kChecked && at_ == end_) {
      ok_ = false;
      return 0;
    }
    return *at_++;
  }

  uint32_t Rank() {
    const uint32_t lead = Byte();
    if (lead < kOneByteRanks) return lead;
    if (lead < kOneByteRanks + kTwoByteLeads) {
      return kOneByteRanks + ((lead - kOneByteRanks) << 8 | Byte());
    }
    // Lead byte 254 is unused.
    if (kChecked && lead != kLongRank) ok_ = false;
    uint32_t rank = Byte();
    rank |= Byte() << 8;
    return rank | Byte() << 16;
  }

  uint32_t Varint() {
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      const uint32_t byte = Byte();
      // The fifth byte holds only the upper 4 of 32 bits.
      if (kChecked && shift == 28 && byte > 15) ok_ = false;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    // A sixth byte would be needed.
    ok_ = false;
    return 0;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

struct Node {
  uint32_t rank;
  int32_t parent;
  uint32_t fall;
};

template <bool kChecked>
Node ReadNode(Cursor<kChecked>& in) {
  Node node;
  node.rank = in.Rank();
  const uint32_t code = in.Byte();
  // Clamp escapes that no valid record has to values that the checks reject.
  uint32_t parent = code >> 2;
  if (parent == kParentEscape) {
    parent += std::min<uint32_t>(in.Varint(), kMaxCrestNodes + 1);
  }
  node.parent = static_cast<int32_t>(parent) - 1;
  node.fall = code & 3;
  if (node.fall == kFallEscape) {
    node.fall += std::min(in.Varint(), ~uint32_t{0} - kFallEscape);
  }
  return node;
}

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("record: ", what));
}

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Create(std::vector<TokenId> by_rank,
                                              int32_t vocab_size) {
  TokenTable table;
  table.ranks_.assign(vocab_size, kNoRank);
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const TokenId token = by_rank[rank];
    if (!InVocabulary(token, vocab_size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("token table: rank ", rank, " is token ", token,
                       ", want 0..", vocab_size - 1));
    }
    if (table.ranks_[token] != kNoRank) {
      return absl::InvalidArgumentError(
          absl::StrCat("token table: ranks ", table.ranks_[token], " and ",
                       rank, " are both token ", token));
    }
    table.ranks_[token] = static_cast<uint32_t>(rank);
  }
  table.by_rank_ = std::move(by_rank);
  return table;
}

void AppendRecord(absl::Span<const TokenId> ngram, const CrestTree& tree,
                  const TokenTable& table, std::string& out) {
  FORETOKEN_CHECK(!ngram.empty() && ngram.size() <= kMaxCrestN);
  FORETOKEN_CHECK(tree.size() <= kMaxCrestNodes);
  out.push_back(static_cast<char>(ngram.size()));
  for (const TokenId token : ngram) AppendRank(table.RankOf(token), out);
  AppendVarint(tree.matches, out);
  AppendVarint(static_cast<uint32_t>(tree.size()), out);
  if (tree.size() == 0) return;
  // Nodes are in order of falling counts, and most falls are small.
  uint32_t count = tree.counts[0];
  AppendVarint(count, out);
  for (int i = 0; i < tree.size(); ++i) {
    const uint32_t rank = table.RankOf(tree.tokens[i]);
    FORETOKEN_CHECK(rank != kNoRank && tree.counts[i] <= count);
    AppendRank(rank, out);
    // Parents and falls are small in nearly all nodes, so that both share a
    // byte.
    const uint32_t parent = static_cast<uint32_t>(tree.parents[i] + 1);
    const uint32_t fall = count - tree.counts[i];
    const uint32_t parent_code = std::min(parent, kParentEscape);
    const uint32_t fall_code = std::min(fall, kFallEscape);
    out.push_back(static_cast<char>(parent_code << 2 | fall_code));
    if (parent_code == kParentEscape) AppendVarint(parent - kParentEscape, out);
    if (fall_code == kFallEscape) AppendVarint(fall - kFallEscape, out);
    count = tree.counts[i];
  }
}

absl::Status ParseRecord(absl::Span<const uint8_t> bytes,
                         const TokenTable& table, RecordView& record,
                         CrestTree& tree) {
  // Checks all that DecodeRecordIf relies on.
  Cursor<true> in(bytes.data(), bytes.data() + bytes.size());
  const absl::Span<const TokenId> by_rank = table.by_rank();
  tree.Clear();
  record.n = static_cast<int>(in.Byte());
  if (!in.ok()) return Bad("ends early");
  if (record.n < 1 || record.n > kMaxCrestN) {
    return Bad(absl::StrCat("n is ", record.n, ", want 1..", kMaxCrestN));
  }
  for (int k = 0; k < record.n; ++k) {
    const uint32_t rank = in.Rank();
    if (!in.ok() || rank >= by_rank.size()) return Bad("bad token of n-gram");
    record.ngram[k] = by_rank[rank];
  }
  tree.matches = in.Varint();
  const uint32_t nodes = in.Varint();
  if (!in.ok()) return Bad("ends early");
  if (nodes > kMaxCrestNodes) {
    return Bad(absl::StrCat(nodes, " nodes, want at most ", kMaxCrestNodes));
  }
  uint32_t count = nodes > 0 ? in.Varint() : 0;
  for (uint32_t i = 0; i < nodes; ++i) {
    const Node node = ReadNode(in);
    if (!in.ok()) return Bad(absl::StrCat("ends early in node ", i));
    if (node.rank >= by_rank.size()) {
      return Bad(absl::StrCat("bad token of node ", i));
    }
    if (node.parent < kRootParent || node.parent >= static_cast<int32_t>(i)) {
      return Bad(absl::StrCat("node ", i, " has parent ", node.parent));
    }
    // Counts never rise from node to node, and none exceeds all matches.
    if (node.fall > count) return Bad(absl::StrCat("bad count of node ", i));
    count -= node.fall;
    if (count > tree.matches) {
      return Bad(absl::StrCat("node ", i, " counts more than all matches"));
    }
    tree.tokens.push_back(by_rank[node.rank]);
    tree.parents.push_back(node.parent);
    tree.counts.push_back(count);
  }
  record.bytes = static_cast<size_t>(in.at() - bytes.data());
  return absl::OkStatus();
}

bool DecodeRecordIf(const uint8_t* record, absl::Span<const uint32_t> ranks,
                    const TokenTable& table, CrestTree& tree) {
  Cursor<false> in(record, nullptr);
  if (in.Byte() != ranks.size()) return false;
  // Compared before anything is decoded: most records that a hash leads to but
  // are not the one wanted end here.
  for (const uint32_t rank : ranks) {
    if (in.Rank() != rank) return false;
  }
  const TokenId* by_rank = table.by_rank().data();
  tree.matches = in.Varint();
  const uint32_t nodes = in.Varint();
  // At most kMaxCrestNodes: ParseRecord has seen this record.
  tree.tokens.resize(nodes);
  tree.parents.resize(nodes);
  tree.counts.resize(nodes);
  if (nodes == 0) return true;
  uint32_t count = in.Varint();
  for (uint32_t i = 0; i < nodes; ++i) {
    const Node node = ReadNode(in);
    count -= node.fall;
    tree.tokens[i] = by_rank[node.rank];
    tree.parents[i] = node.parent;
    tree.counts[i] = count;
  }
  return true;
}

}  // namespace foretoken
