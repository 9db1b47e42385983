// ReaderDeadline: until when a connection waits for a client that has an answer
// to take.
//
// A client that takes data keeps its connection, however long the answer is; it
// has to take kProgressBytes, or all there is, within the timeout. The time in
// which the writer of an answer had to wait for it is bounded in all: that long
// at most it may hold what the writer holds.
//
// Time is passed in. Thread-compatible.
#ifndef FORETOKEN_SERVICES_GATEWAY_ADAPTERS_READER_DEADLINE_H_
#define FORETOKEN_SERVICES_GATEWAY_ADAPTERS_READER_DEADLINE_H_

#include <algorithm>
#include <cstddef>

#include "absl/time/time.h"

namespace foretoken::gateway {

// Watches the reader of one answer.
class ReaderDeadline {
 public:
  static constexpr size_t kProgressBytes = size_t{64} << 10;

  ReaderDeadline(absl::Duration timeout, absl::Duration max_pause)
      : timeout_(timeout), pause_left_(max_pause) {}

  // Bytes wait to be taken.
  void OnOffer(absl::Time now) {
    taken_ = 0;
    progress_ = now + timeout_;
  }
  // The client has taken `bytes` of them.
  void OnTaken(size_t bytes, absl::Time now) {
    taken_ += bytes;
    if (taken_ >= kProgressBytes) OnOffer(now);
  }
  // None wait any more.
  void OnAllTaken() { progress_ = absl::InfiniteFuture(); }

  // The writer begins or ends to wait; repeated calls change nothing.
  void SetPaused(bool paused, absl::Time now) {
    if (paused == (paused_ != absl::InfiniteFuture())) return;
    if (paused) {
      paused_ = now;
    } else {
      pause_left_ -= now - paused_;
      paused_ = absl::InfiniteFuture();
    }
  }

  // InfiniteFuture: nothing to wait for.
  absl::Time deadline() const {
    return std::min(progress_, paused_ + pause_left_);
  }

 private:
  const absl::Duration timeout_;
  absl::Duration pause_left_;
  size_t taken_ = 0;  // since the last progress
  absl::Time progress_ = absl::InfiniteFuture();
  absl::Time paused_ = absl::InfiniteFuture();  // since then
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_ADAPTERS_READER_DEADLINE_H_
