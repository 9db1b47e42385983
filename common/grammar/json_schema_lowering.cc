#include "common/grammar/json_schema_lowering.h"

#include <algorithm>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace foretoken::grammar {
namespace {

constexpr absl::string_view kColon = ": ";
constexpr int32_t kMaxSpace = 16;  // characters at a place
constexpr int64_t kMaxSets = 50'000;
// Arrays of different items: their sets of items so far are enumerated.
constexpr size_t kMaxUniqueValues = 8;

int32_t LimitOf(int64_t max) {
  return max >= INT32_MAX ? kNoLimit : static_cast<int32_t>(max);
}

}  // namespace

SchemaLowering::SchemaLowering(const JsonStyle& style, SchemaReader& reader,
                               GrammarBuilder& builder)
    : style_(style),
      reader_(reader),
      builder_(builder),
      regexes_(builder.regexes()) {
  if (style_.free_whitespace) {
    ByteSet spaces;
    for (const char c : {' ', '\t', '\n', '\r'}) spaces.Add(c);
    space_ = regexes_.Repeat(regexes_.Bytes(spaces), 0, kMaxSpace);
    comma_ = regexes_.Concat({space_, Literal(","), space_});
    colon_ = regexes_.Concat({space_, Literal(":"), space_});
  } else {
    comma_ = Literal(", ");
    colon_ = Literal(kColon);
  }
  open_array_ = regexes_.Concat(Literal("["), space_);
  close_array_ = regexes_.Concat(space_, Literal("]"));
  open_object_ = regexes_.Concat(Literal("{"), space_);
  close_object_ = regexes_.Concat(space_, Literal("}"));
}

Expr SchemaLowering::Quoted(Expr content) {
  return regexes_.Concat({Literal("\""), content, Literal("\"")});
}

Expr SchemaLowering::KeyText(Expr content) {
  return regexes_.Concat(
      {Literal("\""), content, regexes_.Concat(Literal("\""), colon_)});
}

Expr SchemaLowering::KeyLiteral(absl::string_view key) {
  const std::string text = absl::StrCat("\"", EscapeJson(key), "\"");
  if (style_.free_whitespace) return regexes_.Concat(Literal(text), colon_);
  return Literal(absl::StrCat(text, kColon));
}

// A queue in place of recursion: chains of definitions may be long.
absl::StatusOr<Symbol> SchemaLowering::Lower(const SchemaSet& set) {
  FORETOKEN_ASSIGN_OR_RETURN(const Symbol symbol, SymbolOf(set));
  while (!queue_.empty()) {
    const auto [next, next_set] = std::move(queue_.front());
    queue_.pop_front();
    FORETOKEN_RETURN_IF_ERROR(AddRules(next, next_set));
    FORETOKEN_RETURN_IF_ERROR(builder_.status());
  }
  return symbol;
}

absl::StatusOr<Symbol> SchemaLowering::SymbolOf(const SchemaSet& set) {
  if (const auto known = symbols_.find(set); known != symbols_.end()) {
    return known->second;
  }
  if (static_cast<int64_t>(symbols_.size()) >= kMaxSets) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxSets, " different schemas"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(const auto* branches, reader_.Expand(set));
  // A set of scalars is a single terminal. Only arrays and objects can be
  // recursive, so only they need a nonterminal before they are lowered.
  const bool structures =
      std::any_of(branches->begin(), branches->end(),
                  [](const Branch& b) { return b.types & kStructures; });
  if (structures) {
    const Symbol symbol = builder_.Declare();
    symbols_[set] = symbol;
    queue_.emplace_back(symbol, set);
    return symbol;
  }
  std::vector<Expr> texts;
  for (const Branch& branch : *branches) {
    FORETOKEN_RETURN_IF_ERROR(AddScalars(set, branch, texts));
  }
  return symbols_[set] = builder_.Terminal(regexes_.Or(texts));
}

