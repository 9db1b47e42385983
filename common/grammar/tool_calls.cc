#include "common/grammar/tool_calls.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/json_value.h"
#include "common/grammar/regex.h"
#include "common/grammar/regex_syntax.h"
#include "common/grammar/token_trie.h"

namespace foretoken::grammar {
namespace {

// Those of a schema, and the levels around it.
constexpr int kMaxDepth = 128 + 3;
constexpr int64_t kMaxValues = 500'000;
constexpr size_t kMaxNameBytes = 256;

enum class TextPlace { kNone, kBefore, kInstead };

// The source, read. Borrows from its JSON.
struct Source {
  TextPlace text = TextPlace::kNone;
  std::string opener, first;
  Expr begin, before_name, before_arguments, after_arguments, separator, end;
  int32_t max_calls = 0;
  const JsonValue* tools = nullptr;
};

absl::Status Wrong(absl::string_view member, absl::string_view want) {
  return absl::InvalidArgumentError(
      absl::StrCat("tool calls: ", member, ": want ", want));
}

absl::StatusOr<Expr> ReadLiteral(absl::string_view member,
                                 const JsonValue& value, Regexes& regexes) {
  if (value.kind == JsonValue::kString) return regexes.Literal(value.text);
  const absl::Status wrong =
      Wrong(member, "a string, or an array of strings and controls");
  if (value.kind != JsonValue::kArray) return wrong;
  std::vector<Expr> parts;
  for (const JsonValue& part : value.items) {
    if (part.kind == JsonValue::kString) {
      parts.push_back(regexes.Literal(part.text));
      continue;
    }
    const JsonValue* const control =
        part.members.size() == 1 ? part.Find("control") : nullptr;
    if (control == nullptr || control->kind != JsonValue::kString ||
        control->text.empty()) {
      return wrong;
    }
    parts.push_back(
        regexes.Literal(TokenVocabulary::ControlBytes(control->text)));
  }
  return regexes.Concat(parts);
}

absl::StatusOr<Source> ReadSource(const JsonValue& json, Regexes& regexes) {
  if (json.kind != JsonValue::kObject) {
    return absl::InvalidArgumentError("tool calls: want an object");
  }
  Source source;
  const std::pair<absl::string_view, Expr*> literals[] = {
      {"begin", &source.begin},
      {"before_name", &source.before_name},
      {"before_arguments", &source.before_arguments},
      {"after_arguments", &source.after_arguments},
      {"separator", &source.separator},
      {"end", &source.end}};
  for (const auto& [name, expr] : literals) {
    const JsonValue* const value = json.Find(name);
    if (value == nullptr) return Wrong(name, "a literal, there is none");
    FORETOKEN_ASSIGN_OR_RETURN(*expr, ReadLiteral(name, *value, regexes));
  }
  for (const JsonMember& member : json.members) {
    const JsonValue& value = member.value;
    const bool is_text = value.kind == JsonValue::kString;
    if (member.key == "text") {
      if (is_text && value.text == "none") continue;
      if (is_text && value.text == "before") {
        source.text = TextPlace::kBefore;
      } else if (is_text && value.text == "instead") {
        source.text = TextPlace::kInstead;
      } else {
        return Wrong(member.key, "none, before or instead");
      }
    } else if (member.key == "opener" || member.key == "first") {
      if (!is_text || value.text.empty()) return Wrong(member.key, "a text");
      (member.key == "opener" ? source.opener : source.first) = value.text;
    } else if (member.key == "max_calls") {
      if (value.kind != JsonValue::kNumber ||
          !absl::SimpleAtoi(value.text, &source.max_calls) ||
          source.max_calls < 1 || source.max_calls > kMaxToolCalls) {
        return Wrong(member.key, absl::StrCat("1..", kMaxToolCalls));
      }
    } else if (member.key == "tools") {
      source.tools = &value;
    } else if (std::none_of(std::begin(literals), std::end(literals),
                            [&](const auto& each) {
                              return each.first == member.key;
                            })) {
      return Wrong(member.key, "no such member");
    }
  }
  if (source.max_calls == 0) return Wrong("max_calls", "a number");
  if (source.text != TextPlace::kNone && source.opener.empty()) {
    return Wrong("opener", "a text, where other text is allowed");
  }
  if (source.tools == nullptr || source.tools->kind != JsonValue::kArray ||
      source.tools->items.empty()) {
    return Wrong("tools", "an array with a tool");
  }
  return source;
}

// The schema with `type: object`, which OpenAI's API asks for; schemas that
// leave it out mean it.
absl::StatusOr<std::string> ObjectSchema(const JsonValue& parameters) {
  if (parameters.kind == JsonValue::kTrue) return R"({"type": "object"})";
  if (parameters.kind != JsonValue::kObject) {
    return absl::InvalidArgumentError("want a schema");
  }
  const JsonValue* const type = parameters.Find("type");
  if (type != nullptr && type->text == "object") return JsonText(parameters);
  // Up to draft 7 a $ref hides the keywords beside it.
  const bool is_hidden = parameters.Find("$ref") != nullptr &&
                         parameters.Find("$schema") != nullptr;
  if (type != nullptr || is_hidden) {
    return absl::InvalidArgumentError("type: want object");
  }
  // A copy with the keyword added; the request's own text stays.
  JsonValue typed = parameters;
  JsonMember member;
  member.key = "type";
  member.value.kind = JsonValue::kString;
  member.value.text = "object";
  typed.members.push_back(std::move(member));
  return JsonText(typed);
}

absl::StatusOr<Symbol> AddCall(const Source& source, const JsonValue& tool,
                               absl::flat_hash_set<std::string>& names,
                               GrammarBuilder& builder) {
  const JsonValue* const name = tool.Find("name");
  if (name == nullptr || name->kind != JsonValue::kString ||
      !IsToolName(name->text)) {
    return Wrong("tools",
                 absl::StrCat("names of 1..", kMaxNameBytes,
                              " letters, digits, underscores, dashes, points"));
  }
  const std::string place = absl::StrCat("tool ", name->text);
  if (!names.insert(name->text).second) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": there are two of this name"));
  }
  const JsonValue* const parameters = tool.Find("parameters");
  if (parameters == nullptr || tool.members.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": want a name and parameters"));
  }
  const auto schema = ObjectSchema(*parameters);
  const std::string schema_place = absl::StrCat(place, ": parameters");
  if (!schema.ok()) return Annotate(schema.status(), schema_place);
  const auto arguments = AddJsonSchema(*schema, JsonSchemaOptions(), builder);
  if (!arguments.ok()) return Annotate(arguments.status(), schema_place);
  Regexes& regexes = builder.regexes();
  const Symbol head = builder.Terminal(
      regexes.Concat({source.before_name, regexes.Literal(name->text),
                      source.before_arguments}));
  return builder.Sequence(
      {head, arguments->root, builder.Terminal(source.after_arguments)});
}

