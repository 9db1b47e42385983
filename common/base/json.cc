#include "common/base/json.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/json_error.h"
#include "common/base/status_macros.h"

namespace foretoken {
namespace {

// The most of a key that an error message quotes.
constexpr size_t kMaxShownBytes = 120;

// Builds the value from the parser's events. Each takes constant time, besides
// that of finding a key in its object; nlohmann's own parser with a callback
// looks at all members of the parent whenever an object ends.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(value);
  }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not of JSON
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    Json& object = *open_.back();
    if (limits_.unique_keys && object.contains(name)) {
      return Refuse(absl::StrCat(
          "names ",
          absl::CEscape(name.size() <= kMaxShownBytes
                            ? name
                            : name.substr(0, kMaxShownBytes) + "..."),
          " twice"));
    }
    member_ = &object[name];  // stays in place while others are added
    return true;
  }

  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return Refuse(JsonErrorText(error));
  }

  absl::StatusOr<Json> Finish() {
    if (!refusal_.empty()) return absl::InvalidArgumentError(refusal_);
    return std::move(root_);
  }

 private:
  bool Refuse(std::string why) {
    refusal_ = std::move(why);
    return false;
  }

  // Where the next value belongs: the end of the innermost array, or the member
  // whose key has been read.
  Json& Place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (!open_.back()->is_array()) return *member_ = std::move(value);
    return open_.back()->emplace_back(std::move(value));
  }

  bool Count() {
    if (++values_ <= limits_.max_values) return true;
    return Refuse(
        absl::StrCat("JSON of more than ", limits_.max_values, " values"));
  }

  bool Add(Json value) {
    const bool counts =
        !value.is_number() || open_.empty() || !open_.back()->is_array();
    if (counts && !Count()) return false;
    Place(std::move(value));
    return true;
  }

  bool Open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth) {
      return Refuse(absl::StrCat("JSON nested deeper than ", limits_.max_depth,
                                 " levels"));
    }
    if (!Count()) return false;
    open_.push_back(&Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  // The containers that have begun, outermost first. Only the last one grows,
  // so that the others stay where they are.
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // of open_.back(), if that is an object
  int64_t values_ = 0;
  std::string refusal_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text,
                               const JsonLimits& limits) {
  Builder builder(limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.Finish();
}

absl::StatusOr<Json> ReadJsonFile(const std::string& path) {
  FORETOKEN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<Json> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  return value;
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace foretoken
