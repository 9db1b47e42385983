// Whether a branch allows anything at all, and whether it allows a given value.
#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema_reader.h"

namespace foretoken::grammar {
namespace {

// Beyond these a branch is not looked at further: it may turn out to be empty
// when the grammar is built.
constexpr int kMaxDepth = 150;
// Enough for the patterns of real schemas that exclude each other, such as
// "^a" and "^b", and quick to give up on others.
constexpr int kMaxRegexStates = 500;
// Tuples are short; more items of one kind say nothing new.
constexpr int64_t kMaxItemsSeen = 100;

int64_t CodePoints(absl::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  });
}

template <typename T>
void SortUnique(std::vector<T>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

uint8_t SchemaReader::TypeOf(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::kNull:
      return kNullType;
    case JsonValue::kFalse:
      return kFalseType;
    case JsonValue::kTrue:
      return kTrueType;
    case JsonValue::kNumber:
      return Decimal::Parse(value.text).is_integer() ? kIntegerType
                                                     : kFractionType;
    case JsonValue::kString:
      return kStringType;
    case JsonValue::kArray:
      return kArrayType;
    case JsonValue::kObject:
      return kObjectType;
  }
  return 0;
}

absl::StatusOr<bool> SchemaReader::IsEmpty(const SchemaSet& set) {
  if (set.empty()) return false;
  if (const auto known = empty_.find(set); known != empty_.end()) {
    return known->second;
  }
  // A recursive schema may have finite values: only what is empty without
  // looking at itself is known to be empty.
  if (depth_ > kMaxDepth || !being_emptied_.insert(set).second) return false;
  ++depth_;
  const absl::StatusOr<const std::vector<Branch>*> branches = Expand(set);
  --depth_;
  being_emptied_.erase(set);
  FORETOKEN_RETURN_IF_ERROR(branches.status());
  return empty_[set] = (*branches)->empty();
}

absl::Status SchemaReader::Narrow(Branches& branches) {
  for (Branch& branch : branches) {
    FORETOKEN_RETURN_IF_ERROR(Narrow(branch));
  }
  std::erase_if(branches, [](const Branch& b) { return b.types == 0; });
  return absl::OkStatus();
}

// Takes away the types of which the branch can have no value.
absl::Status SchemaReader::Narrow(Branch& branch) {
  const auto drop = [&](int types) {
    branch.types &= static_cast<uint8_t>(~types);
  };
  for (const int32_t number : branch.excluded) {
    const uint8_t type = TypeOf(value(number));
    if (type & (kNullType | kBooleanTypes)) drop(type);
  }
  if (branch.values) {
    FORETOKEN_RETURN_IF_ERROR(
        Work(1 + static_cast<int64_t>(branch.values->size()) / 4));
    uint8_t types = 0;
    std::erase_if(*branch.values, [&](int32_t number) {
      const uint8_t type = TypeOf(value(number));
      if (!(branch.types & type)) return true;
      if (!(type & kStructures)) {
        const absl::StatusOr<bool> allowed =
            AllowsScalar(branch, value(number));
        if (allowed.ok() && !*allowed) return true;
      }
      types |= type;
      return false;
    });
    branch.types &= types;
  }
  if (branch.types & kStringType) {
    if (branch.min_length > branch.max_length) drop(kStringType);
    // A single pattern always matches something; searching costs time.
    const bool may_conflict =
        branch.contents.size() > 1 ||
        (!branch.contents.empty() &&
         (branch.min_length > 0 || branch.max_length != Branch::kUnlimited ||
          !branch.excluded.empty()));
    if (may_conflict && !branch.values) {
      FORETOKEN_RETURN_IF_ERROR(Work(20));
      const absl::StatusOr<bool> nothing =
          regexes_.MatchesNothing(StringContent(branch), kMaxRegexStates);
      if (nothing.ok() && *nothing) drop(kStringType);
    }
  }
  if ((branch.types & kNumberTypes) && branch.min && branch.max) {
    const int order = Compare(branch.min->value, branch.max->value);
    if (order > 0 ||
        (order == 0 && (branch.min->exclusive || branch.max->exclusive))) {
      drop(kNumberTypes);
    }
    // One number only: an integer, or none.
    if (order == 0) {
      drop(branch.min->value.is_integer() ? kFractionType : kIntegerType);
    }
  }
  if (branch.types & kArrayType) {
    FORETOKEN_RETURN_IF_ERROR(NarrowArray(branch));
  }
  if (branch.types & kObjectType) {
    FORETOKEN_RETURN_IF_ERROR(NarrowObject(branch));
  }
  return absl::OkStatus();
}

