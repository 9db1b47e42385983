// One log line per round: numbers and drafters, no text.
#ifndef FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_ROUND_LINE_H_
#define FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_ROUND_LINE_H_

#include <cstdint>
#include <string>

#include "services/orchestrator/core/round/decode_loop.h"

namespace foretoken::orchestrator {

// `number`: of the round, from 1.
//   round 7 length 120 nodes 24 probes 0 from crest=8/answered/1.2ms,
//   fused=20/answered/0.1ms accepted 3 path fused,fused,crest draft 1.3ms
//   verify 20.4ms pass 19.8ms rows 25 sessions 1
std::string RoundLine(int64_t number, const RoundReport& round);

}  // namespace foretoken::orchestrator

#endif  // FORETOKEN_SERVICES_ORCHESTRATOR_CORE_ROUND_ROUND_LINE_H_