// Any text that the answer's reader takes for content.
Expr FreeText(const Source& source, Regexes& regexes) {
  const Expr any = regexes.Star(AnyCodePoint(TextForm::kUtf8, regexes));
  const Expr opener = regexes.Concat(
      {Regexes::kAnything, regexes.Literal(source.opener), Regexes::kAnything});
  std::vector<Expr> parts = {any, regexes.Not(opener)};
  if (!source.first.empty()) {
    ByteSet spaces;
    for (const char c : {' ', '\t', '\n', '\r'}) {
      spaces.Add(static_cast<uint8_t>(c));
    }
    // A first character that the reader takes for a call, such as a brace, must
    // not begin content.
    parts.push_back(regexes.Not(
        regexes.Concat({regexes.Star(regexes.Bytes(spaces)),
                        regexes.Literal(source.first), Regexes::kAnything})));
  }
  return regexes.And(parts);
}

}  // namespace

bool IsToolName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '_' || c == '-' || c == '.';
         });
}

absl::StatusOr<Symbol> AddToolCalls(absl::string_view text,
                                    GrammarBuilder& builder, Expr content) {
  const absl::StatusOr<JsonValue> json =
      ParseJsonValue(text, kMaxDepth, kMaxValues);
  if (!json.ok()) return Annotate(json.status(), "tool calls");
  Regexes& regexes = builder.regexes();
  FORETOKEN_ASSIGN_OR_RETURN(const Source source, ReadSource(*json, regexes));
  std::vector<Symbol> calls;
  absl::flat_hash_set<std::string> names;
  for (const JsonValue& tool : source.tools->items) {
    FORETOKEN_ASSIGN_OR_RETURN(const Symbol call,
                               AddCall(source, tool, names, builder));
    calls.push_back(call);
  }
  // At least one call; text without any is another alternative.
  ListRule list;
  list.has_rest = true;
  list.rest = builder.Choice(calls);
  list.separator = builder.Terminal(source.separator);
  list.min = 1;
  list.max = source.max_calls;
  const Symbol whole = builder.Sequence({builder.Terminal(source.begin),
                                         builder.List(std::move(list)),
                                         builder.Terminal(source.end)});
  if (source.text == TextPlace::kNone) return whole;
  const Symbol free =
      builder.Terminal(regexes.And(FreeText(source, regexes), content));
  FORETOKEN_RETURN_IF_ERROR(builder.status());
  if (source.text == TextPlace::kInstead) return builder.Choice({free, whole});
  return builder.Sequence({free, builder.Optional(whole)});
}

}  // namespace foretoken::grammar
