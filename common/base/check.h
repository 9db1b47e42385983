// FORETOKEN_CHECK aborts on a broken invariant: a bug in Foretoken, never bad
// input. Active in every build type.
#ifndef FORETOKEN_COMMON_BASE_CHECK_H_
#define FORETOKEN_COMMON_BASE_CHECK_H_

namespace foretoken::internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);
}  // namespace foretoken::internal

#define FORETOKEN_CHECK(condition)                                        \
  do {                                                                    \
    if (__builtin_expect(!(condition), 0))                                \
      ::foretoken::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#endif  // FORETOKEN_COMMON_BASE_CHECK_H_
