// Sets of schemas become branches: what holds where a schema does not.
//
// A schema does not hold where one of its keywords does not; a keyword that is
// about values of one type only fails for values of that type.
#include <algorithm>
#include <cstddef>
#include <iterator>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema_reader.h"

namespace foretoken::grammar {
namespace {

constexpr size_t kMaxBranches = 1'000;
// Maximum depth of schemas that are examined while another one is.
constexpr int kMaxDepth = 100;

}  // namespace

absl::Status SchemaReader::ApplyNegated(const Schema& schema, Active& active,
                                        Branches& branches) {
  Branches out;
  // A branch with listed values is filtered value by value.
  for (Branch& branch : branches) {
    if (!branch.values) continue;
    FORETOKEN_ASSIGN_OR_RETURN(const bool filtered,
                               KeepInvalid(schema, *branch.values));
    if (!filtered) continue;
    if (!branch.values->empty()) out.push_back(branch);
    branch.types = 0;
  }
  std::erase_if(branches, [](const Branch& b) { return b.types == 0; });
  if (branches.empty()) {
    branches = std::move(out);
    return absl::OkStatus();
  }
  for (const auto& [keyword, value] : schema.keywords) {
    FORETOKEN_RETURN_IF_ERROR(
        NegateKeyword(schema, keyword, *value, active, branches, out));
    if (out.size() > kMaxBranches) {
      return SchemaError(absl::StatusCode::kResourceExhausted, schema,
                         KeywordName(keyword),
                         absl::StrCat("more than ", kMaxBranches,
                                      " alternatives when negated"));
    }
  }
  branches = std::move(out);
  return absl::OkStatus();
}

// Keeps the values that are not valid under the schema; false if that cannot
// be told.
absl::StatusOr<bool> SchemaReader::KeepInvalid(const Schema& schema,
                                               std::vector<int32_t>& values) {
  if (depth_ > kMaxDepth) return false;
  ++depth_;
  const absl::Cleanup leave = [&] { --depth_; };
  std::vector<int32_t> kept;
  for (const int32_t number : values) {
    FORETOKEN_RETURN_IF_ERROR(Work(1));
    // May come back here through a reference, but not forever: see kMaxDepth.
    const absl::StatusOr<bool> valid = Allows(SetOf(schema), value(number));
    if (absl::IsUnimplemented(valid.status())) return false;
    FORETOKEN_RETURN_IF_ERROR(valid.status());
    if (!*valid) kept.push_back(number);
  }
  values = std::move(kept);
  return true;
}

absl::Status SchemaReader::CannotNegate(const Schema& schema, Keyword keyword,
                                        uint8_t types, const Branches& branches,
                                        Branches& out) {
  const auto change = [&](Branches& b) {
    for (Branch& branch : b) branch.types &= types;
    Refuse(schema, keyword, types,
           "cannot be negated, as a not, oneOf or if asks for", b);
    return absl::OkStatus();
  };
  return Alternative(branches, change, out);
}

absl::Status SchemaReader::NegateKeyword(const Schema& schema, Keyword keyword,
                                         const JsonValue& value, Active& active,
                                         const Branches& branches,
                                         Branches& out) {
  const auto apply = [&](Atom atom) {
    return Alternative(
        branches, [&](Branches& b) { return Apply(atom, active, b); }, out);
  };
  switch (keyword) {
    case Keyword::kRef: {
      if (value.kind != JsonValue::kString) {
        return BadSchema(schema, keyword, "want a string");
      }
      FORETOKEN_ASSIGN_OR_RETURN(const Schema* target,
                                 document_.Resolve(schema, value.text));
      return apply(2 * target->id + 1);
    }
    case Keyword::kNot: {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Schema* part,
          document_.Sub(schema, value, KeywordName(keyword)));
      return apply(2 * part->id);
    }
    case Keyword::kAllOf: {
      FORETOKEN_ASSIGN_OR_RETURN(const auto list,
                                 SubList(schema, keyword, value));
      for (const Schema* part : list) {
        FORETOKEN_RETURN_IF_ERROR(apply(2 * part->id + 1));
      }
      return absl::OkStatus();
    }
    case Keyword::kAnyOf: {
      FORETOKEN_ASSIGN_OR_RETURN(const auto list,
                                 SubList(schema, keyword, value));
      // Not any of them: all negations together, so one alternative.
      const auto none = [&](Branches& b) -> absl::Status {
        for (const Schema* part : list) {
          FORETOKEN_RETURN_IF_ERROR(Apply(2 * part->id + 1, active, b));
          FORETOKEN_RETURN_IF_ERROR(Narrow(b));
        }
        return absl::OkStatus();
      };
      return Alternative(branches, none, out);
    }
    case Keyword::kOneOf:
      return NegateOneOf(schema, value, active, branches, out);
    case Keyword::kIf: {
      const auto change = [&](Branches& b) {
        return ApplyIf(schema, value, /*negated=*/true, active, b);
      };
      return Alternative(branches, change, out);
    }
    case Keyword::kDependencies:
    case Keyword::kDependentSchemas:
    case Keyword::kDependentRequired:
      return NegateDependencies(schema, keyword, value, active, branches, out);
    case Keyword::kRequired:
    case Keyword::kProperties:
    case Keyword::kAdditionalProperties:
    case Keyword::kPatternProperties:
    case Keyword::kPropertyNames:
    case Keyword::kMinProperties:
    case Keyword::kMaxProperties:
    case Keyword::kUnevaluatedProperties:
      return NegateMembers(schema, keyword, value, branches, out);
    case Keyword::kItems:
    case Keyword::kAdditionalItems:
    case Keyword::kPrefixItems:
    case Keyword::kMinItems:
    case Keyword::kMaxItems:
    case Keyword::kUniqueItems:
    case Keyword::kContains:
    case Keyword::kUnevaluatedItems:
      return NegateItems(schema, keyword, value, branches, out);
    default:
      return NegateScalar(schema, keyword, value, branches, out);
  }
}

