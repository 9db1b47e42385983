// Small CREST datastores made by hand, for tests of what stores them.
#ifndef FORETOKEN_TESTS_SUPPORT_CREST_SAMPLES_H_
#define FORETOKEN_TESTS_SUPPORT_CREST_SAMPLES_H_

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/drafting/crest/crest_index.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest/crest_record.h"
#include "common/drafting/crest/snapshot_writer.h"
#include "xxhash.h"

namespace foretoken::testing {

struct CrestSample {
  CrestMeta meta;
  TokenTable table;
  std::vector<std::pair<uint64_t, std::string>> records;  // hash, bytes
  std::vector<std::vector<TokenId>> ngrams;

  std::string Joined() const {
    std::string joined;
    for (const auto& [hash, record] : records) joined += record;
    return joined;
  }
};

// A random tree with at most `max_nodes` nodes that a record may hold.
inline CrestTree RandomTree(std::mt19937& random, int max_nodes,
                            int vocabulary) {
  CrestTree tree;
  tree.matches = 1 + random() % 10000;
  uint32_t count = tree.matches;
  const int nodes = 1 + static_cast<int>(random() % max_nodes);
  for (int i = 0; i < nodes; ++i) {
    count -= std::min<uint32_t>(
        count - 1, random() % 4 == 0 ? random() % 300 : random() % 3);
    tree.tokens.push_back(static_cast<TokenId>(random() % vocabulary));
    tree.parents.push_back(static_cast<int32_t>(random() % (i + 1)) - 1);
    tree.counts.push_back(count);
  }
  return tree;
}

// `entries` distinct n-grams of 1..3 tokens below `vocabulary`. Different seeds
// give different datastores.
inline CrestSample MakeCrestSample(uint32_t seed, int entries,
                                   int vocabulary = 20000) {
  std::mt19937 random(seed);
  CrestSample sample;
  std::vector<TokenId> by_rank(vocabulary);
  for (int i = 0; i < vocabulary; ++i) by_rank[i] = vocabulary - 1 - i;
  sample.table = *TokenTable::Create(by_rank, vocabulary);
  CrestMeta& meta = sample.meta;
  meta.vocab_size = vocabulary;
  meta.max_n = 3;
  meta.top = entries;
  meta.seed = seed;
  meta.table_tokens = vocabulary;
  const std::string table = EncodeTokenTable(sample.table, meta);
  meta.table_digest = XXH3_64bits(table.data(), table.size());
  std::set<std::vector<TokenId>> seen;
  std::string joined;
  while (static_cast<int>(seen.size()) < entries) {
    std::vector<TokenId> ngram(1 + random() % 3);
    for (TokenId& token : ngram) {
      token = static_cast<TokenId>(random() % vocabulary);
    }
    if (!seen.insert(ngram).second) continue;
    const CrestTree tree = RandomTree(random, 64, vocabulary);
    std::string record;
    AppendRecord(ngram, tree, sample.table, record);
    meta.nodes += tree.size();
    meta.record_digest_sum += XXH3_64bits(record.data(), record.size());
    joined += record;
    sample.records.emplace_back(HashNgram(ngram), std::move(record));
    sample.ngrams.push_back(std::move(ngram));
  }
  meta.entries = sample.records.size();
  meta.record_bytes = joined.size();
  meta.record_digest = XXH3_64bits(joined.data(), joined.size());
  return sample;
}

inline absl::Status AddAll(const CrestSample& sample, DatastoreSink& sink) {
  for (const auto& [hash, record] : sample.records) {
    const absl::Status status = sink.Add(hash, record);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_CREST_SAMPLES_H_
