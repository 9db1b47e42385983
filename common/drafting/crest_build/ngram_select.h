// Selects the top t n-grams of every n from the sorted runs.
//
// The runs are merged, ranges of first tokens in parallel. Each n-gram appears
// once with its exact count; the count enters a histogram, and n-grams of at
// least min_count are written to a candidate file. The histogram then yields
// the threshold of the top t, by which the candidates are filtered. Among
// n-grams of equal count the lower token sequences are kept, so the result
// depends on the corpus alone.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_SELECT_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_SELECT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/progress_bar.h"
#include "common/base/thread_pool.h"
#include "common/drafting/crest/crest_meta.h"
#include "common/drafting/crest_build/count_histogram.h"
#include "common/drafting/crest_build/ngram_key.h"
#include "common/drafting/crest_build/ngram_runs.h"
#include "common/drafting/crest_build/spill_file.h"
#include "common/drafting/crest_build/stage_options.h"

namespace foretoken {

// A selected n-gram on disk: its key in native words, then its count.
template <int W>
struct SelectedNgram {
  NgramKey<W> key;
  uint64_t count;
};

struct NgramSelection {
  uint64_t selected = 0;
  // [n - 1]; the kept n-grams are known only after the trees are built.
  std::array<CrestLevelMeta, kMaxCrestN> levels{};
  std::array<std::vector<CoveragePoint>, kMaxCrestN> coverage;  // [n - 1]
};

// `unigrams`: occurrences of each token, used to split the work evenly.
// `merged` and `candidates` are scratch files; `selected` receives
// SelectedNgram records, ordered by n, then by key. `progress` advances by
// records read from the runs.
absl::StatusOr<NgramSelection> SelectNgrams(
    const SpillFile& run_file, std::vector<NgramRun> runs,
    const std::vector<uint64_t>& unigrams, const StageOptions& options,
    ThreadPool& pool, SpillFile& merged, SpillFile& candidates,
    SpillFile& selected, Progress& progress);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_NGRAM_SELECT_H_
