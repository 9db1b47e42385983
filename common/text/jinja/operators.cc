#include "common/text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/methods.h"
#include "common/text/jinja/unicode.h"

namespace foretoken::jinja {
namespace {

using Kind = Value::Kind;

absl::Status Unsupported(absl::string_view what, const Value& a,
                         const Value& b) {
  // A missing variable is named, which helps more than its type would.
  if (a.Is(Kind::kUndefined)) return a.UndefinedError();
  if (b.Is(Kind::kUndefined)) return b.UndefinedError();
  return absl::InvalidArgumentError(absl::StrCat("unsupported operands for ",
                                                 what, ": '", a.TypeName(),
                                                 "' and '", b.TypeName(), "'"));
}

absl::Status Overflow() {
  return absl::InvalidArgumentError("an integer does not fit 64 bits");
}

// The origin of a result: what a request had a part in is the request's, whose
// text may spell no control token.
Origin Both(const Value& a, const Value& b) {
  return a.origin() == Origin::kRequest ? a.origin() : b.origin();
}

absl::string_view Name(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kPlus:
      return "+";
    case Op::kSubtract:
    case Op::kNegate:
      return "-";
    case Op::kMultiply:
      return "*";
    case Op::kDivide:
      return "/";
    case Op::kFloorDivide:
      return "//";
    case Op::kModulo:
      return "%";
    case Op::kPower:
      return "**";
    default:
      return "a comparison";
  }
}

// Python's int ** int: a negative exponent gives a float. Its integers are
// unbounded; ours end in an error rather than wrap around.
absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent,
                                   Origin origin) {
  if (exponent < 0) {
    if (base == 0) return absl::InvalidArgumentError("division by zero");
    return Value::Float(
        std::pow(static_cast<double>(base), static_cast<double>(exponent)),
        origin);
  }
  // By squaring: the exponent may have 63 bits. The last square is not
  // computed, as it could overflow without being part of the result.
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
      return Overflow();
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      return Overflow();
    }
  }
  return Value::Integer(result, origin);
}

absl::StatusOr<Value> OfIntegers(Op op, int64_t a, int64_t b, Origin origin) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Op::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Op::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Op::kPower:
      return IntegerPower(a, b, origin);
    default:
      if (b == 0) return absl::InvalidArgumentError("division by zero");
      // A float even where the quotient is whole, as in Python.
      if (op == Op::kDivide) {
        return Value::Float(static_cast<double>(a) / static_cast<double>(b),
                            origin);
      }
      if (b == -1) {  // the quotient of the least integer overflows
        if (op == Op::kModulo) return Value::Integer(0, origin);
        overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      // Python rounds down; the remainder has the sign of the divisor.
      const bool adjust = a % b != 0 && ((a % b < 0) != (b < 0));
      result = op == Op::kModulo ? a % b + (adjust ? b : 0)
                                 : a / b - (adjust ? 1 : 0);
  }
  if (overflow) return Overflow();
  return Value::Integer(result, origin);
}

// Division by zero is an error in Python, not an infinity.
absl::StatusOr<Value> OfFloats(Op op, double a, double b, Origin origin) {
  switch (op) {
    case Op::kAdd:
      return Value::Float(a + b, origin);
    case Op::kSubtract:
      return Value::Float(a - b, origin);
    case Op::kMultiply:
      return Value::Float(a * b, origin);
    case Op::kPower: {
      if (a == 0 && b < 0) {
        return absl::InvalidArgumentError("division by zero");
      }
      // Python gives a complex number for a negative base and a fraction, where
      // pow gives NaN.
      const double power = std::pow(a, b);
      if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) {
        return absl::InvalidArgumentError("a power that is a complex number");
      }
      return Value::Float(power, origin);
    }
    default:
      break;
  }
  if (b == 0) return absl::InvalidArgumentError("division by zero");
  if (op == Op::kDivide) return Value::Float(a / b, origin);
  // As CPython computes it: fmod is exact but has the sign of `a`, where Python
  // wants that of `b`. The quotient comes from the remainder, so that both
  // belong together; it is near an integer, and floor may miss that by one.
  // Signs of zeros are Python's, too: they show in output as "-0.0".
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) {
    remainder += b;
    quotient -= 1;
  }
  if (remainder == 0) remainder = std::copysign(0.0, b);
  if (op == Op::kModulo) return Value::Float(remainder, origin);
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1;
  if (quotient == 0) floored = std::copysign(0.0, a / b);
  return Value::Float(floored, origin);
}

