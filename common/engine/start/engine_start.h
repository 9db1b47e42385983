// The start of an engine that a service runs: flags of its loop, the backend,
// the time that its passes take.
//
// Thread-safe: functions without state.
#ifndef FORETOKEN_COMMON_ENGINE_START_ENGINE_START_H_
#define FORETOKEN_COMMON_ENGINE_START_ENGINE_START_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/config/flags.h"
#include "common/engine/engine_loop.h"
#include "common/infer/backend.h"
#include "common/infer/factory/backend_factory.h"
#include "common/infer/pass_timing.h"

namespace foretoken {

// --hang-timeout --hang-exit
void AddHangFlags(Flags& flags, EngineLoopOptions& loop);

// As MakeBackend. Logs that `what` ("model llama") is being loaded, with its
// size, and that it is ready, with the time that took; on a terminal a bar
// shows how far it is.
absl::StatusOr<std::unique_ptr<Backend>> StartBackend(
    const BackendOptions& options, absl::string_view what);

// Measures passes of up to `rows` rows for at most `budget`, and estimates from
// them how long one of `most_rows` takes, for `loop`. Logs an error, which is
// none to the caller: passes tell what they cost as they run.
absl::StatusOr<PassTiming> TimePasses(Backend& backend, int32_t rows,
                                      absl::Duration budget, int32_t most_rows,
                                      EngineLoopOptions& loop);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_ENGINE_START_ENGINE_START_H_
