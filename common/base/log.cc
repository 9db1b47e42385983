#include "common/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"

namespace foretoken {
namespace {

std::atomic<LogLevel> min_level{LogLevel::kInfo};

void WriteLine(const std::string& line) {
  // One write(2) per line keeps the lines of concurrent threads apart. The
  // result is ignored: there is nowhere to report a failing stderr.
  [[maybe_unused]] ssize_t n = write(STDERR_FILENO, line.data(), line.size());
}

// Text from clients and peers may contain line breaks and terminal sequences,
// which must neither forge a line nor act on a terminal. UTF-8 stays.
std::string Escaped(const std::string& text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppend(
          &escaped, "\\x",
          absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

const char* Basename(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

}  // namespace

void SetMinLogLevel(LogLevel level) { min_level = level; }

namespace internal {

void Log(LogLevel level, const char* file, int line, const std::string& text) {
  if (level < min_level.load(std::memory_order_relaxed)) return;
  static constexpr char kLetters[] = {'I', 'W', 'E'};
  WriteLine(absl::StrCat(std::string(1, kLetters[static_cast<int>(level)]), " ",
                         absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::Now(),
                                          absl::UTCTimeZone()),
                         " ", Basename(file), ":", line, " ", Escaped(text),
                         "\n"));
}

void CheckFailed(const char* file, int line, const char* what) {
  Log(LogLevel::kError, file, line, absl::StrCat("CHECK failed: ", what));
  std::abort();
}

}  // namespace internal
}  // namespace foretoken
