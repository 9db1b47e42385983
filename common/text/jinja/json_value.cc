#include "common/text/jinja/json_value.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/json_error.h"

namespace foretoken::jinja {
namespace {

// Below Value::kMaxNesting, which leaves levels for what templates put around a
// request's values.
constexpr size_t kMaxDepth = 64;

// Builds values from the events of nlohmann's parser, without an intermediate
// tree. open_ holds the containers that are being read, innermost last; a
// handler that returns false stops the parser.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(Origin origin) : origin_(origin) {}

  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value::Bool(value, origin_)); }
  bool number_integer(number_integer_t value) override {
    return Add(Value::Integer(value, origin_));
  }
  bool number_unsigned(number_unsigned_t value) override {
    // Python's integers are unbounded; a double is the nearest that a Value
    // has.
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Add(Value::Float(static_cast<double>(value), origin_));
    }
    return Add(Value::Integer(static_cast<int64_t>(value), origin_));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(Value::Float(value, origin_));
  }
  bool string(string_t& value) override {
    return Add(Value::String(Text(value, origin_)));
  }
  // JSON has no binary values; the event is of other formats.
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(/*is_object=*/true); }
  bool start_array(size_t) override { return Open(/*is_object=*/false); }
  bool key(string_t& value) override {
    open_.back().key = Value::String(Text(value, origin_));
    return true;
  }
  bool end_object() override {
    Value dict =
        Value::Of(std::make_shared<const Dict>(std::move(open_.back().dict)));
    open_.pop_back();
    return Add(std::move(dict));
  }
  bool end_array() override {
    Value list =
        Value::Of(std::make_shared<const List>(std::move(open_.back().items)));
    open_.pop_back();
    return Add(std::move(list));
  }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    error_ = JsonErrorText(error);
    return false;
  }

  absl::StatusOr<Value> Finish() {
    if (!error_.empty()) return absl::InvalidArgumentError(error_);
    return std::move(result_);
  }

 private:
  struct Container {
    bool is_object = false;
    Values items;
    Dict dict;
    Value key;
  };

  bool Open(bool is_object) {
    if (open_.size() == kMaxDepth) {
      error_ = absl::StrCat("JSON nested deeper than ", kMaxDepth, " levels");
      return false;
    }
    open_.emplace_back().is_object = is_object;
    return true;
  }

  bool Add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
      return true;
    }
    Container& container = open_.back();
    if (!container.is_object) {
      container.items.push_back(std::move(value));
      return true;
    }
    return container.dict.Set(container.key, std::move(value)).ok();
  }

  const Origin origin_;
  std::vector<Container> open_;
  Value result_;
  std::string error_;
};

}  // namespace

absl::StatusOr<Value> ParseJsonValue(absl::string_view json, Origin origin) {
  Builder builder(origin);
  Json::sax_parse(json.begin(), json.end(), &builder);
  return builder.Finish();
}

}  // namespace foretoken::jinja
