// The parts of a branch: members, items, and the texts of strings and numbers.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema_reader.h"
#include "common/grammar/regex_syntax.h"

namespace foretoken::grammar {
namespace {

// Sets of keys that differ in the patterns that they match.
constexpr size_t kMaxKeySets = 64;
constexpr int kMaxRegexStates = 2'000;
// Levels of AnyOf's tree of common beginnings.
constexpr int kMaxTreeDepth = 100;

int32_t RepeatLimit(int64_t count) {
  return static_cast<int32_t>(std::min<int64_t>(count, INT32_MAX - 1));
}

}  // namespace

absl::StatusOr<SchemaSet> SchemaReader::MemberSet(const Branch& branch,
                                                  absl::string_view key) {
  SchemaSet set;
  std::optional<std::string> text;
  for (const MemberRules* rules : branch.members) {
    bool named = false;
    if (const auto found = rules->by_name.find(key);
        found != rules->by_name.end()) {
      Add(*found->second, /*negated=*/false, set);
      named = true;
    }
    for (const MemberRules::Pattern& pattern : rules->patterns) {
      if (!text) text = EscapeJson(key);
      if (!Matches(pattern.key, *text)) continue;
      Add(*pattern.schema, /*negated=*/false, set);
      named = true;
    }
    // "Additional" is what this schema does not name; what another schema names
    // does not count.
    if (!named && rules->additional != nullptr) {
      Add(*rules->additional, /*negated=*/false, set);
    }
  }
  for (const auto& [name, atom] : branch.member_atoms) {
    if (name == key) AddAtom(atom, set);
  }
  FORETOKEN_RETURN_IF_ERROR(
      Work(1 + static_cast<int64_t>(branch.members.size() +
                                    branch.member_atoms.size())));
  return set;
}

std::vector<absl::string_view> SchemaReader::DeclaredKeys(
    const Branch& branch) {
  std::vector<absl::string_view> keys;
  absl::flat_hash_set<absl::string_view> seen;
  const auto add = [&](absl::string_view key) {
    if (seen.insert(key).second) keys.push_back(key);
  };
  for (const MemberRules* rules : branch.members) {
    for (const auto& property : rules->properties) add(property.name);
  }
  // Then those that no schema describes, but that have to be told apart from
  // other keys.
  for (const absl::string_view key : branch.required) add(key);
  for (const auto& [key, atom] : branch.member_atoms) add(key);
  for (const auto& [key, needed] : branch.needs) {
    add(key);
    add(needed);
  }
  return keys;
}

absl::StatusOr<std::vector<absl::string_view>> SchemaReader::NamedKeys(
    const Branch& branch) {
  std::vector<absl::string_view> named;
  for (const absl::string_view key : DeclaredKeys(branch)) {
    if (std::find(branch.forbidden.begin(), branch.forbidden.end(), key) !=
        branch.forbidden.end()) {
      continue;
    }
    FORETOKEN_ASSIGN_OR_RETURN(const SchemaSet set, MemberSet(branch, key));
    if (set == SchemaSet{2 * document_.Never().id}) continue;
    FORETOKEN_ASSIGN_OR_RETURN(const bool empty, IsEmpty(set));
    if (empty) continue;
    FORETOKEN_ASSIGN_OR_RETURN(const bool allowed, AllowsName(branch, key));
    if (allowed) named.push_back(key);
  }
  return named;
}

// The characters between the quotes of the keys that propertyNames allows.
absl::StatusOr<Expr> SchemaReader::NameContent(const Branch& branch) {
  SchemaSet set;
  for (const Atom atom : branch.names) AddAtom(atom, set);
  if (set.empty()) return any_text_;
  FORETOKEN_ASSIGN_OR_RETURN(const auto* branches, Expand(set));
  std::vector<Expr> contents;
  for (const Branch& name : *branches) {
    if (!(name.types & kStringType)) continue;
    FORETOKEN_RETURN_IF_ERROR(CheckRefusals(name, kStringType));
    contents.push_back(StringContent(name));
  }
  return regexes_.Or(contents);
}

absl::StatusOr<bool> SchemaReader::AllowsName(const Branch& branch,
                                              absl::string_view key) {
  if (branch.names.empty()) return true;
  FORETOKEN_ASSIGN_OR_RETURN(const Expr content, NameContent(branch));
  return Matches(content, EscapeJson(key));
}

absl::StatusOr<std::vector<OtherMembers>> SchemaReader::Others(
    const Branch& branch) {
  // A closed object, as most are with strict tools.
  for (const MemberRules* rules : branch.members) {
    if (rules->patterns.empty() && rules->additional != nullptr &&
        rules->additional->is_false()) {
      return std::vector<OtherMembers>{};
    }
  }
  // Every set of keys is divided by each pattern into those that match it and
  // those that do not.
  struct Keys {
    Expr keys;
    absl::flat_hash_set<Expr> matched;
  };
  std::vector<Expr> patterns;
  for (const MemberRules* rules : branch.members) {
    for (const auto& pattern : rules->patterns) patterns.push_back(pattern.key);
  }
  std::sort(patterns.begin(), patterns.end());
  patterns.erase(std::unique(patterns.begin(), patterns.end()), patterns.end());
  std::vector<Keys> sets = {{any_text_, {}}};
  for (const Expr pattern : patterns) {
    std::vector<Keys> divided;
    for (const Keys& set : sets) {
      for (const bool matches : {true, false}) {
        Keys part = set;
        part.keys =
            regexes_.And(set.keys, matches ? pattern : regexes_.Not(pattern));
        if (matches) part.matched.insert(pattern);
        FORETOKEN_RETURN_IF_ERROR(Work(100));
        const absl::StatusOr<bool> nothing =
            regexes_.MatchesNothing(part.keys, kMaxRegexStates);
        if (nothing.ok() && *nothing) continue;
        divided.push_back(std::move(part));
      }
    }
    if (divided.size() > kMaxKeySets) {
      return absl::ResourceExhaustedError(
          "patternProperties: the patterns overlap in too many ways");
    }
    sets = std::move(divided);
  }

  std::vector<OtherMembers> others;
  for (const Keys& keys : sets) {
    SchemaSet set;
    for (const MemberRules* rules : branch.members) {
      bool named = false;
      for (const MemberRules::Pattern& pattern : rules->patterns) {
        if (!keys.matched.contains(pattern.key)) continue;
        Add(*pattern.schema, /*negated=*/false, set);
        named = true;
      }
      if (!named && rules->additional != nullptr) {
        Add(*rules->additional, /*negated=*/false, set);
      }
    }
    FORETOKEN_ASSIGN_OR_RETURN(const bool empty, IsEmpty(set));
    if (empty) continue;
    const auto same =
        std::find_if(others.begin(), others.end(),
                     [&](const OtherMembers& o) { return o.value == set; });
    // Fewer and larger terminals are faster to match.
    if (same == others.end()) {
      others.push_back({keys.keys, std::move(set)});
    } else {
      same->key = regexes_.Or(same->key, keys.keys);
    }
  }
  if (others.empty()) return others;

  // Keys with a rule of their own are not among these.
  std::vector<std::string> own;
  for (const absl::string_view key : DeclaredKeys(branch)) {
    own.push_back(EscapeJson(key));
  }
  for (const absl::string_view key : branch.forbidden) {
    own.push_back(EscapeJson(key));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Expr names, NameContent(branch));
  const bool check = !patterns.empty() || !branch.names.empty();
  const Expr no_own = regexes_.Not(AnyOf(std::move(own)));
  for (OtherMembers& other : others) {
    other.key = regexes_.And({other.key, names, no_own});
    // A terminal without texts would be a dead end.
    if (!check) continue;
    const absl::StatusOr<bool> nothing =
        regexes_.MatchesNothing(other.key, kMaxRegexStates);
    if (nothing.ok() && *nothing) other.key = Regexes::kNothing;
  }
  std::erase_if(
      others, [](const OtherMembers& o) { return o.key == Regexes::kNothing; });
  return others;
}

int64_t SchemaReader::FirstItems(const Branch& branch) {
  size_t count = 0;
  for (const ItemRules* rules : branch.items) {
    count = std::max(count, rules->first.size());
  }
  return static_cast<int64_t>(count);
}

SchemaSet SchemaReader::ItemSet(const Branch& branch, int64_t index) const {
  SchemaSet set;
  for (const ItemRules* rules : branch.items) {
    if (index < static_cast<int64_t>(rules->first.size())) {
      Add(*rules->first[index], /*negated=*/false, set);
    } else if (rules->rest != nullptr) {
      Add(*rules->rest, /*negated=*/false, set);
    }
  }
  for (const Atom atom : branch.every_item) AddAtom(atom, set);
  return set;
}

// Texts with a common beginning share it, so that the expression and its
// derivatives stay small.
Expr SchemaReader::AnyOf(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return AnyOfSorted(texts, 0, texts.size(), 0, 0);
}

// texts[begin, end) from `offset` on, where they all agree before it.
Expr SchemaReader::AnyOfSorted(const std::vector<std::string>& texts,
                               size_t begin, size_t end, size_t offset,
                               int depth) {
  std::vector<Expr> parts;
  while (begin < end) {
    const absl::string_view first = absl::string_view(texts[begin]);
    if (first.size() == offset) {
      parts.push_back(Regexes::kEmpty);
      ++begin;
      continue;
    }
    size_t same = begin + 1;
    while (depth < kMaxTreeDepth && same < end && texts[same].size() > offset &&
           texts[same][offset] == first[offset]) {
      ++same;
    }
    // Sorted texts agree as far as the first and the last of them do.
    const absl::string_view last = absl::string_view(texts[same - 1]);
    size_t common = offset;
    while (common < first.size() && common < last.size() &&
           first[common] == last[common]) {
      ++common;
    }
    const Expr head = regexes_.Literal(first.substr(offset, common - offset));
    parts.push_back(
        same == begin + 1
            ? head
            : regexes_.Concat(
                  head, AnyOfSorted(texts, begin, same, common, depth + 1)));
    begin = same;
  }
  return regexes_.Or(parts);
}

Expr SchemaReader::StringContent(const Branch& branch) {
  if (branch.values) {
    std::vector<std::string> texts;
    for (const int32_t number : *branch.values) {
      if (value(number).kind == JsonValue::kString) {
        texts.push_back(EscapeJson(value(number).text));
      }
    }
    return AnyOf(std::move(texts));
  }
  std::vector<Expr> parts = branch.contents;
  // Negated parts match what is no JSON string at all.
  parts.push_back(any_text_);
  if (branch.min_length > 0 || branch.max_length != Branch::kUnlimited) {
    parts.push_back(regexes_.Repeat(any_code_point_,
                                    RepeatLimit(branch.min_length),
                                    branch.max_length == Branch::kUnlimited
                                        ? Regexes::kUnbounded
                                        : RepeatLimit(branch.max_length)));
  }
  std::vector<std::string> excluded;
  for (const int32_t number : branch.excluded) {
    if (value(number).kind == JsonValue::kString) {
      excluded.push_back(EscapeJson(value(number).text));
    }
  }
  if (!excluded.empty()) {
    parts.push_back(regexes_.Not(AnyOf(std::move(excluded))));
  }
  return regexes_.And(parts);
}

Expr SchemaReader::AnyStringContent(int64_t min_length, int64_t max_length) {
  const auto [known, fresh] =
      string_contents_.try_emplace({min_length, max_length}, 0);
  if (fresh) {
    known->second = JsonStringContent(RepeatLimit(min_length),
                                      max_length == Branch::kUnlimited
                                          ? Regexes::kUnbounded
                                          : RepeatLimit(max_length),
                                      regexes_);
  }
  return known->second;
}

absl::StatusOr<Expr> SchemaReader::NumberText(const Branch& branch,
                                              bool with_point) {
  const bool unlimited = !branch.min && !branch.max &&
                         branch.divisors.empty() && branch.excluded.empty();
  if (!unlimited) return NewNumberText(branch, with_point);
  const uint8_t types = branch.types & kNumberTypes;
  if (const auto known = number_texts_.find({types, with_point});
      known != number_texts_.end()) {
    return known->second;
  }
  FORETOKEN_ASSIGN_OR_RETURN(const Expr text,
                             NewNumberText(branch, with_point));
  return number_texts_[{types, with_point}] = text;
}

absl::StatusOr<Expr> SchemaReader::NewNumberText(const Branch& branch,
                                                 bool with_point) {
  NumberRange range;
  const auto bound = [](const std::optional<Limit>& limit,
                        std::optional<NumberBound>& out) -> absl::Status {
    if (!limit) return absl::OkStatus();
    const std::optional<std::string> text = limit->value.PlainText();
    if (text) {
      out = NumberBound{*text, limit->exclusive};
      return absl::OkStatus();
    }
    // The largest double and beyond: no bound for what readers can read.
    if (limit->value.point > 308) return absl::OkStatus();
    return absl::UnimplementedError(
        "minimum or maximum: a bound of more than 64 digits");
  };
  FORETOKEN_RETURN_IF_ERROR(bound(branch.min, range.min));
  FORETOKEN_RETURN_IF_ERROR(bound(branch.max, range.max));
  const bool integers = branch.types & kIntegerType;
  const bool fractions = branch.types & kFractionType;
  std::vector<Expr> parts;
  if (integers && !fractions) {
    parts.push_back(JsonInteger(range, with_point, regexes_));
  } else {
    parts.push_back(JsonNumber(range, regexes_));
  }
  // From here on, numbers have no exponent.
  bool plain = false;
  if (fractions && !integers) {
    parts.push_back(
        regexes_.Not(JsonInteger({}, /*with_point=*/true, regexes_)));
    plain = true;
  }
  for (const auto& [divisor, negated] : branch.divisors) {
    const std::optional<Expr> multiple = JsonMultipleOf(divisor, regexes_);
    if (!multiple) {
      return absl::UnimplementedError("multipleOf: too many digits");
    }
    parts.push_back(negated ? regexes_.Not(*multiple) : *multiple);
    plain = true;
  }
  for (const int32_t excluded : branch.excluded) {
    if (value(excluded).kind != JsonValue::kNumber) continue;
    const Decimal number = Decimal::Parse(value(excluded).text);
    const std::optional<std::string> text = number.PlainText();
    if (!text) {
      return absl::UnimplementedError(
          absl::StrCat("not: the number ", value(excluded).text));
    }
    // 5 is also 5.0 and 5.00, and 0 is also -0.
    const Expr zeros = regexes_.Star(regexes_.Literal("0"));
    const Expr tail = number.is_integer()
                          ? regexes_.Optional(regexes_.Concat(
                                {regexes_.Literal(".0"), zeros}))
                          : zeros;
    const Expr sign = number.digits.empty()
                          ? regexes_.Optional(regexes_.Literal("-"))
                          : Regexes::kEmpty;
    parts.push_back(
        regexes_.Not(regexes_.Concat({sign, regexes_.Literal(*text), tail})));
    plain = true;
  }
  if (plain) {
    ByteSet set = ByteSet::Range('0', '9');
    set.Add('-');
    set.Add('.');
    parts.push_back(regexes_.Star(regexes_.Bytes(set)));
  }
  return regexes_.And(parts);
}

}  // namespace foretoken::grammar
