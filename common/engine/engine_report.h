// Reports that all engines share: statistics of a pass, failed sessions, and
// the state between passes.
#ifndef FORETOKEN_COMMON_ENGINE_ENGINE_REPORT_H_
#define FORETOKEN_COMMON_ENGINE_ENGINE_REPORT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/infer/backend.h"

namespace foretoken {

struct PassStats {
  int32_t rows = 0;  // 0: no pass was run
  int32_t prefill_rows = 0;
  int32_t sessions = 0;
  absl::Duration forward_time;  // that of the masks included
  // Rows that a constraint limits, and the time that their masks took.
  int32_t masks = 0;
  absl::Duration mask_time;
};

struct SessionFailure {  // the session is closed
  SessionId session = -1;
  absl::Status status;
};

// Base of an engine's Snapshot.
struct EngineNumbers {
  int64_t sessions = 0;
  int64_t queue_length = 0;  // messages that the engine has not taken yet
  KvUsage kv;
  PassStats last_pass;  // rows == 0: the state changed without a pass
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_ENGINE_REPORT_H_
