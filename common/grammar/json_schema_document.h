// SchemaDocument: a JSON Schema document, its subschemas as they are asked for,
// and the targets of its references.
//
// Owned by one thread.
#ifndef FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_DOCUMENT_H_
#define FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_DOCUMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/json_value.h"

namespace foretoken::grammar {

// The keywords that constrain something; all others are annotations.
enum class Keyword : uint8_t {
  kRef,
  kDynamicRef,
  kType,
  kEnum,
  kConst,
  kMinLength,
  kMaxLength,
  kPattern,
  kFormat,
  kMinimum,
  kMaximum,
  kExclusiveMinimum,
  kExclusiveMaximum,
  kMultipleOf,
  kItems,
  kAdditionalItems,
  kPrefixItems,
  kMinItems,
  kMaxItems,
  kUniqueItems,
  kContains,
  kMinContains,
  kMaxContains,
  kUnevaluatedItems,
  kProperties,
  kPatternProperties,
  kAdditionalProperties,
  kPropertyNames,
  kRequired,
  kMinProperties,
  kMaxProperties,
  kDependentRequired,
  kDependentSchemas,
  kDependencies,
  kUnevaluatedProperties,
  kAllOf,
  kAnyOf,
  kOneOf,
  kNot,
  kIf,
  kThen,
  kElse,
};
absl::string_view KeywordName(Keyword keyword);

// One schema: a boolean or an object of keywords.
struct Schema {
  const JsonValue* json = nullptr;
  const Schema* parent = nullptr;
  std::string token;  // the path from `parent`
  int32_t id = 0;
  int32_t resource = 0;
  // In their order; without annotations.
  std::vector<std::pair<Keyword, const JsonValue*>> keywords;

  const JsonValue* Get(Keyword keyword) const {
    for (const auto& [name, value] : keywords) {
      if (name == keyword) return value;
    }
    return nullptr;
  }
  bool is_false() const { return json->kind == JsonValue::kFalse; }
  bool is_true() const { return !is_false() && keywords.empty(); }
  std::string Path() const;  // "/properties/a"; empty for the root
};

class SchemaDocument {
 public:
  explicit SchemaDocument(JsonValue root);
  SchemaDocument(const SchemaDocument&) = delete;
  SchemaDocument& operator=(const SchemaDocument&) = delete;

  // InvalidArgument if the root is not a schema. Schemas live as long as this.
  absl::StatusOr<const Schema*> root();
  // The schema at `json`, which is a part of `parent` at "keyword" or
  // "keyword/name". InvalidArgument if it is neither a boolean nor an object.
  absl::StatusOr<const Schema*> Sub(const Schema& parent, const JsonValue& json,
                                    absl::string_view keyword,
                                    absl::string_view name = {});
  const Schema& Never() const { return *schemas_[0]; }  // `false`
  const Schema& by_id(int32_t id) const { return *schemas_[id]; }
  int64_t size() const { return static_cast<int64_t>(schemas_.size()); }

  // The target of `$ref: ref` in `from`. Unimplemented for another document,
  // InvalidArgument if there is no such place in this one.
  absl::StatusOr<const Schema*> Resolve(const Schema& from,
                                        absl::string_view ref);

  // The draft that the schema names, 4 to 7; later ones, and schemas that name
  // none, are 8. Each draft ignores the keywords that came after it; up to 7, a
  // $ref hides the keywords beside it. Keywords that a later draft dropped are
  // read all the same.
  int draft() const { return draft_; }

 private:
  struct Resource {
    std::string uri;  // without a fragment
    const JsonValue* json = nullptr;
  };

  absl::StatusOr<const Schema*> Make(const JsonValue& json,
                                     const Schema* parent, std::string token,
                                     int32_t resource);
  void Scan(const JsonValue& json, bool is_map, int32_t resource);
  void ScanId(const JsonValue& json, int32_t* resource);
  absl::StatusOr<const Schema*> ResolveNew(const Schema& from,
                                           absl::string_view ref);
  const JsonValue* Member(const JsonValue& object, absl::string_view key);
  absl::StatusOr<const Schema*> ResolvePointer(int32_t resource,
                                               absl::string_view pointer);

  const JsonValue root_;
  const JsonValue never_;
  int draft_ = 8;
  std::vector<std::unique_ptr<Schema>> schemas_;
  absl::flat_hash_map<const JsonValue*, const Schema*> by_json_;
  std::vector<Resource> resources_;
  absl::flat_hash_map<std::string, int32_t> by_uri_;
  absl::flat_hash_map<const JsonValue*, int32_t> resource_of_;  // with an id
  absl::flat_hash_map<std::pair<int32_t, std::string>,
                      std::pair<const JsonValue*, int32_t>>
      anchors_;
  // Found before: targets by the id of their $ref's schema, and the members of
  // large objects.
  absl::flat_hash_map<int32_t, const Schema*> resolved_;
  absl::flat_hash_map<const JsonValue*,
                      absl::flat_hash_map<absl::string_view, const JsonValue*>>
      members_;
};

// An error about a keyword: "PATH: KEYWORD: why".
absl::Status SchemaError(absl::StatusCode code, const Schema& schema,
                         absl::string_view keyword, absl::string_view why);
inline absl::Status BadSchema(const Schema& schema, Keyword keyword,
                              absl::string_view why) {
  return SchemaError(absl::StatusCode::kInvalidArgument, schema,
                     KeywordName(keyword), why);
}

// A count such as minLength; large ones as a billion. InvalidArgument if it is
// not a whole number from 0.
absl::StatusOr<int64_t> ReadCount(const Schema& schema, Keyword keyword,
                                  const JsonValue& value);

}  // namespace foretoken::grammar

#endif  // FORETOKEN_COMMON_GRAMMAR_JSON_SCHEMA_DOCUMENT_H_
