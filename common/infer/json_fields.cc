#include "common/infer/json_fields.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

constexpr size_t kMaxShownValue = 80;

std::string Shown(const Json& value) {
  if (value.is_structured() && value.size() > 16) {
    return absl::StrCat(value.is_array() ? "a list" : "an object", " of ",
                        value.size(), " entries");
  }
  // Truncate strings before escaping them: they may be megabytes long.
  const std::string text =
      value.is_string()
          ? DumpJson(Json(
                value.get_ref<const std::string&>().substr(0, kMaxShownValue)))
          : DumpJson(value);
  if (text.size() <= kMaxShownValue) return text;
  return absl::StrCat(text.substr(0, kMaxShownValue), "...");
}

}  // namespace

const Json* JsonFields::Find(absl::string_view field) const {
  const auto found = object_.find(std::string(field));
  if (found == object_.end() || found->is_null()) return nullptr;
  return &*found;
}

bool JsonFields::Has(absl::string_view field) const {
  return object_.contains(std::string(field));
}

absl::StatusOr<std::optional<int64_t>> JsonFields::Integer(
    absl::string_view field, int64_t min, int64_t max) const {
  const Json* value = Find(field);
  if (value == nullptr) return std::optional<int64_t>();
  const std::string want = absl::StrCat("an integer in ", min, "..", max);
  if (!value->is_number_integer()) return Invalid(field, want);
  // Unsigned values above INT64_MAX must not wrap into the range.
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return Invalid(field, want);
  }
  const int64_t number = value->get<int64_t>();
  if (number < min || number > max) return Invalid(field, want);
  return std::optional<int64_t>(number);
}

absl::StatusOr<std::optional<double>> JsonFields::Number(
    absl::string_view field, double min, double max) const {
  const Json* value = Find(field);
  if (value == nullptr) return std::optional<double>();
  const std::string want = absl::StrFormat("a number in %g..%g", min, max);
  if (!value->is_number()) return Invalid(field, want);
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < min || number > max) {
    return Invalid(field, want);
  }
  return std::optional<double>(number);
}

absl::StatusOr<std::optional<bool>> JsonFields::Bool(
    absl::string_view field) const {
  const Json* value = Find(field);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return Invalid(field, "true or false");
  return std::optional<bool>(value->get<bool>());
}

absl::StatusOr<std::optional<std::string>> JsonFields::String(
    absl::string_view field) const {
  const Json* value = Find(field);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return Invalid(field, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

absl::StatusOr<int64_t> JsonFields::RequiredInteger(absl::string_view field,
                                                    int64_t min,
                                                    int64_t max) const {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                             Integer(field, min, max));
  if (!value) {
    return Invalid(field, absl::StrCat("an integer in ", min, "..", max));
  }
  return *value;
}

absl::StatusOr<double> JsonFields::RequiredNumber(absl::string_view field,
                                                  double min,
                                                  double max) const {
  FORETOKEN_ASSIGN_OR_RETURN(const std::optional<double> value,
                             Number(field, min, max));
  if (!value) {
    return Invalid(field, absl::StrFormat("a number in %g..%g", min, max));
  }
  return *value;
}

absl::Status JsonFields::Invalid(absl::string_view field,
                                 const std::string& want) const {
  return absl::InvalidArgumentError(Message(field, want));
}

absl::Status JsonFields::Unsupported(absl::string_view field,
                                     const std::string& want) const {
  return absl::UnimplementedError(Message(field, want));
}

std::string JsonFields::Message(absl::string_view field,
                                const std::string& want) const {
  const Json* value = Find(field);
  return absl::StrCat(file_, ": ", prefix_, field, " is ",
                      value == nullptr ? "missing" : Shown(*value), ", want ",
                      want);
}

}  // namespace foretoken
