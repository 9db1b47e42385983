// How often a draft model's most likely token is the target's, and the noise
// that makes it so often.
//
// Thread-safe: functions without state.
#ifndef FORETOKEN_TESTS_LAB_GREEDY_AGREEMENT_H_
#define FORETOKEN_TESTS_LAB_GREEDY_AGREEMENT_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/types.h"
#include "common/infer/backend.h"

namespace foretoken {

// A prompt and what the target, greedy, wrote after it.
struct TargetText {
  std::vector<TokenId> tokens;  // both
  int64_t prompt_length = 0;    // of `tokens`, at least 1
};

struct Agreement {
  int64_t positions = 0;  // tokens that the target wrote
  int64_t equal = 0;      // of those, the draft's own choice too

  double rate() const {
    return positions == 0
               ? 0.0
               : static_cast<double>(equal) / static_cast<double>(positions);
  }
};

// The draft reads the target's text, not its own. Errors are the backend's.
absl::StatusOr<Agreement> MeasureAgreement(Backend& draft,
                                           absl::Span<const TargetText> texts);

struct FoundNoise {
  double relative = 0;
  double rate = 0;  // of agreement with it
};

// Bisection over `rate_of`, a function of the noise that falls, from 0 to
// `most`, until a rate is within `tolerance` of `wanted`. The nearest found
// after `steps`, if none is.
absl::StatusOr<FoundNoise> FindNoise(
    const std::function<absl::StatusOr<double>(double)>& rate_of, double wanted,
    double tolerance, double most, int steps);

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_GREEDY_AGREEMENT_H_
