#include "tests/lab/noisy_weights.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/infer/random_weights.h"

namespace foretoken {
namespace {

// In (0, 1], so that its logarithm is finite.
double Uniform(uint64_t bits) {
  return std::ldexp(static_cast<double>(bits >> 11) + 1.0, -53);
}

// Box-Muller; the pair's second value is not used, so that elements do not
// depend on each other's order.
double Normal(uint64_t key, uint64_t index) {
  const double radius =
      std::sqrt(-2.0 * std::log(Uniform(MixRandom(key, 2 * index))));
  const double turn = Uniform(MixRandom(key, 2 * index + 1));
  return radius * std::cos(2.0 * std::numbers::pi * turn);
}

}  // namespace

NoisyWeights::NoisyWeights(std::shared_ptr<const ModelWeights> source,
                           double relative, uint64_t seed)
    : source_(std::move(source)),
      layers_(source_->layers().begin(), source_->layers().end()) {
  FORETOKEN_CHECK(relative >= 0);
  uint64_t matrix = 0;
  for (LayerWeights& layer : layers_) {
    for (WeightTensor* tensor : {&layer.q, &layer.k, &layer.v, &layer.o,
                                 &layer.gate, &layer.up, &layer.down}) {
      Disturb(relative, MixRandom(seed, matrix++), *tensor);
    }
  }
  Sha256 sha;
  sha.Update(source_->digest());
  sha.Update(absl::StrFormat(" noise %a seed %d", relative, seed));
  digest_ = sha.Finish();
}

void NoisyWeights::Disturb(double relative, uint64_t key,
                           WeightTensor& tensor) {
  std::vector<float>& matrix = matrices_.emplace_back(tensor.size());
  tensor.CopyTo(0, absl::MakeSpan(matrix));
  double squares = 0;
  for (const float weight : matrix) {
    squares += static_cast<double>(weight) * weight;
  }
  const double scale =
      relative * std::sqrt(squares / static_cast<double>(matrix.size()));
  for (size_t i = 0; i < matrix.size() && scale > 0; ++i) {
    matrix[i] += static_cast<float>(scale * Normal(key, i));
  }
  tensor = {reinterpret_cast<const uint8_t*>(matrix.data()),
            WeightType::kFloat32, tensor.rows, tensor.cols};
}

}  // namespace foretoken
