// LineWriter: writes lines to a descriptor and never waits for its reader.
//
// A pipe that is not read would otherwise stop every thread that logs, and with
// them the service. Bytes that a full pipe, socket or terminal does not take
// are kept, up to kMaxKeptBytes, and written by a thread of its own once there
// is room; further lines are dropped and counted, and a line says how many as
// soon as there is room again. Lines keep their order.
//
// Thread-safe. A line that need not be kept is written in one piece, where the
// system does that (pipes: up to 4 KiB).
#ifndef FORETOKEN_COMMON_BASE_LINE_WRITER_H_
#define FORETOKEN_COMMON_BASE_LINE_WRITER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace foretoken {

class LineWriter {
 public:
  static constexpr size_t kMaxKeptBytes = size_t{64} << 10;

  // The line that says how many were dropped since the last such line.
  using Notice = std::function<std::string(int64_t lines)>;

  // `fd` must outlive the writer; what it refers to may change (dup2).
  LineWriter(int fd, Notice notice);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // `line` ends in a line break.
  void Write(absl::string_view line) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until all that is kept has been written, at most for `timeout`: for
  // the last lines of a process.
  void Flush(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Lines dropped so far.
  int64_t dropped() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Writes as much as there is room for, and returns the number of bytes.
  size_t TryWrite(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes what is kept, as far as there is room.
  void WriteKept() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The descriptor to write to: one that does not wait, if it can be had.
  int Target() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes what is kept whenever there is room, until the writer is destroyed.
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const int fd_;
  const Notice notice_;
  mutable absl::Mutex mu_;
  // A description of our own of what fd_ refers to, for pipes and terminals:
  // O_NONBLOCK on fd_ itself would hold for every process that shares it.
  int own_ ABSL_GUARDED_BY(mu_) = -1;
  bool socket_ ABSL_GUARDED_BY(mu_) = false;
  bool may_wait_ ABSL_GUARDED_BY(mu_) = false;  // own_ could not be had
  dev_t device_ ABSL_GUARDED_BY(mu_) = 0;       // of what fd_ referred to last
  ino_t inode_ ABSL_GUARDED_BY(mu_) = 0;
  std::string kept_ ABSL_GUARDED_BY(mu_);
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t unsaid_ ABSL_GUARDED_BY(mu_) = 0;  // dropped since the last notice
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mu_);  // from the first line kept
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_LINE_WRITER_H_
