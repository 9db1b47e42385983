// Json by name, for headers that only pass values on: GCC takes a second for
// the definition (json.h), which the sources that read or make values include.
#ifndef FORETOKEN_COMMON_BASE_JSON_FWD_H_
#define FORETOKEN_COMMON_BASE_JSON_FWD_H_

#include "nlohmann/json_fwd.hpp"

namespace foretoken {

using Json = nlohmann::json;

}  // namespace foretoken

#endif  // FORETOKEN_COMMON_BASE_JSON_FWD_H_
