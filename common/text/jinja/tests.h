// Jinja's tests: `value is name(arguments)`.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_TESTS_H_
#define FORETOKEN_COMMON_TEXT_JINJA_TESTS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/arguments.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

// InvalidArgument for an unknown test.
absl::StatusOr<bool> CallTest(Budget& budget, absl::string_view name,
                              const Value& value, const Arguments& arguments);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_TESTS_H_
