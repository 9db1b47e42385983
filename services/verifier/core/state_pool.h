// StatePool: the embedding of one text, gathered from the final hidden states
// of its tokens as the passes compute them.
//
// Sums are fp64, one token after the other, so that chunks of any size give the
// same bits. Owned by one thread.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_STATE_POOL_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_STATE_POOL_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/pooling.h"

namespace foretoken::verifier {

class StatePool {
 public:
  // `pooling`: kMean or kLast.
  StatePool(Pooling pooling, int32_t d_model);

  // Adds the states of the next tokens, [tokens, d_model], row-major. With
  // kLast only those of the last token count, and others may be left out.
  void Add(absl::Span<const float> states);

  // The embedding, [d_model], of length 1. DataLoss if no direction is left:
  // states that are not finite, or all 0.
  absl::StatusOr<std::vector<float>> Finish() const;

 private:
  const Pooling pooling_;
  std::vector<double> sum_;  // [d_model]; kLast: the last state
};

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_STATE_POOL_H_
