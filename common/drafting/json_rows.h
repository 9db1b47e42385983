// Rows of recordings and corpora: JSONL, one object per line, gzip or plain.
// Thread-safe: functions without state.
#ifndef FORETOKEN_COMMON_DRAFTING_JSON_ROWS_H_
#define FORETOKEN_COMMON_DRAFTING_JSON_ROWS_H_

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/file.h"
#include "common/base/json_fwd.h"

namespace foretoken {

// Whether a line has nothing but white space; readers of rows skip it.
bool IsBlankRow(const std::string& line);

// InvalidArgument unless the line is one JSON object.
absl::StatusOr<Json> ParseJsonRow(const std::string& line);

// Calls `visit` for every row of a file. Errors, those of `visit` included,
// name file and line.
absl::Status ForEachJsonRow(const std::string& path,
                            absl::FunctionRef<absl::Status(const Json&)> visit,
                            size_t max_line_bytes = LineReader::kMaxLineBytes);

// The same, with the line that the row was read from.
absl::Status ForEachJsonLine(
    const std::string& path,
    absl::FunctionRef<absl::Status(const Json&, const std::string& line)> visit,
    size_t max_line_bytes = LineReader::kMaxLineBytes);

// InvalidArgument: `field "NAME": want ...`.
absl::Status WrongField(absl::string_view field, absl::string_view want);

// Returns the string at `field`; a missing field is an error unless `fallback`
// is given.
absl::StatusOr<std::string> StringField(const Json& row, const char* field,
                                        const char* fallback = nullptr);

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_DRAFTING_JSON_ROWS_H_
