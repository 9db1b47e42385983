#include "common/text/jinja/functions.h"

#include <ctime>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/utf8.h"

namespace foretoken::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;  // that of Jinja's sandbox
constexpr size_t kMaxTimeBytes = 1024;

// The mapping and the named arguments of dict() and namespace().
absl::StatusOr<Dict> CollectEntries(Budget& budget, absl::string_view callee,
                                    const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(callee, "() takes one positional argument"));
  }
  if (!arguments.positional.empty()) {
    const Value& mapping = arguments.positional[0];
    if (!mapping.Is(Value::Kind::kDict)) {
      return absl::InvalidArgumentError(
          absl::StrCat(callee, "() of a ", mapping.TypeName(),
                       " is not supported, want a dict"));
    }
    const Dict& given = mapping.dict();
    // Copying counts as work and memory of the template, so it is paid for
    // before it happens.
    FORETOKEN_RETURN_IF_ERROR(
        budget.Spend(static_cast<int64_t>(given.entries().size()) +
                         ByteSteps(given.key_bytes()),
                     given.key_bytes()));
    dict = given;
  }
  for (const auto& [name, value] : arguments.named) {
    FORETOKEN_RETURN_IF_ERROR(SetKey(budget, dict, Value::String(name), value));
  }
  return dict;
}

}  // namespace

bool IsFunction(absl::string_view name) {
  for (const char* known :
       {"raise_exception", "strftime_now", "range", "dict", "namespace"}) {
    if (name == known) return true;
  }
  return false;
}

// As Python, an empty format gives an empty text.
absl::StatusOr<Text> FormatTime(const Text& format, absl::Time time,
                                absl::TimeZone zone) {
  if (format.empty()) return Text();
  // strftime returns 0 for an error and for an empty result alike (%p in some
  // locales): the bar makes every result non-empty and is cut off again.
  const std::string pattern = format.bytes().substr(0, kMaxTimeBytes) + "|";
  const std::tm parts = absl::ToTM(time, zone);
  char buffer[kMaxTimeBytes];
  // A NUL would end the pattern early, and the rest would be ignored.
  const size_t size =
      pattern.size() > kMaxTimeBytes || pattern.find('\0') != std::string::npos
          ? 0
          : std::strftime(buffer, sizeof(buffer), pattern.c_str(), &parts);
  if (size == 0) {
    return absl::InvalidArgumentError("strftime_now() of such a format");
  }
  const absl::string_view text(buffer, size - 1);
  // A locale may have names in another encoding.
  if (!IsValidUtf8(text)) {
    return absl::InvalidArgumentError("strftime_now() of such a format");
  }
  // Text that a request brought stays marked as such: it must not become a
  // control token when it is encoded.
  return Text(text,
              format.FromRequest() ? Origin::kRequest : Origin::kTemplate);
}

absl::StatusOr<Value> MakeRange(Budget& budget, const Arguments& arguments) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("range", arguments, {"start", "stop", "step"}, 1));
  // Checked apart from Integer(), which takes None for an absent argument;
  // range(None) is an error.
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (!bound[i].IsInt()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", bound[i].TypeName(),
                       "' object cannot be interpreted as an integer"));
    }
  }
  FORETOKEN_ASSIGN_OR_RETURN(int64_t start, bound.Integer(0, 0));
  FORETOKEN_ASSIGN_OR_RETURN(int64_t stop, bound.Integer(1, 0));
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t step, bound.Integer(2, 1));
  // range(n) counts from 0 to n.
  if (!bound.Has(1)) stop = std::exchange(start, 0);
  if (step == 0) {
    return absl::InvalidArgumentError("range() arg 3 must not be zero");
  }
  Values numbers;
  int64_t at = start;
  while (step > 0 ? at < stop : at > stop) {
    // Tested before the number is added, so the list never exceeds the limit.
    if (static_cast<int64_t>(numbers.size()) == kMaxRange) {
      return absl::InvalidArgumentError(
          absl::StrCat("a range of more than ", kMaxRange, " numbers"));
    }
    numbers.push_back(Value::Integer(at));
    // The next number would be outside of int64, hence past the end.
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return MakeList(budget, std::move(numbers));
}

absl::StatusOr<Value> MakeDictionary(Budget& budget,
                                     const Arguments& arguments) {
  FORETOKEN_ASSIGN_OR_RETURN(Dict dict,
                             CollectEntries(budget, "dict", arguments));
  return MakeDict(budget, std::move(dict));
}

absl::StatusOr<Value> MakeNamespace(Budget& budget, Arena& arena,
                                    const Arguments& arguments) {
  FORETOKEN_ASSIGN_OR_RETURN(const Dict dict,
                             CollectEntries(budget, "namespace", arguments));
  // Attributes are searched one by one.
  const int64_t size = static_cast<int64_t>(dict.entries().size());
  FORETOKEN_RETURN_IF_ERROR(
      // Set searches all attributes so far: quadratic in their number.
      budget.Spend(1 + size * size, sizeof(Namespace) + 64 * size));
  Namespace* const ns = arena.NewNamespace();
  for (const auto& [key, value] : dict.entries()) {
    // Attributes are names; other keys could not be asked for.
    if (key.IsString()) ns->Set(key.text().bytes(), value);
  }
  return Value::Of(ns);
}

}  // namespace foretoken::jinja
