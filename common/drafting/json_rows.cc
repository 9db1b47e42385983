#include "common/drafting/json_rows.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken {

bool IsBlankRow(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

absl::StatusOr<Json> ParseJsonRow(const std::string& line) {
  FORETOKEN_ASSIGN_OR_RETURN(Json row, ParseJson(line));
  if (row.is_object()) return row;
  return absl::InvalidArgumentError(
      absl::StrCat("a JSON ", row.type_name(), ", want an object per line"));
}

absl::Status ForEachJsonRow(const std::string& path,
                            absl::FunctionRef<absl::Status(const Json&)> visit,
                            size_t max_line_bytes) {
  return ForEachJsonLine(
      path, [&](const Json& row, const std::string&) { return visit(row); },
      max_line_bytes);
}

absl::Status ForEachJsonLine(
    const std::string& path,
    absl::FunctionRef<absl::Status(const Json&, const std::string& line)> visit,
    size_t max_line_bytes) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> lines,
                             LineReader::Open(path, max_line_bytes));
  std::string line;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, lines->Next(line));
    if (!more) return absl::OkStatus();
    if (IsBlankRow(line)) continue;
    const absl::StatusOr<Json> row = ParseJsonRow(line);
    FORETOKEN_RETURN_IF_ERROR(
        Annotate(row.ok() ? visit(*row, line) : row.status(),
                 absl::StrCat(path, ":", lines->line_number())));
  }
}

absl::Status WrongField(absl::string_view field, absl::string_view want) {
  return absl::InvalidArgumentError(
      absl::StrCat("field \"", field, "\": want ", want));
}

absl::StatusOr<std::string> StringField(const Json& row, const char* field,
                                        const char* fallback) {
  const auto it = row.find(field);
  if (it == row.end()) {
    if (fallback != nullptr) return std::string(fallback);
    return WrongField(field, "a string, have nothing");
  }
  if (!it->is_string()) return WrongField(field, "a string");
  return it->get<std::string>();
}

}  // namespace foretoken