absl::StatusOr<Value> RepeatText(Budget& budget, const Text& text,
                                 int64_t times) {
  if (text.empty() || times == 0) return Value::String("");
  const size_t runs = text.runs().size();
  const size_t each =
      text.size() + (runs > 1 ? Text::kRunBytes * runs : size_t{0});
  // The product may overflow. Start with a size that every budget refuses and
  // that cannot overflow when the budget adds it up.
  size_t bytes = size_t{1} << 60;
  if (static_cast<uint64_t>(times) < bytes / each) {
    bytes = each * static_cast<size_t>(times);
  }
  // Twice the result: the powers of two that make it up are together as long.
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(0, 2 * bytes));
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(ByteSteps(bytes)));
  // By doubling, so that the time is that of copying the result.
  Text result;
  Text power = text;
  while (true) {
    if ((times & 1) != 0) result.Append(power);
    times >>= 1;
    if (times == 0) break;
    const Text half = power;
    power.Append(half);
  }
  return Value::String(std::move(result));
}

absl::StatusOr<Value> Repeat(Budget& budget, const Value& value,
                             int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (value.IsString()) return RepeatText(budget, value.text(), times);
  Values items;
  const Values& source = value.list().items();
  // Each turn of the loop must cost something, or 10**18 of them are free.
  if (source.empty()) times = 0;
  for (int64_t i = 0; i < times; ++i) {
    FORETOKEN_RETURN_IF_ERROR(
        budget.Spend(source.size(), sizeof(Value) * source.size()));
    items.insert(items.end(), source.begin(), source.end());
  }
  return value.Is(Kind::kList) ? MakeList(budget, std::move(items))
                               : MakeTuple(budget, std::move(items));
}

absl::StatusOr<Value> Concatenate(Budget& budget, const Value& a,
                                  const Value& b) {
  if (a.IsString()) {
    TextBuilder out(budget);
    out.Append(a.text());
    out.Append(b.text());
    return out.FinishValue();
  }
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(
      0, sizeof(Value) * (a.list().items().size() + b.list().items().size())));
  // Paid for above: without room there is no copy.
  Values items = a.list().items();
  items.insert(items.end(), b.list().items().begin(), b.list().items().end());
  return a.Is(Kind::kList) ? MakeList(budget, std::move(items))
                           : MakeTuple(budget, std::move(items));
}

absl::StatusOr<bool> EqualLists(Budget& budget, const Values& a,
                                const Values& b) {
  // The recursion is bounded: no value nests deeper than kMaxNesting.
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool equal, Equal(budget, a[i], b[i]));
    if (!equal) return false;
  }
  return true;
}

// Equal keys and values in any order, as in Python; hashed, so O(n).
absl::StatusOr<bool> EqualDicts(Budget& budget, const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    FORETOKEN_ASSIGN_OR_RETURN(const Value* const other,
                               FindKey(budget, b, key));
    if (other == nullptr) return false;
    FORETOKEN_ASSIGN_OR_RETURN(const bool equal, Equal(budget, value, *other));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> Contains(Budget& budget, const Value& container,
                              const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.IsString()) {
        if (item.Is(Kind::kUndefined)) return item.UndefinedError();
        return absl::InvalidArgumentError(
            absl::StrCat("'in <string>' requires string as left operand, not ",
                         item.TypeName()));
      }
      FORETOKEN_RETURN_IF_ERROR(budget.Spend(
          SearchSteps(container.text().size(), item.text().size())));
      // Bytes suffice: in UTF-8 a match always begins at a character.
      return absl::StrContains(container.text().bytes(), item.text().bytes());
    case Kind::kDict: {
      FORETOKEN_ASSIGN_OR_RETURN(const Value* const found,
                                 FindKey(budget, container.dict(), item));
      return found != nullptr;
    }
    default:
      break;
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Values items, Iterate(budget, container));
  for (const Value& known : items) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool equal, Equal(budget, known, item));
    if (equal) return true;
  }
  return false;
}

// Python's index into `size` items, negative ones counted from the end; -1 if
// it lies outside.
int64_t Place(int64_t index, int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size ? index : -1;
}

// Two scans: one counts the characters, one finds the offset. Texts keep no
// table of characters.
absl::StatusOr<Value> Character(Budget& budget, const Text& text,
                                int64_t index) {
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(2 * ByteSteps(text.size())));
  const auto size = static_cast<int64_t>(CountCharacters(text.bytes()));
  const int64_t at = Place(index, size);
  if (at < 0) return Value::Undefined("string index out of range");
  return MakeString(budget, text.Slice(CharacterOffset(text.bytes(), at),
                                       CharacterOffset(text.bytes(), at + 1)));
}

