#include "common/grammar/json_schema_document.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

namespace foretoken::grammar {
namespace {

// The most of a path or a reference that an error message quotes.
constexpr size_t kMaxShownBytes = 300;
// Objects of more members are indexed by name.
constexpr size_t kMaxLinear = 16;

// In the order of the enum.
constexpr std::array<absl::string_view, 42> kNames = {
    "$ref",
    "$dynamicRef",
    "type",
    "enum",
    "const",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "items",
    "additionalItems",
    "prefixItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "required",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
};
static_assert(static_cast<size_t>(Keyword::kElse) + 1 == kNames.size());

const absl::flat_hash_map<absl::string_view, Keyword>& KeywordsByName() {
  static const auto* const by_name = [] {
    auto* map = new absl::flat_hash_map<absl::string_view, Keyword>;
    for (size_t i = 0; i < kNames.size(); ++i) {
      map->emplace(kNames[i], static_cast<Keyword>(i));
    }
    map->emplace("$recursiveRef", Keyword::kDynamicRef);
    return map;
  }();
  return *by_name;
}

// A validator of an older draft takes a newer keyword for an annotation, and so
// do the values that people test their schemas with.
int FirstDraft(Keyword keyword) {
  switch (keyword) {
    case Keyword::kConst:
    case Keyword::kContains:
    case Keyword::kPropertyNames:
      return 6;
    case Keyword::kIf:
    case Keyword::kThen:
    case Keyword::kElse:
      return 7;
    case Keyword::kDynamicRef:
    case Keyword::kPrefixItems:
    case Keyword::kMinContains:
    case Keyword::kMaxContains:
    case Keyword::kUnevaluatedItems:
    case Keyword::kUnevaluatedProperties:
    case Keyword::kDependentRequired:
    case Keyword::kDependentSchemas:
      return 8;
    default:
      return 4;
  }
}

// Members of these are named by the author: none of their names is a keyword.
bool HoldsNamedSchemas(absl::string_view keyword) {
  return keyword == "properties" || keyword == "patternProperties" ||
         keyword == "definitions" || keyword == "$defs" ||
         keyword == "dependencies" || keyword == "dependentSchemas";
}
bool HoldsValues(absl::string_view keyword) {
  return keyword == "enum" || keyword == "const" || keyword == "default" ||
         keyword == "examples" || keyword == "example";
}

std::string Shown(absl::string_view text) {
  if (text.size() <= kMaxShownBytes) return absl::Utf8SafeCEscape(text);
  return absl::StrCat(absl::CEscape(text.substr(0, kMaxShownBytes)), "...");
}

bool HasScheme(absl::string_view uri) {
  const size_t colon = uri.find(':');
  if (colon == absl::string_view::npos || colon == 0) return false;
  return uri.substr(0, colon).find_first_of("/?#") == absl::string_view::npos &&
         absl::ascii_isalpha(uri[0]);
}

// RFC 3986, section 5.2, for references without a fragment.
std::string ResolveUri(absl::string_view base, absl::string_view ref) {
  if (ref.empty()) return std::string(base);
  if (HasScheme(ref)) return std::string(ref);
  absl::string_view scheme;
  absl::string_view rest = base;
  if (HasScheme(base)) {
    scheme = base.substr(0, base.find(':') + 1);
    rest = base.substr(scheme.size());
  }
  if (absl::StartsWith(ref, "//")) return absl::StrCat(scheme, ref);
  absl::string_view authority;
  if (absl::StartsWith(rest, "//")) {
    authority = rest.substr(0, std::min(rest.find('/', 2), rest.size()));
    rest = rest.substr(authority.size());
  }
  std::string path;
  if (absl::StartsWith(ref, "/")) {
    path = std::string(ref);
  } else {
    rest = rest.substr(0, std::min(rest.find('?'), rest.size()));
    const size_t slash = rest.rfind('/');
    path = absl::StrCat(slash == absl::string_view::npos
                            ? (authority.empty() ? "" : "/")
                            : rest.substr(0, slash + 1),
                        ref);
  }
  // Dot segments: "a/./b" and "a/x/../b" are "a/b".
  std::vector<absl::string_view> parts;
  absl::string_view left = path;
  const bool rooted = absl::ConsumePrefix(&left, "/");
  while (true) {
    const size_t slash = left.find('/');
    const bool last = slash == absl::string_view::npos;
    const absl::string_view part = left.substr(0, last ? left.size() : slash);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
      if (last) parts.push_back("");
    } else if (part == ".") {
      if (last) parts.push_back("");
    } else {
      parts.push_back(part);
    }
    if (last) break;
    left.remove_prefix(slash + 1);
  }
  std::string out = absl::StrCat(scheme, authority, rooted ? "/" : "");
  for (size_t i = 0; i < parts.size(); ++i) {
    absl::StrAppend(&out, i > 0 ? "/" : "", parts[i]);
  }
  return out;
}

// Malformed escapes stay as they are.
std::string PercentDecode(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() &&
        absl::ascii_isxdigit(text[i + 1]) &&
        absl::ascii_isxdigit(text[i + 2])) {
      out += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Splits "uri#fragment"; the fragment is decoded.
std::pair<absl::string_view, std::string> SplitFragment(absl::string_view ref) {
  const size_t hash = ref.find('#');
  if (hash == absl::string_view::npos) return {ref, ""};
  return {ref.substr(0, hash), PercentDecode(ref.substr(hash + 1))};
}

JsonValue FalseValue() {
  JsonValue value;
  value.kind = JsonValue::kFalse;
  return value;
}

}  // namespace

absl::string_view KeywordName(Keyword keyword) {
  return kNames[static_cast<size_t>(keyword)];
}

std::string Schema::Path() const {
  std::vector<const Schema*> chain;
  for (const Schema* at = this; at->parent != nullptr; at = at->parent) {
    chain.push_back(at);
  }
  std::string path;
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
    absl::StrAppend(&path, "/", (*at)->token);
  }
  return path;
}

