// Value: what an expression of a template yields, as Python has it.
//
// A value is small; strings and containers are shared and never change once
// made. Namespaces and macros, which may form cycles, belong to an Arena
// (arena.h), to which values only point. Containers nest at most
// kMaxNesting levels, which bounds every recursion over a value.
//
// Scalars carry an Origin as strings do: a number of the request stays text of
// the request when it is printed. Thread-compatible.
#ifndef FORETOKEN_COMMON_TEXT_JINJA_VALUE_H_
#define FORETOKEN_COMMON_TEXT_JINJA_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/text.h"

namespace foretoken::jinja {

class Dict;
class Generator;
class List;
class LoopState;
struct Callable;
struct Macro;
struct Namespace;

class Value {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInteger,
    kFloat,
    kString,
    kList,
    kTuple,
    kDict,
    kGenerator,  // the items of a lazy filter, which are read once
    kNamespace,
    kLoop,
    kCallable,
  };
  static constexpr int kMaxNesting = 100;

  // Undefined; `why` is the message of an error that comes of it, such as
  // "'x' is undefined".
  Value() = default;
  static Value Undefined(absl::string_view why);
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value, Origin origin = Origin::kTemplate);
  static Value Integer(int64_t value, Origin origin = Origin::kTemplate);
  static Value Float(double value, Origin origin = Origin::kTemplate);
  static Value String(Text text);
  static Value String(absl::string_view text) { return String(Text(text)); }
  static Value Of(std::shared_ptr<const List> list);  // a list
  static Value Tuple(std::shared_ptr<const List> list);
  static Value Of(std::shared_ptr<const Dict> dict);
  static Value Of(std::shared_ptr<Generator> generator);
  static Value Of(std::shared_ptr<LoopState> loop);
  static Value Of(std::shared_ptr<const Callable> callable);
  static Value Of(Namespace* ns);

  Kind kind() const { return kind_; }
  Origin origin() const { return origin_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsString() const { return kind_ == Kind::kString; }
  // A Python int: booleans are.
  bool IsInt() const { return kind_ == Kind::kInteger || Is(Kind::kBool); }
  bool IsNumber() const { return IsInt() || Is(Kind::kFloat); }
  bool IsSequence() const { return Is(Kind::kList) || Is(Kind::kTuple); }

  // Each is defined for its own kind only.
  int64_t integer() const { return std::get<int64_t>(data_); }  // and kBool
  double number() const {  // of every number
    return Is(Kind::kFloat) ? std::get<double>(data_)
                            : static_cast<double>(integer());
  }
  const Text& text() const {
    return *std::get<std::shared_ptr<const Text>>(data_);
  }
  const List& list() const {  // and kTuple
    return *std::get<std::shared_ptr<const List>>(data_);
  }
  const Dict& dict() const {
    return *std::get<std::shared_ptr<const Dict>>(data_);
  }
  Generator& generator() const {
    return *std::get<std::shared_ptr<Generator>>(data_);
  }
  const LoopState& loop() const {
    return *std::get<std::shared_ptr<LoopState>>(data_);
  }
  const Callable& callable() const {
    return *std::get<std::shared_ptr<const Callable>>(data_);
  }
  Namespace* ns() const { return std::get<Namespace*>(data_); }

  bool Truthy() const;
  // Levels of containers: 0 for a scalar.
  int nesting() const;
  // Python's name of the type.
  absl::string_view TypeName() const;
  // The error of an operation on an undefined value.
  absl::Status UndefinedError() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  template <typename T>
  Value(Kind kind, T data) : kind_(kind), data_(std::move(data)) {}

  Kind kind_ = Kind::kUndefined;
  Origin origin_ = Origin::kTemplate;
  std::variant<std::monostate, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               std::shared_ptr<Generator>, std::shared_ptr<LoopState>,
               std::shared_ptr<const Callable>, Namespace*>
      data_;
};

using Values = std::vector<Value>;

class List {
 public:
  explicit List(Values items);
  const Values& items() const { return items_; }
  int nesting() const { return nesting_; }

 private:
  Values items_;
  int nesting_ = 1;
};

