#include "common/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/line_writer.h"
#include "common/base/log_output.h"

namespace foretoken {
namespace {

// Time for a reader that still lives to make room for the last line.
constexpr absl::Duration kLastLineTime = absl::Seconds(1);

std::atomic<LogLevel> min_level{LogLevel::kInfo};

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

std::string Line(LogLevel level, const char* file, int line,
                 const std::string& text) {
  static constexpr char kLetters[] = {'I', 'W', 'E'};
  return absl::StrCat(std::string(1, kLetters[static_cast<int>(level)]), " ",
                      absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::Now(),
                                       absl::UTCTimeZone()),
                      " ", Basename(file), ":", line, " ", Escaped(text), "\n");
}

// Never destroyed: threads may log until the process ends.
LineWriter& Stderr() {
  static LineWriter* const writer =
      new LineWriter(STDERR_FILENO, [](int64_t lines) {
        return Line(
            LogLevel::kWarning, __FILE__, __LINE__,
            absl::StrCat("dropped ", lines, " lines: nothing read this log"));
      });
  return *writer;
}

}  // namespace

void SetMinLogLevel(LogLevel level) { min_level = level; }

// Before the last line too, which would be dropped for want of room.
void WriteLastLine(absl::string_view line) {
  FlushLog();
  Stderr().Write(absl::StrCat(line, "\n"));
  FlushLog();
}

void FlushLog() { Stderr().Flush(kLastLineTime); }

int64_t DroppedLogLines() { return Stderr().dropped(); }

namespace internal {

void Log(LogLevel level, const char* file, int line, const std::string& text) {
  if (level < min_level.load(std::memory_order_relaxed)) return;
  Stderr().Write(Line(level, file, line, text));
}

void CheckFailed(const char* file, int line, const char* what) {
  FlushLog();
  Log(LogLevel::kError, file, line, absl::StrCat("CHECK failed: ", what));
  FlushLog();
  std::abort();
}

}  // namespace internal
}  // namespace foretoken