// The indices that a slice visits: from, from + by, ... before `to`, of `size`
// items.
std::vector<int64_t> SlicePlaces(int64_t from, int64_t to, int64_t by,
                                 int64_t size) {
  std::vector<int64_t> places;
  for (int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    places.push_back(i);
    if (by > size || by < -size) break;  // the sum might overflow
  }
  return places;
}

// A method that remembers its object. It nests like a list of one value: a
// chain of methods of methods must not get deeper than destructors can recurse.
absl::StatusOr<Value> MakeMethod(Budget& budget, const Value& object,
                                 absl::string_view name) {
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(0, sizeof(Callable)));
  if (object.nesting() >= Value::kMaxNesting) {
    return absl::InvalidArgumentError("values nested too deep");
  }
  return Value::Of(std::make_shared<const Callable>(
      Callable{nullptr, object, std::string(name), /*method=*/true}));
}

// Undefined rather than an error, as in jinja2: templates test what is missing
// with `is defined`, and only its use fails.
Value NoSuch(const Value& object, absl::string_view name) {
  return Value::Undefined(absl::StrCat(
      "'", object.TypeName(), " object' has no attribute '", Shown(name), "'"));
}

absl::StatusOr<Value> LoopAttribute(Budget& budget, const Value& object,
                                    absl::string_view name) {
  // revindex counts down to 1, revindex0 to 0 (jinja2's LoopContext).
  const LoopState& loop = object.loop();
  const int64_t size = static_cast<int64_t>(loop.items().size());
  const int64_t index = static_cast<int64_t>(loop.index());
  if (name == "index") return Value::Integer(index + 1);
  if (name == "index0") return Value::Integer(index);
  if (name == "revindex") return Value::Integer(size - index);
  if (name == "revindex0") return Value::Integer(size - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == size);
  if (name == "length") return Value::Integer(size);
  if (name == "depth") return Value::Integer(1);  // no recursive loops
  if (name == "depth0") return Value::Integer(0);
  if (name == "previtem") {
    if (index == 0) return Value::Undefined("there is no previous item");
    return loop.items()[index - 1];
  }
  if (name == "nextitem") {
    if (index + 1 >= size) return Value::Undefined("there is no next item");
    return loop.items()[index + 1];
  }
  if (name == "cycle") return MakeMethod(budget, object, name);
  if (name == "changed") {
    return absl::InvalidArgumentError("loop.changed is not supported");
  }
  return NoSuch(object, name);
}

}  // namespace

absl::StatusOr<bool> Equal(Budget& budget, const Value& a, const Value& b) {
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(1));
  // Integers apart: those above 2^53 differ where their doubles do not.
  if (a.IsInt() && b.IsInt()) return a.integer() == b.integer();
  if (a.IsNumber() && b.IsNumber()) return a.number() == b.number();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      FORETOKEN_RETURN_IF_ERROR(budget.Spend(a.text().size() / 256));
      return a.text().bytes() == b.text().bytes();
    case Kind::kList:
    case Kind::kTuple:
      return EqualLists(budget, a.list().items(), b.list().items());
    case Kind::kDict:
      return EqualDicts(budget, a.dict(), b.dict());
    // Objects without a value of their own are equal to themselves alone.
    case Kind::kNamespace:
      return a.ns() == b.ns();
    case Kind::kLoop:
      return &a.loop() == &b.loop();
    case Kind::kGenerator:
      return &a.generator() == &b.generator();
    default:
      return a.Is(Kind::kCallable) && &a.callable() == &b.callable();
  }
}

absl::StatusOr<bool> Less(Budget& budget, const Value& a, const Value& b) {
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(1));
  if (a.IsInt() && b.IsInt()) return a.integer() < b.integer();
  if (a.IsNumber() && b.IsNumber()) return a.number() < b.number();
  if (a.IsString() && b.IsString()) {
    FORETOKEN_RETURN_IF_ERROR(budget.Spend(a.text().size() / 256));
    // The order of UTF-8 is that of code points.
    return a.text().bytes() < b.text().bytes();
  }
  if (!a.IsSequence() || a.kind() != b.kind()) {
    return Unsupported("a comparison", a, b);
  }
  const Values& left = a.list().items();
  const Values& right = b.list().items();
  // Python looks for the first items that differ with ==, and orders by those
  // alone: items before them need no order.
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool equal,
                               Equal(budget, left[i], right[i]));
    if (!equal) return Less(budget, left[i], right[i]);
  }
  return left.size() < right.size();
}

