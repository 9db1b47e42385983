#include "services/orchestrator/core/economics/round_pace.h"

#include <algorithm>

#include "common/base/mix.h"

namespace foretoken::orchestrator {
namespace {

// Weight of the latest round in the moving averages.
constexpr double kNewest = 0.25;
// Weight of a round trip above the shortest: it may have grown for good.
constexpr double kNewestWay = 1.0 / 64;
constexpr absl::Duration kWakeUp = absl::Microseconds(200);
// Older measurements are stale: the load may have gone.
constexpr absl::Duration kRecent = absl::Seconds(1);

double Milliseconds(absl::Duration time) {
  return std::max(0.0, absl::ToDoubleMilliseconds(time));
}

// True if no other work delayed it beyond the time it takes to wake a thread.
bool WasAlone(const RoundStats& stats) {
  return stats.pass_sessions <= 1 &&
         stats.queue_time < std::max(stats.pass_time / 8, kWakeUp);
}

}  // namespace

void RoundPace::Note(const RoundStats& stats, int64_t tokens,
                     absl::Duration draft_time, absl::Duration verify_time) {
  const auto average = [this](auto latest, auto& mean) {
    mean = known_ ? mean + (latest - mean) * kNewest : latest;
  };
  average(verify_time, verify_time_);
  average(draft_time + verify_time, round_time_);
  average(static_cast<double>(tokens), tokens_);
  const int32_t own_rows = stats.draft_rows + stats.probe_rows + 1;
  average(static_cast<double>(std::max(0, stats.pass_rows - own_rows)),
          load_.other_rows);
  const double others = std::max(0, stats.pass_sessions - 1);
  average(others, load_.other_sessions);
  // Other sessions are assumed to commit as many tokens as this one.
  average(others * tokens_, load_.other_tokens);

  // A round trip without its queue and its pass is transport, both ways.
  const double way =
      Milliseconds(verify_time - stats.queue_time - stats.pass_time);
  const bool alone = WasAlone(stats);
  if (alone) {
    average(way, way_ms_);
  } else {
    // Rounds that were not alone show an upper bound of the way only.
    const double longer = way_ms_ + (way - way_ms_) * kNewestWay;
    way_ms_ = known_ ? std::min(way, longer) : way;
  }
  average(Milliseconds(draft_time), draft_ms_);
  average(Milliseconds(stats.pass_time), pass_ms_);
  average(alone ? 0.0 : Milliseconds(verify_time - stats.pass_time) - way_ms_,
          wait_ms_);
  known_ = true;
  Weigh();
}

void RoundPace::Weigh() {
  const double alone = way_ms_ + draft_ms_;
  load_.passes_waited = 0.0;
  load_.overhead_ms = alone;
  if (wait_ms_ <= 0.0 || pass_ms_ <= 0.0) return;
  // Drafting and the way run while other passes do; the part that falls into a
  // wait costs nothing.
  const double hidden = alone * wait_ms_ / (wait_ms_ + alone);
  load_.passes_waited = (wait_ms_ + hidden) / pass_ms_;
  load_.overhead_ms = alone - hidden;
}

void SharedPace::Publish(const RoundPace& pace, absl::Time now) {
  absl::MutexLock lock(&mu_);
  at_ = now;
  pace_ = pace;
}

RoundPace SharedPace::Recent(absl::Time now) const {
  absl::MutexLock lock(&mu_);
  return now - at_ <= kRecent ? pace_ : RoundPace();
}

void SharedPace::PublishArm(DraftArm arm, absl::Time now) {
  absl::MutexLock lock(&mu_);
  arm_at_ = now;
  arm_ = arm;
}

DraftArm SharedPace::RecentArm(absl::Time now) const {
  absl::MutexLock lock(&mu_);
  return now - arm_at_ <= kRecent ? arm_ : DraftArm::kNone;
}

// Requests that share passes arrive in the same order again and again: with
// plain numbers the same one would always get the thirty-second turn.
uint64_t SharedPace::NextTurn() {
  absl::MutexLock lock(&mu_);
  return MixBits(++turns_);
}

}  // namespace foretoken::orchestrator
