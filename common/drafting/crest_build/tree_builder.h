// Builds the token trees of the selected n-grams.
//
// The selected n-grams are processed in groups that fit into memory. For each
// group the corpus is read once more; the tokens that follow an occurrence of
// one of its n-grams are kept, at most max_matches per n-gram: those with the
// smallest keyed hash of their position, a uniform sample that depends on the
// seed alone, or the first ones in token order, which is what a suffix array
// yields in REST and in the paper. The sorted continuations form the trie for
// tree_select.h.
//
// Memory: at most `memory_bytes`. ResourceExhausted states how much more is
// needed if the matches of a single n-gram (max_matches times 10 to 250 bytes)
// do not fit. Results depend on neither memory nor threads.
#ifndef FORETOKEN_COMMON_DRAFTING_CREST_BUILD_TREE_BUILDER_H_
#define FORETOKEN_COMMON_DRAFTING_CREST_BUILD_TREE_BUILDER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/thread_pool.h"
#include "common/drafting/crest/crest_record.h"
#include "common/drafting/crest_build/spill_file.h"
#include "common/drafting/crest_build/stage_options.h"
#include "common/drafting/crest_build/token_file.h"

namespace foretoken {

struct TreeTotals {
  uint64_t entries = 0;  // n-grams with at least one continuation
  uint64_t nodes = 0;
  struct Level {
    uint64_t entries = 0;
    uint64_t least_count = 0;  // in the corpus; 0 without an entry
    void Add(uint64_t more, uint64_t count) {
      if (more == 0) return;
      least_count = entries == 0 ? count : std::min(least_count, count);
      entries += more;
    }
  };
  std::array<Level, kMaxCrestN> levels{};  // [n - 1]
  std::vector<uint64_t> token_uses;        // in n-grams and nodes, [vocab_size]
};

// Memory per thread, out of `memory_bytes`, before any match is stored.
uint64_t TreeThreadBytes(uint32_t tree_nodes, int32_t vocab_size);

// `selected`: `count` SelectedNgram records. Appends the trees' records,
// encoded with `table`, to `trees`, in the order of `selected`.
absl::StatusOr<TreeTotals> BuildTrees(const TokenFile& tokens,
                                      const SpillFile& selected, uint64_t count,
                                      const StageOptions& options,
                                      const TokenTable& table,
                                      int32_t vocab_size, ThreadPool& pool,
                                      SpillFile& trees);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_CREST_BUILD_TREE_BUILDER_H_