absl::StatusOr<bool> Compare(Budget& budget, Op op, const Value& a,
                             const Value& b) {
  const auto inverted = [](absl::StatusOr<bool> result) {
    if (result.ok()) result = !*result;
    return result;
  };
  const bool numbers = a.IsNumber() && b.IsNumber();
  switch (op) {
    case Op::kEqual:
      return Equal(budget, a, b);
    case Op::kNotEqual:
      return inverted(Equal(budget, a, b));
    case Op::kLess:
      return Less(budget, a, b);
    case Op::kGreater:
      return Less(budget, b, a);
    case Op::kLessEqual:
      // Not the inverse of > for NaN, for which both are false.
      if (numbers) return a.number() <= b.number();
      return inverted(Less(budget, b, a));
    case Op::kGreaterEqual:
      if (numbers) return a.number() >= b.number();
      return inverted(Less(budget, a, b));
    case Op::kIn:
      return Contains(budget, b, a);
    default:
      return inverted(Contains(budget, b, a));
  }
}

absl::StatusOr<Value> Arithmetic(Budget& budget, Op op, const Value& a,
                                 const Value& b) {
  if (a.IsInt() && b.IsInt()) {
    return OfIntegers(op, a.integer(), b.integer(), Both(a, b));
  }
  if (a.IsNumber() && b.IsNumber()) {
    return OfFloats(op, a.number(), b.number(), Both(a, b));
  }
  if (op == Op::kAdd && a.kind() == b.kind() &&
      (a.IsString() || a.IsSequence())) {
    return Concatenate(budget, a, b);
  }
  if (op == Op::kMultiply) {
    if (b.IsInt() && (a.IsString() || a.IsSequence())) {
      return Repeat(budget, a, b.integer());
    }
    if (a.IsInt() && (b.IsString() || b.IsSequence())) {
      return Repeat(budget, b, a.integer());
    }
  }
  return Unsupported(Name(op), a, b);
}

absl::StatusOr<Value> Unary(Op op, const Value& a) {
  if (a.Is(Kind::kUndefined)) return a.UndefinedError();
  if (!a.IsNumber()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "bad operand type for unary ", Name(op), ": '", a.TypeName(), "'"));
  }
  if (a.Is(Kind::kFloat)) {
    return Value::Float(op == Op::kNegate ? -a.number() : a.number(),
                        a.origin());
  }
  if (op == Op::kPlus) return Value::Integer(a.integer(), a.origin());
  // A subtraction, which notices that the lowest integer has no negative.
  return OfIntegers(Op::kSubtract, 0, a.integer(), a.origin());
}

absl::StatusOr<int64_t> Length(Budget& budget, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      FORETOKEN_RETURN_IF_ERROR(budget.Spend(ByteSteps(value.text().size())));
      return static_cast<int64_t>(CountCharacters(value.text().bytes()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.list().items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries().size());
    case Kind::kLoop:
      return static_cast<int64_t>(value.loop().items().size());
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("object of type '", value.TypeName(), "' has no len()"));
  }
}

absl::StatusOr<Values> Iterate(Budget& budget, const Value& value) {
  Values items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kList:
    case Kind::kTuple:
      FORETOKEN_RETURN_IF_ERROR(
          budget.Spend(0, sizeof(Value) * value.list().items().size()));
      return value.list().items();
    case Kind::kDict:
      FORETOKEN_RETURN_IF_ERROR(
          budget.Spend(0, sizeof(Value) * value.dict().entries().size()));
      for (const auto& entry : value.dict().entries()) {
        items.push_back(entry.first);
      }
      return items;
    // Once, as in Python: a second loop over it finds nothing.
    case Kind::kGenerator:
      return value.generator().Take();
    case Kind::kString: {
      const Text& text = value.text();
      FORETOKEN_RETURN_IF_ERROR(
          budget.Spend(ByteSteps(text.size()), sizeof(size_t) * text.size()));
      const std::vector<size_t> offsets = CharacterOffsets(text.bytes());
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        FORETOKEN_RETURN_IF_ERROR(budget.Spend(1, 2 * sizeof(Text)));
        items.push_back(Value::String(text.Slice(offsets[i], offsets[i + 1])));
      }
      return items;
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("'", value.TypeName(), "' object is not iterable"));
  }
}

