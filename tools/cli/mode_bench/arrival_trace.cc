#include "tools/cli/mode_bench/arrival_trace.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"

namespace foretoken::mode_bench {
namespace {

constexpr char kTime[] = "TIMESTAMP";
constexpr char kOutput[] = "GeneratedTokens";
// Rows of the published traces are well under 100 bytes; the bound keeps a file
// that is no trace from being read as one line.
constexpr size_t kMaxRowBytes = 4096;
constexpr size_t kMaxShown = 40;  // characters of a bad value in its error

// Where the columns are in each row.
struct Columns {
  size_t time = 0;
  size_t output = 0;
};

std::vector<absl::string_view> Cells(absl::string_view line) {
  // The published files have Windows line ends.
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return absl::StrSplit(line, ',');
}

// Columns are found by name: the traces of different years have them in
// different orders, with further ones between.
absl::StatusOr<Columns> ReadHeader(absl::string_view line) {
  const std::vector<absl::string_view> names = Cells(line);
  Columns columns;
  for (auto [name, index] :
       {std::pair(kTime, &columns.time), std::pair(kOutput, &columns.output)}) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("header: no column ", name));
    }
    *index = found - names.begin();
  }
  return columns;
}

absl::Status WrongCell(const char* column, absl::string_view cell,
                       const char* want) {
  return absl::InvalidArgumentError(absl::StrCat(
      "column ", column, ": '", cell.substr(0, kMaxShown), "', want ", want));
}

struct Row {
  absl::Time time;
  int64_t output_tokens = 0;
};

absl::StatusOr<Row> ReadRow(absl::string_view line, const Columns& columns) {
  const std::vector<absl::string_view> cells = Cells(line);
  const size_t needed = std::max(columns.time, columns.output) + 1;
  // A header with more columns than the two is fine, so rows may be longer;
  // only a row that ends before the later of the two is an error.
  if (cells.size() < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat(cells.size(), " columns, want at least ", needed));
  }
  Row row;
  // No time zone: only differences of times matter, and all rows of a file have
  // the same one. %E*S reads fractions of any length; the traces have seven
  // digits.
  if (!absl::ParseTime("%Y-%m-%d %H:%M:%E*S", cells[columns.time], &row.time,
                       nullptr)) {
    return WrongCell(kTime, cells[columns.time],
                     "YYYY-MM-DD hh:mm:ss.fraction");
  }
  if (!absl::SimpleAtoi(cells[columns.output], &row.output_tokens) ||
      row.output_tokens < 1) {
    return WrongCell(kOutput, cells[columns.output], "a number of at least 1");
  }
  return row;
}

// Reads rows one by one, the header first.
class TraceReader {
 public:
  absl::Status Take(absl::string_view line) {
    if (!columns_.has_value()) {
      FORETOKEN_ASSIGN_OR_RETURN(columns_, ReadHeader(line));
      return absl::OkStatus();
    }
    FORETOKEN_ASSIGN_OR_RETURN(const Row row, ReadRow(line, *columns_));
    if (arrivals_.empty()) first_ = last_ = row.time;
    // Arrival offsets must not decrease: the open loop sends requests in this
    // order and waits for each one's time.
    if (row.time < last_) {
      return absl::InvalidArgumentError(
          absl::StrCat("column ", kTime,
                       ": earlier than the row before, want rows in order "
                       "of time"));
    }
    // Checked before the row is kept, so that a file of any size stays within
    // the bound.
    if (arrivals_.size() == kMaxArrivals) {
      return absl::ResourceExhaustedError(
          absl::StrCat("want at most ", kMaxArrivals, " rows"));
    }
    last_ = row.time;
    arrivals_.push_back({row.time - first_, row.output_tokens});
    return absl::OkStatus();
  }

  std::vector<Arrival> arrivals() && { return std::move(arrivals_); }

 private:
  std::optional<Columns> columns_;
  std::vector<Arrival> arrivals_;
  absl::Time first_, last_;
};

}  // namespace

absl::StatusOr<std::vector<Arrival>> ReadArrivalTrace(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::unique_ptr<LineReader> lines,
                             LineReader::Open(path, kMaxRowBytes));
  TraceReader reader;
  std::string line;
  while (true) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool more, lines->Next(line));
    if (!more) break;
    if (line.empty() || line == "\r") continue;
    FORETOKEN_RETURN_IF_ERROR(Annotate(
        reader.Take(line), absl::StrCat(path, ":", lines->line_number())));
  }
  std::vector<Arrival> arrivals = std::move(reader).arrivals();
  if (arrivals.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no arrivals"));
  }
  return arrivals;
}

}  // namespace foretoken::mode_bench
