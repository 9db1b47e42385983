// Counting n-grams, first half: sorted runs.
//
// Every position of the corpus yields one key: its next max_n tokens, fewer at
// the end of a document. Chunks of keys are sorted in memory, equal keys become
// one record with a count, and each chunk is written as a run. Merging the runs
// (run_merger.h) brings equal keys together; the counts of shorter n-grams are
// sums over shared prefixes, so one sort serves every n.
//
// Memory: at most memory_bytes, whatever the corpus size. Disk: at most key
// bytes + 4 per token. Counts do not depend on memory or thread count.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_RUNS_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_RUNS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/progress_bar.h"
#include "common/base/thread_pool.h"
#include "common/drafting/crest_build/ngram_key.h"
#include "common/drafting/crest_build/spill_file.h"
#include "common/drafting/crest_build/stage_options.h"
#include "common/drafting/crest_build/token_file.h"

namespace foretoken {

// A run: sorted records in a spill file, each key_bytes of key and 4 bytes of
// count (little-endian); keys strictly ascending.
struct NgramRun {
  uint64_t offset = 0;
  uint64_t records = 0;
};

inline constexpr int kRunCountBytes = 4;

inline int RunRecordBytes(const KeyLayout& layout) {
  return layout.key_bytes() + kRunCountBytes;
}

// `progress` advances by positions. Positions with fewer than min_n tokens left
// in their document yield no key.
absl::StatusOr<std::vector<NgramRun>> WriteNgramRuns(
    const TokenFile& tokens, const StageOptions& options, ThreadPool& pool,
    SpillFile& runs, Progress& progress);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_RUNS_H_
