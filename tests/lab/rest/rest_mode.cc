#include "tests/lab/rest/rest_mode.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

RestOptions Read(ModeReader& read) {
  RestOptions options;
  options.exact = read.Bool("exact", options.exact);
  options.max_n = read.Int("max_n", options.exact ? 4 : options.max_n, 1,
                           RestOptions::kMaxN);
  options.min_n = read.Int("min_n", std::min(options.min_n, options.max_n), 1,
                           options.max_n);
  return options;
}

}  // namespace

absl::StatusOr<RestOptions> ReadRestMode(const ModeSpec& spec) {
  ModeReader read(spec);
  const RestOptions options = Read(read);
  FORETOKEN_RETURN_IF_ERROR(read.Finish());
  return options;
}

std::string RestModeHelp() {
  const ModeSpec none;
  ModeReader read(none);
  Read(read);
  return absl::StrCat(
      kRestMode, ":",
      absl::StrJoin(read.parameters(), ",",
                    [](std::string* out, const ModeParameter& parameter) {
                      absl::StrAppend(out, parameter.key, "=",
                                      parameter.default_value);
                    }));
}

}  // namespace foretoken
