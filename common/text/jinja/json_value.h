// JSON as a Value: keys in the order of the text, as Python keeps them.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_JSON_VALUE_H_
#define FORETOKEN_COMMON_TEXT_JINJA_JSON_VALUE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/text.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

// Every string and number gets `origin`. Integers beyond 64 bits become floats.
// InvalidArgument for malformed JSON, and for one nested deeper than 64 levels.
absl::StatusOr<Value> ParseJsonValue(absl::string_view json, Origin origin);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_JSON_VALUE_H_
