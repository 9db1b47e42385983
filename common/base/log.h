// One-line structured logs on stderr: "I 2026-01-31T12:00:00.123Z file.cc:12
// msg".
//
// Control characters are escaped as \x0a. Thread-safe: each line is one
// write(2). Never log prompts, users' tokens or credentials.
#ifndef FORETOKEN_COMMON_BASE_LOG_H_
#define FORETOKEN_COMMON_BASE_LOG_H_

#include <string>

#include "absl/strings/str_cat.h"

namespace foretoken {

enum class LogLevel { kInfo, kWarning, kError };

// Drops lines below `level`. Default kInfo.
void SetMinLogLevel(LogLevel level);

namespace internal {
void Log(LogLevel level, const char* file, int line, const std::string& text);
}  // namespace internal
}  // namespace foretoken

// FORETOKEN_LOG(kInfo, "listening on ", address);
#define FORETOKEN_LOG(level, ...)                                              \
  ::foretoken::internal::Log(::foretoken::LogLevel::level, __FILE__, __LINE__, \
                             absl::StrCat(__VA_ARGS__))

#endif  // FORETOKEN_COMMON_BASE_LOG_H_
