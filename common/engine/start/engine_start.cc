#include "common/engine/start/engine_start.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace foretoken {

void AddHangFlags(Flags& flags, EngineLoopOptions& loop) {
  flags.Duration("hang-timeout", &loop.hang_timeout,
                 {absl::Milliseconds(10), absl::Hours(24)},
                 "Report NOT_SERVING while a pass has taken this long and 16 "
                 "times the longest pass seen or estimated");
  flags.Duration("hang-exit", &loop.hang_exit,
                 {absl::ZeroDuration(), absl::Hours(24)},
                 "Exit with status 1 once the engine has hung for this long, "
                 "to be restarted; 0 for never");
}

absl::StatusOr<std::unique_ptr<Backend>> StartBackend(
    const BackendOptions& options, absl::string_view what) {
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                             MakeBackend(options));
  FORETOKEN_LOG(kInfo, what, " ready, numerics ",
                backend->numerics_fingerprint(), ", KV pages ",
                backend->kv_usage().pages_total);
  return backend;
}

absl::StatusOr<PassTiming> TimePasses(Backend& backend, int32_t rows,
                                      absl::Duration budget, int32_t most_rows,
                                      EngineLoopOptions& loop) {
  auto timing = PassTiming::Measure(backend, rows, budget);
  // Without a measurement the watchdog learns the longest pass from the passes
  // that run.
  if (timing.ok()) {
    loop.longest_pass = absl::Seconds(timing->Seconds(most_rows));
  } else {
    FORETOKEN_LOG(kWarning,
                  "cannot time passes, costs follow from the first ones: ",
                  timing.status().ToString());
  }
  return timing;
}

}  // namespace foretoken
