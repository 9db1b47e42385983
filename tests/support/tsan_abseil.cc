// absl::Mutex and CondVar, and the reference count of absl::Status, as
// ThreadSanitizer has to see them.
//
// The packaged Abseil is not built for ThreadSanitizer, which then takes
// everything that a Mutex guards for a race. Under the tsan preset every
// program has these definitions in place of the library's; they call the
// library's and say what they mean. Accesses inside the library's calls are not
// watched: there, any thread may evaluate the conditions of others, under the
// lock that it holds for them.
#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "absl/base/config.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/base/check.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace {

// The library's function; `tail`: the mangled name behind the namespace.
void* Real(const std::string& start, const std::string& tail) {
#define FORETOKEN_TEXT_OF(x) #x
#define FORETOKEN_TEXT(x) FORETOKEN_TEXT_OF(x)
  const std::string inner = FORETOKEN_TEXT(ABSL_OPTION_INLINE_NAMESPACE_NAME);
  void* found = dlsym(
      RTLD_NEXT,
      (start + "4absl" + std::to_string(inner.size()) + inner + tail).c_str());
  FORETOKEN_CHECK(found != nullptr);
  return found;
}

template <typename Function>
Function* RealAs(const std::string& start, const std::string& tail) {
  return reinterpret_cast<Function*>(Real(start, tail));
}

class Unwatched {
 public:
  Unwatched() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unwatched() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};

// One call that lets go of the mutex and holds it again.
template <typename Call>
auto Waiting(void* mutex, Call call) {
  __tsan_release(mutex);
  const auto result = [&] {
    const Unwatched unwatched;
    return call();
  }();
  __tsan_acquire(mutex);
  return result;
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* real = RealAs<void(Mutex*)>("_ZN", "5Mutex4LockEv");
  {
    const Unwatched unwatched;
    real(this);
  }
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static auto* real = RealAs<void(Mutex*)>("_ZN", "5Mutex6UnlockEv");
  __tsan_release(this);
  const Unwatched unwatched;
  real(this);
}

void Mutex::ReaderLock() {
  static auto* real = RealAs<void(Mutex*)>("_ZN", "5Mutex10ReaderLockEv");
  {
    const Unwatched unwatched;
    real(this);
  }
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static auto* real = RealAs<void(Mutex*)>("_ZN", "5Mutex12ReaderUnlockEv");
  __tsan_release(this);
  const Unwatched unwatched;
  real(this);
}

void Mutex::Await(const Condition& condition) {
  static auto* real = RealAs<void(Mutex*, const Condition&)>(
      "_ZN", "5Mutex5AwaitERKNS0_9ConditionE");
  Waiting(this, [&] {
    real(this, condition);
    return true;
  });
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static auto* real = RealAs<bool(Mutex*, const Condition&, Duration)>(
      "_ZN", "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  return Waiting(this, [&] { return real(this, condition, timeout); });
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static auto* real = RealAs<bool(Mutex*, const Condition&, Time)>(
      "_ZN", "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  return Waiting(this, [&] { return real(this, condition, deadline); });
}

void CondVar::Wait(Mutex* mutex) {
  static auto* real =
      RealAs<void(CondVar*, Mutex*)>("_ZN", "7CondVar4WaitEPNS0_5MutexE");
  Waiting(mutex, [&] {
    real(this, mutex);
    return true;
  });
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static auto* real = RealAs<bool(CondVar*, Mutex*, Duration)>(
      "_ZN", "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  return Waiting(mutex, [&] { return real(this, mutex, timeout); });
}

void Notification::Notify() {
  static auto* real =
      RealAs<void(Notification*)>("_ZN", "12Notification6NotifyEv");
  __tsan_release(this);
  real(this);
}

void Notification::WaitForNotification() const {
  static auto* real = RealAs<void(const Notification*)>(
      "_ZNK", "12Notification19WaitForNotificationEv");
  real(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

void Status::UnrefNonInlined(uintptr_t rep) {
  static auto* real =
      RealAs<void(uintptr_t)>("_ZN", "6Status15UnrefNonInlinedEm");
  // The last one frees what the others read.
  __tsan_release(reinterpret_cast<void*>(rep));
  __tsan_acquire(reinterpret_cast<void*>(rep));
  const Unwatched unwatched;
  real(rep);
}

ABSL_NAMESPACE_END
}  // namespace absl
