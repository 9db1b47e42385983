// Arguments of a call: positional ones, then named ones.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_ARGUMENTS_H_
#define FORETOKEN_COMMON_TEXT_JINJA_ARGUMENTS_H_

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;

  // nullptr: none.
  const Value* Named(absl::string_view name) const;
};

// The arguments of a callee whose parameters have names, in their order.
class BoundArguments {
 public:
  // InvalidArgument for too many arguments, unknown names, and a parameter
  // before `required` without a value.
  static absl::StatusOr<BoundArguments> Bind(
      absl::string_view callee, const Arguments& arguments,
      std::initializer_list<absl::string_view> names, size_t required = 0);

  bool Has(size_t i) const { return values_[i] != nullptr; }
  // Undefined if there is none.
  const Value& operator[](size_t i) const;
  bool Flag(size_t i, bool otherwise) const {
    return Has(i) ? values_[i]->Truthy() : otherwise;
  }
  // InvalidArgument unless it is an integer, or a string; None counts as
  // absent.
  absl::StatusOr<int64_t> Integer(size_t i, int64_t otherwise) const;
  absl::StatusOr<const Text*> String(size_t i) const;

 private:
  std::string callee_;
  std::vector<const Value*> values_;  // nullptr: not given
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_ARGUMENTS_H_