absl::Status SchemaLowering::AddRules(Symbol symbol, const SchemaSet& set) {
  // Alternatives that are schemas of their own are shared with other places.
  FORETOKEN_ASSIGN_OR_RETURN(const auto parts, reader_.UnionOf(set));
  if (!parts.empty()) {
    for (const SchemaSet& part : parts) {
      FORETOKEN_ASSIGN_OR_RETURN(const Symbol one, SymbolOf(part));
      if (one != symbol) builder_.AddAlternative(symbol, {one});
    }
    return absl::OkStatus();
  }
  FORETOKEN_ASSIGN_OR_RETURN(const auto* branches, reader_.Expand(set));
  std::vector<Expr> texts;
  for (const Branch& branch : *branches) {
    FORETOKEN_RETURN_IF_ERROR(AddScalars(set, branch, texts));
    if (branch.values) {
      for (const int32_t value : *branch.values) {
        if (!ValueText(reader_.value(value))) {
          builder_.AddAlternative(symbol, {ValueSymbol(reader_.value(value))});
        }
      }
      continue;
    }
    if (branch.types & kArrayType) {
      FORETOKEN_RETURN_IF_ERROR(AddArray(symbol, set, branch));
    }
    if (branch.types & kObjectType) {
      FORETOKEN_RETURN_IF_ERROR(AddObject(symbol, set, branch));
    }
  }
  if (!texts.empty()) {
    builder_.AddAlternative(symbol, {builder_.Terminal(regexes_.Or(texts))});
  }
  return absl::OkStatus();
}

absl::Status SchemaLowering::AddScalars(const SchemaSet& set,
                                        const Branch& branch,
                                        std::vector<Expr>& texts) {
  if (branch.values) {
    std::vector<std::string> strings;
    for (const int32_t number : *branch.values) {
      const JsonValue& value = reader_.value(number);
      if (value.kind == JsonValue::kString) {
        strings.push_back(absl::StrCat("\"", EscapeJson(value.text), "\""));
      } else if (const std::optional<Expr> text = ValueText(value)) {
        texts.push_back(*text);
      }
    }
    if (!strings.empty()) {
      texts.push_back(reader_.AnyOf(std::move(strings)));
    }
    return absl::OkStatus();
  }
  FORETOKEN_RETURN_IF_ERROR(reader_.CheckRefusals(branch, branch.types));
  if (branch.types & kNullType) texts.push_back(Literal("null"));
  if (branch.types & kFalseType) texts.push_back(Literal("false"));
  if (branch.types & kTrueType) texts.push_back(Literal("true"));
  if (branch.types & kNumberTypes) {
    const absl::StatusOr<Expr> number =
        reader_.NumberText(branch, style_.integers_with_point);
    if (!number.ok()) return Annotate(number.status(), reader_.Path(set));
    texts.push_back(*number);
  }
  if (branch.types & kStringType) {
    const bool any_escapes =
        branch.contents.empty() &&
        std::none_of(branch.excluded.begin(), branch.excluded.end(),
                     [&](int32_t value) {
                       return reader_.value(value).kind == JsonValue::kString;
                     });
    texts.push_back(Quoted(
        any_escapes
            ? reader_.AnyStringContent(branch.min_length, branch.max_length)
            : reader_.StringContent(branch)));
  }
  return absl::OkStatus();
}