absl::Status SchemaError(absl::StatusCode code, const Schema& schema,
                         absl::string_view keyword, absl::string_view why) {
  const std::string path = schema.Path();
  return absl::Status(code, absl::StrCat(path.empty() ? "/" : Shown(path), ": ",
                                         keyword, ": ", why));
}

absl::StatusOr<int64_t> ReadCount(const Schema& schema, Keyword keyword,
                                  const JsonValue& value) {
  const Decimal number = Decimal::Parse(value.text);
  if (value.kind != JsonValue::kNumber || number.negative ||
      !number.is_integer()) {
    return BadSchema(schema, keyword, "want a whole number from 0");
  }
  // Counts beyond what a text can hold: all the same.
  if (number.point > 9) return int64_t{1'000'000'000};
  int64_t count = 0;
  for (int64_t i = 0; i < number.point; ++i) {
    const bool given = i < static_cast<int64_t>(number.digits.size());
    count = 10 * count + (given ? number.digits[i] - '0' : 0);
  }
  return count;
}

SchemaDocument::SchemaDocument(JsonValue root)
    : root_(std::move(root)), never_(FalseValue()) {
  auto never = std::make_unique<Schema>();
  never->json = &never_;
  schemas_.push_back(std::move(never));
  by_json_[&never_] = schemas_[0].get();
  if (const JsonValue* draft = root_.Find("$schema");
      draft != nullptr && draft->kind == JsonValue::kString) {
    for (const auto& [name, number] :
         {std::pair("draft-03", 4), std::pair("draft-04", 4),
          std::pair("draft-06", 6), std::pair("draft-07", 7)}) {
      if (absl::StrContains(draft->text, name)) draft_ = number;
    }
  }
  // References without a URI, and those in a schema without an id, lead to the
  // root.
  resources_.push_back({"", &root_});
  by_uri_[""] = 0;
  resource_of_[&root_] = 0;
  Scan(root_, /*is_map=*/false, 0);
}

void SchemaDocument::ScanId(const JsonValue& json, int32_t* resource) {
  // `id` is draft 4's name. A property of that name is not seen here: Scan does
  // not take maps of properties for schemas.
  for (const char* keyword : {"$id", "id"}) {
    const JsonValue* id = json.Find(keyword);
    if (id == nullptr || id->kind != JsonValue::kString) continue;
    const auto [uri, fragment] = SplitFragment(id->text);
    if (uri.empty()) {
      // The anchors of drafts 4 to 7: `id: "#name"`.
      if (!fragment.empty()) {
        anchors_.try_emplace({*resource, fragment}, &json, *resource);
      }
    } else {
      std::string absolute = ResolveUri(resources_[*resource].uri, uri);
      // The first schema of a URI is the one that references mean.
      if (&json == &root_) {
        resources_[0].uri = absolute;
        by_uri_.try_emplace(std::move(absolute), 0);
      } else {
        *resource = static_cast<int32_t>(resources_.size());
        resource_of_[&json] = *resource;
        by_uri_.try_emplace(absolute, *resource);
        resources_.push_back({std::move(absolute), &json});
      }
    }
    break;
  }
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    const JsonValue* name = json.Find(keyword);
    if (name != nullptr && name->kind == JsonValue::kString) {
      anchors_.try_emplace({*resource, name->text}, &json, *resource);
    }
  }
}