absl::Status SchemaReader::NegateScalar(const Schema& schema, Keyword keyword,
                                        const JsonValue& value,
                                        const Branches& branches,
                                        Branches& out) {
  // Adds the branches for values of `types`, each changed.
  const auto with = [&](uint8_t types, auto change) {
    const auto change_each = [&](Branches& b) {
      for (Branch& branch : b) {
        branch.types &= types;
        change(branch);
      }
      return absl::OkStatus();
    };
    return Alternative(branches, change_each, out);
  };
  switch (keyword) {
    case Keyword::kDynamicRef:
      return CannotNegate(schema, keyword, kAllTypes, branches, out);
    case Keyword::kType: {
      FORETOKEN_ASSIGN_OR_RETURN(const uint8_t types, ReadTypes(schema, value));
      return with(static_cast<uint8_t>(~types), [](Branch&) {});
    }
    case Keyword::kEnum:
    case Keyword::kConst: {
      FORETOKEN_ASSIGN_OR_RETURN(const std::vector<int32_t> values,
                                 ReadValues(schema, keyword, value));
      return with(kAllTypes, [&](Branch& b) {
        std::vector<int32_t> all;
        std::set_union(b.excluded.begin(), b.excluded.end(), values.begin(),
                       values.end(), std::back_inserter(all));
        b.excluded = std::move(all);
      });
    }
    case Keyword::kMinLength:
    case Keyword::kMaxLength: {
      FORETOKEN_ASSIGN_OR_RETURN(const int64_t count,
                                 ReadCount(schema, keyword, value));
      if (keyword == Keyword::kMaxLength) {
        return with(kStringType, [&](Branch& b) {
          b.min_length = std::max(b.min_length, count + 1);
        });
      }
      return with(kStringType, [&](Branch& b) {
        b.max_length = std::min(b.max_length, count - 1);
      });
    }
    case Keyword::kPattern:
    case Keyword::kFormat: {
      if (value.kind != JsonValue::kString) return absl::OkStatus();
      const absl::StatusOr<Expr>& content = keyword == Keyword::kPattern
                                                ? Pattern(value.text)
                                                : Format(value.text);
      // An annotation always holds.
      if (absl::IsNotFound(content.status())) return absl::OkStatus();
      if (!content.ok()) {
        return CannotNegate(schema, keyword, kStringType, branches, out);
      }
      return with(kStringType, [&](Branch& b) {
        b.contents.push_back(regexes_.Not(*content));
      });
    }
    case Keyword::kMinimum:
    case Keyword::kMaximum:
    case Keyword::kExclusiveMinimum:
    case Keyword::kExclusiveMaximum: {
      if (value.is_bool()) return absl::OkStatus();  // read with the bound
      if (value.kind != JsonValue::kNumber) {
        return BadSchema(schema, keyword, "want a number");
      }
      const bool is_min =
          keyword == Keyword::kMinimum || keyword == Keyword::kExclusiveMinimum;
      const JsonValue* flag = schema.Get(is_min ? Keyword::kExclusiveMinimum
                                                : Keyword::kExclusiveMaximum);
      const bool exclusive =
          keyword == Keyword::kExclusiveMinimum ||
          keyword == Keyword::kExclusiveMaximum ||
          (flag != nullptr && flag->kind == JsonValue::kTrue);
      // Not x >= 3 is x < 3: a bound of the other side.
      const Limit limit{Decimal::Parse(value.text), !exclusive};
      return with(kNumberTypes, [&](Branch& b) {
        if (is_min) {
          Lower(b.max, limit);
        } else {
          Raise(b.min, limit);
        }
      });
    }
    case Keyword::kMultipleOf: {
      const Decimal divisor = Decimal::Parse(value.text);
      const std::optional<std::string> text = divisor.PlainText();
      if (value.kind != JsonValue::kNumber || !text || divisor.negative ||
          divisor.digits.empty() || !JsonMultipleOf(*text, regexes_)) {
        return CannotNegate(schema, keyword, kNumberTypes, branches, out);
      }
      return with(kNumberTypes,
                  [&](Branch& b) { b.divisors.emplace_back(*text, true); });
    }
    default:
      return absl::OkStatus();
  }
}

