// Where the lines of log.h go: to stderr, without waiting for its reader. A pipe
// that is not read holds up nothing: lines are dropped and counted
// (line_writer.h). Thread-safe.
#ifndef FORETOKEN_COMMON_BASE_LOG_OUTPUT_H_
#define FORETOKEN_COMMON_BASE_LOG_OUTPUT_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace foretoken {

// Writes a line as it is, and gives a slow reader a moment to take it: the last
// one before the process ends.
void WriteLastLine(absl::string_view line);

// Gives a slow reader a moment to take what is kept: before the process ends.
void FlushLog();

// Lines that were dropped because stderr took no more.
int64_t DroppedLogLines();

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_LOG_OUTPUT_H_