// Recursion is as deep as the JSON, whose depth is bounded.
void SchemaDocument::Scan(const JsonValue& json, bool is_map,
                          int32_t resource) {
  if (!is_map && json.kind == JsonValue::kObject) ScanId(json, &resource);
  for (const JsonValue& item : json.items) Scan(item, false, resource);
  for (const JsonMember& member : json.members) {
    if (!is_map && HoldsValues(member.key)) continue;
    Scan(member.value, !is_map && HoldsNamedSchemas(member.key), resource);
  }
}

absl::StatusOr<const Schema*> SchemaDocument::Make(const JsonValue& json,
                                                   const Schema* parent,
                                                   std::string token,
                                                   int32_t resource) {
  if (const auto found = by_json_.find(&json); found != by_json_.end()) {
    return found->second;
  }
  auto schema = std::make_unique<Schema>();
  schema->json = &json;
  schema->parent = parent;
  schema->token = std::move(token);
  // Ids are dense: a set of schemas is a sorted list of them.
  schema->id = static_cast<int32_t>(schemas_.size());
  const auto own = resource_of_.find(&json);
  schema->resource = own == resource_of_.end() ? resource : own->second;
  if (!json.is_bool() && json.kind != JsonValue::kObject) {
    return absl::InvalidArgumentError(
        absl::StrCat(Shown(schema->Path()),
                     ": not a schema: want an object, "
                     "true or false"));
  }
  for (const JsonMember& member : json.members) {
    const auto keyword = KeywordsByName().find(member.key);
    if (keyword == KeywordsByName().end()) continue;
    if (FirstDraft(keyword->second) > draft_) continue;
    schema->keywords.push_back({keyword->second, &member.value});
  }
  if (const JsonValue* ref = schema->Get(Keyword::kRef);
      ref != nullptr && draft_ <= 7) {
    schema->keywords = {{Keyword::kRef, ref}};
  }
  by_json_[&json] = schema.get();
  schemas_.push_back(std::move(schema));
  return schemas_.back().get();
}

absl::StatusOr<const Schema*> SchemaDocument::root() {
  return Make(root_, nullptr, "", 0);
}