absl::Status SchemaLowering::AddArray(Symbol symbol, const SchemaSet& set,
                                      const Branch& branch) {
  for (const int32_t number : branch.excluded) {
    const JsonValue& value = reader_.value(number);
    if (value.kind != JsonValue::kArray) continue;
    FORETOKEN_ASSIGN_OR_RETURN(const bool matters,
                               reader_.AllowsParts(branch, value));
    if (!matters) continue;
    FORETOKEN_RETURN_IF_ERROR(
        reader_.Unsupported(set, Keyword::kNot, "a certain array"));
  }
  const int64_t first = SchemaReader::FirstItems(branch);
  int64_t max = branch.max_items;
  ListRule rule;
  for (int64_t i = 0; i <= first && i < max; ++i) {
    const SchemaSet items = reader_.ItemSet(branch, i);
    FORETOKEN_ASSIGN_OR_RETURN(const bool empty, reader_.IsEmpty(items));
    if (empty) {
      max = i;
      break;
    }
    FORETOKEN_ASSIGN_OR_RETURN(const Symbol item, SymbolOf(items));
    // All items from `first` on have one set.
    if (i < first) {
      rule.first.push_back(item);
    } else {
      rule.has_rest = true;
      rule.rest = item;
    }
  }
  if (branch.min_items > max) return absl::OkStatus();
  if (branch.unique && max > 1) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool done,
                               AddUniqueItems(symbol, branch, max));
    if (done) return absl::OkStatus();
    FORETOKEN_RETURN_IF_ERROR(reader_.Unsupported(
        set, Keyword::kUniqueItems,
        absl::StrCat("of items with more than ", kMaxUniqueValues,
                     " possible values")));
  }
  if (!branch.some_item.empty()) {
    FORETOKEN_ASSIGN_OR_RETURN(const bool done,
                               AddContains(symbol, branch, max));
    if (done) return absl::OkStatus();
    FORETOKEN_RETURN_IF_ERROR(reader_.Unsupported(
        set, Keyword::kContains,
        "beside prefixItems, minItems, maxItems or another contains"));
  }
  // With free whitespace, "[ ]" must not have two places for it.
  if (branch.min_items == 0 && (max == 0 || style_.free_whitespace)) {
    builder_.AddAlternative(
        symbol,
        {builder_.Terminal(regexes_.Concat(open_array_, Literal("]")))});
    if (max == 0) return absl::OkStatus();
  }
  rule.separator = builder_.Terminal(comma_);
  rule.min = static_cast<int32_t>(branch.min_items);
  if (style_.free_whitespace) rule.min = std::max(rule.min, 1);
  rule.max = LimitOf(max);
  builder_.AddAlternative(
      symbol, {builder_.Terminal(open_array_), builder_.List(std::move(rule)),
               builder_.Terminal(close_array_)});
  return absl::OkStatus();
}

// Items that all differ, of few possible ones: which of them have been used is
// a nonterminal.
absl::StatusOr<bool> SchemaLowering::AddUniqueItems(Symbol symbol,
                                                    const Branch& branch,
                                                    int64_t max) {
  std::vector<const JsonValue*> values;
  bool finite =
      SchemaReader::FirstItems(branch) == 0 && branch.some_item.empty();
  static const auto* const words =
      new std::vector<JsonValue>{{JsonValue::kNull, "", {}, {}},
                                 {JsonValue::kFalse, "", {}, {}},
                                 {JsonValue::kTrue, "", {}, {}}};
  if (finite) {
    FORETOKEN_ASSIGN_OR_RETURN(const auto* items,
                               reader_.Expand(reader_.ItemSet(branch, 0)));
    absl::flat_hash_set<std::string> seen;
    const auto add = [&](const JsonValue& value) {
      if (seen.insert(CanonicalText(value)).second) values.push_back(&value);
    };
    for (const Branch& item : *items) {
      if (item.values) {
        for (const int32_t value : *item.values) add(reader_.value(value));
        continue;
      }
      FORETOKEN_RETURN_IF_ERROR(reader_.CheckRefusals(item, item.types));
      for (const JsonValue& word : *words) {
        if (item.types & SchemaReader::TypeOf(word)) add(word);
      }
      finite = finite && !(item.types & ~(kNullType | kBooleanTypes));
    }
  }
  if (!finite || values.size() > kMaxUniqueValues) return false;
  const size_t n = values.size();
  const Symbol comma = builder_.Terminal(comma_);
  const Symbol end = builder_.Terminal(close_array_);
  // after[used]: what may follow once the values in the set `used` were
  // written.
  std::vector<Symbol> after(size_t{1} << n);
  for (Symbol& used : after) used = builder_.Declare();
  for (size_t used = 0; used < after.size(); ++used) {
    const int64_t count = __builtin_popcountll(used);
    if (count >= branch.min_items && count <= max) {
      builder_.AddAlternative(after[used], {end});
    }
    for (size_t i = 0; i < n && count < max; ++i) {
      if (used >> i & 1) continue;
      const Symbol value = ValueSymbol(*values[i]);
      const Symbol next = after[used | size_t{1} << i];
      if (used == 0) {
        builder_.AddAlternative(after[used], {value, next});
      } else {
        builder_.AddAlternative(after[used], {comma, value, next});
      }
    }
  }
  builder_.AddAlternative(symbol, {builder_.Terminal(open_array_), after[0]});
  return true;
}

