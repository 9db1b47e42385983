#include "common/text/jinja/methods.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/operators.h"
#include "common/text/jinja/string_methods.h"

namespace foretoken::jinja {
namespace {

using Kind = Value::Kind;
using Names = std::initializer_list<absl::string_view>;

// All methods of Python's types, served or not: a name among them is never the
// key of a dict or undefined, as in jinja2. Those of the unsafe lists change
// their object, which its sandbox (ImmutableSandboxedEnvironment) forbids.
constexpr Names kStringMethods = {
    "capitalize", "casefold",   "center",       "count",        "encode",
    "endswith",   "expandtabs", "find",         "format",       "format_map",
    "index",      "isalnum",    "isalpha",      "isascii",      "isdecimal",
    "isdigit",    "islower",    "isidentifier", "isnumeric",    "isprintable",
    "isspace",    "istitle",    "isupper",      "join",         "ljust",
    "lower",      "lstrip",     "maketrans",    "partition",    "removeprefix",
    "replace",    "rfind",      "rindex",       "removesuffix", "rjust",
    "rpartition", "rsplit",     "rstrip",       "split",        "splitlines",
    "startswith", "strip",      "swapcase",     "title",        "translate",
    "upper",      "zfill"};
constexpr Names kDictMethods = {"copy",  "fromkeys", "get",
                                "items", "keys",     "values"};
constexpr Names kDictUnsafe = {"clear", "pop", "popitem", "setdefault",
                               "update"};
constexpr Names kListMethods = {"copy", "count", "index"};
constexpr Names kListUnsafe = {"append", "clear",  "extend",  "insert",
                               "pop",    "remove", "reverse", "sort"};
constexpr Names kTupleMethods = {"count", "index"};

bool Has(Names names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

MethodAccess Find(Names allowed, Names unsafe, absl::string_view name) {
  if (Has(allowed, name)) return MethodAccess::kAllowed;
  return Has(unsafe, name) ? MethodAccess::kUnsafe : MethodAccess::kNone;
}

absl::Status NotSupported(const Value& object, absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the method ", object.TypeName(), ".", name, " is not supported"));
}

absl::StatusOr<Value> CallDictMethod(Budget& budget, const Value& object,
                                     absl::string_view name,
                                     const Arguments& arguments) {
  const Dict& dict = object.dict();
  if (name == "get") {
    FORETOKEN_ASSIGN_OR_RETURN(
        const auto bound,
        BoundArguments::Bind("get", arguments, {"key", "default"}, 1));
    FORETOKEN_ASSIGN_OR_RETURN(const Value* const found,
                               FindKey(budget, dict, bound[0]));
    if (found != nullptr) return *found;
    return bound.Has(1) ? bound[1] : Value::None();
  }
  FORETOKEN_RETURN_IF_ERROR(BoundArguments::Bind(name, arguments, {}).status());
  // Lists and dicts never change, so a copy may be the object itself.
  if (name == "copy") return object;
  Values items;
  for (const auto& [key, value] : dict.entries()) {
    if (name == "keys") {
      items.push_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else if (name == "items") {
      FORETOKEN_ASSIGN_OR_RETURN(Value pair, MakeTuple(budget, {key, value}));
      items.push_back(std::move(pair));
    } else {
      return NotSupported(object, name);
    }
  }
  // Python returns views; values never change here, so a list serves as one.
  return MakeList(budget, std::move(items));
}

// count and index, for lists and tuples.
absl::StatusOr<Value> CallListMethod(Budget& budget, const Value& object,
                                     absl::string_view name,
                                     const Arguments& arguments) {
  if (name == "copy") return object;
  FORETOKEN_ASSIGN_OR_RETURN(
      const auto bound, BoundArguments::Bind(name, arguments, {"value"}, 1));
  int64_t count = 0;
  const Values& items = object.list().items();
  for (size_t i = 0; i < items.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool equal,
                               Equal(budget, items[i], bound[0]));
    if (equal && name == "index") {
      return Value::Integer(static_cast<int64_t>(i));
    }
    if (equal) ++count;
  }
  if (name == "index") {
    return absl::InvalidArgumentError("the value is not in the list");
  }
  return Value::Integer(count);
}

}  // namespace

MethodAccess FindMethod(const Value& object, absl::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return Find(kStringMethods, {}, name);
    case Kind::kDict:
      return Find(kDictMethods, kDictUnsafe, name);
    case Kind::kList:
      return Find(kListMethods, kListUnsafe, name);
    case Kind::kTuple:
      return Find(kTupleMethods, {}, name);
    default:
      return MethodAccess::kNone;
  }
}

absl::StatusOr<Value> CallMethod(Budget& budget, const Value& object,
                                 absl::string_view name,
                                 const Arguments& arguments) {
  switch (object.kind()) {
    case Kind::kString:
      return CallStringMethod(budget, object.text(), name, arguments);
    case Kind::kDict:
      return CallDictMethod(budget, object, name, arguments);
    case Kind::kList:
    case Kind::kTuple:
      return CallListMethod(budget, object, name, arguments);
    case Kind::kLoop: {  // loop.cycle
      if (arguments.positional.empty()) {
        return absl::InvalidArgumentError("no items for cycling given");
      }
      return arguments
          .positional[object.loop().index() % arguments.positional.size()];
    }
    default:
      return NotSupported(object, name);
  }
}

}  // namespace foretoken::jinja
