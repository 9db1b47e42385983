// Lays out the rows of a submitted round and drops nodes that must not run.
//
// Drafts are hints: a node outside the vocabulary, past the session's or the
// model's limit, beyond the row limit, or below a dropped node costs its row
// and nothing else. Thread-safe.
#ifndef FORETOKEN_SERVICES_VERIFIER_CORE_ROUND_PLAN_H_
#define FORETOKEN_SERVICES_VERIFIER_CORE_ROUND_PLAN_H_

#include <cstdint>

#include "services/verifier/core/session.h"

namespace foretoken::verifier {

struct RoundLimits {
  int32_t vocab_size = 0;
  int64_t max_length = 0;     // of the session: prompt and output
  int64_t max_positions = 0;  // of the model
  int32_t max_rows = 0;       // of one session's round, row 0 included
  bool drafts = true;         // false: every draft node is dropped
};

// Fills the rows of `round` from its request, `last_token` as row 0. The
// request's sizes must have been checked.
void LayOutRows(const RoundLimits& limits, TokenId last_token,
                PendingRound& round);

}  // namespace foretoken::verifier

#endif  // FORETOKEN_SERVICES_VERIFIER_CORE_ROUND_PLAN_H_