absl::Status SchemaReader::NegateMembers(const Schema& schema, Keyword keyword,
                                         const JsonValue& value,
                                         const Branches& branches,
                                         Branches& out) {
  const auto with_object = [&](auto change) {
    const auto change_each = [&](Branches& b) {
      for (Branch& branch : b) {
        branch.types &= kObjectType;
        change(branch);
      }
      return absl::OkStatus();
    };
    return Alternative(branches, change_each, out);
  };
  switch (keyword) {
    case Keyword::kRequired:
      for (const JsonValue& name : value.items) {
        FORETOKEN_RETURN_IF_ERROR(
            with_object([&](Branch& b) { b.forbidden.push_back(name.text); }));
      }
      return absl::OkStatus();
    case Keyword::kMinProperties:
    case Keyword::kMaxProperties: {
      FORETOKEN_ASSIGN_OR_RETURN(const int64_t count,
                                 ReadCount(schema, keyword, value));
      return with_object([&](Branch& b) {
        if (keyword == Keyword::kMinProperties) {
          b.max_members = std::min(b.max_members, count - 1);
        } else {
          b.min_members = std::max(b.min_members, count + 1);
        }
      });
    }
    case Keyword::kProperties: {
      FORETOKEN_ASSIGN_OR_RETURN(const MemberRules* rules, Members(schema));
      for (const MemberRules::Property& property : rules->properties) {
        // The member is there, and has a wrong value.
        if (property.schema->is_true()) continue;
        FORETOKEN_RETURN_IF_ERROR(with_object([&](Branch& b) {
          b.required.push_back(property.name);
          b.member_atoms.emplace_back(property.name,
                                      2 * property.schema->id + 1);
        }));
      }
      return absl::OkStatus();
    }
    case Keyword::kAdditionalProperties: {
      FORETOKEN_ASSIGN_OR_RETURN(const MemberRules* rules, Members(schema));
      if (!rules->refusal.ok()) {
        return CannotNegate(schema, keyword, kObjectType, branches, out);
      }
      // Which keys are left for that is known once the other schemas are read.
      if (rules->additional->is_true()) return absl::OkStatus();
      return with_object(
          [&](Branch& b) { b.extra.emplace_back(rules, &schema); });
    }
    case Keyword::kPatternProperties: {
      FORETOKEN_ASSIGN_OR_RETURN(const MemberRules* rules, Members(schema));
      const bool idle =
          rules->refusal.ok() &&
          std::all_of(rules->patterns.begin(), rules->patterns.end(),
                      [](const auto& p) { return p.schema->is_true(); });
      if (idle) return absl::OkStatus();
      return CannotNegate(schema, keyword, kObjectType, branches, out);
    }
    case Keyword::kPropertyNames: {
      // Some key that is not allowed: one of these, if they are few.
      FORETOKEN_ASSIGN_OR_RETURN(
          const Schema* part,
          document_.Sub(schema, value, KeywordName(keyword)));
      FORETOKEN_ASSIGN_OR_RETURN(const auto* names,
                                 Expand(WithAtom({}, 2 * part->id + 1)));
      std::vector<absl::string_view> keys;
      for (const Branch& branch : *names) {
        if (!(branch.types & kStringType)) continue;
        if (!branch.values) {
          return CannotNegate(schema, keyword, kObjectType, branches, out);
        }
        for (const int32_t number : *branch.values) {
          if (this->value(number).kind == JsonValue::kString) {
            keys.push_back(this->value(number).text);
          }
        }
      }
      for (const absl::string_view key : keys) {
        FORETOKEN_RETURN_IF_ERROR(
            with_object([&](Branch& b) { b.required.push_back(key); }));
      }
      return absl::OkStatus();
    }
    default:
      if (value.kind == JsonValue::kTrue) return absl::OkStatus();
      return CannotNegate(schema, keyword, kObjectType, branches, out);
  }
}

