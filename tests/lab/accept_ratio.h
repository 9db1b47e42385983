// Accept length of one way of drafting beside another, request by request.
// Thread-safe: functions without state.
#ifndef FORETOKEN_TESTS_LAB_ACCEPT_RATIO_H_
#define FORETOKEN_TESTS_LAB_ACCEPT_RATIO_H_

#include "absl/types/span.h"
#include "common/drafting/replay.h"

namespace foretoken {

// Of all requests together; each element counts one request.
double AcceptLength(absl::Span<const ReplayCounts> counts);

// Ratio of two accept lengths, with its 95 % interval.
struct AcceptRatio {
  double ratio = 1;
  double low = 1;
  double high = 1;
};

// The accept length of `own` over that of `other`. Element i of both counts the
// same request. The interval is from a bootstrap over requests with a fixed
// seed.
AcceptRatio CompareAcceptLength(absl::Span<const ReplayCounts> own,
                                absl::Span<const ReplayCounts> other);

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_ACCEPT_RATIO_H_
