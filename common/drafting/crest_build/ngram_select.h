// From sorted runs to the top t n-grams of every n.
//
// The runs are merged, ranges of first tokens in parallel. Each n-gram comes by
// once with its exact count: its count goes into a histogram, and those of
// min_count and more into a candidate file. The histogram then tells the
// threshold of the top t, and the candidates are filtered; among n-grams with
// equal counts the lower token sequence is kept, so the result depends on the
// corpus alone.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_SELECT_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_SELECT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/progress.h"
#include "common/base/thread_pool.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest_build/count_histogram.h"
#include "common/drafting/crest_build/ngram_key.h"
#include "common/drafting/crest_build/ngram_runs.h"
#include "common/drafting/crest_build/spill_file.h"

namespace foretoken {

// One selected n-gram on disk: its key in native words, then its count.
template <int W>
struct SelectedNgram {
  NgramKey<W> key;
  uint64_t count;
};

struct NgramSelection {
  uint64_t selected = 0;
  // [n - 1]; what is kept is known once the trees are.
  std::array<CrestLevelMeta, kMaxCrestN> levels{};
  std::array<std::vector<CoveragePoint>, kMaxCrestN> coverage;  // [n - 1]
};

struct SelectOptions {
  KeyLayout layout;
  int min_n = 1;
  uint64_t top = 0;
  uint64_t min_count = 2;
  uint64_t memory_bytes = 0;
};

// `unigrams`: occurrences of each token, to cut the work into equal ranges.
// `merged` and `candidates` are scratch files, `selected` takes SelectedNgram
// records, by n, then in key order. `progress` advances by records read from
// the runs.
absl::StatusOr<NgramSelection> SelectNgrams(
    const SpillFile& run_file, std::vector<NgramRun> runs,
    const std::vector<uint64_t>& unigrams, const SelectOptions& options,
    ThreadPool& pool, SpillFile& merged, SpillFile& candidates,
    SpillFile& selected, Progress& progress);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_SELECT_H_
