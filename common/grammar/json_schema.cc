#include "common/grammar/json_schema.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/grammar/json_schema_document.h"
#include "common/grammar/json_schema_lowering.h"
#include "common/grammar/json_schema_reader.h"
#include "common/grammar/json_value.h"

namespace foretoken::grammar {
namespace {

// Levels of JSON, which some readers here recurse into. The deepest of 5,659
// schemas in use has 63.
constexpr int kMaxDepth = 128;
// A value takes about 100 bytes here. The largest of those schemas has 9,003.
constexpr int64_t kMaxValues = 500'000;

}  // namespace

absl::StatusOr<JsonSchemaResult> AddJsonSchema(absl::string_view schema,
                                               const JsonSchemaOptions& options,
                                               GrammarBuilder& builder) {
  absl::StatusOr<JsonValue> json =
      ParseJsonValue(schema, kMaxDepth, kMaxValues);
  if (!json.ok()) return Annotate(json.status(), "schema");
  SchemaDocument document(*std::move(json));
  FORETOKEN_ASSIGN_OR_RETURN(const Schema* root, document.root());
  SchemaReader reader(document, builder.regexes(), options.skip_unsupported);
  JsonStyle style = options.style;
  // 3.0 became an integer with draft 6.
  if (document.draft() < 6) style.integers_with_point = false;
  SchemaLowering lowering(style, reader, builder);
  JsonSchemaResult result;
  absl::StatusOr<Symbol> symbol = lowering.Lower(reader.SetOf(*root));
  // Once memory is used up, other errors follow from that.
  FORETOKEN_RETURN_IF_ERROR(builder.status());
  FORETOKEN_RETURN_IF_ERROR(symbol.status());
  result.root = *symbol;
  FORETOKEN_ASSIGN_OR_RETURN(const bool empty,
                             reader.IsEmpty(reader.SetOf(*root)));
  if (empty) {
    // Build() would say so too, but only of what it sees: this covers what
    // follows from the values that were filtered.
    return absl::InvalidArgumentError(
        "schema: unsatisfiable: no value is valid");
  }
  result.unchecked.assign(reader.unchecked().begin(), reader.unchecked().end());
  return result;
}

Symbol AddAnyJson(const JsonStyle& style, bool object,
                  GrammarBuilder& builder) {
  const absl::StatusOr<JsonSchemaResult> result = AddJsonSchema(
      object ? R"({"type": "object"})" : "true", {.style = style}, builder);
  // Fails only with the builder, whose status says so.
  return result.ok() ? result->root : builder.Choice({});
}

}  // namespace foretoken::grammar
