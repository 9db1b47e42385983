#include "services/gateway/core/request_fields.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "services/gateway/core/api_error.h"

namespace foretoken::gateway {
namespace {

// Errors repeat the names of unknown fields up to this length.
constexpr size_t kMaxShownBytes = 64;

const Json& EmptyObject() {
  static const Json* const empty = new Json(Json::object());
  return *empty;
}

template <typename T>
std::string RangeText(FieldRange<T> range) {
  return absl::StrCat("want ", range.min, "..", range.max);
}

}  // namespace

// Fields of an empty object: readers go on and find nothing, and Finish reports
// the error.
RequestFields::RequestFields(const Json& object, absl::string_view name)
    : object_(object.is_object() ? object : EmptyObject()), name_(name) {
  if (!object.is_object()) {
    Fail(name.empty()
             ? absl::InvalidArgumentError("the body is not a JSON object")
             : FieldError(name, "want an object", "invalid_type"));
  }
}

std::string RequestFields::Given(absl::string_view field) const {
  const auto other = names_.find(field);
  return other == names_.end() ? std::string(field) : other->second;
}

const Json* RequestFields::Find(absl::string_view field) {
  // Being asked for makes a field known.
  known_.emplace(field);
  const auto found = object_.find(Given(field));
  // null counts as absent, as OpenAI's clients send it for defaults.
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::vector<absl::string_view> RequestFields::GivenNames() const {
  std::vector<absl::string_view> names;
  for (auto field = object_.begin(); field != object_.end(); ++field) {
    if (!field->is_null()) names.push_back(field.key());
  }
  return names;
}

void RequestFields::AddName(absl::string_view name, absl::string_view field) {
  const Json* const other = Find(name);
  if (other == nullptr) return;
  const Json* const own = Find(field);
  if (own == nullptr) {
    // Later questions for `field` find the other name.
    names_.emplace(field, name);
  } else if (*own != *other) {
    Fail(FieldError(Name(name), absl::StrCat("differs from ", Name(field)),
                    "invalid_value"));
  }
}

bool RequestFields::Bool(absl::string_view field, bool default_value) {
  const Json* value = Find(field);
  if (value == nullptr) return default_value;
  if (value->is_boolean()) return value->get<bool>();
  Fail(FieldError(Name(field), "want true or false", "invalid_type"));
  return default_value;
}

std::optional<int64_t> RequestFields::Int(absl::string_view field,
                                          FieldRange<int64_t> range) {
  const Json* value = Find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) {
    Fail(FieldError(Name(field), "want an integer", "invalid_type"));
    return std::nullopt;
  }
  // The library keeps numbers above the largest int64 as unsigned ones.
  const int64_t number =
      value->is_number_unsigned()
          ? static_cast<int64_t>(std::min<uint64_t>(
                value->get<uint64_t>(), std::numeric_limits<int64_t>::max()))
          : value->get<int64_t>();
  if (number < range.min || number > range.max) {
    Fail(FieldError(Name(field), RangeText(range), "invalid_value"));
    return std::nullopt;
  }
  return number;
}

std::optional<double> RequestFields::Number(absl::string_view field,
                                            FieldRange<double> range) {
  const Json* value = Find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    Fail(FieldError(Name(field), "want a number", "invalid_type"));
    return std::nullopt;
  }
  const double number = value->get<double>();
  // Negated, for NaN.
  if (!(number >= range.min && number <= range.max)) {
    Fail(FieldError(Name(field), RangeText(range), "invalid_value"));
    return std::nullopt;
  }
  return number;
}

std::optional<std::string> RequestFields::Text(absl::string_view field,
                                               size_t max_bytes) {
  const Json* value = Find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Fail(FieldError(Name(field), "want a string", "invalid_type"));
    return std::nullopt;
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    Fail(FieldError(Name(field),
                    absl::StrCat("want at most ", max_bytes, " bytes"),
                    "string_above_max_length"));
    return std::nullopt;
  }
  return text;
}

void RequestFields::Refuse(absl::string_view field,
                           std::initializer_list<Json> harmless) {
  const Json* value = Find(field);
  if (value == nullptr) return;
  for (const Json& each : harmless) {
    // Values that ask for nothing beyond what is done anyway.
    if (*value == each) return;
  }
  if (harmless.size() == 0) return Fail(Unsupported(Name(field)));
  const std::string served =
      absl::StrJoin(harmless, " or ", [](std::string* out, const Json& each) {
        absl::StrAppend(out, DumpJson(each));
      });
  Fail(Unsupported(Name(field),
                   absl::StrCat("this value is not supported, want ", served)));
}

void RequestFields::Fail(absl::Status error) {
  // The first error is the one that is reported.
  if (error_.ok()) error_ = std::move(error);
}

std::string RequestFields::Name(absl::string_view field) const {
  const std::string given = Given(field);
  return name_.empty() ? given : absl::StrCat(name_, ".", given);
}

absl::Status RequestFields::Finish() {
  if (!error_.ok()) return error_;
  for (const auto& [field, value] : object_.items()) {
    // A field that is not known might change what the client expects, so it is
    // refused rather than dropped.
    if (known_.contains(field) || value.is_null()) continue;
    return FieldError(Name(absl::string_view(field).substr(0, kMaxShownBytes)),
                      "this server knows no such field", "unknown_parameter");
  }
  return absl::OkStatus();
}

}  // namespace foretoken::gateway