absl::Status SchemaReader::NarrowArray(Branch& branch) {
  // An array with an item that is wanted is not empty.
  if (!branch.some_item.empty()) {
    branch.min_items = std::max<int64_t>(branch.min_items, 1);
  }
  bool possible = branch.min_items <= branch.max_items;
  const int64_t different =
      std::min({branch.min_items, FirstItems(branch) + 1, kMaxItemsSeen});
  for (int64_t i = 0; possible && i < different; ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool empty, IsEmpty(ItemSet(branch, i)));
    possible = !empty;
  }
  for (size_t i = 0; possible && i < branch.some_item.size(); ++i) {
    // With items of one kind only, the one that is wanted is of that kind.
    if (FirstItems(branch) > 0) break;
    SchemaSet set = ItemSet(branch, 0);
    AddAtom(branch.some_item[i], set);
    FORETOKEN_ASSIGN_OR_RETURN(const bool empty, IsEmpty(set));
    possible = !empty;
  }
  if (!possible) branch.types &= ~kArrayType;
  return absl::OkStatus();
}

absl::Status SchemaReader::NarrowObject(Branch& branch) {
  // Members that required ones depend on are required.
  if (!branch.needs.empty()) {
    absl::flat_hash_set<absl::string_view> required(branch.required.begin(),
                                                    branch.required.end());
    bool grown = true;
    while (grown) {
      grown = false;
      for (const auto& [key, needed] : branch.needs) {
        if (!required.contains(key) || !required.insert(needed).second) {
          continue;
        }
        branch.required.push_back(needed);
        grown = true;
      }
    }
  }
  // Branches are copied often: keep them small.
  SortUnique(branch.forbidden);
  absl::flat_hash_set<absl::string_view> seen;
  std::erase_if(branch.required, [&](absl::string_view key) {
    return !seen.insert(key).second;
  });
  bool possible =
      branch.min_members <= branch.max_members &&
      static_cast<int64_t>(branch.required.size()) <= branch.max_members;
  FORETOKEN_RETURN_IF_ERROR(Work(static_cast<int64_t>(branch.required.size())));
  for (size_t i = 0; possible && i < branch.required.size(); ++i) {
    const absl::string_view key = branch.required[i];
    if (std::binary_search(branch.forbidden.begin(), branch.forbidden.end(),
                           key)) {
      possible = false;
      break;
    }
    FORETOKEN_ASSIGN_OR_RETURN(const SchemaSet set, MemberSet(branch, key));
    FORETOKEN_ASSIGN_OR_RETURN(const bool empty, IsEmpty(set));
    possible = !empty;
  }
  if (possible &&
      branch.min_members > static_cast<int64_t>(branch.required.size())) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto named, NamedKeys(branch));
    if (branch.min_members > static_cast<int64_t>(named.size())) {
      FORETOKEN_ASSIGN_OR_RETURN(const auto others, Others(branch));
      possible = !others.empty();
    }
  }
  if (!possible) branch.types &= ~kObjectType;
  return absl::OkStatus();
}