absl::StatusOr<const Schema*> SchemaDocument::Sub(const Schema& parent,
                                                  const JsonValue& json,
                                                  absl::string_view keyword,
                                                  absl::string_view name) {
  if (const auto found = by_json_.find(&json); found != by_json_.end()) {
    return found->second;
  }
  std::string token(keyword);
  if (name.data() != nullptr) {
    absl::StrAppend(&token, "/",
                    absl::StrReplaceAll(name, {{"~", "~0"}, {"/", "~1"}}));
  }
  return Make(json, &parent, std::move(token), parent.resource);
}

absl::StatusOr<const Schema*> SchemaDocument::Resolve(const Schema& from,
                                                      absl::string_view ref) {
  if (const auto known = resolved_.find(from.id); known != resolved_.end()) {
    return known->second;
  }
  absl::StatusOr<const Schema*> target = ResolveNew(from, ref);
  if (target.ok()) resolved_[from.id] = *target;
  return target;
}

absl::StatusOr<const Schema*> SchemaDocument::ResolveNew(
    const Schema& from, absl::string_view ref) {
  const auto [uri, fragment] = SplitFragment(ref);
  int32_t resource = from.resource;
  if (!uri.empty()) {
    const std::string absolute = ResolveUri(resources_[resource].uri, uri);
    const auto found = by_uri_.find(absolute);
    if (found == by_uri_.end()) {
      return SchemaError(absl::StatusCode::kUnimplemented, from, "$ref",
                         absl::StrCat(Shown(ref), " is not in this schema"));
    }
    resource = found->second;
  }
  if (fragment.empty() || fragment[0] == '/') {
    absl::StatusOr<const Schema*> target = ResolvePointer(resource, fragment);
    // Generators write ids into every subschema, and references as if they had
    // not.
    if (!target.ok() && resource != 0 && uri.empty()) {
      target = ResolvePointer(0, fragment);
    }
    if (target.ok()) return target;
  } else if (const auto anchor = anchors_.find({resource, fragment});
             anchor != anchors_.end()) {
    return Make(*anchor->second.first, schemas_[0].get(),
                absl::StrCat("#", fragment), anchor->second.second);
  }
  return BadSchema(from, Keyword::kRef,
                   absl::StrCat(Shown(ref), " names no place in this schema"));
}

const JsonValue* SchemaDocument::Member(const JsonValue& object,
                                        absl::string_view key) {
  if (object.members.size() <= kMaxLinear) return object.Find(key);
  auto& index = members_[&object];
  if (index.empty()) {
    for (const JsonMember& member : object.members) {
      index[member.key] = &member.value;
    }
  }
  const auto found = index.find(key);
  return found == index.end() ? nullptr : found->second;
}

absl::StatusOr<const Schema*> SchemaDocument::ResolvePointer(
    int32_t resource, absl::string_view pointer) {
  const JsonValue* at = resources_[resource].json;
  absl::string_view left = pointer;
  while (absl::ConsumePrefix(&left, "/")) {
    const size_t size = std::min(left.find('/'), left.size());
    const std::string token =
        absl::StrReplaceAll(left.substr(0, size), {{"~1", "/"}, {"~0", "~"}});
    left.remove_prefix(size);
    if (at->kind == JsonValue::kArray) {
      size_t index = 0;
      if (!absl::SimpleAtoi(token, &index) || index >= at->items.size()) {
        return absl::NotFoundError("no such item");
      }
      at = &at->items[index];
    } else {
      at = Member(*at, token);
      if (at == nullptr) return absl::NotFoundError("no such member");
    }
    // References from within the target start at the innermost id around it.
    if (const auto own = resource_of_.find(at); own != resource_of_.end()) {
      resource = own->second;
    }
  }
  const Schema* root = nullptr;
  if (at != &root_) {
    FORETOKEN_ASSIGN_OR_RETURN(root, this->root());
  }
  absl::ConsumePrefix(&pointer, "/");
  return Make(*at, root, std::string(pointer), resource);
}

}  // namespace foretoken::grammar
