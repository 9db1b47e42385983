// Rotary position embedding: the angles of a position.
//
// Source: RoFormer, arXiv:2104.09864, "Rotary Position Embedding"; the pairs
// are (i, i + head_dim / 2), as in Hugging Face checkpoints. Thread-compatible.
#ifndef FORETOKEN_COMMON_INFER_ROTARY_H_
#define FORETOKEN_COMMON_INFER_ROTARY_H_

#include <cstdint>
#include <vector>

#include "common/infer/model_config.h"

namespace foretoken {

class Rotary {
 public:
  explicit Rotary(const ModelConfig& config);

  int half() const { return static_cast<int>(frequencies_.size()); }
  // Radians per position of pair `i`.
  double frequency(int i) const { return frequencies_[i]; }

  // cosines, sines: [half]. Angles are computed in double precision.
  void Angles(int64_t position, float* cosines, float* sines) const;

 private:
  std::vector<double> frequencies_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_ROTARY_H_
