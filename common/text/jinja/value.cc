#include "common/text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace foretoken::jinja {
namespace {

// Approximate memory of an entry of a list and of a dict (with its index),
// allocator overhead included; charged to the budget.
constexpr size_t kEntryBytes = 64;
constexpr size_t kKeyBytes = 160;
// Maximum bytes of a text that an error message quotes.
constexpr size_t kMaxShownBytes = 100;

absl::Status CheckNesting(int nesting) {
  if (nesting <= Value::kMaxNesting) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("values nested deeper than ", Value::kMaxNesting));
}

// Computed once, when a container is made: checking it then bounds the
// recursion of every later walk, such as printing or comparing.
int NestingAround(const Values& items) {
  int nesting = 1;
  for (const Value& item : items) {
    nesting = std::max(nesting, item.nesting() + 1);
  }
  return nesting;
}

// A string that is equal for keys that Python takes for equal: 1, 1.0 and True
// share "i1". The first letter keeps types apart. Empty for keys that cannot be
// hashed.
std::string CanonicalKey(const Value& key) {
  switch (key.kind()) {
    case Value::Kind::kNone:
      return "n";
    case Value::Kind::kBool:
    case Value::Kind::kInteger:
      return absl::StrCat("i", key.integer());
    case Value::Kind::kFloat: {
      const double number = key.number();
      // Whole numbers below 2^53 convert exactly. Above 1e15 a float gets its
      // own spelling, 17 digits, which identify any double.
      if (number == std::floor(number) && std::abs(number) < 1e15) {
        return absl::StrCat("i", static_cast<int64_t>(number));
      }
      return absl::StrFormat("f%.17g", number);
    }
    case Value::Kind::kString:
      return absl::StrCat("s", key.text().bytes());
    default:
      return "";
  }
}

absl::StatusOr<std::shared_ptr<const List>> NewList(Budget& budget,
                                                    Values items) {
  FORETOKEN_RETURN_IF_ERROR(
      budget.Spend(items.size(), kEntryBytes * (items.size() + 1)));
  auto list = std::make_shared<const List>(std::move(items));
  FORETOKEN_RETURN_IF_ERROR(CheckNesting(list->nesting()));
  return list;
}

}  // namespace

Value Value::Undefined(absl::string_view why) {
  return Value(Kind::kUndefined, std::make_shared<const Text>(why));
}

Value Value::Bool(bool value, Origin origin) {
  Value result(Kind::kBool, int64_t{value});
  result.origin_ = origin;
  return result;
}

Value Value::Integer(int64_t value, Origin origin) {
  Value result(Kind::kInteger, value);
  result.origin_ = origin;
  return result;
}

Value Value::Float(double value, Origin origin) {
  Value result(Kind::kFloat, value);
  result.origin_ = origin;
  return result;
}

Value Value::String(Text text) {
  return Value(Kind::kString, std::make_shared<const Text>(std::move(text)));
}

Value Value::Of(std::shared_ptr<const List> list) {
  return Value(Kind::kList, std::move(list));
}

Value Value::Tuple(std::shared_ptr<const List> list) {
  return Value(Kind::kTuple, std::move(list));
}

Value Value::Of(std::shared_ptr<const Dict> dict) {
  return Value(Kind::kDict, std::move(dict));
}

Value Value::Of(std::shared_ptr<Generator> generator) {
  return Value(Kind::kGenerator, std::move(generator));
}

Value Value::Of(std::shared_ptr<LoopState> loop) {
  return Value(Kind::kLoop, std::move(loop));
}

Value Value::Of(std::shared_ptr<const Callable> callable) {
  return Value(Kind::kCallable, std::move(callable));
}

Value Value::Of(Namespace* ns) { return Value(Kind::kNamespace, ns); }

bool Value::Truthy() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
      return integer() != 0;
    case Kind::kFloat:
      return number() != 0;
    case Kind::kString:
      return !text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !list().items().empty();
    case Kind::kDict:
      return !dict().entries().empty();
    default:
      return true;
  }
}

int Value::nesting() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple:
      return list().nesting();
    case Kind::kDict:
      return dict().nesting();
    case Kind::kGenerator:
      return generator().nesting();
    case Kind::kCallable:
      return callable().receiver.nesting() + 1;
    case Kind::kLoop:
      return loop().nesting();
    default:
      return 0;
  }
}

