// Whether a model computes numbers at all.
//
// Weights with a NaN in a layer, or scales that overflow, give a row of NaN
// after every text: a broken file or a broken device, not a bad prompt. A few
// passes of one row each tell the two apart.
#ifndef FORETOKEN_COMMON_INFER_SELF_CHECK_H_
#define FORETOKEN_COMMON_INFER_SELF_CHECK_H_

#include "absl/status/status.h"
#include "common/infer/backend.h"

namespace foretoken {

// DataLoss if no logit is finite after any of a few tokens. OK if some are, and
// where the backend has no room for the check. Opens a session of its own and
// leaves the backend as it was, except that the uncommitted rows of the last
// pass are dropped.
absl::Status CheckLogits(Backend& backend);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_SELF_CHECK_H_
