// Methods of str.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_STRING_METHODS_H_
#define FORETOKEN_COMMON_TEXT_JINJA_STRING_METHODS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/arguments.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/text.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

// text.name(arguments). InvalidArgument for methods that are not supported.
absl::StatusOr<Value> CallStringMethod(Budget& budget, const Text& text,
                                       absl::string_view name,
                                       const Arguments& arguments);

// str.strip(characters), at the ends that are asked for; nullptr: white space.
absl::StatusOr<Value> Strip(Budget& budget, const Text& text,
                            const Text* characters, bool left, bool right);

// str.replace(from, to, count); a negative count sets no limit.
absl::StatusOr<Value> Replace(Budget& budget, const Text& text,
                              const Text& from, const Text& to, int64_t count);

// str.capitalize().
Text Capitalize(const Text& text);

// str.splitlines(), line ends left out.
absl::StatusOr<std::vector<Text>> SplitLines(Budget& budget, const Text& text);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_STRING_METHODS_H_
