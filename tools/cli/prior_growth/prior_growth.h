// PriorGrowth: has a target write, many requests at once, and collects what it
// writes.
//
// Requests take the prompts in order and begin again with other seeds when they
// run out; at temperature 0, where a second round would repeat the first, they
// end there. Outputs that are cut short by the end of the time, or by Stop, are
// kept as far as they go: they are the target's words as well.
//
// A request that finds the target full or away (ResourceExhausted, Unavailable)
// is tried again after its retry hint, or after a growing pause. A request that
// is refused for another reason is counted and left out.
// Thread-safe.
#ifndef FORETOKEN_TOOLS_CLI_PRIOR_GROWTH_PRIOR_GROWTH_H_
#define FORETOKEN_TOOLS_CLI_PRIOR_GROWTH_PRIOR_GROWTH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/generation/generation.h"
#include "common/generation/generator.h"
#include "tools/cli/prior_growth/written_text.h"
#include "tools/cli/prompt_file.h"

namespace foretoken::cli {

struct GrowthOptions {
  absl::Duration time = absl::Minutes(5);  // from Run on
  int concurrency = 32;                    // requests at once
  int64_t max_tokens = 256;                // of one output
  float temperature = 0.0f;
  uint64_t seed = 1;  // request N has seed + N
  Mode mode;
  std::string cache_scope;  // of all requests; their prompts share pages in it
};

class PriorGrowth {
 public:
  // `prompts` is not empty and, like `target` and `written`, must outlive the
  // object.
  PriorGrowth(const GrowthOptions& options,
              const std::vector<FilePrompt>& prompts, Generator& target,
              WrittenText& written, Clock clock = MonotonicClock());

  // Writes until the time has passed, `written` is full, Stop is called or the
  // prompts have run out. Calls `progress` with the tokens written so far, from
  // many threads. OK if anything was written; otherwise the first error of a
  // request, or FailedPrecondition if there was none.
  absl::Status Run(const std::function<void(int64_t)>& progress)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Ends Run soon; safe to call from any thread, before Run as well.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  int64_t refused() const ABSL_LOCKS_EXCLUDED(mu_);  // requests left out

 private:
  // The number of the next request; -1: there is none.
  int64_t NextNumber() ABSL_LOCKS_EXCLUDED(mu_);
  void Work(const std::function<void(int64_t)>& progress);
  // Runs request `number` until it ends or the growth does.
  void Write(int64_t number, const std::function<void(int64_t)>& progress);
  // Counts a request that wrote nothing; `again`: it will be tried again.
  void Failed(const absl::Status& status, bool again) ABSL_LOCKS_EXCLUDED(mu_);
  GenerationRequest RequestOf(int64_t number) const;
  bool Over() const ABSL_LOCKS_EXCLUDED(mu_);
  void Pause(absl::Duration pause) ABSL_LOCKS_EXCLUDED(mu_);

  const GrowthOptions options_;
  const std::vector<FilePrompt>& prompts_;
  Generator& target_;
  WrittenText& written_;
  const Clock clock_;
  absl::Time end_ = absl::InfiniteFuture();  // set by Run, before its threads

  mutable absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status first_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace foretoken::cli

#endif  // FORETOKEN_TOOLS_CLI_PRIOR_GROWTH_PRIOR_GROWTH_H_
