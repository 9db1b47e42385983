// Global functions of a template: raise_exception, strftime_now, range, dict
// and namespace.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_FUNCTIONS_H_
#define FORETOKEN_COMMON_TEXT_JINJA_FUNCTIONS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/text/jinja/arena.h"
#include "common/text/jinja/arguments.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

bool IsFunction(absl::string_view name);

// datetime.strftime; InvalidArgument for a format above 1 KiB or one that
// writes more than that.
absl::StatusOr<Text> FormatTime(const Text& format, absl::Time time,
                                absl::TimeZone zone);

// range(stop), range(start, stop[, step]): at most 100,000 numbers.
absl::StatusOr<Value> MakeRange(Budget& budget, const Arguments& arguments);
// dict(mapping, name=value, ...).
absl::StatusOr<Value> MakeDictionary(Budget& budget,
                                     const Arguments& arguments);
// namespace(mapping, name=value, ...).
absl::StatusOr<Value> MakeNamespace(Budget& budget, Arena& arena,
                                    const Arguments& arguments);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_FUNCTIONS_H_
