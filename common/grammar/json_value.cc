#include "common/grammar/json_value.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/json_error.h"
#include "nlohmann/json.hpp"

namespace foretoken::grammar {
namespace {

using Json = nlohmann::json;

constexpr int kMaxPlainDigits = 64;
// Keeps sums of exponents far from overflow; no double is that large.
constexpr int64_t kMaxExponent = 1'000'000;

// Builds the value from the events of nlohmann's tokenizer.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(int max_depth, int64_t max_values)
      : max_depth_(max_depth), max_values_(max_values) {}

  bool null() override { return Add(JsonValue::kNull, ""); }
  bool boolean(bool value) override {
    return Add(value ? JsonValue::kTrue : JsonValue::kFalse, "");
  }
  bool number_integer(number_integer_t value) override {
    return Add(JsonValue::kNumber, absl::StrCat(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Add(JsonValue::kNumber, absl::StrCat(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    // The text, not the number: a double would lose digits that a schema means.
    return Add(JsonValue::kNumber, text);
  }
  bool string(string_t& value) override {
    return Add(JsonValue::kString, std::move(value));
  }
  bool binary(binary_t&) override { return false; }  // not JSON
  bool start_object(size_t) override { return Open(JsonValue::kObject); }
  bool start_array(size_t) override { return Open(JsonValue::kArray); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool end_object() override {
    RemoveRepeatedKeys(*open_.back());
    open_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    open_.back()->members.push_back({std::move(name), {}});
    return true;
  }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return Refuse(JsonErrorText(error));
  }

  absl::StatusOr<JsonValue> Finish() {
    if (!refusal_.empty()) return absl::InvalidArgumentError(refusal_);
    return std::move(root_);
  }

 private:
  bool Refuse(std::string why) {
    refusal_ = std::move(why);
    return false;
  }

  // The new value's place: the end of the innermost array, or the member whose
  // key was read last.
  JsonValue& Place() {
    if (open_.empty()) return root_;
    JsonValue& parent = *open_.back();
    if (parent.kind == JsonValue::kArray) return parent.items.emplace_back();
    return parent.members.back().value;
  }

  JsonValue* New(JsonValue::Kind kind) {
    // Values cost far more memory than their bytes in the text.
    if (++values_ > max_values_) {
      Refuse(absl::StrCat("JSON of more than ", max_values_, " values"));
      return nullptr;
    }
    JsonValue& value = Place();
    value.kind = kind;
    return &value;
  }

  bool Add(JsonValue::Kind kind, std::string text) {
    JsonValue* value = New(kind);
    if (value == nullptr) return false;
    value->text = std::move(text);
    return true;
  }

  bool Open(JsonValue::Kind kind) {
    // Bounds the recursion of all who walk the value, destructor included.
    if (static_cast<int>(open_.size()) >= max_depth_) {
      return Refuse(
          absl::StrCat("JSON nested deeper than ", max_depth_, " levels"));
    }
    JsonValue* value = New(kind);
    if (value == nullptr) return false;
    open_.push_back(value);
    return true;
  }

  // As most readers of JSON do, and as nlohmann's own parser does.
  static void RemoveRepeatedKeys(JsonValue& object) {
    absl::flat_hash_map<absl::string_view, size_t> last;
    for (size_t i = 0; i < object.members.size(); ++i) {
      last[object.members[i].key] = i;
    }
    if (last.size() == object.members.size()) return;
    std::vector<JsonMember> kept;
    std::vector<bool> keep(object.members.size());
    for (const auto& [key, index] : last) keep[index] = true;
    for (size_t i = 0; i < object.members.size(); ++i) {
      if (keep[i]) kept.push_back(std::move(object.members[i]));
    }
    object.members = std::move(kept);
  }

  const int max_depth_;
  const int64_t max_values_;
  JsonValue root_;
  // The containers that have begun, outermost first. Only the last one grows,
  // so that the others stay in place.
  std::vector<JsonValue*> open_;
  int64_t values_ = 0;
  std::string refusal_;
};

void Append(const JsonValue& value, bool canonical, std::string& out) {
  switch (value.kind) {
    case JsonValue::kNull:
      out += "null";
      break;
    case JsonValue::kFalse:
      out += "false";
      break;
    case JsonValue::kTrue:
      out += "true";
      break;
    case JsonValue::kNumber: {
      if (!canonical) {
        out += value.text;
        break;
      }
      const Decimal number = Decimal::Parse(value.text);
      absl::StrAppend(&out, number.negative ? "-." : ".", number.digits, "e",
                      number.point);
      break;
    }
    case JsonValue::kString:
      absl::StrAppend(&out, "\"", EscapeJson(value.text), "\"");
      break;
    case JsonValue::kArray: {
      out += "[";
      const char* separator = "";
      for (const JsonValue& item : value.items) {
        out += separator;
        Append(item, canonical, out);
        separator = ", ";
      }
      out += "]";
      break;
    }
    case JsonValue::kObject: {
      std::vector<const JsonMember*> members;
      for (const JsonMember& member : value.members) {
        members.push_back(&member);
      }
      // Equal objects may have their members in different orders.
      if (canonical) {
        std::sort(members.begin(), members.end(),
                  [](const JsonMember* a, const JsonMember* b) {
                    return a->key < b->key;
                  });
      }
      out += "{";
      const char* separator = "";
      for (const JsonMember* member : members) {
        absl::StrAppend(&out, separator, "\"", EscapeJson(member->key), "\": ");
        Append(member->value, canonical, out);
        separator = ", ";
      }
      out += "}";
      break;
    }
  }
}

}  // namespace

const JsonValue* JsonValue::Find(absl::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

absl::StatusOr<JsonValue> ParseJsonValue(absl::string_view text, int max_depth,
                                         int64_t max_values) {
  Builder builder(max_depth, max_values);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.Finish();
}

Decimal Decimal::Parse(absl::string_view text) {
  Decimal number;
  size_t i = 0;
  if (i < text.size() && text[i] == '-') {
    number.negative = true;
    ++i;
  }
  bool after_point = false;
  for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
    if (text[i] == '.') {
      after_point = true;
      continue;
    }
    // Zeros at the beginning only move the point.
    if (number.digits.empty() && text[i] == '0') {
      if (after_point) --number.point;
      continue;
    }
    number.digits += text[i];
    if (!after_point) ++number.point;
  }
  if (i < text.size()) {
    absl::string_view exponent = text.substr(i + 1);
    const bool down = !exponent.empty() && exponent[0] == '-';
    int64_t value = 0;
    if (!absl::SimpleAtoi(exponent, &value) || value > kMaxExponent ||
        value < -kMaxExponent) {
      value = down ? -kMaxExponent : kMaxExponent;
    }
    number.point += value;
  }
  // Canonical: equal numbers have equal digits, whatever zeros were written.
  while (!number.digits.empty() && number.digits.back() == '0') {
    number.digits.pop_back();
  }
  if (number.digits.empty()) return Decimal{};
  return number;
}

std::optional<std::string> Decimal::PlainText() const {
  // Otherwise 1e300 would become 300 digits in a regular expression.
  if (digits.empty()) return "0";
  const int64_t size = static_cast<int64_t>(digits.size());
  if (size > kMaxPlainDigits || point > kMaxPlainDigits ||
      size - point > kMaxPlainDigits) {
    return std::nullopt;
  }
  std::string text = negative ? "-" : "";
  if (point <= 0) {
    absl::StrAppend(&text, "0.", std::string(-point, '0'), digits);
  } else if (size <= point) {
    absl::StrAppend(&text, digits, std::string(point - size, '0'));
  } else {
    absl::StrAppend(&text, digits.substr(0, point), ".", digits.substr(point));
  }
  return text;
}

int Compare(const Decimal& a, const Decimal& b) {
  const auto sign = [](const Decimal& n) {
    return n.digits.empty() ? 0 : n.negative ? -1 : 1;
  };
  // Zero has no digits, so -0 equals 0.
  if (sign(a) != sign(b)) return sign(a) - sign(b);
  if (sign(a) == 0) return 0;
  // Digits begin with no zero and have an implicit point before them, so their
  // order as text is the order of the numbers.
  const int magnitude = a.point != b.point ? (a.point < b.point ? -1 : 1)
                                           : a.digits.compare(b.digits);
  return a.negative ? -magnitude : magnitude;
}

std::string EscapeJson(absl::string_view utf8) {
  const std::string quoted = DumpJson(Json(std::string(utf8)));
  return quoted.substr(1, quoted.size() - 2);
}

std::string JsonText(const JsonValue& value) {
  std::string out;
  Append(value, /*canonical=*/false, out);
  return out;
}

std::string CanonicalText(const JsonValue& value) {
  std::string out;
  Append(value, /*canonical=*/true, out);
  return out;
}

}  // namespace foretoken::grammar
