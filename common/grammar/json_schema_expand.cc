// Sets of schemas become branches: keywords as they are.
#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema_reader.h"
#include "common/grammar/regex_syntax.h"

namespace foretoken::grammar {
namespace {

// Schemas applied to one value within each other ($ref, allOf, anyOf ...).
constexpr size_t kMaxNesting = 64;
// Every branch becomes a rule that the automaton follows beside the others:
// hundreds of them are slow to mask already.
constexpr size_t kMaxBranches = 1'000;
// Units of work of one reader, each up to a microsecond.
constexpr int64_t kMaxWork = 2'000'000;
// Pairs of a oneOf's schemas are compared.
constexpr size_t kMaxOneOf = 300;

absl::Status TooManyBranches(const Schema& schema, Keyword keyword) {
  return SchemaError(
      absl::StatusCode::kResourceExhausted, schema, KeywordName(keyword),
      absl::StrCat("more than ", kMaxBranches, " alternatives when combined"));
}

}  // namespace

SchemaReader::SchemaReader(SchemaDocument& document, Regexes& regexes,
                           bool skip_unsupported)
    : document_(document),
      regexes_(regexes),
      skip_unsupported_(skip_unsupported),
      any_code_point_(AnyCodePoint(TextForm::kJsonString, regexes)),
      any_text_(regexes.Star(any_code_point_)) {}

absl::Status SchemaReader::Work(int64_t units) {
  work_ += units;
  if (work_ <= kMaxWork) return regexes_.status();
  return absl::ResourceExhaustedError("the schema is too complex");
}

SchemaSet SchemaReader::SetOf(const Schema& schema) const {
  SchemaSet set;
  Add(schema, /*negated=*/false, set);
  return set;
}

void SchemaReader::Add(const Schema& schema, bool negated,
                       SchemaSet& set) const {
  AddAtom(2 * schema.id + negated, set);
}

// Looks through references, so that equal sets are equal, and leaves out what
// says nothing.
void SchemaReader::AddAtom(Atom atom, SchemaSet& set) const {
  const Schema* schema = &document_.by_id(atom >> 1);
  const bool negated = atom & 1;
  for (size_t i = 0; i < kMaxNesting && schema->keywords.size() == 1; ++i) {
    const auto& [keyword, value] = schema->keywords[0];
    if (keyword != Keyword::kRef || value->kind != JsonValue::kString) break;
    const auto target = document_.Resolve(*schema, value->text);
    if (!target.ok()) break;
    schema = *target;
  }
  if (negated ? schema->is_false() : schema->is_true()) return;
  if (negated && schema->is_true()) {
    atom = 2 * document_.Never().id;
  } else {
    atom = 2 * schema->id + negated;
  }
  const auto at = std::lower_bound(set.begin(), set.end(), atom);
  if (at == set.end() || *at != atom) set.insert(at, atom);
}

absl::StatusOr<const std::vector<Branch>*> SchemaReader::Expand(
    const SchemaSet& set) {
  if (const auto found = expanded_.find(set); found != expanded_.end()) {
    return found->second.get();
  }
  FORETOKEN_ASSIGN_OR_RETURN(Branches branches, ExpandNew(set));
  // Expanding may have come back here for the same set (a recursive schema asks
  // whether its own members are empty); both results are the same.
  auto& stored = expanded_[set];
  if (stored == nullptr) stored = std::make_unique<Branches>();
  *stored = std::move(branches);
  return stored.get();
}

absl::StatusOr<SchemaReader::Branches> SchemaReader::ExpandNew(
    const SchemaSet& set) {
  Branches branches(1);
  Active active;
  for (const Atom atom : set) {
    FORETOKEN_RETURN_IF_ERROR(Apply(atom, active, branches));
  }
  // What depends on all schemas of the set comes last.
  FORETOKEN_RETURN_IF_ERROR(ResolveExtra(branches));
  for (Branch& branch : branches) {
    if (branch.values) FORETOKEN_RETURN_IF_ERROR(FilterValues(branch));
  }
  FORETOKEN_RETURN_IF_ERROR(Narrow(branches));
  return branches;
}

absl::Status SchemaReader::Apply(Atom atom, Active& active,
                                 Branches& branches) {
  const Schema& schema = document_.by_id(atom >> 1);
  const bool negated = atom & 1;
  FORETOKEN_RETURN_IF_ERROR(Work(1 + static_cast<int64_t>(branches.size())));
  if (schema.json->is_bool()) {
    if (schema.is_false() != negated) branches.clear();
    return absl::OkStatus();
  }
  // A schema that is met again for the same value, with nothing read in
  // between, would be read forever.
  if (std::find(active.begin(), active.end(), atom) != active.end()) {
    return SchemaError(absl::StatusCode::kInvalidArgument, schema, "$ref",
                       "a cycle: the schema is defined by itself alone");
  }
  if (active.size() >= kMaxNesting) {
    return SchemaError(
        absl::StatusCode::kResourceExhausted, schema, "$ref",
        absl::StrCat("more than ", kMaxNesting, " schemas within each other"));
  }
  active.push_back(atom);
  ++depth_;
  const absl::Cleanup leave = [&] {
    --depth_;
    active.pop_back();
  };
  return negated ? ApplyNegated(schema, active, branches)
                 : ApplyKeywords(schema, active, branches);
}

absl::Status SchemaReader::ApplyKeywords(const Schema& schema, Active& active,
                                         Branches& branches) {
  for (const auto& [keyword, value] : schema.keywords) {
    FORETOKEN_RETURN_IF_ERROR(Constrain(schema, keyword, *value, branches));
  }
  // The applicators come after that: many of their alternatives are impossible
  // beside the keywords.
  FORETOKEN_RETURN_IF_ERROR(Narrow(branches));
  for (const auto& [keyword, value] : schema.keywords) {
    switch (keyword) {
      case Keyword::kRef: {
        if (value->kind != JsonValue::kString) {
          return BadSchema(schema, keyword, "want a string");
        }
        FORETOKEN_ASSIGN_OR_RETURN(const Schema* target,
                                   document_.Resolve(schema, value->text));
        FORETOKEN_RETURN_IF_ERROR(Apply(2 * target->id, active, branches));
        break;
      }
      case Keyword::kAllOf: {
        FORETOKEN_ASSIGN_OR_RETURN(const auto list,
                                   SubList(schema, keyword, *value));
        for (const Schema* part : list) {
          FORETOKEN_RETURN_IF_ERROR(Apply(2 * part->id, active, branches));
        }
        break;
      }
      case Keyword::kAnyOf: {
        FORETOKEN_ASSIGN_OR_RETURN(const auto list,
                                   SubList(schema, keyword, *value));
        Branches out;
        for (const Schema* part : list) {
          FORETOKEN_RETURN_IF_ERROR(Alternative(
              branches,
              [&](Branches& b) { return Apply(2 * part->id, active, b); },
              out));
          if (out.size() > kMaxBranches) {
            return TooManyBranches(schema, keyword);
          }
        }
        branches = std::move(out);
        break;
      }
      case Keyword::kOneOf:
        FORETOKEN_RETURN_IF_ERROR(ApplyOneOf(schema, *value, active, branches));
        break;
      case Keyword::kNot: {
        FORETOKEN_ASSIGN_OR_RETURN(
            const Schema* part,
            document_.Sub(schema, *value, KeywordName(keyword)));
        FORETOKEN_RETURN_IF_ERROR(Apply(2 * part->id + 1, active, branches));
        break;
      }
      case Keyword::kIf:
        FORETOKEN_RETURN_IF_ERROR(
            ApplyIf(schema, *value, /*negated=*/false, active, branches));
        break;
      case Keyword::kDependencies:
      case Keyword::kDependentSchemas:
      case Keyword::kDependentRequired:
        FORETOKEN_RETURN_IF_ERROR(
            ApplyDependencies(schema, keyword, *value, active, branches));
        break;
      default:
        break;
    }
  }
  return absl::OkStatus();
}

absl::Status SchemaReader::Alternative(const Branches& branches, Change change,
                                       Branches& out) {
  // Narrowed at once: most alternatives of a product are impossible, and the
  // next keyword would multiply them.
  Branches copy = branches;
  FORETOKEN_RETURN_IF_ERROR(change(copy));
  FORETOKEN_RETURN_IF_ERROR(Narrow(copy));
  for (Branch& branch : copy) out.push_back(std::move(branch));
  return Work(4 * static_cast<int64_t>(branches.size()));
}

absl::StatusOr<std::vector<const Schema*>> SchemaReader::SubList(
    const Schema& schema, Keyword keyword, const JsonValue& value) {
  if (value.kind != JsonValue::kArray) {
    return BadSchema(schema, keyword, "want a list of schemas");
  }
  std::vector<const Schema*> list;
  for (size_t i = 0; i < value.items.size(); ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(
        const Schema* part,
        document_.Sub(schema, value.items[i], KeywordName(keyword),
                      absl::StrCat(i)));
    list.push_back(part);
  }
  return list;
}

absl::StatusOr<std::vector<bool>> SchemaReader::Overlaps(
    const Schema& schema, const std::vector<const Schema*>& list,
    Active& active, const Branches& context) {
  const size_t n = list.size();
  if (n > kMaxOneOf) {
    return SchemaError(absl::StatusCode::kResourceExhausted, schema, "oneOf",
                       absl::StrCat("more than ", kMaxOneOf, " schemas"));
  }
  // Most alternatives differ in their types, which is quick to see.
  std::vector<uint8_t> types(n, 0);
  for (size_t i = 0; i < n; ++i) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto* branches, Expand(SetOf(*list[i])));
    for (const Branch& branch : *branches) types[i] |= branch.types;
  }
  std::vector<bool> overlaps(n * n, false);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      if ((types[i] & types[j]) == 0) continue;
      SchemaSet both = SetOf(*list[i]);
      Add(*list[j], /*negated=*/false, both);
      FORETOKEN_ASSIGN_OR_RETURN(bool empty, IsEmpty(both));
      if (!empty) {
        // They may exclude each other because of what is around them.
        const auto apply_both = [&](Branches& b) -> absl::Status {
          FORETOKEN_RETURN_IF_ERROR(Apply(2 * list[i]->id, active, b));
          return Apply(2 * list[j]->id, active, b);
        };
        Branches out;
        FORETOKEN_RETURN_IF_ERROR(Alternative(context, apply_both, out));
        empty = out.empty();
      }
      overlaps[i * n + j] = overlaps[j * n + i] = !empty;
    }
  }
  return overlaps;
}

