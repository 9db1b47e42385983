// Which CUDA graph a pass runs in: sizes rounded up to a tier, so that few
// graphs serve all passes. Kernels read the true sizes from the pass's header;
// surplus thread blocks of a tier exit at once. Thread-safe.
#ifndef FORETOKEN_COMMON_INFER_CUDA_KERNELS_PASS_TIER_H_
#define FORETOKEN_COMMON_INFER_CUDA_KERNELS_PASS_TIER_H_

#include <algorithm>
#include <compare>
#include <cstdint>

#include "common/infer/cuda/kernels/pass_layout.h"

namespace foretoken::device {

inline constexpr int kRowTiers[] = {0,  1,  2,  4,   8,   16,  32, 48,
                                    64, 72, 96, 128, 192, 256, 320};
inline constexpr int kLastRowTier = 320;

// The grids of a pass.
struct PassSizes {
  int32_t rows = 0, outputs = 0, chunks = 0;
  int32_t session_tasks = 0;  // kWideTasks: that many or more
  friend auto operator<=>(const PassSizes&, const PassSizes&) = default;
};

inline PassSizes ExactSizes(const PassLayout& layout) {
  return {layout.header.rows, layout.header.outputs, layout.header.chunks,
          std::min(layout.session_tasks, kWideTasks)};
}

// n <= kLastRowTier.
inline int RowTier(int n) {
  return *std::lower_bound(std::begin(kRowTiers), std::end(kRowTiers), n);
}

inline int PowerTier(int n) {  // n >= 1
  int tier = 1;
  while (tier < n) tier *= 2;
  return tier;
}

inline bool HasTier(const PassSizes& sizes) {
  return sizes.rows <= kLastRowTier;
}
// Decoding asks for an output of every row, prefill for none or one: few tiers
// between. n <= rows.
inline int OutputTier(int n, int row_tier) {
  for (const int tier : {0, 1, 8, 64}) {
    if (n <= tier) return std::min(tier, row_tier);
  }
  return row_tier;
}

inline PassSizes TierOf(const PassSizes& sizes, int max_chunks) {
  const int rows = RowTier(sizes.rows);
  return {rows, OutputTier(sizes.outputs, rows),
          std::min(PowerTier(sizes.chunks), max_chunks), sizes.session_tasks};
}

}  // namespace foretoken::device

#endif  // FORETOKEN_COMMON_INFER_CUDA_KERNELS_PASS_TIER_H_