absl::string_view Value::TypeName() const {
  switch (kind_) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInteger:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kGenerator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCallable:
      return "function";
  }
  return "";
}

absl::Status Value::UndefinedError() const {
  const auto* why = std::get_if<std::shared_ptr<const Text>>(&data_);
  return absl::InvalidArgumentError(why == nullptr ? "a value is undefined"
                                                   : (*why)->bytes());
}

List::List(Values items)
    : items_(std::move(items)), nesting_(NestingAround(items_)) {}

Generator::Generator(Values items)
    : items_(std::move(items)), nesting_(NestingAround(items_)) {}

absl::Status Dict::Set(Value key, Value value) {
  std::string canonical = CanonicalKey(key);
  if (canonical.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a key of a dict cannot be of type ", key.TypeName()));
  }
  // Never lowered again where a value is replaced: an upper bound is enough.
  nesting_ = std::max(nesting_, value.nesting() + 1);
  const size_t bytes = canonical.size();
  const auto [entry, is_new] =
      index_.emplace(std::move(canonical), entries_.size());
  if (is_new) {
    key_bytes_ += bytes;
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    // As in Python, the first key stays, and its place in the order.
    entries_[entry->second].second = std::move(value);
  }
  return absl::OkStatus();
}

const Value* Dict::Find(absl::string_view key) const {
  const auto entry = index_.find(absl::StrCat("s", key));
  return entry == index_.end() ? nullptr : &entries_[entry->second].second;
}

const Value* Dict::Find(const Value& key) const {
  const auto entry = index_.find(CanonicalKey(key));
  return entry == index_.end() ? nullptr : &entries_[entry->second].second;
}

const Value* Namespace::Find(absl::string_view name) const {
  for (const auto& [known, value] : attributes) {
    if (known == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(absl::string_view name, Value value) {
  for (auto& [known, old] : attributes) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

absl::StatusOr<const Value*> FindKey(Budget& budget, const Dict& dict,
                                     absl::string_view key) {
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(ByteSteps(key.size())));
  return dict.Find(key);
}

absl::StatusOr<const Value*> FindKey(Budget& budget, const Dict& dict,
                                     const Value& key) {
  FORETOKEN_RETURN_IF_ERROR(
      budget.Spend(key.IsString() ? ByteSteps(key.text().size()) : 0));
  return dict.Find(key);
}

absl::Status SetKey(Budget& budget, Dict& dict, Value key, Value value) {
  const size_t bytes = key.IsString() ? key.text().size() : 0;
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(ByteSteps(bytes), bytes));
  return dict.Set(std::move(key), std::move(value));
}

absl::string_view Shown(absl::string_view text) {
  if (text.size() <= kMaxShownBytes) return text;
  size_t end = kMaxShownBytes;
  // Not in the middle of a character: messages are UTF-8.
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

absl::StatusOr<Value> MakeString(Budget& budget, Text text) {
  FORETOKEN_RETURN_IF_ERROR(
      budget.Spend(0, text.size() + Text::kRunBytes * text.runs().size()));
  return Value::String(std::move(text));
}

absl::StatusOr<Value> MakeList(Budget& budget, Values items) {
  FORETOKEN_ASSIGN_OR_RETURN(auto list, NewList(budget, std::move(items)));
  return Value::Of(std::move(list));
}

absl::StatusOr<Value> MakeTuple(Budget& budget, Values items) {
  FORETOKEN_ASSIGN_OR_RETURN(auto list, NewList(budget, std::move(items)));
  return Value::Tuple(std::move(list));
}

absl::StatusOr<Value> MakeGenerator(Budget& budget, Values items) {
  FORETOKEN_RETURN_IF_ERROR(
      budget.Spend(items.size(), kEntryBytes * (items.size() + 1)));
  auto generator = std::make_shared<Generator>(std::move(items));
  FORETOKEN_RETURN_IF_ERROR(CheckNesting(generator->nesting()));
  return Value::Of(std::move(generator));
}

absl::StatusOr<Value> MakeDict(Budget& budget, Dict dict) {
  const size_t size = dict.entries().size();
  FORETOKEN_RETURN_IF_ERROR(budget.Spend(size, kKeyBytes * (size + 1)));
  FORETOKEN_RETURN_IF_ERROR(CheckNesting(dict.nesting()));
  return Value::Of(std::make_shared<const Dict>(std::move(dict)));
}

}  // namespace foretoken::jinja
