// str(), repr(), float parsing and json.dumps() as Python has them.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_PYTHON_TEXT_H_
#define FORETOKEN_COMMON_TEXT_JINJA_PYTHON_TEXT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/text.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

// repr() of a float: the shortest digits that read back as the same number.
std::string FloatText(double number);

// int() and float() of a string; nullopt: ValueError, or out of range of an
// int64.
std::optional<int64_t> ParseInteger(absl::string_view text, int base);
std::optional<double> ParseFloat(absl::string_view text);

// str(): what {{ value }} prints. The brackets and commas of a container count
// as text of the request, as its strings may.
absl::StatusOr<Text> ToText(Budget& budget, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level
  std::string item_separator;
  std::string key_separator;
};
// json.dumps(); InvalidArgument for values that JSON cannot express. Everything
// but strings counts as text of the request.
absl::StatusOr<Text> ToJson(Budget& budget, const Value& value,
                            const JsonStyle& style);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_PYTHON_TEXT_H_
