// JSON objects that were cut off. Pure functions, thread-safe.
#ifndef FORETOKEN_SERVICES_GATEWAY_CORE_CUT_JSON_H_
#define FORETOKEN_SERVICES_GATEWAY_CORE_CUT_JSON_H_

#include <string>

#include "absl/strings/string_view.h"

namespace foretoken::gateway {

// `text` if it is a JSON object; else the object that it begins, with the
// values that are whole: {"a": [1, 2 becomes {"a": [1]}. "{}" for what begins
// no object. Linear.
std::string WholeJsonObject(absl::string_view text);

}  // namespace foretoken::gateway

#endif  // FORETOKEN_SERVICES_GATEWAY_CORE_CUT_JSON_H_