// One schema and none of those that overlap with it.
absl::Status SchemaReader::ApplyOneOf(const Schema& schema,
                                      const JsonValue& value, Active& active,
                                      Branches& branches) {
  FORETOKEN_ASSIGN_OR_RETURN(const auto list,
                             SubList(schema, Keyword::kOneOf, value));
  const size_t n = list.size();
  FORETOKEN_ASSIGN_OR_RETURN(const std::vector<bool> overlaps,
                             Overlaps(schema, list, active, branches));
  Branches out;
  for (size_t i = 0; i < n; ++i) {
    const auto only = [&](Branches& b) -> absl::Status {
      FORETOKEN_RETURN_IF_ERROR(Apply(2 * list[i]->id, active, b));
      for (size_t j = 0; j < n; ++j) {
        if (!overlaps[i * n + j] || b.empty()) continue;
        FORETOKEN_RETURN_IF_ERROR(Narrow(b));
        FORETOKEN_RETURN_IF_ERROR(Apply(2 * list[j]->id + 1, active, b));
      }
      return absl::OkStatus();
    };
    FORETOKEN_RETURN_IF_ERROR(Alternative(branches, only, out));
    if (out.size() > kMaxBranches) {
      return TooManyBranches(schema, Keyword::kOneOf);
    }
  }
  branches = std::move(out);
  return absl::OkStatus();
}

