#include "common/engine/pass_turns.h"

#include <algorithm>
#include <utility>

namespace foretoken {

PassTurns::Seat::Seat(std::shared_ptr<PassTurns> turns, Wakeup& wakeup)
    : turns_(std::move(turns)), wakeup_(wakeup) {
  if (turns_ == nullptr) return;
  absl::MutexLock lock(&turns_->mu_);
  turns_->seats_.push_back(this);
}

PassTurns::Seat::~Seat() {
  if (turns_ == nullptr) return;
  GiveUp();
  absl::MutexLock lock(&turns_->mu_);
  auto& seats = turns_->seats_;
  seats.erase(std::find(seats.begin(), seats.end(), this));
}

bool PassTurns::Seat::TryBegin(absl::Time now, bool goes_first) {
  if (turns_ == nullptr) return true;
  absl::MutexLock lock(&turns_->mu_);
  goes_first_ = goes_first;
  if (!std::exchange(waits_, true)) since_ = now;
  // A seat yields to another that waits and goes before it, as long as its own
  // wait is shorter than the limit (retry_at).
  const auto& seats = turns_->seats_;
  const bool yields =
      std::any_of(seats.begin(), seats.end(), [&](const Seat* other) {
        return other != this && other->waits_ && GoesBefore(*other, *this, now);
      });
  if ((turns_->running_ > 0 || yields) && now < retry_at()) {
    called_ = false;
    // Wake the others: those that it yields to may have yielded to it a moment
    // ago, and then none of them would run.
    if (turns_->running_ == 0) turns_->CallOthers(*this);
    return false;
  }
  waits_ = false;
  began_ = now;
  ++turns_->running_;
  return true;
}

void PassTurns::Seat::End(absl::Time now, bool goes_on, bool goes_first) {
  if (turns_ == nullptr) return;
  absl::MutexLock lock(&turns_->mu_);
  --turns_->running_;
  last_pass_ = now - began_;
  waits_ = goes_on;
  goes_first_ = goes_first;
  // The wait for the next pass begins now, which puts this seat after all that
  // wait already.
  since_ = now;
  called_ = true;
  turns_->CallOthers(*this);
}

void PassTurns::Seat::GiveUp() {
  if (turns_ == nullptr || !waits_) return;
  absl::MutexLock lock(&turns_->mu_);
  waits_ = false;
  turns_->CallOthers(*this);
}

// Drafting passes go first, unless the other side is overdue: it has waited as
// long as its own last pass took, kMaxYield at most. Among equals, the longest
// wait wins.
bool PassTurns::GoesBefore(const Seat& other, const Seat& seat,
                           absl::Time now) {
  const auto overdue = [now](const Seat& waiting) {
    return !waiting.goes_first_ &&
           now - waiting.since_ >= std::min(waiting.last_pass_, kMaxYield);
  };
  if (other.goes_first_ == seat.goes_first_) return other.since_ < seat.since_;
  return other.goes_first_ ? !overdue(seat) : overdue(other);
}

void PassTurns::CallOthers(const Seat& seat) {
  for (Seat* const other : seats_) {
    if (other == &seat || !other->waits_) continue;
    other->called_ = true;
    other->wakeup_.Signal();
  }
}

}  // namespace foretoken
