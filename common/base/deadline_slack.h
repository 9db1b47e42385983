// kDeadlineSlack: how much earlier than its client a busy server may see a
// deadline pass. It counts from the last look of its event loop at the clock.
#ifndef FORETOKEN_COMMON_BASE_DEADLINE_SLACK_H_
#define FORETOKEN_COMMON_BASE_DEADLINE_SLACK_H_

#include "absl/time/time.h"

namespace foretoken {

inline constexpr absl::Duration kDeadlineSlack = absl::Milliseconds(100);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_DEADLINE_SLACK_H_
