// NoisyWeights: a checkpoint whose layers' matrices have Gaussian noise added.
// A draft model that agrees with its target as often as one likes.
//
// An element becomes w + relative * rms * z: rms is the root of the mean square
// of its matrix, z standard normal and a function of seed, matrix and index
// alone. Two strengths of noise with one seed therefore lie on one line through
// the checkpoint. Embedding, output matrix, norms and biases are unchanged.
//
// Thread-compatible: const methods may be called concurrently.
#ifndef FORETOKEN_TESTS_LAB_NOISY_WEIGHTS_H_
#define FORETOKEN_TESTS_LAB_NOISY_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/infer/model_weights.h"

namespace foretoken {

class NoisyWeights final : public ModelWeights {
 public:
  // `relative`: at least 0. Holds the matrices as fp32.
  NoisyWeights(std::shared_ptr<const ModelWeights> source, double relative,
               uint64_t seed);

  const ModelConfig& config() const override { return source_->config(); }
  const WeightTensor& embedding() const override {
    return source_->embedding();
  }
  const WeightTensor& output() const override { return source_->output(); }
  const WeightTensor& final_norm() const override {
    return source_->final_norm();
  }
  absl::Span<const LayerWeights> layers() const override { return layers_; }
  // The digest of the source's digest, the strength and the seed.
  const Sha256Digest& digest() const override { return digest_; }

 private:
  void Disturb(double relative, uint64_t key, WeightTensor& tensor);

  const std::shared_ptr<const ModelWeights> source_;
  std::vector<LayerWeights> layers_;
  std::vector<std::vector<float>> matrices_;  // that layers_ points into
  Sha256Digest digest_;
};

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_NOISY_WEIGHTS_H_
