// Python's operators over values. Errors are InvalidArgument, without a line.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_OPERATORS_H_
#define FORETOKEN_COMMON_TEXT_JINJA_OPERATORS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/value.h"

namespace foretoken::jinja {

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
  kNegate,
  kPlus,
};

// a == b.
absl::StatusOr<bool> Equal(Budget& budget, const Value& a, const Value& b);
// a < b.
absl::StatusOr<bool> Less(Budget& budget, const Value& a, const Value& b);
// `op`: kEqual to kNotIn.
absl::StatusOr<bool> Compare(Budget& budget, Op op, const Value& a,
                             const Value& b);
// `op`: kAdd to kPower.
absl::StatusOr<Value> Arithmetic(Budget& budget, Op op, const Value& a,
                                 const Value& b);
// `op`: kNegate or kPlus.
absl::StatusOr<Value> Unary(Op op, const Value& a);

// len(); InvalidArgument for a value without a length.
absl::StatusOr<int64_t> Length(Budget& budget, const Value& value);
// Values that a loop over the value visits: items, characters, keys. A
// generator is read.
absl::StatusOr<Values> Iterate(Budget& budget, const Value& value);

// object.name and object[key]: undefined if there is none. A method comes
// before a key of the same name in the first, after it in the second.
absl::StatusOr<Value> GetAttribute(Budget& budget, const Value& object,
                                   absl::string_view name);
absl::StatusOr<Value> GetItem(Budget& budget, const Value& object,
                              const Value& key);
// object[start:stop:step] of a string, list or tuple; None: left out.
absl::StatusOr<Value> GetSlice(Budget& budget, const Value& object,
                               const Value& start, const Value& stop,
                               const Value& step);

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_OPERATORS_H_
