// RangeErrors: collects all out-of-range fields of an options struct into one
// status.
#ifndef FORETOKEN_COMMON_BASE_RANGE_ERRORS_H_
#define FORETOKEN_COMMON_BASE_RANGE_ERRORS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace foretoken {

class RangeErrors {
 public:
  void Check(absl::string_view name, int64_t value, int64_t min, int64_t max) {
    if (value >= min && value <= max) return;
    absl::StrAppend(&errors_, errors_.empty() ? "" : "; ", name, " is ", value,
                    ", want ", min, "..", max);
  }

  // InvalidArgument names every bad field with its value and range.
  absl::Status status() const {
    if (errors_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(errors_);
  }

 private:
  std::string errors_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_RANGE_ERRORS_H_
