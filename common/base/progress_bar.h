// A progress bar on stderr with rate and remaining time.
//
//   count tokens  [#########-----------]  45 %  2.31 M/s  0:12 left
//
// On a terminal the line is redrawn a few times a second. Otherwise (a log
// file) one line is written every ten seconds, to keep logs short.
//
// Thread-safe: Advance may be called from many threads.
#ifndef FORETOKEN_COMMON_BASE_PROGRESS_BAR_H_
#define FORETOKEN_COMMON_BASE_PROGRESS_BAR_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "absl/time/time.h"

namespace foretoken {

class Progress {
 public:
  // `total` is in `unit`s ("tokens", "B"); 0 shows count, rate and time. Writes
  // nothing if `enabled` is false.
  Progress(std::string what, uint64_t total, std::string unit,
           bool enabled = true);
  // Draws the final state and ends the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Advance(uint64_t units) { AdvanceTo(done_.fetch_add(units) + units); }
  void Set(uint64_t done) {
    done_.store(done);
    AdvanceTo(done);
  }

  // Formats one line; static and public for tests.
  static std::string Line(const std::string& what, uint64_t done,
                          uint64_t total, const std::string& unit,
                          absl::Duration elapsed);

 private:
  void AdvanceTo(uint64_t done);
  void Draw(uint64_t done, absl::Time now);

  const std::string what_;
  const uint64_t total_;
  const std::string unit_;
  const bool enabled_;
  const bool terminal_;
  const absl::Time start_;
  std::atomic<uint64_t> done_{0};
  std::atomic<int64_t> next_draw_nanos_;  // since the epoch
  std::mutex draw_mu_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_PROGRESS_BAR_H_
