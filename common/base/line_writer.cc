#include "common/base/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"

namespace foretoken {
namespace {

// Between two looks at whether the writer ends, or fd_ refers to another pipe.
constexpr int kPollMs = 100;
// A pipe with room takes this much without waiting (PIPE_BUF).
constexpr size_t kPipePiece = 4096;

bool HasRoom(int fd, int timeout_ms) {
  pollfd ready = {fd, POLLOUT, 0};
  return poll(&ready, 1, timeout_ms) > 0;  // also for a reader that is gone
}

}  // namespace

LineWriter::LineWriter(int fd, Notice notice)
    : fd_(fd), notice_(std::move(notice)) {}

LineWriter::~LineWriter() {
  std::thread thread;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
  if (own_ >= 0) close(own_);
}

int LineWriter::Target() {
  struct stat now {};
  if (fstat(fd_, &now) != 0) return fd_;
  if (now.st_dev == device_ && now.st_ino == inode_) {
    return own_ >= 0 ? own_ : fd_;
  }
  if (own_ >= 0) close(own_);
  own_ = -1;
  device_ = now.st_dev;
  inode_ = now.st_ino;
  socket_ = S_ISSOCK(now.st_mode);
  may_wait_ = false;
  if (S_ISFIFO(now.st_mode) || S_ISCHR(now.st_mode)) {
    own_ = open(absl::StrCat("/proc/self/fd/", fd_).c_str(),
                O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    may_wait_ = own_ < 0;
  }
  return own_ >= 0 ? own_ : fd_;
}

size_t LineWriter::TryWrite(absl::string_view text) {
  const int target = Target();
  size_t done = 0;
  while (done < text.size()) {
    const absl::string_view rest = text.substr(done);
    ssize_t n = 0;
    if (socket_) {
      n = send(target, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (may_wait_ && !HasRoom(target, 0)) {
      break;
    } else {
      // With room for a piece this waits only if another process fills the pipe
      // at this moment.
      n = write(target, rest.data(),
                may_wait_ ? std::min(rest.size(), kPipePiece) : rest.size());
    }
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      break;
    } else {
      return text.size();  // broken for good: drop it
    }
  }
  return done;
}

void LineWriter::WriteKept() {
  if (!kept_.empty()) kept_.erase(0, TryWrite(kept_));
  if (!kept_.empty() || unsaid_ == 0) return;
  kept_ = notice_(std::exchange(unsaid_, 0));
  kept_.erase(0, TryWrite(kept_));
}

void LineWriter::Write(absl::string_view line) {
  absl::MutexLock lock(&mu_);
  WriteKept();
  bool begun = false;
  if (kept_.empty()) {
    const size_t written = TryWrite(line);
    if (written == line.size()) return;
    line.remove_prefix(written);
    begun = written > 0;
  }
  // The rest of a line that has begun is kept, however long.
  if (!begun && kept_.size() + line.size() > kMaxKeptBytes) {
    ++dropped_;
    ++unsaid_;
    return;
  }
  kept_.append(line.data(), line.size());
  if (!thread_.joinable() && !stopping_) {
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {
      // No thread can be had now: the next line tries again.
    }
  }
}

void LineWriter::Run() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || !kept_.empty() || unsaid_ > 0;
  };
  while (true) {
    int target = -1;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&has_work));
      if (stopping_) return;
      WriteKept();
      if (kept_.empty()) continue;
      // May be closed while it is polled, if fd_ comes to refer to something
      // else: that ends the poll, or makes it look at the wrong descriptor
      // once.
      target = Target();
    }
    HasRoom(target, kPollMs);
  }
}

void LineWriter::Flush(absl::Duration timeout) {
  const absl::Time deadline = MonotonicNow() + timeout;
  while (true) {
    int target = -1;
    {
      absl::MutexLock lock(&mu_);
      WriteKept();
      if (kept_.empty()) return;
      target = Target();
    }
    const absl::Duration left = deadline - MonotonicNow();
    if (left <= absl::ZeroDuration()) return;
    HasRoom(target, static_cast<int>(std::min<int64_t>(
                        kPollMs, 1 + absl::ToInt64Milliseconds(left))));
  }
}

int64_t LineWriter::dropped() const {
  absl::MutexLock lock(&mu_);
  return dropped_;
}

}  // namespace foretoken
