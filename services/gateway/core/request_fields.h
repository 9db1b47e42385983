// RequestFields: reads the fields of one JSON object, with their types and
// ranges, and refuses those that were not read. A field that is null counts as
// absent.
//
//   RequestFields fields(body);
//   request.temperature = fields.Number("temperature", 1, {0, 100});
//   FORETOKEN_RETURN_IF_ERROR(fields.Finish());
//
// Getters return the default for an absent field and for a bad one; Finish
// reports the first that is bad, by its name. Borrows the object. Owned by one
// thread.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_REQUEST_FIELDS_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_REQUEST_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"

namespace foretoken::gateway {

template <typename T>
struct FieldRange {
  T min;
  T max;
};

class RequestFields {
 public:
  // `name`: of the object within the request, "stream_options"; empty for the
  // request itself. The object may be another value: that is then the error.
  explicit RequestFields(const Json& object, absl::string_view name = "");

  // Those of the object that are given. Valid as long as the object.
  std::vector<absl::string_view> GivenNames() const;

  // Lets the object give `field` by another name, which errors then show. Fails
  // if both are given and differ. Before `field` is read.
  void AddName(absl::string_view name, absl::string_view field);

  // The value as it is; nullptr if absent.
  const Json* Find(absl::string_view field);

  bool Bool(absl::string_view field, bool default_value);
  std::optional<int64_t> Int(absl::string_view field,
                             FieldRange<int64_t> range);
  std::optional<double> Number(absl::string_view field,
                               FieldRange<double> range);
  std::optional<std::string> Text(absl::string_view field, size_t max_bytes);

  // Accepts the field only if it is absent or equals one of `harmless`, which
  // asks for nothing that this server does not do.
  void Refuse(absl::string_view field,
              std::initializer_list<Json> harmless = {});

  // Keeps the first error.
  void Fail(absl::Status error);
  const absl::Status& error() const { return error_; }
  // "stream_options.include_usage" of "include_usage"; by the name that was
  // given.
  std::string Name(absl::string_view field) const;

  // The first error; otherwise one that names a field that was not read.
  absl::Status Finish();

 private:
  // The name in the object of a field.
  std::string Given(absl::string_view field) const;

  const Json& object_;
  const std::string name_;
  absl::flat_hash_set<std::string> known_;
  // Fields that are given by another name, and that name.
  absl::flat_hash_map<std::string, std::string> names_;
  absl::Status error_;
};

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_REQUEST_FIELDS_H_
