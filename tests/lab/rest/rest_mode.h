// Mode `rest` of the laboratory's command lines: RestOptions as text,
// `rest:max_n=16,min_n=2`. The product's table of modes (modes.h) has no such
// row.
#ifndef FORETOKEN_TESTS_LAB_REST_REST_MODE_H_
#define FORETOKEN_TESTS_LAB_REST_REST_MODE_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/speculation/mode_spec.h"
#include "tests/lab/rest/rest_lookup.h"

namespace foretoken {

inline constexpr char kRestMode[] = "rest";

// The parameters of `spec`, whose name is not looked at. InvalidArgument names
// one that the mode does not have, or a value out of its range.
absl::StatusOr<RestOptions> ReadRestMode(const ModeSpec& spec);

// For help texts: the mode with its parameters and their defaults.
std::string RestModeHelp();

}  // namespace foretoken

#endif  // FORETOKEN_TESTS_LAB_REST_REST_MODE_H_