absl::StatusOr<Value> GetAttribute(Budget& budget, const Value& object,
                                   absl::string_view name) {
  switch (object.kind()) {
    case Kind::kUndefined:
      return object.UndefinedError();
    case Kind::kLoop:
      return LoopAttribute(budget, object, name);
    case Kind::kNamespace: {
      FORETOKEN_RETURN_IF_ERROR(
          budget.Spend(NameSteps(object.ns()->attributes.size())));
      const Value* const found = object.ns()->Find(name);
      return found != nullptr ? *found : NoSuch(object, name);
    }
    default:
      break;
  }
  // The rules of jinja2's sandbox: attributes of Python's own machinery are
  // undefined, whatever the object.
  if (absl::StartsWith(name, "__")) {
    return Value::Undefined(
        absl::StrCat("access to attribute '", Shown(name), "' is unsafe"));
  }
  switch (FindMethod(object, name)) {
    case MethodAccess::kAllowed:
      return MakeMethod(budget, object, name);
    case MethodAccess::kUnsafe:
      return Value::Undefined(absl::StrCat("access to attribute '", name,
                                           "' of '", object.TypeName(),
                                           "' object is unsafe"));
    case MethodAccess::kNone:
      break;
  }
  // Methods first: `message.items` is a method even of a dict with that key,
  // while `message['items']` (GetItem) is the key's value.
  if (object.Is(Kind::kDict)) {
    FORETOKEN_ASSIGN_OR_RETURN(const Value* const found,
                               FindKey(budget, object.dict(), name));
    if (found != nullptr) return *found;
  }
  return NoSuch(object, name);
}

absl::StatusOr<Value> GetItem(Budget& budget, const Value& object,
                              const Value& key) {
  if (object.Is(Kind::kUndefined)) return object.UndefinedError();
  if (object.Is(Kind::kDict)) {
    FORETOKEN_ASSIGN_OR_RETURN(const Value* const found,
                               FindKey(budget, object.dict(), key));
    if (found != nullptr) return *found;
  } else if (key.IsInt() && object.IsSequence()) {
    const Values& items = object.list().items();
    const int64_t at = Place(key.integer(), static_cast<int64_t>(items.size()));
    if (at < 0) return Value::Undefined("list index out of range");
    return items[at];
  } else if (key.IsInt() && object.IsString()) {
    return Character(budget, object.text(), key.integer());
  }
  if (key.IsString()) return GetAttribute(budget, object, key.text().bytes());
  return Value::Undefined(
      absl::StrCat("'", object.TypeName(), " object' has no such element"));
}

absl::StatusOr<Value> GetSlice(Budget& budget, const Value& object,
                               const Value& start, const Value& stop,
                               const Value& step) {
  if (object.Is(Kind::kUndefined)) return object.UndefinedError();
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->Is(Kind::kNone) && !bound->IsInt()) {
      return Value::Undefined("slice indices must be integers or None");
    }
  }
  if (!object.IsString() && !object.IsSequence()) {
    return Value::Undefined(
        absl::StrCat("'", object.TypeName(), " object' has no slices"));
  }
  const int64_t by = step.Is(Kind::kNone) ? 1 : step.integer();
  if (by == 0) return absl::InvalidArgumentError("slice step cannot be zero");
  FORETOKEN_ASSIGN_OR_RETURN(const int64_t size, Length(budget, object));
  const auto clamp = [&](const Value& bound, int64_t otherwise) {
    if (bound.Is(Kind::kNone)) return otherwise;
    int64_t at = bound.integer();
    if (at < 0) at += size;
    // -1 is the place before the first, where a slice that runs backwards
    // ends; a negative index was resolved above.
    return std::clamp<int64_t>(at, by < 0 ? -1 : 0, by < 0 ? size - 1 : size);
  };
  const int64_t from = clamp(start, by < 0 ? size - 1 : 0);
  const int64_t to = clamp(stop, by < 0 ? -1 : size);
  if (object.IsString()) {
    const Text& text = object.text();
    TextBuilder out(budget);
    if (by == 1) {
      FORETOKEN_RETURN_IF_ERROR(budget.Spend(2 * ByteSteps(text.size())));
      if (from < to) {
        out.Append(text, CharacterOffset(text.bytes(), from),
                   CharacterOffset(text.bytes(), to));
      }
      return out.FinishValue();
    }
    // Offsets and places.
    FORETOKEN_RETURN_IF_ERROR(
        budget.Spend(CharacterSteps(text.size()), 2 * sizeof(size_t) * size));
    const std::vector<size_t> offsets = CharacterOffsets(text.bytes());
    for (const int64_t i : SlicePlaces(from, to, by, size)) {
      if (!out.Append(text, offsets[i], offsets[i + 1])) break;
    }
    return out.FinishValue();
  }
  FORETOKEN_RETURN_IF_ERROR(
      budget.Spend(0, (sizeof(size_t) + sizeof(Value)) * size));
  Values items;
  for (const int64_t i : SlicePlaces(from, to, by, size)) {
    items.push_back(object.list().items()[i]);
  }
  return object.Is(Kind::kList) ? MakeList(budget, std::move(items))
                                : MakeTuple(budget, std::move(items));
}

}  // namespace foretoken::jinja
