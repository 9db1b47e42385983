#include "common/text/jinja/arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace foretoken::jinja {

const Value* Arguments::Named(absl::string_view name) const {
  for (const auto& [known, value] : named) {
    if (known == name) return &value;
  }
  return nullptr;
}

absl::StatusOr<BoundArguments> BoundArguments::Bind(
    absl::string_view callee, const Arguments& arguments,
    std::initializer_list<absl::string_view> names, size_t required) {
  const auto fail = [&](absl::string_view what, absl::string_view detail) {
    return absl::InvalidArgumentError(
        absl::StrCat(callee, "() ", what, detail));
  };
  BoundArguments bound;
  bound.callee_ = std::string(callee);
  // Pointers into `arguments`, which must outlive the result.
  bound.values_.resize(names.size());
  if (arguments.positional.size() > names.size()) {
    return fail("takes fewer arguments than ",
                absl::StrCat(arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) return fail("has no argument ", name);
    const Value*& place = bound.values_[at - names.begin()];
    // As in Python: an argument may not come by its place and by its name.
    if (place != nullptr) return fail("got two values for ", name);
    place = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound.values_[i] == nullptr) {
      return fail("misses the argument ", names.begin()[i]);
    }
  }
  return bound;
}

const Value& BoundArguments::operator[](size_t i) const {
  // One for all calls and never deleted, so the reference outlives the
  // arguments.
  static const Value* const undefined = new Value;
  return Has(i) ? *values_[i] : *undefined;
}

absl::StatusOr<int64_t> BoundArguments::Integer(size_t i,
                                                int64_t otherwise) const {
  if (!Has(i) || values_[i]->Is(Value::Kind::kNone)) return otherwise;
  if (!values_[i]->IsInt()) {
    return absl::InvalidArgumentError(
        absl::StrCat(callee_, "() wants an integer as argument ", i + 1));
  }
  return values_[i]->integer();
}

absl::StatusOr<const Text*> BoundArguments::String(size_t i) const {
  if (!Has(i) || !values_[i]->IsString()) {
    return absl::InvalidArgumentError(
        absl::StrCat(callee_, "() wants a string as argument ", i + 1));
  }
  return &values_[i]->text();
}

}  // namespace foretoken::jinja
