// Gate: holds the threads that come to it while it is closed.
#ifndef FORETOKEN_TESTS_SUPPORT_GATE_H_
#define FORETOKEN_TESTS_SUPPORT_GATE_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace foretoken::testing {

// Thread-safe. Open at first.
class Gate {
 public:
  void Close() { Set(false); }
  void Open() { Set(true); }
  void Pass() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    ++waiting_;
    mu_.Await(absl::Condition(&open_));
    --waiting_;
  }
  // Threads that it holds.
  int waiting() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return waiting_;
  }

 private:
  void Set(bool open) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    open_ = open;
  }

  mutable absl::Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = true;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace foretoken::testing

#endif  // FORETOKEN_TESTS_SUPPORT_GATE_H_
