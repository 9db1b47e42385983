// Methods of strings, lists and dicts, as Python has them. Those that change a
// value are unsafe, as in Jinja's immutable sandbox.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_METHODS_H_
#define FORETOKEN_COMMON_TEXT_JINJA_METHODS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/arguments.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

enum class MethodAccess : uint8_t { kNone, kAllowed, kUnsafe };

// Whether Python's type of `object` has a method `name`, ours or not.
MethodAccess FindMethod(const Value& object, absl::string_view name);

// object.name(arguments). InvalidArgument for methods that are not supported.
absl::StatusOr<Value> CallMethod(Budget& budget, const Value& object,
                                 absl::string_view name,
                                 const Arguments& arguments);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_METHODS_H_
