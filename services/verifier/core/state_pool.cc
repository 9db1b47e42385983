#include "services/verifier/core/state_pool.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "common/base/check.h"

namespace foretoken::verifier {

StatePool::StatePool(Pooling pooling, int32_t d_model)
    : pooling_(pooling), sum_(static_cast<size_t>(d_model)) {
  FORETOKEN_CHECK(pooling == Pooling::kMean || pooling == Pooling::kLast);
  FORETOKEN_CHECK(d_model > 0);
}

void StatePool::Add(absl::Span<const float> states) {
  const size_t width = sum_.size();
  FORETOKEN_CHECK(states.size() % width == 0);
  if (states.empty()) return;
  if (pooling_ == Pooling::kLast) {
    const absl::Span<const float> last = states.last(width);
    std::copy(last.begin(), last.end(), sum_.begin());
    return;
  }
  for (const float* row = states.begin(); row != states.end(); row += width) {
    for (size_t i = 0; i < width; ++i) sum_[i] += row[i];
  }
}

// The division of the mean by the number of tokens would cancel.
absl::StatusOr<std::vector<float>> StatePool::Finish() const {
  double squares = 0;
  for (const double x : sum_) squares += x * x;
  const double length = std::sqrt(squares);
  if (!std::isfinite(length) || length == 0) {
    return absl::DataLossError(
        "embedding: the model's states have no direction");
  }
  std::vector<float> embedding(sum_.size());
  std::transform(sum_.begin(), sum_.end(), embedding.begin(),
                 [&](double x) { return static_cast<float>(x / length); });
  return embedding;
}

}  // namespace foretoken::verifier
