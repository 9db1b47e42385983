// Matches: where draft and target agree beyond the first difference. The
// draft's chain is its path of first children: without suffixes, all of it.
//
// Thread-compatible.
#ifndef FORETOKEN_TESTS_LAB_DRAFT_MATCHES_H_
#define FORETOKEN_TESTS_LAB_DRAFT_MATCHES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/speculation/token_tree.h"

namespace foretoken {

struct Matches {
  static constexpr size_t kRuns = 16;  // the last: that long or longer

  int64_t drafted = 0;
  int64_t accepted = 0;
  int64_t later = 0;  // positions behind the first difference that agree
  std::array<int64_t, kRuns + 1> runs{};  // of those, by length

  // `row_tokens`: [tree.size() + 1], the target's token after every row.
  void Add(const TokenTree& tree, absl::Span<const TokenId> row_tokens) {
    bool differs = false;
    size_t run = 0;
    const auto end_run = [&] {
      if (run > 0) ++runs[std::min(run, kRuns)];
      run = 0;
    };
    for (int32_t node = 0;
         node < tree.size() && tree.parents()[node] == node - 1; ++node) {
      // The target's token after the path to its parent.
      const bool agrees = row_tokens[node] == tree.tokens()[node];
      ++drafted;
      if (!differs) {
        accepted += agrees;
        differs = !agrees;
        continue;
      }
      later += agrees;
      if (agrees) ++run;
      if (!agrees) end_run();
    }
    end_run();
  }
};

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_DRAFT_MATCHES_H_
