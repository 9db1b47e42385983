#include "tools/cli/prior_growth/prior_growth.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/base/retry_after.h"
#include "common/generation/blocking.h"

namespace foretoken::cli {
namespace {

// Pauses before a request is tried again, if the target gives no hint.
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(5);
// How long a request may outlast the time for it, which it normally ends at by
// itself: a target that has stopped answering must not hold the growth.
constexpr absl::Duration kGrace = absl::Seconds(2);
// Refusals after which the growth gives up if there is no output at all.
constexpr int64_t kMaxRefusals = 64;

// Other errors come from the request itself and would come again.
bool WorthAnotherTry(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

}  // namespace

PriorGrowth::PriorGrowth(const GrowthOptions& options,
                         const std::vector<FilePrompt>& prompts,
                         Generator& target, WrittenText& written, Clock clock)
    : options_(options),
      prompts_(prompts),
      target_(target),
      written_(written),
      clock_(std::move(clock)) {}

absl::Status PriorGrowth::Run(const std::function<void(int64_t)>& progress) {
  end_ = clock_() + options_.time;
  std::vector<std::thread> threads;
  for (int i = 0; i < options_.concurrency; ++i) {
    threads.emplace_back([this, &progress] { Work(progress); });
  }
  for (std::thread& thread : threads) thread.join();
  // Some output is enough for a prior; how many requests failed is in
  // refused().
  if (written_.tokens() > 0) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  return first_error_.ok()
             ? absl::FailedPreconditionError("the target has written nothing")
             : first_error_;
}

void PriorGrowth::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
}

int64_t PriorGrowth::refused() const {
  absl::MutexLock lock(&mu_);
  return refused_;
}

void PriorGrowth::Work(const std::function<void(int64_t)>& progress) {
  while (!Over()) {
    const int64_t number = NextNumber();
    if (number < 0) return;
    Write(number, progress);
  }
}

int64_t PriorGrowth::NextNumber() {
  // At temperature 0 a prompt has one output, so each prompt is sent once;
  // above, the seed differs by number and the prompts are used again.
  const bool repeats = options_.temperature > 0.0f;
  absl::MutexLock lock(&mu_);
  if (!repeats && next_ == static_cast<int64_t>(prompts_.size())) return -1;
  return next_++;
}

bool PriorGrowth::Over() const {
  if (written_.full() || clock_() >= end_) return true;
  absl::MutexLock lock(&mu_);
  return stopped_;
}

void PriorGrowth::Pause(absl::Duration pause) {
  absl::MutexLock lock(&mu_);
  mu_.AwaitWithTimeout(absl::Condition(&stopped_),
                       std::min(pause, end_ - clock_()));
}

GenerationRequest PriorGrowth::RequestOf(int64_t number) const {
  const FilePrompt& prompt = prompts_[number % prompts_.size()];
  GenerationRequest request;
  request.text = prompt.text;
  request.prompt = prompt.ids;
  request.constraint = prompt.constraint;
  request.sampling.temperature = options_.temperature;
  request.sampling.seed = options_.seed + static_cast<uint64_t>(number);
  request.mode = options_.mode;
  request.max_tokens = options_.max_tokens;
  request.cache_scope = options_.cache_scope;
  request.deadline = end_ + kGrace;
  return request;
}

void PriorGrowth::Failed(const absl::Status& status, bool again) {
  // Read before mu_ is locked: WrittenText has a lock of its own, and the two
  // are never held together.
  const bool barren = written_.tokens() == 0;
  absl::MutexLock lock(&mu_);
  // The first error, because the later ones often only follow from it.
  if (first_error_.ok()) first_error_ = status;
  if (again) return;
  ++refused_;
  if (barren && refused_ >= kMaxRefusals) stopped_ = true;
}

void PriorGrowth::Write(int64_t number,
                        const std::function<void(int64_t)>& progress) {
  const GenerationRequest request = RequestOf(number);
  absl::Duration pause = kFirstPause;
  while (!Over()) {
    WrittenOutput output;
    output.number = number;
    output.prompt = request.text.value_or("");
    const absl::Status status =
        Generate(target_, request,
                 [&](const GenerationDelta& delta) -> absl::Status {
                   output.text += delta.text;
                   output.tokens.insert(output.tokens.end(),
                                        delta.token_ids.begin(),
                                        delta.token_ids.end());
                   // Ends a request at its next delta: what it has written so
                   // far is kept.
                   if (Over()) return absl::CancelledError("the time is over");
                   return absl::OkStatus();
                 })
            .status();
    written_.Add(output);
    progress(written_.tokens());
    // A request that fails within its output is not repeated: what it wrote is
    // kept.
    if (status.ok() || Over() || !output.tokens.empty()) return;
    const bool again = WorthAnotherTry(status);
    Failed(status, again);
    if (!again) return;
    Pause(RetryAfter(status).value_or(pause));
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace foretoken::cli