absl::Status SchemaReader::NegateItems(const Schema& schema, Keyword keyword,
                                       const JsonValue& value,
                                       const Branches& branches,
                                       Branches& out) {
  const auto with_array = [&](auto change) {
    const auto change_each = [&](Branches& b) {
      for (Branch& branch : b) {
        branch.types &= kArrayType;
        change(branch);
      }
      return absl::OkStatus();
    };
    return Alternative(branches, change_each, out);
  };
  switch (keyword) {
    case Keyword::kMinItems:
    case Keyword::kMaxItems: {
      FORETOKEN_ASSIGN_OR_RETURN(const int64_t count,
                                 ReadCount(schema, keyword, value));
      return with_array([&](Branch& b) {
        if (keyword == Keyword::kMinItems) {
          b.max_items = std::min(b.max_items, count - 1);
        } else {
          b.min_items = std::max(b.min_items, count + 1);
        }
      });
    }
    case Keyword::kItems: {
      FORETOKEN_ASSIGN_OR_RETURN(const ItemRules* rules, Items(schema));
      if (rules->first.empty()) {
        if (rules->rest == nullptr || rules->rest->is_true()) {
          return absl::OkStatus();
        }
        return with_array(
            [&](Branch& b) { b.some_item.push_back(2 * rules->rest->id + 1); });
      }
      return CannotNegate(schema, keyword, kArrayType, branches, out);
    }
    case Keyword::kContains: {
      if (schema.Get(Keyword::kMinContains) != nullptr ||
          schema.Get(Keyword::kMaxContains) != nullptr) {
        return CannotNegate(schema, keyword, kArrayType, branches, out);
      }
      FORETOKEN_ASSIGN_OR_RETURN(
          const Schema* part,
          document_.Sub(schema, value, KeywordName(keyword)));
      return with_array(
          [&](Branch& b) { b.every_item.push_back(2 * part->id + 1); });
    }
    case Keyword::kUniqueItems:
      if (value.kind != JsonValue::kTrue) return absl::OkStatus();
      return CannotNegate(schema, keyword, kArrayType, branches, out);
    default:
      if (value.kind == JsonValue::kTrue) return absl::OkStatus();
      return CannotNegate(schema, keyword, kArrayType, branches, out);
  }
}

absl::Status SchemaReader::NegateDependencies(
    const Schema& schema, Keyword keyword, const JsonValue& value,
    Active& active, const Branches& branches, Branches& out) {
  for (const JsonMember& member : value.members) {
    std::vector<absl::string_view> names;
    if (member.value.kind == JsonValue::kString) {
      names.push_back(member.value.text);
    }
    for (const JsonValue& name : member.value.items) {
      names.push_back(name.text);
    }
    for (const absl::string_view name : names) {
      const auto lacking = [&](Branches& b) {
        for (Branch& branch : b) {
          branch.types &= kObjectType;
          branch.required.push_back(member.key);
          branch.forbidden.push_back(name);
        }
        return absl::OkStatus();
      };
      FORETOKEN_RETURN_IF_ERROR(Alternative(branches, lacking, out));
    }
    if (member.value.kind == JsonValue::kString ||
        member.value.kind == JsonValue::kArray) {
      continue;
    }
    FORETOKEN_ASSIGN_OR_RETURN(
        const Schema* part,
        document_.Sub(schema, member.value, KeywordName(keyword), member.key));
    const auto failing = [&](Branches& b) {
      for (Branch& branch : b) {
        branch.types &= kObjectType;
        branch.required.push_back(member.key);
      }
      return Apply(2 * part->id + 1, active, b);
    };
    FORETOKEN_RETURN_IF_ERROR(Alternative(branches, failing, out));
  }
  return absl::OkStatus();
}

// None of them, or two that overlap.
absl::Status SchemaReader::NegateOneOf(const Schema& schema,
                                       const JsonValue& value, Active& active,
                                       const Branches& branches,
                                       Branches& out) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto list,
                             SubList(schema, Keyword::kOneOf, value));
  const size_t n = list.size();
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<bool> overlaps,
                             Overlaps(schema, list, active, branches));
  // Narrowing in between keeps the product of the negations small.
  const auto none = [&](Branches& b) -> absl::Status {
    for (const Schema* part : list) {
      FORETOKEN_RETURN_IF_ERROR(Apply(2 * part->id + 1, active, b));
      FORETOKEN_RETURN_IF_ERROR(Narrow(b));
    }
    return absl::OkStatus();
  };
  FORETOKEN_RETURN_IF_ERROR(Alternative(branches, none, out));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!overlaps[i * n + j]) continue;
      const auto both = [&](Branches& b) -> absl::Status {
        FORETOKEN_RETURN_IF_ERROR(Apply(2 * list[i]->id, active, b));
        return Apply(2 * list[j]->id, active, b);
      };
      FORETOKEN_RETURN_IF_ERROR(Alternative(branches, both, out));
      if (out.size() > kMaxBranches) return absl::OkStatus();  // said above
    }
  }
  return absl::OkStatus();
}

}  // namespace foretoken::grammar
