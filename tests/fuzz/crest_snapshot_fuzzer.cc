// A snapshot file of any bytes: refused, or read without a fault.
//
// The bytes are tried as they are; and, so that the checksums do not hide the
// parsers behind them, as token table and records under a header that fits.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_record.h"
#include "xxhash.h"

namespace foretoken {
namespace {

constexpr int32_t kVocabulary = 300;

TokenTable Table() {
  std::vector<TokenId> by_rank(kVocabulary);
  for (int32_t i = 0; i < kVocabulary; ++i) by_rank[i] = i;
  return *TokenTable::Create(by_rank, kVocabulary);
}

// What was accepted must answer every look-up with a sound tree.
void LookUpAll(const CrestIndex& index) {
  index.ForEach([&](absl::Span<const TokenId> ngram, const CrestTree&,
                    absl::Span<const uint8_t>) {
    CrestTree tree;
    const int n = index.Lookup(ngram, tree);
    for (int i = 0; i < tree.size(); ++i) {
      FORETOKEN_CHECK(tree.parents[i] >= kRootParent && tree.parents[i] < i);
      FORETOKEN_CHECK(tree.counts[i] <= tree.matches);
    }
    FORETOKEN_CHECK(n <= static_cast<int>(ngram.size()));
  });
}

void TryRecords(absl::Span<const uint8_t> bytes) {
  static const TokenTable table = Table();
  CrestMeta meta;
  meta.vocab_size = kVocabulary;
  meta.max_n = kMaxCrestN;
  meta.table_tokens = kVocabulary;
  meta.record_bytes = bytes.size();
  RecordView view;
  CrestTree tree;
  for (size_t at = 0; at < bytes.size(); at += view.bytes) {
    if (!ParseRecord(bytes.subspan(at), table, view, tree).ok()) break;
    ++meta.entries;
    meta.nodes += tree.size();
    meta.record_digest_sum += XXH3_64bits(bytes.data() + at, view.bytes);
  }
  const auto index = CrestIndex::FromRecords(
      meta, table,
      std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (index.ok()) LookUpAll(*index);
}

}  // namespace
}  // namespace foretoken

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const uint8_t> bytes(data, size);
  const auto meta = foretoken::DecodeMeta(bytes);
  if (meta.ok() && meta->table_bytes() <= size) {
    [[maybe_unused]] const auto table = foretoken::DecodeTokenTable(
        bytes.first(static_cast<size_t>(meta->table_bytes())), *meta);
  }
  foretoken::TryRecords(bytes);
  return 0;
}