// Any items, one that is wanted, any items.
absl::StatusOr<bool> SchemaLowering::AddContains(Symbol symbol,
                                                 const Branch& branch,
                                                 int64_t max) {
  if (SchemaReader::FirstItems(branch) > 0 || branch.some_item.size() > 1 ||
      branch.min_items > 1 || max != Branch::kUnlimited) {
    return false;
  }
  const SchemaSet any = reader_.ItemSet(branch, 0);
  const SchemaSet wanted = reader_.WithAtom(any, branch.some_item[0]);
  FORETOKEN_ASSIGN_OR_RETURN(const Symbol item, SymbolOf(any));
  FORETOKEN_ASSIGN_OR_RETURN(const Symbol hit, SymbolOf(wanted));
  const Symbol comma = builder_.Terminal(comma_);
  const Symbol before =
      builder_.Repeat(builder_.Sequence({item, comma}), 0, kNoLimit);
  const Symbol after =
      builder_.Repeat(builder_.Sequence({comma, item}), 0, kNoLimit);
  builder_.AddAlternative(symbol, {builder_.Terminal(open_array_), before, hit,
                                   after, builder_.Terminal(close_array_)});
  return true;
}

absl::Status SchemaLowering::AddObject(Symbol symbol, const SchemaSet& set,
                                       const Branch& branch) {
  for (const int32_t number : branch.excluded) {
    const JsonValue& value = reader_.value(number);
    if (value.kind != JsonValue::kObject) continue;
    FORETOKEN_ASSIGN_OR_RETURN(const bool matters,
                               reader_.AllowsParts(branch, value));
    if (!matters) continue;
    FORETOKEN_RETURN_IF_ERROR(
        reader_.Unsupported(set, Keyword::kNot, "a certain object"));
  }
  FORETOKEN_ASSIGN_OR_RETURN(auto keys, reader_.NamedKeys(branch));
  FORETOKEN_ASSIGN_OR_RETURN(const auto others, reader_.Others(branch));

  // A member that needs an impossible one is impossible.
  absl::flat_hash_set<absl::string_view> named(keys.begin(), keys.end());
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [key, needed] : branch.needs) {
      if (!named.contains(needed) && named.erase(key) > 0) changed = true;
    }
  }
  std::erase_if(keys, [&](absl::string_view k) { return !named.contains(k); });
  const absl::flat_hash_set<absl::string_view> required(branch.required.begin(),
                                                        branch.required.end());
  // No such object.
  for (const absl::string_view key : required) {
    if (!named.contains(key)) return absl::OkStatus();
  }

  ObjectRule rule;
  absl::flat_hash_map<absl::string_view, int32_t> index;
  for (const absl::string_view key : keys) {
    FORETOKEN_ASSIGN_OR_RETURN(const SchemaSet value,
                               reader_.MemberSet(branch, key));
    ObjectMember member;
    member.key = builder_.Terminal(KeyLiteral(key));
    FORETOKEN_ASSIGN_OR_RETURN(member.value, SymbolOf(value));
    member.required = required.contains(key);
    index[key] = static_cast<int32_t>(rule.members.size());
    rule.members.push_back(std::move(member));
  }
  bool any_needs = false;
  for (const auto& [key, needed] : branch.needs) {
    // No need to ask for members that are there anyway.
    if (!named.contains(key) || required.contains(needed)) continue;
    rule.members[index[key]].needs.push_back(index[needed]);
    any_needs = true;
  }
  for (const OtherMembers& other : others) {
    ObjectMember member;
    member.key = builder_.Terminal(KeyText(other.key));
    FORETOKEN_ASSIGN_OR_RETURN(member.value, SymbolOf(other.value));
    rule.others.push_back(std::move(member));
  }
  rule.separator = builder_.Terminal(comma_);
  rule.any_order = !style_.schema_order;

  const int64_t at_least = std::max<int64_t>(
      branch.min_members, static_cast<int64_t>(required.size()));
  int64_t max = branch.max_members;
  const int64_t most = static_cast<int64_t>(rule.members.size());
  // Limits that always hold are left out: counting takes states.
  if (others.empty()) {
    if (at_least > most) return absl::OkStatus();
    if (max >= most) max = Branch::kUnlimited;
  }
  if (at_least > max) return absl::OkStatus();
  if (at_least > static_cast<int64_t>(required.size())) {
    rule.min = static_cast<int32_t>(at_least);
  }
  if (!others.empty() && rule.min > static_cast<int32_t>(required.size()) + 1) {
    FORETOKEN_RETURN_IF_ERROR(reader_.Unsupported(
        set, Keyword::kMinProperties,
        "of members that `properties` does not name: a name may come twice"));
  }
  rule.max = LimitOf(max);
  if (any_needs && (rule.min > 0 || rule.max != kNoLimit)) {
    FORETOKEN_RETURN_IF_ERROR(reader_.Unsupported(
        set, Keyword::kDependencies, "beside minProperties or maxProperties"));
    for (ObjectMember& member : rule.members) member.needs.clear();
  }
  const bool empty_only =
      (rule.members.empty() && rule.others.empty()) || max == 0;
  if (at_least == 0 && (empty_only || style_.free_whitespace)) {
    builder_.AddAlternative(
        symbol,
        {builder_.Terminal(regexes_.Concat(open_object_, Literal("}")))});
    if (empty_only) return absl::OkStatus();
  }
  if (style_.free_whitespace && at_least == 0) rule.min = 1;
  builder_.AddAlternative(symbol, {builder_.Terminal(open_object_),
                                   builder_.Object(std::move(rule)),
                                   builder_.Terminal(close_object_)});
  return absl::OkStatus();
}

