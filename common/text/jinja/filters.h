// Jinja's filters, as transformers sets them up.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_FILTERS_H_
#define FORETOKEN_COMMON_TEXT_JINJA_FILTERS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/arguments.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

bool IsFilter(absl::string_view name);
// value | name(arguments). InvalidArgument for an unknown filter.
absl::StatusOr<Value> CallFilter(Budget& budget, absl::string_view name,
                                 const Value& value,
                                 const Arguments& arguments);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_FILTERS_H_
