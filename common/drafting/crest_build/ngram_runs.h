// Counting n-grams, first half: sorted runs.
//
// Every position of the corpus gives one key, its next max_n tokens (fewer
// where the document ends). Chunks of keys are sorted in memory, equal keys
// become one record with a count, and each chunk is written as a run. Merging
// the runs (run_merger.h) brings equal keys together, and the counts of all
// shorter n-grams are sums over shared prefixes, so one sort serves every n.
//
// Memory: at most `memory_bytes`, whatever the corpus. Disk: at most key bytes
// + 4 a token. Counts do not depend on memory or thread count.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_RUNS_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_RUNS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/progress.h"
#include "common/base/thread_pool.h"
#include "common/drafting/crest_build/ngram_key.h"
#include "common/drafting/crest_build/spill_file.h"
#include "common/drafting/crest_build/token_file.h"

namespace foretoken {

// Sorted records in a spill file: key_bytes of key, 4 bytes of count
// (little-endian), keys strictly ascending.
struct NgramRun {
  uint64_t offset = 0;
  uint64_t records = 0;
};

inline constexpr int kRunCountBytes = 4;

inline int RunRecordBytes(const KeyLayout& layout) {
  return layout.key_bytes() + kRunCountBytes;
}

// `progress` advances by positions. Positions with fewer than min_n tokens
// before their document's end give no key.
absl::StatusOr<std::vector<NgramRun>> WriteNgramRuns(
    const TokenFile& tokens, const KeyLayout& layout, int min_n,
    uint64_t memory_bytes, ThreadPool& pool, SpillFile& runs,
    Progress& progress);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_RUNS_H_
