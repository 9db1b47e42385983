// JsonValue: a JSON document as it was written: members in their order, numbers
// as text, so that 0.1 and 2^64 keep their exact value.
//
// Thread-compatible.
#ifndef FORETOKEN_COMMON_GRAMMAR_JSON_VALUE_H_
#define FORETOKEN_COMMON_GRAMMAR_JSON_VALUE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace foretoken::grammar {

struct JsonMember;

struct JsonValue {
  enum Kind : uint8_t {
    kNull,
    kFalse,
    kTrue,
    kNumber,
    kString,
    kArray,
    kObject
  };
  Kind kind = kNull;
  std::string text;                 // of a number or a string
  std::vector<JsonValue> items;     // of an array
  std::vector<JsonMember> members;  // of an object; every key once

  bool is_bool() const { return kind == kFalse || kind == kTrue; }
  // The member of this name, or null. Linear in the members.
  const JsonValue* Find(absl::string_view key) const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// Linear in the text. The last of several members with one key counts.
// InvalidArgument: not JSON, deeper than `max_depth` levels of containers, or
// more than `max_values` values.
absl::StatusOr<JsonValue> ParseJsonValue(absl::string_view text, int max_depth,
                                         int64_t max_values);

// A number of any length: 0.DIGITS * 10^point.
struct Decimal {
  bool negative = false;
  std::string digits;  // without zeros at either end; empty: zero
  int64_t point = 0;

  // `text`: a JSON number. Exponents beyond a million are cut to a million.
  static Decimal Parse(absl::string_view text);
  bool is_integer() const {
    return static_cast<int64_t>(digits.size()) <= point || digits.empty();
  }
  // Without an exponent; nullopt if it would have more than 64 digits.
  std::optional<std::string> PlainText() const;
};
// < 0, 0, > 0, like strcmp.
int Compare(const Decimal& a, const Decimal& b);

// The text between the quotes of a JSON string, as json.dumps writes it with
// ensure_ascii=False.
std::string EscapeJson(absl::string_view utf8);
// One line, with ", " and ": ", members in their order.
std::string JsonText(const JsonValue& value);
// Equal for equal values only: members sorted, 1.0 as 1.
std::string CanonicalText(const JsonValue& value);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_JSON_VALUE_H_
