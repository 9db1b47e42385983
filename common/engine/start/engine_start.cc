#include "common/engine/start/engine_start.h"

#include <unistd.h>

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/progress_bar.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// A bar that ends with the last byte, so that no line of the log falls into it.
class LoadingBar {
 public:
  LoadingBar(absl::string_view what, int64_t bytes) : left_(bytes) {
    bar_.emplace(absl::StrCat("loading ", what), static_cast<uint64_t>(bytes),
                 "B");
  }

  void Advance(int64_t read) {
    // The bar may be asked for more than it was promised (a part read twice);
    // it ends once and stays ended.
    if (!bar_.has_value()) return;
    bar_->Advance(static_cast<uint64_t>(read));
    left_ -= read;
    if (left_ <= 0) bar_.reset();
  }

 private:
  int64_t left_;
  std::optional<Progress> bar_;
};

}  // namespace

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
  const absl::Time start = MonotonicNow();
  BackendOptions watched = options;
  watched.on_weights = [what](ModelWeights& weights, int64_t reported) {
    const double bytes = static_cast<double>(BytesOf(weights).all);
    FORETOKEN_LOG(kInfo, "loading ", what, ", ",
                  absl::StrFormat("%.1f MB", bytes / 1e6));
    // A terminal gets the bar, a log file the line above: a bar in a file is
    // noise.
    if (isatty(STDERR_FILENO) == 0) return;
    // Shared because std::function must be copyable.
    weights.Watch([bar = std::make_shared<LoadingBar>(what, reported)](
                      int64_t read) { bar->Advance(read); });
  };
  FORETOKEN_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                             MakeBackend(watched));
  FORETOKEN_LOG(
      kInfo, what, " ready in ",
      absl::StrFormat("%.1f s", absl::ToDoubleSeconds(MonotonicNow() - start)),
      ", numerics ", backend->numerics_fingerprint(), ", KV pages ",
      backend->kv_usage().pages_total);
  return backend;
}

absl::StatusOr<PassTiming> TimePasses(Backend& backend, int32_t rows,
                                      absl::Duration budget, int32_t most_rows,
                                      EngineLoopOptions& loop) {
  // On idle hardware, before the first request: later passes share the machine
  // with requests.
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