// Entries in the order of insertion. Keys are strings, numbers or None.
class Dict {
 public:
  // Replaces the value of a key that is there, keeping its place.
  // InvalidArgument for a key that Python could not hash.
  absl::Status Set(Value key, Value value);
  // nullptr: none.
  const Value* Find(absl::string_view key) const;
  const Value* Find(const Value& key) const;

  const std::vector<std::pair<Value, Value>>& entries() const {
    return entries_;
  }
  int nesting() const { return nesting_; }
  // The index's copy of the keys' text.
  size_t key_bytes() const { return key_bytes_; }

 private:
  std::vector<std::pair<Value, Value>> entries_;
  // Canonical form of the key -> index of entries_.
  absl::flat_hash_map<std::string, size_t> index_;
  int nesting_ = 1;
  size_t key_bytes_ = 0;
};

class Generator {
 public:
  explicit Generator(Values items);
  // Returns the items that were not read yet; there are none afterwards.
  Values Take() { return std::exchange(items_, {}); }
  int nesting() const { return nesting_; }

 private:
  Values items_;
  int nesting_ = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* Find(absl::string_view name) const;
  void Set(absl::string_view name, Value value);
};

// The variable `loop`.
class LoopState {
 public:
  explicit LoopState(std::shared_ptr<const List> items)
      : items_(std::move(items)) {}
  const Values& items() const { return items_->items(); }
  size_t index() const { return index_; }
  void Advance() { ++index_; }
  int nesting() const { return items_->nesting() + 1; }

 private:
  const std::shared_ptr<const List> items_;
  size_t index_ = 0;
};

// A macro, a method bound to a value, or a global function.
struct Callable {
  const Macro* macro = nullptr;
  Value receiver;    // of a method
  std::string name;  // of a method or function
  bool method = false;
};

// Dict::Find and Dict::Set at the cost of a budget: keys are hashed and copied.
absl::StatusOr<const Value*> FindKey(Budget& budget, const Dict& dict,
                                     absl::string_view key);
absl::StatusOr<const Value*> FindKey(Budget& budget, const Dict& dict,
                                     const Value& key);
absl::Status SetKey(Budget& budget, Dict& dict, Value key, Value value);

// The beginning of a text for an error message, which may be made for every
// item of a loop.
absl::string_view Shown(absl::string_view text);

// Makes containers at the cost of a budget; InvalidArgument if it is spent or
// the values nest too deep.
absl::StatusOr<Value> MakeString(Budget& budget, Text text);
absl::StatusOr<Value> MakeList(Budget& budget, Values items);
absl::StatusOr<Value> MakeTuple(Budget& budget, Values items);
absl::StatusOr<Value> MakeGenerator(Budget& budget, Values items);
absl::StatusOr<Value> MakeDict(Budget& budget, Dict dict);

// Text that is made piece by piece: bytes beyond the budget are dropped, and
// Finish returns the error.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}
  // False once the budget is spent.
  bool Append(absl::string_view bytes, Origin origin) {
    if (budget_.SpendQuietly(0, bytes.size())) text_.Append(bytes, origin);
    return SpendRuns();
  }
  bool Append(const Text& text) { return Append(text, 0, text.size()); }
  bool Append(const Text& text, size_t begin, size_t end) {
    if (budget_.SpendQuietly(0, end - begin)) text_.Append(text, begin, end);
    return SpendRuns();
  }
  size_t size() const { return text_.size(); }
  absl::StatusOr<Text> Finish() {
    if (budget_.exhausted()) return budget_.status();
    return std::move(text_);
  }
  absl::StatusOr<Value> FinishValue() {
    if (budget_.exhausted()) return budget_.status();
    return Value::String(std::move(text_));
  }

 private:
  // A text of alternating origin takes more for its runs than for its bytes.
  bool SpendRuns() {
    const size_t runs = text_.runs().size();
    return budget_.SpendQuietly(
        0, Text::kRunBytes * (runs - std::exchange(paid_runs_, runs)));
  }

  Budget& budget_;
  Text text_;
  size_t paid_runs_ = 0;
};

}  // namespace foretoken::jinja

#endif  // FORETOKEN_COMMON_TEXT_JINJA_VALUE_H_
