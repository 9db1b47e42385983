#include "common/generation/blocking.h"

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace foretoken {
namespace {

// Deltas that may wait before the generator is paused.
constexpr size_t kMaxWaiting = 64;

// Hands what the generator's threads deliver to the thread that waits for it.
class Inbox final : public GenerationListener {
 public:
  bool OnDelta(const GenerationDelta& delta) override {
    absl::MutexLock lock(&mu_);
    deltas_.push_back(delta);
    // The delta that fills the inbox is still taken: false is the answer to
    // this one and stops the next.
    paused_ = deltas_.size() >= kMaxWaiting;
    return !paused_;
  }
  void OnResult(const GenerationSummary& summary) override {
    absl::MutexLock lock(&mu_);
    summary_ = summary;
  }
  void OnEnd(const absl::Status& status) override {
    absl::MutexLock lock(&mu_);
    end_ = status;
  }

  // Waits for the next delta; nullopt after the last.
  std::optional<GenerationDelta> Next(GenerationCall& call) {
    absl::MutexLock lock(&mu_);
    const auto there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !deltas_.empty() || end_.has_value();
    };
    mu_.Await(absl::Condition(&there));
    // Deltas before the end, although `end_` may be set already: the caller
    // gets all output of a failed request too.
    if (deltas_.empty()) return std::nullopt;
    GenerationDelta delta = std::move(deltas_.front());
    deltas_.pop_front();
    // Only once the inbox is empty, not at 63: fewer, longer pauses. `paused_`
    // makes it one Resume for each OnDelta that was answered false, as a
    // generator expects.
    if (deltas_.empty() && std::exchange(paused_, false)) call.Resume();
    return delta;
  }
  // After the last delta.
  absl::StatusOr<GenerationSummary> Result() {
    absl::MutexLock lock(&mu_);
    // Set: Next has returned nullopt, and only the end makes it do so.
    if (!end_->ok()) return *end_;
    return std::move(summary_);
  }

 private:
  absl::Mutex mu_;
  std::deque<GenerationDelta> deltas_ ABSL_GUARDED_BY(mu_);
  bool paused_ ABSL_GUARDED_BY(mu_) = false;
  GenerationSummary summary_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<GenerationSummary> Generate(Generator& generator,
                                           GenerationRequest request,
                                           TakeDelta on_delta) {
  const auto inbox = std::make_shared<Inbox>();
  const std::shared_ptr<GenerationCall> call =
      generator.Start(std::move(request), inbox);
  absl::Status taken;
  while (const std::optional<GenerationDelta> delta = inbox->Next(*call)) {
    // Cancelling takes a while, and the listener's deltas are read to the end
    // meanwhile: a generator that is paused for a full inbox would never get to
    // its OnEnd.
    if (!taken.ok()) continue;
    taken = on_delta(*delta);
    if (!taken.ok()) call->Cancel();
  }
  if (!taken.ok()) return taken;
  return inbox->Result();
}

}  // namespace foretoken
