// Typed access to the fields of a JSON object in a model file. Errors name the
// file, the field and its value.
//
// Thread-compatible; borrows the object and the names.
#ifndef FORETOKEN_COMMON_INFER_JSON_FIELDS_H_
#define FORETOKEN_COMMON_INFER_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json_fwd.h"

namespace foretoken {

class JsonFields {
 public:
  // `object` must be a JSON object. `prefix` precedes every field name in
  // messages, e.g. "rope_scaling.".
  JsonFields(const Json& object, const std::string& file,
             const std::string& prefix = "")
      : object_(object), file_(file), prefix_(prefix) {}

  // Nullptr if the field is absent or null.
  const Json* Find(absl::string_view field) const;

  // True if the field exists, even if null.
  bool Has(absl::string_view field) const;

  // Returns the field, or nullopt if absent or null. InvalidArgument for
  // another type or a value outside [min, max].
  absl::StatusOr<std::optional<int64_t>> Integer(absl::string_view field,
                                                 int64_t min,
                                                 int64_t max) const;
  absl::StatusOr<std::optional<double>> Number(absl::string_view field,
                                               double min, double max) const;
  absl::StatusOr<std::optional<bool>> Bool(absl::string_view field) const;
  absl::StatusOr<std::optional<std::string>> String(
      absl::string_view field) const;

  // As above, but InvalidArgument if the field is absent or null.
  absl::StatusOr<int64_t> RequiredInteger(absl::string_view field, int64_t min,
                                          int64_t max) const;
  absl::StatusOr<double> RequiredNumber(absl::string_view field, double min,
                                        double max) const;

  // "FILE: FIELD is VALUE, want WANT", with the value truncated for display.
  absl::Status Invalid(absl::string_view field, const std::string& want) const;
  absl::Status Unsupported(absl::string_view field,
                           const std::string& want) const;

 private:
  std::string Message(absl::string_view field, const std::string& want) const;

  const Json& object_;
  const std::string& file_;
  const std::string prefix_;
};

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_INFER_JSON_FIELDS_H_