// A member that `rules` do not name: where all keys are known, one of those
// that remain. Otherwise it cannot be expressed.
absl::Status SchemaReader::ResolveExtra(Branches& branches) {
  Branches out;
  while (!branches.empty()) {
    Branch branch = std::move(branches.back());
    branches.pop_back();
    if (branch.extra.empty() || !(branch.types & kObjectType)) {
      out.push_back(std::move(branch));
      continue;
    }
    const auto [rules, schema] = branch.extra.back();
    branch.extra.pop_back();
    FORETOKEN_ASSIGN_OR_RETURN(const auto others, Others(branch));
    if (!others.empty()) {
      Branches one = {std::move(branch)};
      one[0].types &= kObjectType;
      Refuse(*schema, Keyword::kAdditionalProperties, kObjectType,
             "cannot be negated, as a not, oneOf or if asks for", one);
      branches.push_back(std::move(one[0]));
      continue;
    }
    FORETOKEN_ASSIGN_OR_RETURN(const auto keys, NamedKeys(branch));
    FORETOKEN_RETURN_IF_ERROR(Work(static_cast<int64_t>(keys.size())));
    for (const absl::string_view key : keys) {
      if (rules->by_name.contains(key)) continue;
      const std::string text = EscapeJson(key);
      const bool named =
          std::any_of(rules->patterns.begin(), rules->patterns.end(),
                      [&](const auto& p) { return Matches(p.key, text); });
      if (named) continue;
      // This key is there, and its value is not as `additional` says.
      Branch with = branch;
      with.required.push_back(key);
      with.member_atoms.emplace_back(key, 2 * rules->additional->id + 1);
      FORETOKEN_RETURN_IF_ERROR(Narrow(with));
      if (with.types != 0) branches.push_back(std::move(with));
    }
    if (branches.size() + out.size() > 1'000) {
      return SchemaError(absl::StatusCode::kResourceExhausted, *schema,
                         "additionalProperties",
                         "more than 1000 alternatives when negated");
    }
  }
  branches.assign(std::make_move_iterator(out.rbegin()),
                  std::make_move_iterator(out.rend()));
  return absl::OkStatus();
}

absl::Status SchemaReader::FilterValues(Branch& branch) {
  std::vector<int32_t> kept;
  for (const int32_t number : *branch.values) {
    FORETOKEN_RETURN_IF_ERROR(Work(1));
    FORETOKEN_ASSIGN_OR_RETURN(const bool allowed,
                               BranchAllows(branch, value(number)));
    if (allowed) kept.push_back(number);
  }
  // The values say it all.
  Branch rest;
  rest.values = std::move(kept);
  branch = std::move(rest);
  return absl::OkStatus();
}

bool SchemaReader::Matches(Expr expr, absl::string_view text) {
  for (const char c : text) {
    // Derivatives are cached, so that many texts share the work.
    expr = regexes_.Derivative(expr, static_cast<uint8_t>(c));
    if (expr == Regexes::kNothing) return false;
  }
  return regexes_.nullable(expr);
}

absl::StatusOr<bool> SchemaReader::Allows(const SchemaSet& set,
                                          const JsonValue& value) {
  if (set.empty()) return true;
  FORETOKEN_ASSIGN_OR_RETURN(const auto* branches, Expand(set));
  for (const Branch& branch : *branches) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool allowed, BranchAllows(branch, value));
    if (allowed) return true;
  }
  return false;
}

absl::StatusOr<bool> SchemaReader::BranchAllows(const Branch& branch,
                                                const JsonValue& value) {
  const uint8_t type = TypeOf(value);
  if (!(branch.types & type)) return false;
  FORETOKEN_RETURN_IF_ERROR(Work(1));
  FORETOKEN_RETURN_IF_ERROR(CheckRefusals(branch, type));
  if (branch.values &&
      !std::binary_search(branch.values->begin(), branch.values->end(),
                          NumberOf(value))) {
    return false;
  }
  FORETOKEN_ASSIGN_OR_RETURN(const bool allowed, AllowsScalar(branch, value));
  if (!allowed) return false;
  if (type == kArrayType) return AllowsArray(branch, value);
  if (type == kObjectType) return AllowsObject(branch, value);
  return true;
}