absl::Status SchemaReader::ApplyIf(const Schema& schema, const JsonValue& value,
                                   bool negated, Active& active,
                                   Branches& branches) {
  FORETOKEN_ASSIGN_OR_RETURN(
      const Schema* condition,
      document_.Sub(schema, value, KeywordName(Keyword::kIf)));
  std::array<const Schema*, 2> consequences = {};  // else, then
  for (const bool holds : {false, true}) {
    const Keyword keyword = holds ? Keyword::kThen : Keyword::kElse;
    if (const JsonValue* json = schema.Get(keyword)) {
      FORETOKEN_ASSIGN_OR_RETURN(
          consequences[holds],
          document_.Sub(schema, *json, KeywordName(keyword)));
    }
  }
  Branches out;
  for (const Branch& branch : branches) {
    // A branch in which the condition cannot hold, or cannot fail, stays as it
    // is: a chain of conditions on one member then makes one branch for each,
    // and its sets of schemas do not grow.
    const Branches one = {branch};
    std::array<Branches, 2> cases;
    for (const bool holds : {false, true}) {
      FORETOKEN_RETURN_IF_ERROR(Alternative(
          one,
          [&](Branches& b) {
            return Apply(2 * condition->id + !holds, active, b);
          },
          cases[holds]));
    }
    for (const bool holds : {true, false}) {
      const Schema* consequence = consequences[holds];
      if (cases[holds].empty() || (consequence == nullptr && negated)) continue;
      const auto change = [&](Branches& b) {
        return consequence == nullptr
                   ? absl::OkStatus()
                   : Apply(2 * consequence->id + negated, active, b);
      };
      FORETOKEN_RETURN_IF_ERROR(
          Alternative(cases[!holds].empty() ? one : cases[holds], change, out));
    }
  }
  if (out.size() > kMaxBranches) return TooManyBranches(schema, Keyword::kIf);
  branches = std::move(out);
  return absl::OkStatus();
}

