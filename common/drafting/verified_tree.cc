#include "common/drafting/verified_tree.h"

#include <algorithm>
#include <cmath>

namespace foretoken {

CandidateRows CandidateRows::Of(
    absl::Span<const std::vector<TokenLogprob>> candidates) {
  CandidateRows rows;
  size_t width = 0;
  for (const auto& row : candidates) width = std::max(width, row.size());
  width = std::min(width, static_cast<size_t>(kMaxRowCandidates));
  rows.width = static_cast<int32_t>(width);
  rows.tokens.assign(candidates.size() * width, -1);
  rows.costs.assign(candidates.size() * width, 255);
  for (size_t row = 0; row < candidates.size(); ++row) {
    const std::vector<TokenLogprob>& top = candidates[row];
    for (size_t i = 0; i < std::min(width, top.size()); ++i) {
      const float nats = top[0].logprob - top[i].logprob;
      // Infinities, and the NaN that they leave, end the list.
      if (!(nats >= 0.0f) || !std::isfinite(nats) || top[i].token < 0) break;
      rows.tokens[row * width + i] = top[i].token;
      rows.costs[row * width + i] = static_cast<uint8_t>(
          std::lround(std::min(nats * kCostsPerNat, 255.0f)));
    }
  }
  return rows;
}

}  // namespace foretoken
