// The meaning of each keyword for one value, or for its parts.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema_reader.h"
#include "common/grammar/regex_syntax.h"

namespace foretoken::grammar {
namespace {

// Whether the schema applies others to the same value.
bool HasApplicators(const Schema& schema) {
  for (const Keyword keyword :
       {Keyword::kRef, Keyword::kDynamicRef, Keyword::kAllOf, Keyword::kAnyOf,
        Keyword::kOneOf, Keyword::kIf, Keyword::kDependentSchemas,
        Keyword::kDependencies}) {
    if (schema.Get(keyword) != nullptr) return true;
  }
  return false;
}

// The formats of the specification. Validators check these, and take others for
// annotations.
bool IsStandardFormat(absl::string_view format) {
  for (const char* name :
       {"date-time", "date", "time", "duration", "email", "idn-email",
        "hostname", "idn-hostname", "ipv4", "ipv6", "uri", "uri-reference",
        "iri", "iri-reference", "uuid", "uri-template", "json-pointer",
        "relative-json-pointer", "regex"}) {
    if (format == name) return true;
  }
  return false;
}

}  // namespace

void SchemaReader::Raise(std::optional<Limit>& limit, const Limit& min) {
  const int order = limit ? Compare(min.value, limit->value) : 1;
  if (order > 0) limit = min;
  // An exclusive bound is stricter than an equal one that is not.
  if (order == 0) limit->exclusive |= min.exclusive;
}
void SchemaReader::Lower(std::optional<Limit>& limit, const Limit& max) {
  const int order = limit ? Compare(max.value, limit->value) : -1;
  if (order < 0) limit = max;
  if (order == 0) limit->exclusive |= max.exclusive;
}

absl::StatusOr<uint8_t> SchemaReader::ReadTypes(const Schema& schema,
                                                const JsonValue& value) {
  static const auto* const types =
      new absl::flat_hash_map<absl::string_view, uint8_t>{
          {"null", kNullType},       {"boolean", kBooleanTypes},
          {"integer", kIntegerType}, {"number", kNumberTypes},
          {"string", kStringType},   {"array", kArrayType},
          {"object", kObjectType}};
  if (value.kind == JsonValue::kArray) {
    uint8_t all = 0;
    for (const JsonValue& item : value.items) {
      if (item.kind != JsonValue::kString) {
        return BadSchema(schema, Keyword::kType, "want names of types");
      }
      FORETOKEN_ASSIGN_OR_RETURN(const uint8_t one, ReadTypes(schema, item));
      all |= one;
    }
    return all;
  }
  const auto found =
      value.kind == JsonValue::kString ? types->find(value.text) : types->end();
  if (found == types->end()) {
    return BadSchema(
        schema, Keyword::kType,
        absl::StrCat(JsonText(value).substr(0, 100), " is not a type"));
  }
  return found->second;
}

int32_t SchemaReader::NumberOf(const JsonValue& value) {
  const auto known = value_numbers_.find(&value);
  if (known != value_numbers_.end()) return known->second;
  const auto [text, fresh] = value_of_text_.try_emplace(
      CanonicalText(value), static_cast<int32_t>(values_.size()));
  if (fresh) values_.push_back(&value);
  return value_numbers_[&value] = text->second;
}

// The values of an enum or a const: numbers, sorted.
absl::StatusOr<std::vector<int32_t>> SchemaReader::ReadValues(
    const Schema& schema, Keyword keyword, const JsonValue& value) {
  std::vector<int32_t> values;
  if (keyword == Keyword::kConst) {
    values.push_back(NumberOf(value));
  } else if (value.kind != JsonValue::kArray) {
    return BadSchema(schema, keyword, "want a list");
  }
  if (keyword == Keyword::kEnum) {
    for (const JsonValue& item : value.items) {
      values.push_back(NumberOf(item));
    }
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

const absl::StatusOr<Expr>& SchemaReader::Pattern(absl::string_view pattern) {
  auto found = patterns_.find(pattern);
  if (found == patterns_.end()) {
    found =
        patterns_
            .emplace(pattern,
                     ParseRegex(pattern,
                                {.form = TextForm::kJsonString, .whole = false},
                                regexes_))
            .first;
  }
  return found->second;
}

const absl::StatusOr<Expr>& SchemaReader::Format(absl::string_view format) {
  auto found = formats_.find(format);
  if (found == formats_.end()) {
    absl::StatusOr<Expr> content = JsonFormat(format, regexes_);
    // A standard format that is not supported must not pass for an annotation.
    if (absl::IsNotFound(content.status()) && IsStandardFormat(format)) {
      content = absl::UnimplementedError(
          absl::StrCat(format, " cannot be expressed"));
    }
    found = formats_.emplace(format, std::move(content)).first;
  }
  return found->second;
}

absl::Status SchemaReader::Constrain(const Schema& schema, Keyword keyword,
                                     const JsonValue& value,
                                     Branches& branches) {
  const auto each = [&](auto change) {
    for (Branch& branch : branches) change(branch);
  };
  const auto any_has = [&](uint8_t types) {
    return std::any_of(branches.begin(), branches.end(),
                       [&](const Branch& b) { return b.types & types; });
  };
  switch (keyword) {
    case Keyword::kDynamicRef:
      Refuse(schema, keyword, kAllTypes, "dynamic references", branches);
      return absl::OkStatus();
    case Keyword::kType: {
      FORETOKEN_ASSIGN_OR_RETURN(const uint8_t types, ReadTypes(schema, value));
      each([&](Branch& b) { b.types &= types; });
      return absl::OkStatus();
    }
    case Keyword::kEnum:
    case Keyword::kConst: {
      FORETOKEN_ASSIGN_OR_RETURN(const std::vector<int32_t> values,
                                 ReadValues(schema, keyword, value));
      each([&](Branch& b) {
        if (!b.values) {
          b.values = values;
          return;
        }
        std::erase_if(*b.values, [&](int32_t number) {
          return !std::binary_search(values.begin(), values.end(), number);
        });
      });
      return absl::OkStatus();
    }
    case Keyword::kMinLength:
    case Keyword::kMaxLength: {
      FORETOKEN_ASSIGN_OR_RETURN(const int64_t count,
                                 ReadCount(schema, keyword, value));
      each([&](Branch& b) {
        if (keyword == Keyword::kMinLength) {
          b.min_length = std::max(b.min_length, count);
        } else {
          b.max_length = std::min(b.max_length, count);
        }
      });
      return absl::OkStatus();
    }
    case Keyword::kPattern:
    case Keyword::kFormat: {
      if (value.kind != JsonValue::kString) {
        if (keyword == Keyword::kFormat) return absl::OkStatus();
        return BadSchema(schema, keyword, "want a string");
      }
      // A pattern beside `type: integer` says nothing, even if it cannot be
      // read.
      if (!any_has(kStringType)) return absl::OkStatus();
      const absl::StatusOr<Expr>& content = keyword == Keyword::kPattern
                                                ? Pattern(value.text)
                                                : Format(value.text);
      if (content.ok()) {
        each([&](Branch& b) { b.contents.push_back(*content); });
      } else if (!absl::IsNotFound(content.status())) {
        // Unknown formats are annotations; broken patterns are not.
        Refuse(schema, keyword, kStringType, content.status().message(),
               branches);
      }
      return absl::OkStatus();
    }
    case Keyword::kMinimum:
    case Keyword::kMaximum:
    case Keyword::kExclusiveMinimum:
    case Keyword::kExclusiveMaximum: {
      const bool is_min =
          keyword == Keyword::kMinimum || keyword == Keyword::kExclusiveMinimum;
      const bool own_exclusive = keyword == Keyword::kExclusiveMinimum ||
                                 keyword == Keyword::kExclusiveMaximum;
      // In draft 4 a flag of the other keyword.
      if (own_exclusive && value.is_bool()) return absl::OkStatus();
      if (value.kind != JsonValue::kNumber) {
        return BadSchema(schema, keyword, "want a number");
      }
      Limit limit{Decimal::Parse(value.text), own_exclusive};
      const JsonValue* flag = schema.Get(is_min ? Keyword::kExclusiveMinimum
                                                : Keyword::kExclusiveMaximum);
      if (flag != nullptr && flag->kind == JsonValue::kTrue) {
        limit.exclusive = true;
      }
      each([&](Branch& b) {
        if (is_min) {
          Raise(b.min, limit);
        } else {
          Lower(b.max, limit);
        }
      });
      return absl::OkStatus();
    }
    case Keyword::kMultipleOf: {
      const Decimal divisor = Decimal::Parse(value.text);
      if (value.kind != JsonValue::kNumber || divisor.negative ||
          divisor.digits.empty()) {
        return BadSchema(schema, keyword, "want a number above 0");
      }
      const std::optional<std::string> text = divisor.PlainText();
      if (!text || !JsonMultipleOf(*text, regexes_)) {
        Refuse(schema, keyword, kNumberTypes, "more than 15 significant digits",
               branches);
        return absl::OkStatus();
      }
      each([&](Branch& b) { b.divisors.emplace_back(*text, false); });
      return absl::OkStatus();
    }
    case Keyword::kItems:
    case Keyword::kAdditionalItems:
    case Keyword::kPrefixItems:
    case Keyword::kMinItems:
    case Keyword::kMaxItems:
    case Keyword::kUniqueItems:
    case Keyword::kContains:
    case Keyword::kMinContains:
    case Keyword::kMaxContains:
    case Keyword::kUnevaluatedItems:
      return ConstrainItems(schema, keyword, value, branches);
    case Keyword::kProperties:
    case Keyword::kPatternProperties:
    case Keyword::kAdditionalProperties:
    case Keyword::kPropertyNames:
    case Keyword::kRequired:
    case Keyword::kMinProperties:
    case Keyword::kMaxProperties:
    case Keyword::kUnevaluatedProperties:
      return ConstrainMembers(schema, keyword, value, branches);
    default:
      return absl::OkStatus();  // an applicator
  }
}

absl::Status SchemaReader::ConstrainItems(const Schema& schema, Keyword keyword,
                                          const JsonValue& value,
                                          Branches& branches) {
  switch (keyword) {
    case Keyword::kMinItems:
    case Keyword::kMaxItems: {
      FORETOKEN_ASSIGN_OR_RETURN(const int64_t count,
                                 ReadCount(schema, keyword, value));
      for (Branch& b : branches) {
        if (keyword == Keyword::kMinItems) {
          b.min_items = std::max(b.min_items, count);
        } else {
          b.max_items = std::min(b.max_items, count);
        }
      }
      return absl::OkStatus();
    }
    case Keyword::kUniqueItems:
      if (value.kind == JsonValue::kTrue) {
        for (Branch& b : branches) b.unique = true;
      }
      return absl::OkStatus();
    case Keyword::kContains: {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Schema* part,
          document_.Sub(schema, value, KeywordName(keyword)));
      const JsonValue* min = schema.Get(Keyword::kMinContains);
      const JsonValue* max = schema.Get(Keyword::kMaxContains);
      int64_t least = 1;
      if (min != nullptr) {
        FORETOKEN_ASSIGN_OR_RETURN(
            least, ReadCount(schema, Keyword::kMinContains, *min));
      }
      if (max != nullptr || least > 1) {
        Refuse(schema,
               max != nullptr ? Keyword::kMaxContains : Keyword::kMinContains,
               kArrayType, "counting items that match", branches);
      } else if (least == 1) {
        for (Branch& b : branches) b.some_item.push_back(2 * part->id);
      }
      return absl::OkStatus();
    }
    case Keyword::kMinContains:
    case Keyword::kMaxContains:
      return absl::OkStatus();  // read with `contains`
    case Keyword::kUnevaluatedItems:
      if (value.kind != JsonValue::kTrue && HasApplicators(schema)) {
        Refuse(schema, keyword, kArrayType, "beside other applicators",
               branches);
        return absl::OkStatus();
      }
      [[fallthrough]];
    default: {
      FORETOKEN_ASSIGN_OR_RETURN(const ItemRules* rules, Items(schema));
      // The keywords of one schema are one set of rules, which each of them
      // leads to.
      for (Branch& b : branches) {
        if (b.items.empty() || b.items.back() != rules) {
          b.items.push_back(rules);
        }
      }
      return absl::OkStatus();
    }
  }
}

absl::Status SchemaReader::ConstrainMembers(const Schema& schema,
                                            Keyword keyword,
                                            const JsonValue& value,
                                            Branches& branches) {
  switch (keyword) {
    case Keyword::kMinProperties:
    case Keyword::kMaxProperties: {
      FORETOKEN_ASSIGN_OR_RETURN(const int64_t count,
                                 ReadCount(schema, keyword, value));
      for (Branch& b : branches) {
        if (keyword == Keyword::kMinProperties) {
          b.min_members = std::max(b.min_members, count);
        } else {
          b.max_members = std::min(b.max_members, count);
        }
      }
      return absl::OkStatus();
    }
    case Keyword::kRequired:
      // A flag of a property in draft 3, which no later draft knows.
      if (value.is_bool()) return absl::OkStatus();
      if (value.kind != JsonValue::kArray) {
        return BadSchema(schema, keyword, "want a list of strings");
      }
      for (const JsonValue& name : value.items) {
        if (name.kind != JsonValue::kString) {
          return BadSchema(schema, keyword, "want a list of strings");
        }
        for (Branch& b : branches) b.required.push_back(name.text);
      }
      return absl::OkStatus();
    case Keyword::kPropertyNames: {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Schema* part,
          document_.Sub(schema, value, KeywordName(keyword)));
      for (Branch& b : branches) b.names.push_back(2 * part->id);
      return absl::OkStatus();
    }
    case Keyword::kUnevaluatedProperties:
      if (value.kind != JsonValue::kTrue && HasApplicators(schema)) {
        Refuse(schema, keyword, kObjectType, "beside other applicators",
               branches);
        return absl::OkStatus();
      }
      [[fallthrough]];
    default: {
      FORETOKEN_ASSIGN_OR_RETURN(const MemberRules* rules, Members(schema));
      if (!rules->refusal.ok()) {
        Refuse(schema, Keyword::kPatternProperties, kObjectType,
               rules->refusal.message(), branches);
      }
      for (Branch& b : branches) {
        if (b.members.empty() || b.members.back() != rules) {
          b.members.push_back(rules);
        }
      }
      return absl::OkStatus();
    }
  }
}

absl::StatusOr<const ItemRules*> SchemaReader::Items(const Schema& schema) {
  auto& known = item_rules_[schema.id];
  if (known != nullptr) return known.get();
  auto rules = std::make_unique<ItemRules>();
  const JsonValue* items = schema.Get(Keyword::kItems);
  const JsonValue* prefix = schema.Get(Keyword::kPrefixItems);
  Keyword rest_keyword = Keyword::kItems;
  const JsonValue* rest = items;
  Keyword first_keyword = Keyword::kPrefixItems;
  // Before 2020, `items` was what prefixItems is now if it was a list.
  if (items != nullptr && items->kind == JsonValue::kArray) {
    first_keyword = Keyword::kItems;
    prefix = items;
    rest_keyword = Keyword::kAdditionalItems;
    rest = schema.Get(rest_keyword);
  }
  if (rest == nullptr && !HasApplicators(schema)) {
    rest_keyword = Keyword::kUnevaluatedItems;
    rest = schema.Get(rest_keyword);
  }
  if (prefix != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(rules->first,
                               SubList(schema, first_keyword, *prefix));
  }
  if (rest != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(
        rules->rest, document_.Sub(schema, *rest, KeywordName(rest_keyword)));
  }
  auto& stored = item_rules_[schema.id];
  stored = std::move(rules);
  return stored.get();
}

absl::StatusOr<const MemberRules*> SchemaReader::Members(const Schema& schema) {
  if (const auto& known = member_rules_[schema.id]; known != nullptr) {
    return known.get();
  }
  auto rules = std::make_unique<MemberRules>();
  const auto object = [&](Keyword keyword) -> absl::StatusOr<const JsonValue*> {
    const JsonValue* value = schema.Get(keyword);
    if (value != nullptr && value->kind != JsonValue::kObject) {
      return BadSchema(schema, keyword, "want an object of schemas");
    }
    return value;
  };
  FORETOKEN_ASSIGN_OR_RETURN(const JsonValue* properties,
                             object(Keyword::kProperties));
  FORETOKEN_ASSIGN_OR_RETURN(const JsonValue* patterns,
                             object(Keyword::kPatternProperties));
  if (properties != nullptr) {
    for (const JsonMember& member : properties->members) {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Schema* part,
          document_.Sub(schema, member.value, "properties", member.key));
      rules->properties.push_back({member.key, part});
      rules->by_name[member.key] = part;
    }
  }
  // Without applicators, unevaluated members are the additional ones.
  Keyword rest = Keyword::kAdditionalProperties;
  const JsonValue* additional = schema.Get(rest);
  if (additional == nullptr && !HasApplicators(schema)) {
    rest = Keyword::kUnevaluatedProperties;
    additional = schema.Get(rest);
  }
  if (additional != nullptr) {
    FORETOKEN_ASSIGN_OR_RETURN(
        rules->additional,
        document_.Sub(schema, *additional, KeywordName(rest)));
  }
  if (patterns != nullptr) {
    for (const JsonMember& member : patterns->members) {
      FORETOKEN_ASSIGN_OR_RETURN(
          const Schema* part,
          document_.Sub(schema, member.value, "patternProperties", member.key));
      const absl::StatusOr<Expr>& key = Pattern(member.key);
      if (key.ok()) {
        rules->patterns.push_back({*key, part});
      } else {
        // Without the pattern, it is not known which keys are additional.
        rules->refusal = key.status();
        rules->additional = nullptr;
      }
    }
  }
  auto& stored = member_rules_[schema.id];
  stored = std::move(rules);
  return stored.get();
}

}  // namespace foretoken::grammar