// All but what is about the parts of a value.
absl::StatusOr<bool> SchemaReader::AllowsScalar(const Branch& branch,
                                                const JsonValue& value) {
  if (!branch.excluded.empty() &&
      std::binary_search(branch.excluded.begin(), branch.excluded.end(),
                         NumberOf(value))) {
    return false;
  }
  if (value.kind == JsonValue::kString) {
    if (branch.contents.empty() && branch.min_length == 0 &&
        branch.max_length == Branch::kUnlimited) {
      return true;
    }
    const int64_t length = CodePoints(value.text);
    if (length < branch.min_length || length > branch.max_length) return false;
    if (branch.contents.empty()) return true;
    const std::string text = EscapeJson(value.text);
    return std::all_of(branch.contents.begin(), branch.contents.end(),
                       [&](Expr content) { return Matches(content, text); });
  }
  if (value.kind != JsonValue::kNumber) return true;
  const Decimal number = Decimal::Parse(value.text);
  if (branch.min) {
    const int order = Compare(number, branch.min->value);
    if (order < 0 || (order == 0 && branch.min->exclusive)) return false;
  }
  if (branch.max) {
    const int order = Compare(number, branch.max->value);
    if (order > 0 || (order == 0 && branch.max->exclusive)) return false;
  }
  for (const auto& [divisor, negated] : branch.divisors) {
    const std::optional<std::string> text = number.PlainText();
    const std::optional<Expr> multiple = JsonMultipleOf(divisor, regexes_);
    if (!text || !multiple) {
      return absl::UnimplementedError(
          absl::StrCat("multipleOf: of the number ", value.text));
    }
    if (Matches(*multiple, *text) == negated) return false;
  }
  return true;
}

absl::StatusOr<bool> SchemaReader::AllowsArray(const Branch& branch,
                                               const JsonValue& value) {
  const int64_t size = static_cast<int64_t>(value.items.size());
  if (size < branch.min_items || size > branch.max_items) return false;
  for (int64_t i = 0; i < size; ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool allowed,
                               Allows(ItemSet(branch, i), value.items[i]));
    if (!allowed) return false;
  }
  // `contains` looks at items by itself.
  for (const Atom atom : branch.some_item) {
    SchemaSet set;
    AddAtom(atom, set);
    bool found = false;
    for (int64_t i = 0; !found && i < size; ++i) {
      FORETOKEN_ASSIGN_OR_RETURN(found, Allows(set, value.items[i]));
    }
    if (!found) return false;
  }
  if (branch.unique) {
    absl::flat_hash_set<int32_t> seen;
    for (const JsonValue& item : value.items) {
      if (!seen.insert(NumberOf(item)).second) return false;
    }
  }
  return true;
}

absl::StatusOr<bool> SchemaReader::AllowsObject(const Branch& branch,
                                                const JsonValue& value) {
  const int64_t size = static_cast<int64_t>(value.members.size());
  if (size < branch.min_members || size > branch.max_members) return false;
  absl::flat_hash_set<absl::string_view> keys;
  for (const JsonMember& member : value.members) keys.insert(member.key);
  for (const absl::string_view key : branch.required) {
    if (!keys.contains(key)) return false;
  }
  for (const absl::string_view key : branch.forbidden) {
    if (keys.contains(key)) return false;
  }
  for (const auto& [key, needed] : branch.needs) {
    if (keys.contains(key) && !keys.contains(needed)) return false;
  }
  for (const JsonMember& member : value.members) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool named,
                               AllowsName(branch, member.key));
    if (!named) return false;
    FORETOKEN_ASSIGN_OR_RETURN(const SchemaSet set,
                               MemberSet(branch, member.key));
    FORETOKEN_ASSIGN_OR_RETURN(const bool allowed, Allows(set, member.value));
    if (!allowed) return false;
  }
  return true;
}

}  // namespace foretoken::grammar
