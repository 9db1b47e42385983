// Parser of Jinja templates: expressions, for, if, set, macro, call, filter,
// with, raw, print, break, continue and generation. Templates that include,
// import or extend others are refused, as are recursive loops and arguments
// spread by * or **.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_PARSER_H_
#define FORETOKEN_COMMON_TEXT_JINJA_PARSER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/ast.h"

namespace foretoken::jinja {

// InvalidArgument: "line 3: what". Syntax nested deeper than 100 levels is
// refused.
absl::StatusOr<Body> ParseTemplate(absl::string_view source);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_PARSER_H_