absl::Status SchemaReader::ApplyDependencies(const Schema& schema,
                                             Keyword keyword,
                                             const JsonValue& value,
                                             Active& active,
                                             Branches& branches) {
  if (value.kind != JsonValue::kObject) {
    return BadSchema(schema, keyword, "want an object");
  }
  for (const JsonMember& member : value.members) {
    const absl::string_view key = member.key;
    if (member.value.kind == JsonValue::kArray ||
        member.value.kind == JsonValue::kString) {
      const auto add = [&](const JsonValue& name) -> absl::Status {
        if (name.kind != JsonValue::kString) {
          return BadSchema(schema, keyword, "want lists of strings");
        }
        for (Branch& branch : branches) {
          branch.needs.emplace_back(key, name.text);
        }
        return absl::OkStatus();
      };
      if (member.value.kind == JsonValue::kString) {
        FORETOKEN_RETURN_IF_ERROR(add(member.value));
      }
      for (const JsonValue& name : member.value.items) {
        FORETOKEN_RETURN_IF_ERROR(add(name));
      }
      continue;
    }
    FORETOKEN_ASSIGN_OR_RETURN(
        const Schema* part,
        document_.Sub(schema, member.value, KeywordName(keyword), key));
    if (part->is_true()) continue;
    // Either the member is absent, or the schema holds as well.
    Branches out;
    const auto without = [&](Branches& b) {
      for (Branch& branch : b) branch.forbidden.push_back(key);
      return absl::OkStatus();
    };
    const auto with = [&](Branches& b) {
      for (Branch& branch : b) {
        branch.types &= kObjectType;
        branch.required.push_back(key);
      }
      return Apply(2 * part->id, active, b);
    };
    FORETOKEN_RETURN_IF_ERROR(Alternative(branches, without, out));
    FORETOKEN_RETURN_IF_ERROR(Alternative(branches, with, out));
    if (out.size() > kMaxBranches) return TooManyBranches(schema, keyword);
    branches = std::move(out);
  }
  return absl::OkStatus();
}

void SchemaReader::Refuse(const Schema& schema, Keyword keyword, uint8_t types,
                          absl::string_view why, Branches& branches) {
  refusals_.push_back({types, KeywordName(keyword),
                       SchemaError(absl::StatusCode::kUnimplemented, schema,
                                   KeywordName(keyword), why)});
  for (Branch& branch : branches) {
    if (branch.types & types) branch.refusals.push_back(&refusals_.back());
  }
}

absl::Status SchemaReader::CheckRefusals(const Branch& branch, uint8_t types) {
  for (const Refusal* refusal : branch.refusals) {
    if (!(refusal->types & types)) continue;
    if (!skip_unsupported_) return refusal->status;
    unchecked_.insert(std::string(refusal->keyword));
  }
  return absl::OkStatus();
}

absl::Status SchemaReader::Unsupported(const SchemaSet& set, Keyword keyword,
                                       absl::string_view why) {
  if (skip_unsupported_) {
    unchecked_.insert(std::string(KeywordName(keyword)));
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat(Path(set), ": ", KeywordName(keyword), ": ", why));
}

std::string SchemaReader::Path(const SchemaSet& set) const {
  if (set.empty()) return "/";
  const std::string path = document_.by_id(set[0] >> 1).Path();
  return path.empty() ? "/" : path;
}

absl::StatusOr<std::vector<SchemaSet>> SchemaReader::UnionOf(
    const SchemaSet& set) {
  std::vector<SchemaSet> parts;
  if (set.size() != 1 || (set[0] & 1)) return parts;
  const Schema& schema = document_.by_id(set[0] >> 1);
  Active active;
  if (schema.keywords.size() != 1) return parts;
  const auto& [keyword, value] = schema.keywords[0];
  if (keyword != Keyword::kAnyOf && keyword != Keyword::kOneOf) return parts;
  FORETOKEN_ASSIGN_OR_RETURN(const auto list, SubList(schema, keyword, *value));
  if (keyword == Keyword::kOneOf) {
    FORETOKEN_ASSIGN_OR_RETURN(const std::vector<bool> overlaps,
                               Overlaps(schema, list, active, Branches(1)));
    if (std::find(overlaps.begin(), overlaps.end(), true) != overlaps.end()) {
      return parts;
    }
  }
  for (const Schema* part : list) parts.push_back(SetOf(*part));
  return parts;
}

}  // namespace foretoken::grammar