Expr SchemaLowering::NumberLiteral(const JsonValue& value) {
  const Decimal number = Decimal::Parse(value.text);
  std::vector<Expr> texts;
  // As it was written, unless that is a way of writing an integer that
  // integers are not written in.
  if (!number.is_integer() || style_.integers_with_point ||
      !number.PlainText()) {
    texts.push_back(Literal(value.text));
  }
  if (const std::optional<std::string> plain = number.PlainText()) {
    texts.push_back(Literal(*plain));
    if (number.is_integer() && style_.integers_with_point) {
      texts.push_back(Literal(absl::StrCat(*plain, ".0")));
    }
  }
  return regexes_.Or(texts);
}

std::optional<Expr> SchemaLowering::ValueText(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::kNumber:
      return NumberLiteral(value);
    case JsonValue::kArray: {
      std::vector<Expr> parts = {open_array_};
      for (const JsonValue& item : value.items) {
        const std::optional<Expr> text = ValueText(item);
        if (!text) return std::nullopt;
        if (parts.size() > 1) parts.push_back(comma_);
        parts.push_back(*text);
      }
      parts.push_back(value.items.empty() ? Literal("]") : close_array_);
      return regexes_.Concat(parts);
    }
    case JsonValue::kObject: {
      if (!style_.schema_order && value.members.size() > 1) {
        return std::nullopt;
      }
      std::vector<Expr> parts = {open_object_};
      for (const JsonMember& member : value.members) {
        const std::optional<Expr> text = ValueText(member.value);
        if (!text) return std::nullopt;
        if (parts.size() > 1) parts.push_back(comma_);
        parts.push_back(KeyLiteral(member.key));
        parts.push_back(*text);
      }
      parts.push_back(value.members.empty() ? Literal("}") : close_object_);
      return regexes_.Concat(parts);
    }
    default:
      return Literal(JsonText(value));
  }
}

Symbol SchemaLowering::ValueSymbol(const JsonValue& value) {
  if (const std::optional<Expr> text = ValueText(value)) {
    return builder_.Terminal(*text);
  }
  if (value.kind == JsonValue::kArray) {
    std::vector<Symbol> parts = {builder_.Terminal(open_array_)};
    for (const JsonValue& item : value.items) {
      if (parts.size() > 1) parts.push_back(builder_.Terminal(comma_));
      parts.push_back(ValueSymbol(item));
    }
    parts.push_back(builder_.Terminal(close_array_));
    return builder_.Sequence(parts);
  }
  // Every member once, in an order of the writer's choice.
  ObjectRule rule;
  rule.any_order = true;
  rule.separator = builder_.Terminal(comma_);
  for (const JsonMember& member : value.members) {
    ObjectMember one;
    one.key = builder_.Terminal(KeyLiteral(member.key));
    one.value = ValueSymbol(member.value);
    one.required = true;
    rule.members.push_back(std::move(one));
  }
  return builder_.Sequence({builder_.Terminal(open_object_),
                            builder_.Object(std::move(rule)),
                            builder_.Terminal(close_object_)});
}

}  // namespace foretoken::grammar
